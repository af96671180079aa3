"""A study by its name on the command line: `module:NAME`, or a YAML file of the same fields, with `--set` on top.

A file with `studies`, a list, has several, which run in their order. Fields beside `studies` are those of each of them
that does not have its own. `FILE.yaml:NAME` is one of them.
"""

import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from contrasweep.commands import COMMAND, COMMAND_PATH, OPTIONS
from contrasweep.config import Config, MutableConfig
from contrasweep.data.yaml_text import MAX_CHARACTERS, read_yaml
from contrasweep.errors import SpecError, check_known, choose_from
from contrasweep.imports import import_from_here, import_module
from contrasweep.schema import JsonSchema, json_schema, validate
from contrasweep.storage.names import local_path
from contrasweep.study import dotted
from contrasweep.study.grid import AblationGrid
from contrasweep.study.sweep import Study, Sweep

T = TypeVar("T")
KINDS: tuple[type, ...] = (AblationGrid, Sweep)
"""The classes of studies."""
SEVERAL = "studies"
"""The field of a file that has several studies."""
YAML = (".yaml", ".yml")
"""How the names of study files end."""
FLAT = ("axes", "zipped", "space", "start_points", "when", "names", "labels", "levels")
"""Fields whose keys are dotted: `loss.temperature` is one key of them."""


def load_study(name: str, sets: Sequence[str] = ()) -> Study:
    """Return the study called `name`, with each `path=value` of `sets` applied. `SpecError` names file and field.

    `name` is `module:NAME`, `FILE.yaml`, or `FILE.yaml:NAME` for one of a file with several. The module is imported.
    The current folder is put on `sys.path`, for the study's module and for trainables that the study names.
    """
    file, _, wanted = name.rpartition(":")
    # FILE.yaml:NAME
    if file.endswith(YAML):
        studies = {study.name: study for study in load_studies(file, sets)}
        check_known(wanted, "studies", studies, "there is no such study in this file", place=file)
        return studies[wanted]
    return load_declared(name, KINDS, build_study, "STUDY", sets)


def load_studies(name: str, sets: Sequence[str] = ()) -> list[Study]:
    """Return the studies called `name`, in the order in which they run: all of a file with `studies`, else one study.

    Raises `SpecError` as `load_study` does. It is raised too where two studies of a file have the same name. So it is
    where an arm starts from networks of its own study or of a later one.
    """
    if not name.endswith(YAML):
        return [load_study(name, sets)]
    # The argument `kinds` is empty, because it is about objects of a module and not about files.
    studies: list[Study] = load_declared(name, (), _build_all, "STUDY", sets)  # type: ignore[arg-type]
    names = [study.name for study in studies]
    for i, study in enumerate(studies):
        if study.name in names[:i]:
            raise SpecError(
                "studies of a file have different names",
                place=f"{name}: studies.{i}",
                value=study.name,
            )
        for arm, declared in study.arms.items():
            if declared.start is not None and declared.start.study in names[i:]:
                raise SpecError(
                    "a study starts from one that stands before it",
                    place=f"{name}: studies.{i}.arms.{arm}.start.study",
                    value=declared.start.study,
                    hint="they run in their order",
                )
    return studies


def load_declared(
    name: str,
    kinds: tuple[type[T], ...],
    build: Callable[[MutableConfig, str], T],
    place: str,
    sets: Sequence[str] = (),
) -> T:
    """Return the object that `name` means, from a module or from a file.

    Args:
        name: `module:NAME` or `FILE.yaml`.
        kinds: The classes that the object at `module:NAME` may have.
        build: `build(fields, name)` makes the object from the fields of a file. With `sets`, an object of a module is
            built anew from its fields too.
        place: The argument that names the object, for errors: `STUDY`.
        sets: Changes of fields, each a `path=value`.

    Raises:
        SpecError: There is no such object, or its fields break a rule.
    """
    import_from_here()
    if name.endswith(YAML):
        fields = _read_yaml(local_path(name, place))
    else:
        declared: T = _imported(name, tuple(kinds), place)
        if not sets:
            return declared
        fields = with_commands(to_plain(declared))
    return build(with_sets(fields, sets), name)


def with_sets(fields: MutableConfig, sets: Sequence[str]) -> MutableConfig:
    """Apply each `path=value` of `sets` to `fields` in turn, and return the fields that follow.

    In a file with several studies, each study first takes over the fields beside `studies` that it lacks. Then a value
    is set in each study, unless its path begins with `studies`. Raises `SpecError` where a text has no such form, or
    its path leads nowhere.
    """
    # A file with one study has it in its fields; one with several has a list of them.
    studies = [fields]
    many = fields.get(SEVERAL)
    if isinstance(many, list) and all(isinstance(study, dict) for study in many):
        shared = {key: value for key, value in fields.items() if key != SEVERAL}
        studies = [copy.deepcopy({**shared, **study}) for study in many]
        fields = {SEVERAL: studies}
    for text in sets:
        path, value = parse_set(text)
        for declared in studies if path[0] != SEVERAL else [fields]:
            _set(declared, path, value, f"--set {'.'.join(path)}")
    return fields


def named_by(study: Study, configs: Iterable[Config] = ()) -> list[object]:
    """Return all values in which the author of a study may name code, for the argument `named` of `trust.check_named`.

    These are the study's fields as plain values, the dotted paths of its trainables, and `configs`, those of its
    trials.
    """
    return [to_plain(study), [arm.path for arm in study.arms.values()], *configs]


def is_declaration(name: str) -> bool:
    """Whether `name` is `module:NAME` or a file, which declares a study, and not the name of a stored one."""
    return ":" in name or name.endswith(YAML)


def as_study(study: Study | str | Path | Config) -> Study:
    """Return the study that is given as itself, as a mapping of its fields, or by a name as `load_study` takes it.

    Raises `SpecError` where it breaks a rule, and for anything else.
    """
    if isinstance(study, AblationGrid | Sweep):
        return study
    if isinstance(study, str | Path):
        return load_study(str(study))
    if isinstance(study, Mapping):
        return build_study(dict(study), "study")
    raise SpecError(
        "a study is an AblationGrid, a Sweep, module:NAME, a .yaml file, or a mapping of its fields",
        place="STUDY",
        value=type(study).__name__,
    )


def to_plain(value: Any) -> Any:
    """Return a study, or a part of one, as mappings, lists and plain values, as YAML has them.

    Functions stay functions, and NumPy's numbers become Python's. Fields that are None are left out.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
        return {name: plain for name, plain in fields.items() if plain is not None}
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    is_numpy_scalar = hasattr(value, "item") and getattr(value, "ndim", None) == 0
    return value.item() if is_numpy_scalar else value


def with_commands(fields: MutableConfig) -> MutableConfig:
    """Change plain fields so that an arm's command stands where a file has it; return the fields.

    `fields` are those of a study, a campaign or an arm. Such an arm has its command in its config, as a setting of the
    trainable that runs commands. A file has it in fields of the arm: `command`, `metrics` and so on. So `with_sets`
    accepts the same paths for both.
    """
    # The arms of a study, then the incumbent of a campaign; where there is none, `fields` may be those of an arm.
    for arm in (*fields.get("arms", {}).values(), fields.get("incumbent", fields)):
        if arm.get("trainable") == COMMAND_PATH:
            del arm["trainable"]
            arm |= {COMMAND: arm["config"].pop(COMMAND), **arm["config"].pop(OPTIONS, {})}
    return fields


def study_schema() -> JsonSchema:
    """Return the JSON schema of a study file, for editors."""
    schema = json_schema(AblationGrid | Sweep)
    # Fields of each study of a file with several are not checked: those beside `studies` may complete them.
    of_each = {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["name"]}}
    several = {
        "type": "object",
        "title": "several studies",
        "required": [SEVERAL],
        "properties": {SEVERAL: of_each},
    }
    schema["anyOf"] = [*schema["anyOf"], several]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "contrasweep study",
        **schema,
    }


def parse_set(text: str, option: str = "--set") -> tuple[list[str], Any]:
    """Return path and value of a text `path=value` of an `option`; the value is read as YAML.

    `data.folds=3` gives (["data", "folds"], 3). Raises `SpecError` without a path or `=`, and for what is no YAML.
    """
    path, equals, value = text.partition("=")
    if not equals or not path:
        raise SpecError(
            f"{option} takes path=value",
            place=option,
            value=text,
            hint=f"for example {option} folds=3",
        )
    rule = f"the value of {option} must be YAML"
    return path.split("."), read_yaml(value, f"{option} {path}", rule)


def _imported(name: str, kinds: tuple[type, ...], place: str) -> Any:
    """Return the object at `module:NAME`, which must be of one of the classes `kinds`; `SpecError` without one.

    `place` is the name of the argument, such as `STUDY`. Errors call the object by it in small letters: `study`.
    """
    module_name, colon, attribute = name.partition(":")
    noun = place.lower()  # `study` of STUDY
    if not colon or not attribute:
        raise SpecError(
            f"a {noun} is module:NAME or a .yaml file",
            place=place,
            value=name,
            hint="for example contrasweep.search_spaces.quickstart:STUDY"
            if place == "STUDY"
            else "",
        )
    try:
        module = import_module(module_name, place=place, kind=noun)
    except ModuleNotFoundError as error:  # on a machine that only plans and submits
        rule = f"the {noun}'s module imports a package that is not installed"
        raise SpecError(rule, place=place, value=module_name, hint=str(error)) from None
    declared = getattr(module, attribute, None)
    if isinstance(declared, kinds):
        return declared
    # The hint names the objects of this kind that the module does have.
    candidates = [name for name, value in vars(module).items() if isinstance(value, kinds)]
    raise SpecError(
        f"there is no such {noun} in this module",
        place=module_name,
        value=attribute,
        hint=choose_from("studies" if place == "STUDY" else f"{noun}s", candidates, attribute),
    )


def _read_yaml(path: Path) -> MutableConfig:
    """Return the fields in a YAML file; `SpecError` where it cannot be read or holds no mapping."""
    try:
        # A character has at most four bytes. One byte more than the longest text is read, so that `read_yaml` refuses a
        # larger file, of which the rest is not read.
        with path.open("rb") as file:
            data = file.read(4 * MAX_CHARACTERS + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise SpecError("the file cannot be read", place=str(path), value=error.strerror) from None
    except UnicodeDecodeError as error:
        raise SpecError(
            "the file is not YAML", place=str(path), hint=f"it is no UTF-8: {error}"
        ) from None
    fields = read_yaml(text, str(path))
    if not isinstance(fields, dict):
        raise SpecError("the file holds no mapping of fields", place=str(path), value=fields)
    return fields


def _set(target: Any, path: list[str], value: Any, error_place: str, field: str = "") -> None:
    """Set the value at `path` inside `target`, a mapping or list of a study's fields; `target` is changed.

    `path` is a list of names, as in `["data", "folds"]`. `field` is the field of the study that `target` is, or is a
    part of, such as `config`; "": `target` is the study itself. `error_place` is the place that errors name: the option
    with its path. Raises `SpecError` where the path leads into a plain value, or to an entry that a list lacks.
    """
    key, path_left = _next_key(target, path, error_place, field)
    in_config = field == "config"
    present = target.get(key) if isinstance(target, dict) else None
    if not path_left:
        # Text for a component with settings is its name; the settings stay.
        if in_config and isinstance(present, dict) and isinstance(value, str):
            value = dotted.merge(present, {dotted.NAME: value})
        target[key] = value
        return
    # `loss.margin` of a config whose loss is a name alone: the name gets parameters beside it.
    if in_config and isinstance(present, str):
        target[key] = {dotted.NAME: present}
    if isinstance(target, dict):
        target.setdefault(key, {})
    # All below `config` is config, and an entry of a list lies in the field of the list.
    keeps_field = in_config or isinstance(key, int)
    _set(target[key], path_left, value, error_place, field if keeps_field else key)


def _next_key(target: Any, path: list[str], error_place: str, field: str) -> tuple[Any, list[str]]:
    """Return the key of `target` that `path` begins with, and the rest of the path; for a list, the index.

    A key may have dots: of the keys of `target` the longest that fits is taken. Where none fits, the key is new: the
    first name of the path, or in the fields of `FLAT` the whole path. `field` is that of `_set`. Raises `SpecError` at
    `error_place` where `target` is a plain value, or a list without this index.
    """
    if isinstance(target, dict):
        new_key = ".".join(path) if field in FLAT else path[0]
        # With a dot at the end, so that a key matches whole names of the path alone.
        path_text = f"{'.'.join(path)}."
        keys = [key for key in target if isinstance(key, str) and path_text.startswith(f"{key}.")]
        key = max(keys, key=len, default=new_key)
        # A key with n dots uses up n + 1 names of the path.
        return key, path[key.count(".") + 1 :]
    if isinstance(target, list):
        if path[0].isdecimal() and int(path[0]) < len(target):
            return int(path[0]), path[1:]
        raise SpecError("there is no such place in the study", place=error_place, value=path[0])
    raise SpecError("a plain value has no fields", place=error_place, value=target)


def built(cls: type[T], fields: MutableConfig, file: str) -> T:
    """Return the object of class `cls` with these fields; the place of a `SpecError` begins with `file`."""
    try:
        value: T = validate(cls, fields)
    except SpecError as error:
        raise error.within(file) from None
    return value


def _build_all(fields: MutableConfig, name: str) -> list[Study]:
    """Return the studies that the fields of the file `name` declare: those in the list `studies`, else one.

    Raises `SpecError` where `studies` is no list of mappings.
    """
    if SEVERAL not in fields:
        return [build_study(fields, name)]
    many = fields[SEVERAL]
    if not isinstance(many, list) or not many or not all(isinstance(study, dict) for study in many):
        raise SpecError(
            "studies is a list of mappings of fields", place=f"{name}: {SEVERAL}", value=many
        )
    return [build_study(study, f"{name}: {SEVERAL}.{i}") for i, study in enumerate(many)]


def build_study(fields: MutableConfig, name: str) -> Study:
    """Return the study of these fields; without `type`, a budget makes it a sweep. `name` is its file, for errors."""
    if SEVERAL in fields:
        raise SpecError(
            "this takes one study, and the file has several",
            place=name,
            hint=f"name one: {name}:NAME",
        )
    kinds: dict[str, type[Any]] = {"ablation_grid": AblationGrid, "sweep": Sweep}
    has_budget = bool({"trials_per_arm", "budget"} & fields.keys())
    kind = fields.get("type", "sweep" if has_budget else "ablation_grid")
    if kind == "campaign":
        hint = "contrasweep decide CAMPAIGN CANDIDATE --dry-run says what a decision would train"
        raise SpecError("a campaign is no study", place=name, hint=hint)
    check_known(kind, "types", kinds, "there is no such type of study", place=f"{name}: type")
    study: Study = built(kinds[kind], fields, name)
    return study
