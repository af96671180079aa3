"""`@checked`: frozen dataclasses whose fields are checked when they are built, by pydantic.

The same check serves a study written in Python, one read from YAML, and a trainable's settings, so a rule
is written once: as a type, or as a `__post_init__` that raises `SpecError`.
"""

import dataclasses
import typing
from typing import Any, TypeVar, dataclass_transform

import pydantic
import pydantic.dataclasses

from contrasweep.errors import SpecError, choose_from

C = TypeVar("C", bound=type)


@dataclass_transform(frozen_default=True)
def checked(cls: C) -> C:
    """Make `cls` a frozen dataclass that rejects unknown fields and wrong types with a one-line `SpecError`."""
    config = pydantic.ConfigDict(
        extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
    made: Any = pydantic.dataclasses.dataclass(cls, frozen=True, config=config)
    build = made.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            build(self, *args, **kwargs)
        except pydantic.ValidationError as error:
            raise from_pydantic(error, made) from None

    __init__.__wrapped__ = build  # type: ignore[attr-defined]  # keeps the signature for help() and editors
    made.__init__ = __init__
    return made  # type: ignore[no-any-return]


def from_pydantic(error: pydantic.ValidationError, cls: Any) -> SpecError:
    """The first of pydantic's findings as one line: place, rule, value, and for an unknown field the known ones."""
    first = error.errors(include_url=False)[0]
    if first["loc"] and isinstance(first["loc"][0], int) and dataclasses.is_dataclass(cls):  # given by position
        first["loc"] = (dataclasses.fields(cls)[first["loc"][0]].name, *first["loc"][1:])
    if isinstance(cause := first.get("ctx", {}).get("error"), SpecError):
        return cause.at(_place(first["loc"]))
    place, value = _place(first["loc"]), first.get("input")
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        fields = [f.name for f in dataclasses.fields(_class_at(cls, first["loc"][:-1]))]
        return SpecError("there is no such field", place=place, hint=choose_from("fields", fields, first["loc"][-1]))
    if first["type"] in ("missing", "missing_argument"):
        return SpecError("this field is required", place=place)
    rule = first["msg"][0].lower() + first["msg"][1:]
    return SpecError(rule.removeprefix("value error, "), place=place, value=value)


def _class_at(cls: Any, loc: tuple[int | str, ...]) -> Any:
    """The dataclass in which `loc` ends, going down from `cls` through fields, mappings, lists and unions."""
    for part in loc:
        hints = typing.get_type_hints(cls) if dataclasses.is_dataclass(cls) else {}
        inner = _dataclasses_in(hints[part]) if part in hints else []
        named = [c for c in inner if c.__name__ == part or getattr(c, "type", None) == part]
        cls = (named or inner or [cls])[0]
    return cls


def _dataclasses_in(hint: Any) -> list[Any]:
    if dataclasses.is_dataclass(hint):
        return [hint]
    return [found for argument in typing.get_args(hint) for found in _dataclasses_in(argument)]


def _place(loc: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in loc)


def validate(cls: Any, value: object) -> Any:
    """`value` (a mapping as read from YAML, or already an instance) as a `cls`; `SpecError` if it is not one."""
    try:
        return pydantic.TypeAdapter(cls).validate_python(value)
    except pydantic.ValidationError as error:
        raise from_pydantic(error, cls) from None


def json_schema(cls: Any, ref_template: str = "#/$defs/{model}") -> dict[str, Any]:
    """JSON schema of `cls`, for editors; `ref_template` says where the classes that it uses will stand."""
    return pydantic.TypeAdapter(cls).json_schema(ref_template=ref_template)
