"""The entries that `contrasweep list` shows, and the settings of each entry.

The platform imports no trainables, so it reaches the tables by dotted path, and `TABLES` is the only place that does.
An entry of somebody else's package needs no line in a table: it is named by its own dotted path, in a study
(`trainable: mythesis.method:train`) as in `contrasweep list methods mythesis.method:train`.
"""

import dataclasses
import importlib
import inspect
import pkgutil
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic.fields import FieldInfo

from contrasweep.commands.functions import ADAPTERS
from contrasweep.components import Declared, Table, declared, description_of, parameters_of
from contrasweep.data.names import user_importer
from contrasweep.errors import SpecError, check_known
from contrasweep.imports import import_from_here, import_module, import_path, installed, path_of
from contrasweep.schema import JsonSchema, field_help, json_schema

if TYPE_CHECKING:
    from contrasweep.study.grid import AblationGrid
    from contrasweep.study.sweep import Sweep

TABLES = {
    "methods": "contrasweep.trainables:METHODS",
    "losses": "contrasweep.trainables.losses:LOSSES",
    "targets": "contrasweep.trainables.contrastive.targets:TARGETS",
    "similarities": "contrasweep.trainables.similarities:SIMILARITIES",
    "encoders": "contrasweep.trainables.encoders:ENCODERS",
    "heads": "contrasweep.trainables.encoders:HEADS",
    "augmentations": "contrasweep.trainables.augmentations:AUGMENTATIONS",
    "optimizers": "contrasweep.trainables.optimisation:OPTIMIZERS",
    "datasets": "contrasweep.data.importers:DATASETS",
    "readers": "contrasweep.judging.sources:KINDS",
    "searchers": "contrasweep.tuning.searchers:SEARCHERS",
    "pruners": "contrasweep.tuning.pruners:PRUNERS",
    "trackers": "contrasweep.tracking.kinds:TRACKERS",
}
"""Kind of thing -> the table of its names, as `package.module:TABLE`."""
SIGNATURES = {
    "methods": "a generator function (trial, resume=None)",
    "losses": "a function of (scores, positives, negatives), (embeddings, labels) or (first, second), or a class",
    "targets": "a class (model, steps, dim, **options) with trained, parts, step and after_step",
    "similarities": "a function (rows, columns) that gives scores [n m], larger for what is more alike",
    "encoders": "a callable (shape, **options) that gives a torch module with dim; torchvision's by name, timm:NAME",
    "heads": "a callable (features, **options) that gives a torch module",
    "augmentations": "a function (image, **options), or a class whose objects take one: torchvision.transforms.v2:NAME",
    "optimizers": "a class (parameters, lr, **options) as in torch.optim, whose own go by their names",
    "datasets": "a function (source, settings) that gives a Content, or an Importer",
    "readers": "a function (path) that gives a frame with a row per run, of files of this name",
    "searchers": "a class (problem, **options) with ask, tell and replay, or an Optuna sampler",
    "pruners": "a class (mode, budget, **options): contrasweep.tuning.pruners.Pruner",
    "trackers": "a class (study) with start, report, finish and close",
}
"""Kind -> what an entry of the user's own must be, which stands at `package.module:name`."""
STUDIES = "contrasweep.search_spaces"
"""The package whose modules hold studies."""


@dataclass(frozen=True)
class Setting:
    """One setting of an entry.

    `name` is its dotted key, `type` as a person writes it (`float`, `one of 'sgd', 'adamw'`), `default` as Python
    writes it (None: the setting is required), `help` its meaning ("" where none is written).
    """

    name: str
    type: str
    default: str | None
    help: str = ""


def descriptions(kind: str, package: str = STUDIES) -> dict[str, str]:
    """Return name -> description (one line) of all entries of a kind, also of entries that installed packages bring.

    For the kind "studies" these are the studies in the modules of `package`, named `module:NAME`. `SpecError` for an
    unknown kind.
    """
    if kind == "studies":
        return {name: study.description for name, study in _studies(package)}
    parts = {name: part.description for name, part in installed(kind).items()}
    return parts | {name: description_of(entry) for name, entry in _table(kind).items()}


def settings(kind: str, name: str) -> list[Setting]:
    """Return the settings of one entry of a kind, such as the loss `supcon`.

    `name` is a name that `contrasweep list KIND` shows, of our own entries or of an installed package's, or a dotted
    path `package.module:name`. `SpecError` where there is no such kind or entry.
    """
    import_from_here()
    table = _table(kind)
    place = f"list {kind}"
    # An arm's `optuna:package.module:function` has the settings of the function.
    prefix, _, called = name.partition(":")
    if kind == "methods" and prefix in ADAPTERS:
        name = called
    # A name that is not in the table is one that an installed package registers, or a dotted path. Both become a path.
    name = name if name in table else path_of(kind, name)
    # A `Table`, such as that of losses, has the function `takes`: it returns the class of an entry's settings. That may
    # depend on settings that are given, which are none here ({}).
    if isinstance(table, Table):
        return list(_fields_of(table.takes(table.entry(name, place), {})))
    # Other tables have objects, or the dotted paths of objects, whose parameters are the settings.
    if ":" not in name:
        check_known(name, kind, table, "there is no such entry", place=place)
    entry: Any = table.get(name, name)
    if kind == "datasets" and ":" in name:
        entry = user_importer(name)
    elif isinstance(entry, str):
        entry = import_path(entry, place, kind.removesuffix("s"))
    # A similarity has its function as an attribute.
    return list(_fields_of(parameters_of(getattr(entry, "function", entry))))


def with_method_settings(schema: JsonSchema) -> JsonSchema:
    """Return `schema`, the JSON schema of a study, with the settings of each method added: names, types and help.

    `schema` itself is changed. The settings are what `config` of an arm may hold, where the arm's trainable is the
    method.
    """
    arm = schema["$defs"]["Arm"]
    for method, path in _table("methods").items():
        cls = getattr(import_path(str(path), "methods"), "settings", None)
        if cls is None:
            continue
        # Definitions of two methods may have one name, so each is put below that of its method: `contrastive.Loss`.
        fields = json_schema(cls, ref_template=f"#/$defs/{method}.{{model}}")
        schema["$defs"] |= {
            f"{method}.{name}": value for name, value in fields.pop("$defs", {}).items()
        }
        schema["$defs"][method] = {
            "description": fields.get("description", ""),
            "properties": fields["properties"],
        }
        arm.setdefault("allOf", []).append(
            {
                "if": {"properties": {"trainable": {"const": path}}, "required": ["trainable"]},
                "then": {"properties": {"config": {"$ref": f"#/$defs/{method}"}}},
            }
        )
    return schema


def _table(kind: str) -> Mapping[str, object]:
    """Return the table of a kind, name -> entry, which is imported now; `SpecError` for an unknown kind."""
    if kind == "metrics":
        hint = "docs/methods.md has a method's scores; `contrasweep report STUDY --metric ?` names those of its trials"
        raise SpecError("metrics are what each trainable reports", place="list", hint=hint)
    check_known(kind, "kinds", [*TABLES, "studies"], "there is no such kind of thing", place="list")
    module, _, table = TABLES[kind].partition(":")
    return typing.cast(Mapping[str, object], getattr(importlib.import_module(module), table))


def _studies(package: str) -> "Iterator[tuple[str, AblationGrid | Sweep]]":
    """Yield the name `module:NAME` and the object of each study in `package`, a module, or a package and its modules.

    The modules are imported. `SpecError` where one cannot be imported.
    """
    from contrasweep.study.grid import AblationGrid
    from contrasweep.study.sweep import Sweep

    import_from_here()
    root = import_module(package, place="list studies", kind="study")
    # A package has a `__path__`, a module has none.
    names = [
        package,
        *(f"{package}.{info.name}" for info in pkgutil.iter_modules(getattr(root, "__path__", ()))),
    ]
    for module in names:
        found = vars(import_module(module, place="list studies", kind="study"))
        for name, value in found.items():
            if isinstance(value, AblationGrid | Sweep):
                yield f"{module}:{name}", value


def _fields_of(cls: type, prefix: str = "") -> Iterator[Setting]:
    """Yield a setting for each field of a settings class; those of nested classes have dotted names: `schedule.warmup`.

    `prefix` is put before each name: `loss.`, for example. Behind a field that names a component, such as the loss,
    come the parameters of the component that it names by default.
    """
    described = field_help(cls)
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        description = described.get(field.name, "")
        if component := declared(cls, field.name):
            yield from _of_component(component, prefix + field.name, description)
            continue
        # The type without the marks of `Annotated`.
        hint = (
            typing.get_args(field.type)[0]
            if typing.get_origin(field.type) is typing.Annotated
            else field.type
        )
        # A nested class is listed by its own fields, and as a whole only where the field has help of its own.
        nested = [kind for kind in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(kind)]
        if not nested or description:
            yield Setting(
                prefix + field.name, _type_name(field.type), _default_of(field), description
            )
        for inner in nested:
            yield from _fields_of(typing.cast(type, inner), f"{prefix}{field.name}.")


def _of_component(component: Declared, name: str, description: str) -> Iterator[Setting]:
    """Yield a setting for a field `name` that names a component, and one for each parameter of its default component.

    A parameter is called `name.PARAMETER`. `description` is the help of the field. The default of a parameter is that
    of the component, unless the field declares another one.
    """
    table = component.table
    default = component.default
    listed = f"One of {', '.join(table)}, or a dotted path; below it what {default} takes."
    yield Setting(name, table.kind, repr(default), f"{description} {listed}".strip())
    for inner in _fields_of(table.takes(table[default], component.defaults), f"{name}."):
        # The field's own default of this parameter, if it has one.
        default_here = component.defaults.get(inner.name.removeprefix(f"{name}."))
        if default_here is not None:
            inner = dataclasses.replace(inner, default=repr(default_here))
        yield inner


def _default_of(field: "dataclasses.Field[Any]") -> str | None:
    """Return a field's default as Python writes it, `'adamw'`; None where the field is required."""
    default: Any = field.default
    if isinstance(default, FieldInfo):  # pydantic.Field(...) in place of a value
        return (
            None if default.is_required() else repr(default.get_default(call_default_factory=True))
        )
    if field.default_factory is not dataclasses.MISSING:
        return repr(field.default_factory())
    return None if default is dataclasses.MISSING else repr(default)


def _type_name(hint: Any) -> str:
    """Return a type as a person writes it: `float`, `one of 'sgd', 'adamw'`, `int | None`; "" for no annotation."""
    origin = typing.get_origin(hint)
    parts = typing.get_args(hint)
    if origin is typing.Annotated:
        # Values that a mark of the annotation lists are shown as a choice.
        for mark in parts[1:]:
            schema = getattr(mark, "json_schema", None) or {}
            if values := schema.get("enum") or schema.get("examples"):
                return _type_name(typing.Literal[tuple(values)])
        return _type_name(parts[0])
    if origin is typing.Literal:
        return "one of " + ", ".join(map(repr, parts))
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(_type_name, parts))
    if origin is tuple:
        # `tuple[int, ...]` is one of any length.
        return f"tuple of {', '.join(_type_name(part) for part in parts if part is not ...)}"
    if isinstance(hint, type) and origin is None:
        special: dict[type, str] = {type(None): "None", inspect.Parameter.empty: ""}
        return special.get(hint, hint.__name__)
    return str(hint).replace("typing.", "").replace("collections.abc.", "")
