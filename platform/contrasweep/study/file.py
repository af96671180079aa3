"""A study by its name on the command line: `module:NAME`, or a YAML file of the same fields, with `--set` on top."""

import dataclasses
import importlib
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from contrasweep.errors import ContrasweepError, SpecError, choose_from
from contrasweep.schema import json_schema, validate
from contrasweep.study.study import AblationGrid, Study, Sweep


class _Loader(yaml.SafeLoader):
    """YAML 1.1 as PyYAML reads it, but 1e-4 is a number, as in YAML 1.2, JSON and Python."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def load_study(name: str, sets: Sequence[str] = ()) -> Study:
    """The study called `name`, with each `path=value` of `sets` applied. `SpecError` names file and field.

    The current folder is one to import from, for the study's module and for trainables that it names.
    """
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    if name.endswith((".yaml", ".yml")):
        return _build(_override(_read_yaml(Path(name)), sets), name)
    study = _import_study(name)
    return _build(_override(to_plain(study), sets), name) if sets else study


def to_plain(value: Any) -> Any:
    """A study as the mappings, lists and plain values that YAML would hold (a trainable function stays itself)."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {name: v for name, v in fields.items() if v is not None}
    if isinstance(value, Mapping):
        return {k: to_plain(v) for k, v in value.items()}
    return [to_plain(v) for v in value] if isinstance(value, list | tuple) else value


def study_schema() -> dict[str, Any]:
    """JSON schema of a study file."""
    schema = json_schema(AblationGrid | Sweep)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "contrasweep study", **schema}


def parse_set(text: str) -> tuple[list[str], Any]:
    """`path=value` as path and value; the value is read as YAML."""
    path, equals, value = text.partition("=")
    if not equals or not path:
        raise SpecError("--set takes path=value", place="--set", value=text, hint="for example --set folds=3")
    try:
        return path.split("."), yaml.load(value, _Loader)
    except yaml.YAMLError:
        raise SpecError("the value of --set must be YAML", place=f"--set {path}", value=value) from None


def _import_study(name: str) -> Study:
    module_name, colon, attribute = name.partition(":")
    if not colon or not attribute:
        raise SpecError(
            "a study is module:NAME or a .yaml file",
            place="STUDY",
            value=name,
            hint="for example search_spaces.quickstart:STUDY",
        )
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        hint = (
            ""
            if error.name and module_name.startswith(error.name)
            else f"it imports {error.name!r}, which is not installed"
        )
        raise SpecError("there is no such module", place="STUDY", value=module_name, hint=hint) from None
    except ContrasweepError as error:
        raise SpecError(str(error), place=module_name) from None
    study = getattr(module, attribute, None)
    if isinstance(study, AblationGrid | Sweep):
        return study
    known = [n for n, v in vars(module).items() if isinstance(v, AblationGrid | Sweep)]
    raise SpecError(
        "there is no such study in this module",
        place=module_name,
        value=attribute,
        hint=choose_from("studies", known, attribute),
    )


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        fields = yaml.load(path.read_text(), _Loader)
    except OSError as error:
        raise SpecError("the study file cannot be read", place=str(path), value=error.strerror) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SpecError("the study file is not YAML", place=str(path), value=" ".join(str(error).split())) from None
    if not isinstance(fields, dict):
        raise SpecError("a study file holds a mapping of fields", place=str(path), value=fields)
    return fields


def _override(fields: dict[str, Any], sets: Sequence[str]) -> dict[str, Any]:
    for text in sets:
        path, value = parse_set(text)
        where: Any = fields
        for i, part in enumerate(path[:-1]):
            where = _inside(where, part, ".".join(path[: i + 1]), make=True)
        if isinstance(where, list):
            _inside(where, path[-1], ".".join(path), make=False)
            where[int(path[-1])] = value
        elif isinstance(where, dict):
            where[path[-1]] = value
        else:
            raise SpecError("this is a plain value and has no fields", place=f"--set {'.'.join(path)}", value=where)
    return fields


def _inside(where: Any, part: str, place: str, *, make: bool) -> Any:
    if isinstance(where, dict):
        return where.setdefault(part, {}) if make else where.get(part)
    if isinstance(where, list) and part.isdigit() and int(part) < len(where):
        return where[int(part)]
    raise SpecError("there is no such place in the study", place=f"--set {place}", value=part)


def _build(fields: dict[str, Any], name: str) -> Study:
    kinds: dict[str, Any] = {"ablation_grid": AblationGrid, "sweep": Sweep}
    kind = fields.get("type", "sweep" if {"trials_per_arm", "budget"} & fields.keys() else "ablation_grid")
    if kind not in kinds:
        raise SpecError(
            "there is no such type of study",
            place=f"{name}: type",
            value=kind,
            hint=choose_from("types", list(kinds), kind),
        )
    try:
        study: Study = validate(kinds[kind], fields)
    except SpecError as error:
        raise error.within(name) from None
    return study
