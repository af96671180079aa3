"""`@checked`: frozen dataclasses whose fields are checked when they are built, by pydantic.

The same check serves a study written in Python, one read from YAML, and a trainable's settings, so a rule
is written once: as a type, or as a `__post_init__` that raises `SpecError`. Help stands in `Args:` of the class, or at
each field, as a docstring below it or as `pydantic.Field(description=...)`; `field_help` and `json_schema` give it to
readers.

    @checked
    class Settings:
        '''Settings of my method.'''

        epochs: int = 20
        '''How often the training part is seen.'''
        optimizer: Component = OPTIMIZERS.setting("sgd")                 # chosen by name: see `components`
        device: Annotated[str, OMIT_DEFAULT] = "auto"                    # says where, not what

    resolved_config(Settings(epochs=5))    # {"epochs": 5, "optimizer": {"name": "sgd", "momentum": .9}}

`resolved_config` is what a trial's id digests and its record keeps: every setting, plain and nested. A field with
`OMIT_DEFAULT` in its type is left out while it has its default, so that adding the field changes no id. That is for
fields whose default means "as before", and for those that say where a trial runs, not what it is.
"""

import ast
import contextlib
import dataclasses
import functools
import inspect
import itertools
import re
import textwrap
import typing
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Literal, TypeVar, dataclass_transform

import pydantic
import pydantic.dataclasses
from pydantic_core import PydanticKnownError, core_schema

from contrasweep.config import MutableConfig
from contrasweep.errors import SpecError, choose_from, quoting

C = TypeVar("C", bound=type)
JsonSchema = dict[str, Any]
"""A JSON schema; its words are that standard's."""

OMIT_DEFAULT = object()
"""In a field's `Annotated` type: leave it out of the resolved config while it has its default."""

CONFIG = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False)


@dataclass_transform(frozen_default=True)
def checked(cls: C, *, extra: Literal["forbid", "allow"] = "forbid") -> C:
    """Make `cls` a frozen dataclass that rejects unknown fields and wrong types with a one-line `SpecError`.

    With `extra` "allow" it takes unknown fields, and keeps them as attributes.
    """
    config = pydantic.ConfigDict(**{**CONFIG, "extra": extra})
    # A class that describes itself keeps its own method.
    if "__get_pydantic_json_schema__" not in vars(cls):
        cls.__get_pydantic_json_schema__ = classmethod(_described_schema)  # type: ignore[attr-defined]
    cls.__get_pydantic_core_schema__ = classmethod(_core_schema)  # type: ignore[attr-defined]
    wrapped: Any = pydantic.dataclasses.dataclass(cls, frozen=True, config=config)
    build = wrapped.__init__

    def __init__(self: Any, /, *args: Any, **kwargs: Any) -> None:
        try:
            build(self, *map(_copied, args), **_copied(kwargs))
        except pydantic.ValidationError as error:
            raise from_pydantic(error, wrapped) from None
        except RecursionError:
            raise SpecError("a list or mapping contains itself", place=cls.__name__) from None

    __init__.__wrapped__ = build  # type: ignore[attr-defined]  # keeps the signature for help() and editors
    wrapped.__init__ = __init__
    # From `vars`, which gives pydantic's descriptor: read as an attribute, it would compute the signature here already.
    wrapped.__signature__ = _ClassSignature(vars(wrapped)["__signature__"])
    return wrapped  # type: ignore[no-any-return]


def _core_schema(_cls: Any, source: Any, handler: pydantic.GetCoreSchemaHandler) -> Any:
    """Return pydantic's schema of a `@checked` class, in which True is no number, and 1 is no truth value.

    Strict types of pydantic's would refuse NumPy's numbers too, and a mapping for a class.
    """
    schema = handler(source)
    parts: list[Any] = [schema]
    seen = set()
    # The list grows as it is walked: each part adds the parts within it.
    for part in parts:
        kind = part.get("type")
        # A reference to another class, whose parts are looked at once.
        if kind == "definition-ref" and part["schema_ref"] not in seen:
            seen.add(part["schema_ref"])
            parts.append(handler.resolve_ref_schema(part))
        elif kind == "bool":
            part["strict"] = True
        elif kind in ("int", "float") and "strict" not in part:
            check = functools.partial(_no_truth_value, f"{kind}_type")
            # `strict` marks it as done: several classes have the same parts.
            number = core_schema.no_info_before_validator_function(check, {**part, "strict": False})
            part.clear()
            part |= number
        for inner in part.values():
            members = inner if isinstance(inner, list) else [inner]
            parts += [member for member in members if isinstance(member, dict)]
    return schema


def _no_truth_value(error: Any, value: object) -> object:
    """Return `value`; for True and False raise pydantic's error of the type `error`, such as "int_type".

    Pydantic by itself would take True for the number 1 and False for 0.
    """
    if isinstance(value, bool):
        raise PydanticKnownError(error)
    return value


def _copied(value: Any) -> Any:
    """Return a copy of nested dicts and lists; other values in them are the same objects.

    A `@checked` object is built from the copy: the caller may change the original to build the next object.
    """
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if type(value) is list else value


class ReadableSignature(inspect.Signature):
    """A signature for people: types by their short names, and a long one with a line for each parameter."""

    def __str__(self) -> str:
        # Arm, not contrasweep.study.arm.Arm
        text = re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", super().__str__())
        # int | None, not Optional[int]; the type may have brackets of its own
        text = re.sub(r"\bOptional\[((?:[^][]|\[[^][]*\])*)\]", r"\1 | None", text)
        if len(text) < 100:
            return text
        # A line for each parameter
        return re.sub(r", (?=\w+: |\*, )", ",\n    ", text).replace("(", "(\n    ", 1)


class _ClassSignature:
    """The attribute `__signature__` of a `@checked` class, made when it is read: types may name later classes."""

    def __init__(self, pydantic_signature: Any) -> None:
        self.pydantic_signature = pydantic_signature

    def __get__(self, instance: object, cls: Any) -> inspect.Signature:
        hints = typing.get_type_hints(cls)  # without `Annotated`
        # Pydantic's is a descriptor too: `__get__` is what Python calls where the attribute of a class is read.
        parameters = self.pydantic_signature.__get__(None, cls).parameters.values()
        fields = cls.__pydantic_fields__.items()
        # Readers see the value that a factory makes as default, and not the factory.
        defaults = {
            name: field.default_factory() for name, field in fields if field.default_factory
        }
        return ReadableSignature(
            [
                parameter.replace(
                    annotation=hints.get(parameter.name, parameter.annotation),
                    default=defaults.get(parameter.name, parameter.default),
                )
                for parameter in parameters
            ]
        )


def from_pydantic(error: pydantic.ValidationError, cls: Any) -> SpecError:
    """Return the first of pydantic's findings on `cls` as an error of one line.

    It has the place, the rule, the value, and for an unknown field the known ones.
    """
    first = _joined_types(error.errors(include_url=False), cls)
    loc = first["loc"]  # names and indexes that lead from `cls` to the value
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    names = [field.name for field in fields if not field.kw_only]
    # pydantic has the number of a field that was given by position.
    if loc and isinstance(loc[0], int) and 0 <= loc[0] < len(names):
        loc = (names[loc[0]], *loc[1:])
    place = _place(loc)
    # A rule of ours that pydantic ran says its line itself.
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, SpecError):
        return cause.at(place)

    # A finding of pydantic's own, by its type.
    value = first.get("input")
    *parents, key = loc or [""]
    owner = _class_at(cls, parents)
    # A field that the class does not have.
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return unknown_field(owner, str(key)).at(_place(parents))
    help_text = field_help(owner).get(str(key), "")
    # A field that has no default and was not given.
    if first["type"] in ("missing", "missing_argument"):
        return SpecError("this field is required", place=place, hint=help_text)
    # A value of a union, as of the kinds of search space, whose field `type` names none of them.
    if first["type"] in ("union_tag_invalid", "union_tag_not_found"):
        tag_field = first["ctx"]["discriminator"].strip("'")
        known_tags = first["ctx"].get("expected_tags", "")
        tag = value.get(tag_field) if isinstance(value, dict) else value
        hint = f"known: {known_tags}" if known_tags else "as in {type: float, low: 0, high: 1}"
        rule = f"its kind must be named in `{tag_field}`"
        return SpecError(rule, place=place, value=tag, hint=hint)
    rule = first["msg"][0].lower() + first["msg"][1:]
    hint = help_text
    if "valid string" in rule:
        hint = quoting(value) or help_text
    # A `ValueError` of a class without our errors, such as `Footprint`, may say the value itself.
    if first["type"] == "value_error" and ", got " in rule:
        value = None
    return SpecError(rule.removeprefix("value error, "), place=place, value=value, hint=hint)


def _joined_types(errors: list[Any], cls: Any) -> Any:
    """Return the first of pydantic's `errors`, with a joined rule where it is about a value of several types.

    For a value of `int | str`, pydantic has an error for each type and adds the type to the place. They become one
    error, at the place of the value, whose message names the rules of all types: `rule of int, or rule of str`.
    """
    first = errors[0]
    if len(first["loc"]) < 2:  # a field of `cls`, or all of it
        return first
    # The last part of the place is no type where it is an index or a field.
    *parent, last = first["loc"]
    owner = _class_at(cls, parent)
    fields = dataclasses.fields(owner) if dataclasses.is_dataclass(owner) else ()
    if isinstance(last, int) or any(field.name == last for field in fields):
        return first
    # The errors of all types about this very value.
    alternatives = [
        finding
        for finding in errors
        if [*finding["loc"][:-1]] == parent and finding.get("input") is first.get("input")
    ]
    rules = dict.fromkeys(
        finding["msg"][0].lower() + finding["msg"][1:] for finding in alternatives
    )
    # Where two types have the same rule, joined rules would repeat it.
    if len(alternatives) == 1 or len(rules) < len(alternatives):
        return first
    return {**first, "loc": tuple(parent), "msg": ", or ".join(rules)}


def unknown_field(
    cls: Any, key: str, rule: str = "there is no such field", kind: str = "fields"
) -> SpecError:
    """Return the error of a key that `cls` has no field for: the nearest name and all that there are.

    For a key that lies inside a nested field (`temperature`), the nearest name is the dotted one (`loss.temperature`).
    `kind` is what the fields are called, a plural.
    """
    fields = [field.name for field in dataclasses.fields(cls)]
    # The nested fields as the defaults have them; a class whose fields lack a default has none.
    config: MutableConfig = {}
    with contextlib.suppress(TypeError, ValueError, SpecError):
        config = resolved_config(cls())
    for name, value in config.items():
        if isinstance(value, dict) and key in value:
            known = ", ".join(sorted(fields))
            hint = f"did you mean {f'{name}.{key}'!r}? known {kind}: {known}"
            return SpecError(rule, place=key, hint=hint)
    return SpecError(
        rule, place=key, hint=choose_from(kind, fields, key) if fields else "it has none"
    )


def _class_at(cls: Any, loc: Sequence[int | str]) -> Any:
    """Return the dataclass in which the place `loc` ends, from `cls` down through fields, mappings, lists and unions.

    From an arm, `space`, `lr`, `int` lead to `Int`: its field `space` is a mapping of `Float`, `Int` and others, `lr`
    is a key of it, and `int` is pydantic's word for the member of that union.
    """
    union_members: list[Any] = []  # the dataclasses that the type of the last field names
    for part in loc:
        named = [
            member
            for member in union_members
            if part in (member.__name__, getattr(member, "type", None))
        ]
        hints = typing.get_type_hints(cls) if dataclasses.is_dataclass(cls) else {}
        # Keys of mappings and indexes of lists lead to no other class.
        if named:
            cls = named[0]
        elif part in hints:
            union_members = _dataclasses_in(hints[part])
            cls = union_members[0] if union_members else cls
    return cls


def _dataclasses_in(hint: Any) -> list[Any]:
    """Return the dataclasses that a type names, such as both of `list[Float | Int]`."""
    if dataclasses.is_dataclass(hint):
        return [hint]
    return [inner for argument in typing.get_args(hint) for inner in _dataclasses_in(argument)]


def _place(loc: Sequence[int | str]) -> str:
    """Return the place of a finding of pydantic as text: `loss.steps.2` for ("loss", "steps", 2).

    Pydantic adds "[key]" where a mapping's key is wrong and not its value; that is left out.
    """
    return ".".join(str(part) for part in loc if part != "[key]")


def validate(cls: Any, value: object) -> Any:
    """Return `value`, a mapping of fields or an instance of `cls`, as a checked instance of `cls`.

    `SpecError` where `value` is neither, or a field breaks its rule.
    """
    try:
        return pydantic.TypeAdapter(cls).validate_python(value)
    except pydantic.ValidationError as error:
        raise from_pydantic(error, cls) from None


def json_schema(cls: Any, ref_template: str = "#/$defs/{model}") -> JsonSchema:
    """Return the JSON schema of `cls`, for editors.

    It refers to the classes that it uses by `ref_template`, in which `{model}` stands for a class's name.
    """
    return pydantic.TypeAdapter(cls).json_schema(ref_template=ref_template)


def _described_schema(cls: Any, core: Any, handler: pydantic.GetJsonSchemaHandler) -> JsonSchema:
    """Return the JSON schema of a `@checked` class, with the help of each field as its description."""
    schema = handler(core)
    properties = handler.resolve_ref_schema(schema).get("properties", {})
    for name, text in field_help(cls).items():
        # Pydantic itself describes only the fields whose declaration has a description.
        if text and name in properties:
            properties[name].setdefault("description", text)
    return schema


def resolved_config(settings: Any) -> MutableConfig:
    """Return the fields of `settings` (an instance of a `@checked` class) as plain nested values, by name.

    The same settings can be built from them: `type(settings)(**resolved_config(settings))`. Fields with `OMIT_DEFAULT`
    are left out while they have their default.
    """
    omitted = omitted_fields(type(settings))  # type: ignore[arg-type]  # a class can be hashed
    config = {}
    for name, value in vars(settings).items():
        if name in omitted:
            # The default of a component is given as a name alone, and as a plain value it is {"name": that name}.
            default = omitted[name]
            compared = value
            if hasattr(value, "to_plain"):
                default = {"name": default}
                compared = plain(value)
            if compared == default:
                continue
        if not name.startswith("_"):  # as attributes of pydantic's own do
            config[name] = plain(value)
    return config


@functools.cache
def omitted_fields(cls: Any) -> dict[str, object]:
    """Return field -> default of those fields of a `@checked` class that are declared with `OMIT_DEFAULT`."""
    fields: Mapping[str, pydantic.fields.FieldInfo] = getattr(cls, "__pydantic_fields__", {})
    return {
        name: info.get_default(call_default_factory=True, validated_data={})
        for name, info in fields.items()
        if any(mark is OMIT_DEFAULT for mark in info.metadata)
    }


def plain(value: Any) -> Any:
    """Return a setting's value in a form that YAML can write: mappings, lists, text, numbers, truth values and None.

    A component or a settings object becomes a mapping of its fields, a set a sorted list, a path text.
    """
    # Most values are plain already, and the questions below take longer.
    if type(value) in (str, int, float, bool, type(None)):
        return value
    if hasattr(value, "to_plain"):  # a component
        return value.to_plain()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return resolved_config(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        value = sorted(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, PurePath) else value


def field_help(cls: Any) -> dict[str, str]:
    """Return the help text of each field of `cls`, from its class or a base; empty where there is none."""
    texts: dict[str, str] = {}
    # From the furthest base on: what a class itself says of a field takes the place of what its bases say.
    for base in reversed(getattr(cls, "__mro__", ())):
        docstrings = _field_docstrings(base) if "__pydantic_fields__" in vars(base) else {}
        for name, info in vars(base).get("__pydantic_fields__", {}).items():
            text = info.description or docstrings.get(name, "")
            texts[name] = " ".join(text.split()) or texts.get(name, "")
    return texts


@functools.cache
def _field_docstrings(cls: Any) -> dict[str, str]:
    """Return field -> its help: its entry in `Args:` of `cls`, or where there is no `Args:` the docstring below it.

    Sources are read when somebody asks for help. Pydantic's own `use_attribute_docstrings` reads every class's source
    as it is defined, which was half of the time to import.
    """
    # Entries of `Args:` begin at four spaces; lines that go on stand deeper.
    section = re.search(
        r"^Args:\n(.*?)(?=^\S|\Z)", inspect.cleandoc(cls.__doc__ or ""), re.DOTALL | re.MULTILINE
    )
    if section:
        return dict(
            re.findall(r"^    (\w+): (.*?)(?=^    \w|\Z)", section[1], re.DOTALL | re.MULTILINE)
        )
    # Without such a section: a text that stands alone in the line below a field.
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0].body  # type: ignore[attr-defined]
    except (OSError, TypeError, SyntaxError):  # defined without a source file
        return {}
    return {
        field.target.id: text.value.value
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
