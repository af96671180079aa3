"""Components: nested settings chosen by name from a table, each with parameters of its own.

    OPTIMIZERS = Table("optimizer", {"sgd": SGD, "adamw": AdamW})

    @checked
    class Settings:
        optimizer: Component = OPTIMIZERS.setting("sgd", weight_decay=1e-4)

    Settings().optimizer                              # sgd; its weight decay is 1e-4 here, the rest is SGD's own
    Settings(optimizer="adamw")                       # text is short for {"name": "adamw"}
    Settings(optimizer={"momentum": 0.8})             # without a name: the setting's own, sgd
    Settings(optimizer="mypackage.module:Lion")       # not in the table: by its dotted path
    settings.optimizer.name, settings.optimizer.parameters     # "sgd", {"momentum": 0.8, "weight_decay": 1e-4}
    settings.optimizer.build(weights, lr)             # SGD(weights, lr, momentum=0.8, weight_decay=1e-4)

What an entry takes is read off it: the keyword-only parameters of a function or of a class's constructor, with their
types (`Annotated[float, pydantic.Field(gt=0)]` holds here as in a settings class), or the fields of a `@checked`
class. So a component's parameters stand at one place, and are checked, listed, part of a trial's identity and swept
over (`axes: {"optimizer.momentum": [0, .9]}`) from there. Errors stand at the dotted place: `optimizer.momentun`.

A table whose entries need more says so by `takes(entry, given)`: a `@checked` class for the parameters `given`.
"""

import dataclasses
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Generic, TypeVar

import pydantic
import pydantic.dataclasses
from pydantic_core import core_schema

from contrasweep.config import Config, MutableConfig
from contrasweep.errors import SpecError, choose_from
from contrasweep.imports import import_path, installed, path_of
from contrasweep.schema import (
    JsonSchema,
    checked,
    json_schema,
    omitted_fields,
    plain,
    unknown_field,
)

E = TypeVar("E")


class _Unset:
    """The value of a parameter whose default is an object, such as a function, which no study file could hold.

    The parameter is then not passed on, so the component's function uses its own default. A resolved config leaves it
    out.
    """

    def __repr__(self) -> str:
        return "its own"


UNSET = _Unset()
Field = tuple[Any, Any]
"""A parameter's type and default; `inspect.Parameter.empty` where it has none."""


@dataclasses.dataclass(frozen=True)
class Component:
    """A component as it was chosen: its `name`, the table's `entry`, and its `settings`, all defaults filled in.

    `settings` is an instance of the class that says what the entry takes.
    """

    name: str
    entry: Any = dataclasses.field(compare=False, repr=False)
    settings: Any

    @property
    def parameters(self) -> MutableConfig:
        """Parameter -> value, as keywords for the entry; parameters whose value is left to the entry are not there."""
        return {
            name: value
            for name, value in vars(self.settings).items()
            if not name.startswith("__") and value is not UNSET
        }

    def build(self, *args: Any) -> Any:
        """Return what the entry gives when it is called with `args`, then the parameters by name."""
        return self.entry(*args, **self.parameters)

    def to_plain(self) -> MutableConfig:
        """Return `{"name": ..., parameter: value}` as plain values, as the resolved config has it."""
        # A parameter declared with OMIT_DEFAULT is no part of a trial's identity while it has its default.
        omitted = omitted_fields(type(self.settings))  # type: ignore[arg-type]  # a class can be hashed
        chosen = {
            name: value
            for name, value in self.parameters.items()
            if not (name in omitted and value == omitted[name])
        }
        return {"name": self.name, **{name: plain(value) for name, value in chosen.items()}}


@dataclasses.dataclass(frozen=True)
class External:
    """A component that is in no table: its name in a study, mostly a dotted path, and its function or class."""

    name: str
    target: Callable[..., Any]


class Table(dict[str, E], Generic[E]):
    """Components of one `kind` (such as "loss"; `plural` is "losses") by name.

    `takes` gives the class of an entry's parameters (see the module's docstring). `find` returns the object for a name
    that is not in the table, mostly a dotted path. `knows(name)` tells whether `find` takes a name without a colon.
    """

    def __init__(
        self,
        kind: str,
        entries: Mapping[str, E],
        *,
        plural: str = "",
        takes: Callable[[E, Config], type] | None = None,
        find: Callable[[str], E] | None = None,
        knows: Callable[[str], bool] | None = None,
    ) -> None:
        self.kind = kind
        self.plural = plural or f"{kind}s"
        super().__init__(entries)
        # Unless the table says otherwise, parameters are an entry's own, and other names are dotted paths.
        self.takes = takes or (lambda entry, settings: parameters_of(entry))
        self.find = find or (lambda path: import_path(path, kind=kind))
        self.knows = knows or (lambda name: False)

    def setting(self, default: str, /, **defaults: Any) -> Any:
        """Return the declaration of a field of a settings class whose value is a component of this table.

        `default` is the name of the component where none is given. `defaults` are values for parameters of these names,
        in place of the component's own defaults. They hold for whichever component is chosen; one that has no such
        parameter ignores them.
        """
        info = pydantic.Field(default=default, validate_default=True)
        info.metadata.append(Declared(self, default, defaults))
        return info

    def choose(self, value: object, default: str = "", defaults: Config | None = None) -> Component:
        """Return the component that `value` means: a name, or a mapping of `name` and parameters.

        `default` is the name that a mapping without one means. `defaults` are values for parameters that `value` does
        not give; those that the component does not have are ignored.

        Raises `SpecError`, at a place below that of `value`: `value` is of another type; its name is neither in the
        table, nor that of a part of an installed package, nor a dotted path; two packages have a part of this name; or
        the component has no such parameter.
        """
        # A component that was chosen already, as where a settings object is copied, is checked like a study file's.
        if isinstance(value, Component):
            value = value.to_plain()
        # A name alone is short for a mapping without parameters.
        chosen = {"name": value} if isinstance(value, str) else value
        chosen_name = chosen.get("name", default) if isinstance(chosen, Mapping) else None
        if not isinstance(chosen, Mapping) or not isinstance(chosen_name, str):
            raise SpecError(
                f"must be one of the {self.plural} by name, or a mapping of its name and parameters",
                value=value,
                hint=choose_from(self.plural, list(self), value),
            )

        # The entry. An error stands at the field itself, or at `name` below it where `value` is a mapping.
        place = "" if isinstance(value, str) else "name"
        # A name that is not in the table may be that of a part of an installed package, which stands for its path.
        name = chosen_name if chosen_name in self else path_of(self.plural, chosen_name, place)
        entry = self.entry(name, place)

        # The parameters that were given must be known to the entry.
        parameters = {key: item for key, item in chosen.items() if key != "name"}
        settings_class = self.takes(entry, {**(defaults or {}), **parameters})
        field_names = {field.name for field in dataclasses.fields(settings_class)}
        takes_others = getattr(settings_class, "__pydantic_config__", {}).get("extra") == "allow"
        for key in parameters:
            if key not in field_names and not takes_others:
                rule = f"{self.kind} {name!r} has no such parameter"
                raise unknown_field(settings_class, str(key), rule, f"parameters of {name}")
        # Defaults of the field are for whichever component has such a parameter.
        applicable = {key: item for key, item in (defaults or {}).items() if key in field_names}
        return Component(name, entry, settings_class(**{**applicable, **parameters}))

    def entry(self, name: str, place: str = "") -> E:
        """Return the entry called `name` in the table, or the object at this dotted path.

        Raises `SpecError` at `place` where there is neither.
        """
        if name in self:
            return self[name]
        if ":" in name or self.knows(name):
            # `find` does not know where in the settings the name stands: the error gets that place here.
            try:
                return self.find(name)
            except SpecError as error:
                raise error.at(place) from None
        # Papers may call it otherwise: `simclr` and `nt_xent` stand in the description of InfoNCE. The hint then names
        # that entry. Up to three letters may be a part of any word, and are not looked for.
        wanted = _letters(name)
        described = ((key, _letters(description_of(entry))) for key, entry in self.items())
        matches = (key for key, text in described if len(wanted) > 3 and wanted in text)
        intended = next(matches, name)
        raise SpecError(
            f"there is no such {self.kind}",
            place=place,
            value=name,
            hint=choose_from(self.plural, [*self, *installed(self.plural)], intended),
        )


def description_of(entry: object) -> str:
    """Return the first line of an entry's description: its `description` or `about`, else its docstring; "" for none.

    An entry that is a path is described by the path.
    """
    text = getattr(entry, "description", "") or getattr(entry, "about", "")
    if not text:
        text = inspect.getdoc(entry) if callable(entry) else str(entry)
    return (text or "").strip().split("\n")[0]


def _letters(text: str) -> str:
    """Return the letters and digits of `text`, as small letters."""
    return re.sub(r"[\W_]", "", text.lower())


@dataclasses.dataclass(frozen=True)
class Declared:
    """A field that holds a component, as `Table.setting` declares it: how pydantic checks and describes it."""

    table: Table[Any]
    default: str
    defaults: Config

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            lambda value: self.table.choose(value, self.default, self.defaults)
        )

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> JsonSchema:
        """Return the field's schema: a name, or the parameters of any entry of the table, as a mapping."""
        forms: list[JsonSchema] = [{"type": "string", "examples": list(self.table)}]
        for name, entry in self.table.items():
            entry_schema = json_schema(self.table.takes(entry, self.defaults))
            properties = {"name": {"const": name}, **entry_schema.get("properties", {})}
            forms.append(
                {
                    "type": "object",
                    "title": name,
                    "properties": properties,
                    "additionalProperties": False,
                }
            )
        return {"anyOf": forms}


def declared(cls: Any, field: str) -> Declared | None:
    """Return how this field of a settings class was declared; None where it holds no component."""
    info = getattr(cls, "__pydantic_fields__", {}).get(field)
    for mark in getattr(info, "metadata", ()):
        if isinstance(mark, Declared):
            return mark
    return None


def one_of(
    kind: str, plural: str, names: Iterable[str], find: Callable[[str], object] | None = None
) -> Any:
    """Return the type of a field whose value is one of these `names`; an error names the most similar one.

    `kind` and `plural` say in errors what the names are of ("loss", "losses"). With `find`, which raises `SpecError`
    where nothing lies at a path, the value may be a dotted path too.
    """
    options = list(names)

    def check(value: str) -> str:
        """Return `value` if it is one of the names, or found at a dotted path."""
        if find is not None and ":" in value:
            find(value)
        elif value not in options:
            raise SpecError(
                f"there is no such {kind}", value=value, hint=choose_from(plural, options, value)
            )
        return value

    schema: JsonSchema = {"type": "string", "examples": options} if find else {"enum": options}
    return Annotated[str, pydantic.AfterValidator(check), pydantic.WithJsonSchema(schema)]


@functools.cache
def parameters_of(entry: Any) -> type:
    """Return the parameters of `entry` as a `@checked` class.

    That is `entry` itself where it is a dataclass, or the class in its attribute `settings`. Else it is a new class,
    whose fields are the parameters of the function `entry` that are keyword-only or have a default.
    """
    if dataclasses.is_dataclass(entry) and isinstance(entry, type):
        return entry
    settings = getattr(entry, "settings", None)
    if isinstance(settings, type):
        return settings
    # A partial or an object that can be called has no name of its own.
    name = getattr(entry, "__name__", type(entry).__name__)
    return parameters_class(name, signature_fields(entry))


def signature_fields(function: Callable[..., Any], after: int | None = None) -> dict[str, Field]:
    """Return name -> type and default of a function's parameters.

    With `after` None, they are the keyword-only parameters and those with a default. Otherwise they are all but the
    first `after` parameters. `*args` and `**kwargs` are left out always: they have no names that a setting could have.
    """
    parameters = []
    for parameter in list(inspect.signature(function).parameters.values())[after or 0 :]:
        has_default = parameter.default is not parameter.empty
        by_place = parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        if parameter.kind is parameter.KEYWORD_ONLY or (
            by_place and (after is not None or has_default)
        ):
            parameters.append(parameter)
    hints = _hints(function, parameters)
    return {parameter.name: _field(parameter, hints) for parameter in parameters}


def _hints(
    function: Callable[..., Any], parameters: Iterable[inspect.Parameter]
) -> Mapping[str, object]:
    """Return name -> type, by the annotations of these parameters of `function`; {} where a type cannot be found.

    Annotations of its other parameters are not evaluated: they may name types that exist for type checkers alone.
    """
    # A class has its annotations at its constructor.
    annotated_by = inspect.unwrap(function.__init__ if isinstance(function, type) else function)  # type: ignore[misc]
    if not inspect.isfunction(annotated_by):  # a partial or built-in one
        return {}
    # `get_type_hints` resolves all annotations of an object, so it is given an object that has these alone.
    declared = {
        parameter.name: parameter.annotation
        for parameter in parameters
        if parameter.annotation is not parameter.empty
    }
    annotated = types.SimpleNamespace(__annotations__=declared)
    try:
        return typing.get_type_hints(annotated, annotated_by.__globals__, include_extras=True)
    except (NameError, TypeError):  # names that exist for type checkers only
        return {}


def _field(parameter: inspect.Parameter, hints: Mapping[str, object]) -> Field:
    """Return type and default of a parameter; the type by its annotation, else by the default."""
    default = parameter.default
    if default is inspect.Parameter.empty:
        return hints.get(parameter.name, Any), default
    default = tuple(default) if isinstance(default, list) else default
    # An object as default cannot stand in a study file: the function keeps it, unless a plain value is given.
    if not isinstance(default, bool | int | float | str | tuple | None):
        return Any, UNSET
    # A default of 1 says that the parameter is a number; only an annotation says that it is a whole one.
    guess: Any
    if default is None:
        guess = Any
    elif type(default) is int:
        guess = int | float
    else:
        guess = type(default)
    return hints.get(parameter.name, guess), default


def parameters_class(
    name: str, fields: Mapping[str, Field], *, base: type = object, more: bool = False
) -> type:
    """Return a `@checked` class with these fields and those of `base`; with `more` it takes other parameters too."""
    required = MutableConfig()
    optional = MutableConfig()
    body: MutableConfig = {"__module__": __name__}
    for key, (hint, default) in fields.items():
        if default is inspect.Parameter.empty:
            required[key] = hint
        else:
            optional[key] = hint
            body[key] = default
    # A dataclass must have its fields without a default first.
    body["__annotations__"] = required | optional
    cls = type(name, (base,), body)
    return checked(cls, extra="allow") if more else checked(cls)
