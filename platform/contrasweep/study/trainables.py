"""The trainable that an arm names: imported by its path, and its settings resolved for each config of the arm."""

import contextlib
import dataclasses
import functools
import inspect
import os
import re
import sys
import typing
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from typing import Any

import pydantic

from contrasweep.canonical import Config
from contrasweep.code.version import FILE_PREFIX, Source, code_of, dotted_paths, named_files, parsed
from contrasweep.commands import COMMAND, COMMAND_PATH, OPTIONS, placeholders
from contrasweep.commands.functions import generator
from contrasweep.commands.metrics import REPORT_WORDS, WAYS_TO_REPORT
from contrasweep.config import MutableConfig
from contrasweep.data.manifest import Manifest
from contrasweep.errors import DataError, SpecError
from contrasweep.imports import TRAINING_PACKAGE, errors_named, import_path, is_installed
from contrasweep.schema import resolved_config
from contrasweep.study import dotted
from contrasweep.study.arm import Arm
from contrasweep.study.file import to_plain
from contrasweep.study.grid import DATA_AXIS
from contrasweep.study.sweep import Study, Sweep

Function = Callable[..., Any]
START_SETTINGS = "start_settings"
"""Attribute of a trainable that takes a start: the settings that a trial has from the trial that it starts from."""


def find_trainable(arm: Arm, place: str) -> Function:
    """Return the arm's trainable as a generator function; one that the arm names by its path is imported.

    Raises `SpecError` at `place` when its path leads nowhere, or to something else. Where its module lacks a package,
    as on a machine that only plans, a stand-in without settings is returned.
    """
    if callable(arm.trainable):
        function: Function = arm.trainable
    else:
        try:
            function = import_path(arm.trainable, place)
        except ModuleNotFoundError:
            return _stand_in(arm.trainable)
    check_trainable(function, place)
    return as_generator(function)


@functools.cache
def _stand_in(path: str) -> Function:
    """Return a function in place of a trainable that cannot be imported here; called, it raises the import's error.

    The same path always gives the same object, because functions are compared to tell two of one path apart.
    """
    return functools.partial(import_path, path)


def unchecked_settings(study: Study) -> tuple[str, ...]:
    """Return sentences on what a plan of `study` could not check here; empty where it could check all.

    Not checked are the settings of trainables without `settings`, the types of those in a plain dataclass, and what
    needs packages that are not installed here. What is doubtful of an arm with a command has a sentence too.
    """
    axes = set(study.axis_names) - {DATA_AXIS}
    # An arm without any setting has nothing to check.
    with_settings = [name for name, arm in study.arms.items() if arm.config or arm.space or axes]
    classes = {
        name: getattr(find_trainable(study.arms[name], f"arms.{name}.trainable"), "settings", None)
        for name in with_settings
    }
    arms = [name for name, cls in classes.items() if cls is None]
    # A class of `schema.checked` has the attribute `__pydantic_fields__`.
    notes = [
        f"the settings of arm {name} are a plain dataclass, whose types are not checked; contrasweep.schema.checked "
        "in place of dataclass checks them"
        for name, cls in classes.items()
        if dataclasses.is_dataclass(cls) and not hasattr(cls, "__pydantic_fields__")
    ]
    if arms:
        owner = f"arms {', '.join(arms)}: their trainables have"
        if len(arms) == 1:
            owner = f"arm {arms[0]}: its trainable has"
        notes.append(
            f"the settings of {owner} no `settings`, so they cannot be checked; one that no trial reads is named after "
            "the run"
        )
    if not is_installed(TRAINING_PACKAGE):
        notes.append(_pytorch_note(study))
    if isinstance(study, Sweep) and not can_search():
        notes.append(
            "the searcher and its options are not checked: optuna and scipy are not both installed here"
        )
    for name, arm in study.arms.items():
        if arm.trainable == COMMAND_PATH:
            notes += _doubts_of_command(name, arm, axes, study)
    return tuple(notes)


def can_search() -> bool:
    """Whether the packages that searchers need are installed. A machine that only plans and submits may lack them."""
    return is_installed("optuna") and is_installed("scipy")


def paths_without_pytorch(study: Study) -> tuple[str, ...]:
    """Return the dotted paths in `study` that a machine without PyTorch cannot import; () on one that has PyTorch.

    The settings of an arm with such a path are not checked, and stay as they were declared. So its trials have other
    ids here than on the machine that trains them.
    """
    if is_installed(TRAINING_PACKAGE):
        return ()
    lacking = []
    for path in sorted(set(dotted_paths(to_plain(study)))):
        # A file or a module that a command runs is not imported.
        if path.startswith(FILE_PREFIX) or path.endswith(":__main__"):
            continue
        # A path that leads nowhere is no matter here: what uses it raises the error, with its place.
        try:
            with contextlib.suppress(SpecError):
                import_path(path)
        except ModuleNotFoundError:
            lacking.append(path)
    return tuple(lacking)


def _pytorch_note(study: Study) -> str:
    """Return a note on the checks that this machine cannot make, because it lacks PyTorch."""
    names = ", ".join(paths_without_pytorch(study))
    unchecked = f", and the settings of {names} are not checked" if names else ""
    return (
        f"{TRAINING_PACKAGE} is not installed here, so memory is known of the usual encoders alone{unchecked}: the job "
        "counts and checks before it trains"
    )


def unread_of_command(arm: Arm) -> list[str]:
    """Return the dotted keys of an arm's settings that its command cannot know, because nothing passes them to it.

    No placeholder names such a key, and no code of the command reads the file CONTRASWEEP_TRIAL. [] for an arm without
    a command, and where the code of the command is not known.
    """
    command = arm.config.get(COMMAND) or ()
    code = [source.data for source in _sources(arm)] if command else []
    if not code or any(b"CONTRASWEEP_TRIAL" in text for text in code):
        return []
    return placeholders.unplaced(command, dotted.flatten(arm.config))


def _sources(arm: Arm) -> Collection[Source]:
    """Return the sources of all that an arm's command names."""
    return code_of(COMMAND_PATH, sorted(set(dotted_paths(arm.config)))).sources.values()


def _doubts_of_command(name: str, arm: Arm, axes: Collection[str], study: Study) -> Iterator[str]:
    """Yield what is doubtful of the arm `name` with a command, a sentence each; `axes` are the study's config keys.

    These are doubtful: settings, a seed or a fold that no placeholder names; entries of `names` that are no settings; a
    command in whose code and words nothing looks like a report; scripts that are not on this machine; what
    `_unread_flags` and `_unnamed_files` yield.
    """
    command = arm.config[COMMAND]
    options = arm.config.get(OPTIONS, {})
    placed = placeholders.names(command)
    # Settings of the config, of the space and of the axes, each once.
    settings = dict.fromkeys([*dotted.flatten(arm.config), *arm.space, *axes])
    keys = placeholders.unplaced(command, settings)
    if "seed" not in placed and len(study.all_seeds) > 1:
        keys.append("seed")
    if "fold" not in placed and "data" not in placed and study.folds is not None:
        keys.append("fold")
    if keys:
        them = "it" if len(keys) == 1 else "them"
        yield (
            f"the command of arm {name} has no placeholder for {', '.join(keys)}: whether it reads {them} from "
            "CONTRASWEEP_TRIAL cannot be checked"
        )
    sources = _sources(arm)
    # The words of the command count as code too.
    code = b"\n".join([*(source.data for source in sources), " ".join(command).encode()])
    renamed = options.get("names", {})
    # A setting that is searched may be a mapping, whose keys have names too.
    known = tuple(f"{key}." for key in settings)
    unknown = [key for key in renamed if not f"{key}.".startswith(known)]
    if unknown:
        yield f"`names` of arm {name} renames {', '.join(unknown)}, which is no setting of it"
    unnamed = [key for key in settings if key not in renamed]
    yield from _unread_flags(name, unnamed, code)
    reports = any(word.encode() in code for word in REPORT_WORDS)
    if not (reports or "metrics" in options or "metrics" in placed):
        yield f"the command of arm {name} reports nothing, as far as its code shows: {WAYS_TO_REPORT}"
    if "code" not in options:
        yield from _unnamed_files(name, sources)
    for word in placeholders.scripts(command):
        if word.startswith("/") and not os.path.exists(word):
            yield f"the command of arm {name} names {word}, which is not on this machine"


def _unread_flags(name: str, settings: list[str], code: bytes) -> Iterator[str]:
    """Yield a sentence where a command's script ignores unknown flags, and does not mention some of `settings`.

    Such a script calls `parse_known_args`; `code` is the source of all scripts. `name` is that of the arm.
    """
    # A script that calls this says nothing of a flag that it does not know.
    if b"parse_known_args(" not in code:
        return
    # The code of each flag that it reads names the flag. Given no words, `unplaced` returns all settings but those that
    # the command itself has.
    plain = code.replace(b"-", b"_")
    unread = [
        key
        for key in placeholders.unplaced((), settings)
        if key.replace("-", "_").encode() not in plain
    ]
    if unread:
        yield (
            f"the script of arm {name} passes over flags that it does not know (parse_known_args), and its code "
            f"does not name {', '.join(unread)}"
        )


def _unnamed_files(name: str, sources: Iterable[Source]) -> Iterator[str]:
    """Yield a sentence if a script of a command may run or read files that no code names; else nothing.

    It is on the first such script, which imports `subprocess` or `hydra`, for example. `name` is that of the arm.
    """
    for source in sources:
        if source.module.startswith(FILE_PREFIX) and source.file.endswith(".py"):
            _, imported = parsed(source.data)
            # These packages run other scripts, or read configurations.
            runners = {"runpy", "subprocess", "hydra"}.intersection(imported)
            if runners and not named_files(source.data):
                yield (
                    f"{source.file} of arm {name} uses {min(runners)}, and names no file: a change of what it runs or "
                    "reads is not noticed, unless `code` of the arm names it (code: [conf/, main.py])"
                )
                return


class SettingsOfArms:
    """The settings of a study's trials, built once for each config.

    A trainable's `settings` are built as `Settings(**config)`, so that a wrong key or value is found before anything is
    spent. A trial's config has every setting, also those left at their defaults. A method `resolve(self, data:
    Manifest) -> Self` makes concrete what depends on the dataset, by its content and never by its name. A trainable
    without `settings` has the config as it is declared.
    """

    def __init__(self, arms: Mapping[str, Arm]) -> None:
        self.functions = {
            name: find_trainable(arm, f"arms.{name}.trainable") for name, arm in arms.items()
        }
        _check_names(arms, self.functions)
        # A trainable says by `start_settings` that it takes the checkpoint of another trial.
        for name, arm in arms.items():
            if arm.start is not None and not hasattr(self.functions[name], START_SETTINGS):
                raise SpecError(
                    "this trainable starts from no checkpoint",
                    place=f"arms.{name}.start",
                    value=arm.path,
                    hint=f"finetune and contrastive do; your own says so with train.{START_SETTINGS} = ()",
                )
        # (function, canonical text of the config) -> settings
        self._built: dict[tuple[Any, str], Any] = {}
        # (function, canonical text of the config, digest of the data) -> whole config
        self._resolved: dict[tuple[Any, str, str], Config] = {}

    def build(self, arm: str, config: Config, axes: MutableConfig | None = None) -> Any:
        """Return the settings of `arm` under `config`; None where its trainable has no settings.

        `axes` is axis -> value of the cell, None for an axis that the cell does not vary. Raises `SpecError` where the
        settings are wrong: at `axes` where an axis set the wrong value, else at the arm's config.
        """
        # Arms with one function and one config share their settings.
        function = self.functions[arm]
        if (function, config.text) not in self._built:
            try:
                self._built[function, config.text] = _build(function, config)
            except SpecError as error:
                chosen = [axis for axis, value in (axes or {}).items() if value is not None]
                raise error.at(_place(error, arm, chosen)) from None
        return self._built[function, config.text]

    def resolve(self, arm: str, config: Config, data: Manifest) -> Config:
        """Return the whole config of a trial of `arm` on `data`: `config`, with defaults and what the dataset decides.

        It is `config` itself where the trainable has no settings. Raises `SpecError` at the arm's config.
        """
        # The dataset's content decides, so that its name makes no difference.
        key = (self.functions[arm], config.text, data.digest)
        if key not in self._resolved:
            built = self.build(arm, config)
            try:
                self._resolved[key] = _resolve(built, config, data)
            except SpecError as error:
                raise error.at(f"arms.{arm}.config") from None
        return self._resolved[key]


def resolved(function: Function, config: Config, data: Manifest) -> Config:
    """Return the whole config of a trial of the trainable `function` on `data`; see `SettingsOfArms.resolve`."""
    return _resolve(_build(function, config), config, data)


def _check_names(arms: Mapping[str, Arm], functions: Mapping[str, Function]) -> None:
    """Raise `SpecError` where two arms have different functions with the same dotted path.

    Closures that one function returns are such functions. A trial knows its trainable by the path alone, so the second
    function would never be trained. `functions` is arm -> its generator function.
    """
    first: dict[str, str] = {}  # dotted path -> the first arm that has it
    for name, arm in arms.items():
        path = arm.path
        other = first.setdefault(path, name)
        if functions[other] != functions[name]:
            raise SpecError(
                f"the trainables of arms {other!r} and {name!r} are two functions of one name",
                place=f"arms.{name}.trainable",
                value=path,
                hint="make what differs between them a setting in the arms' config, or give each a function of its "
                "own name",
            )


def _build(function: Function, config: Config) -> Any:
    """Return the settings object of a trainable, made by `function.settings(**config)`.

    None where the trainable has no settings, or where this machine lacks PyTorch and a package that they need. Any
    error of the settings becomes a `SpecError`.
    """
    settings = getattr(function, "settings", None)
    if settings is None:
        return None
    with errors_named(
        f"the settings of {getattr(function, '__qualname__', function)} cannot be built"
    ):
        try:
            return settings(**config)
        except ModuleNotFoundError:
            if is_installed(TRAINING_PACKAGE):
                raise
            return None  # one of its parts lacks a package


def _resolve(settings: Any, config: Config, data: Manifest) -> Config:
    """Return the whole config of a trial on `data` from its `settings` object, with all defaults.

    If the object has a method `resolve`, that sets what depends on the dataset first. `config` is returned as it is
    where there are no settings, or where they are neither a dataclass nor a pydantic model.
    """
    resolve = getattr(settings, "resolve", None)
    if callable(resolve):
        with errors_named(f"the settings for {data.name} cannot be built"):
            try:
                settings = resolve(data)
            except DataError as error:  # the method says what it does not take
                raise SpecError(str(error)) from None
    is_structured = dataclasses.is_dataclass(settings) or isinstance(settings, pydantic.BaseModel)
    return Config(resolved_config(settings)) if is_structured else config


def _place(error: SpecError, arm: str, axes: Collection[str]) -> str:
    """Return the place at which the error says that a setting was declared: `axes`, or the config of the arm.

    It is `axes` where the setting that `error` names is one of `axes`, or lies inside one.
    """
    # With a dot at the end, so that an axis matches its own key and those inside it.
    place = f"{error.place}."
    return "axes" if any(place.startswith(f"{axis}.") for axis in axes) else f"arms.{arm}.config"


SIGNATURE = "def train(trial, resume=None)"
"""How a trainable is declared, for hints."""
_GENERATORS = (Generator, Iterator, Iterable)
"""Return types that say that a function returns a generator."""


def check_trainable(function: Function, place: str) -> None:
    """Raise `SpecError` at `place` unless `function` reports and can be called as `function(trial, resume=folder)`.

    It reports if it is a generator, if its return type says that it returns one, or if its module calls `report`. It is
    not called.
    """
    name = getattr(function, "__qualname__", repr(function))
    # A class could be called as a function can, but gives an object and not reports.
    if inspect.isclass(function):
        raise SpecError(
            "a trainable is a generator function, not a class",
            place=place,
            value=name,
            hint=SIGNATURE,
        )
    try:
        inspect.signature(function).bind("trial", resume=None)
    except TypeError as error:
        raise SpecError(
            "a trainable takes a trial and the folder of a checkpoint",
            place=place,
            value=f"{name}{inspect.signature(function)}",
            hint=f"{error}; declare it as {SIGNATURE}",
        ) from None
    except ValueError:  # of a builtin, which has no signature
        pass
    if not _generates(function) and not _reports(function):
        raise SpecError(
            "a trainable is a generator function, or calls contrasweep.report",
            place=place,
            value=name,
            hint="use `yield Report(step, metrics)`, or where it returns another function's generator, declare it as "
            "`-> Generator[Report, None, None]`",
        )


def as_generator(function: Function) -> Function:
    """Return the trainable as a generator function, which yields its reports.

    A generator function is returned as it is. A plain function, which calls `contrasweep.report`, is wrapped.
    """
    return function if _generates(function) else generator(function)


def _reports(function: Function) -> bool:
    """Whether the source of a plain function's module, or a cell of its notebook, has a call of `report`.

    False where there is no source.
    """
    module = sys.modules.get(function.__module__)
    try:
        source = inspect.getsource(module)  # type: ignore[arg-type]
    except (OSError, TypeError):  # IPython keeps the texts of the cells in `_ih`
        source = "\n".join(getattr(module, "_ih", ()))
    return re.search(r"\breport\(", source) is not None


def _generates(function: Function) -> bool:
    """Whether a function, without its decorators, is a generator, or has a return type that says it returns one."""
    inner = inspect.unwrap(function)
    while isinstance(inner, functools.partial):
        inner = inspect.unwrap(inner.func)
    if not inspect.isroutine(inner):
        inner = type(inner).__call__  # type: ignore[operator]  # an object with a method __call__
    if inspect.isgeneratorfunction(inner):
        return True
    returned = getattr(inner, "__annotations__", {}).get("return")
    # Annotations are text where the module postpones them.
    if isinstance(returned, str):
        return any(kind.__name__ in returned for kind in _GENERATORS)
    return (typing.get_origin(returned) or returned) in _GENERATORS
