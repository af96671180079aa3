"""The words of a command: its placeholders, and whether there is anything to run."""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from itertools import dropwhile
from pathlib import Path
from typing import Any

import pydantic

from contrasweep.code.version import digest_of_module
from contrasweep.commands import COMMAND, OPTIONS, metrics
from contrasweep.config import Config, flatten, lookup
from contrasweep.data.manifest import NO_DATA, Manifest
from contrasweep.errors import SpecError, choose_from
from contrasweep.imports import is_installed, project_file, project_files, project_folders
from contrasweep.schema import checked

TRIAL_NAMES = (
    "arm",
    "checkpoints",
    "data",
    "fold",
    "folder",
    "metrics",
    "resume",
    "seed",
    "study",
    "trial",
)
"""Placeholders that stand for something of the trial itself, and for no setting."""
ALL_SETTINGS = ("args", "config")
"""Placeholders for all settings at once. Every other placeholder names one setting of the config."""
FORMS = {"args": ("", "hydra", "wandb"), "config": ("", "yaml", "wandb"), "data": ("", "images")}
"""The forms of placeholders that have several: `{args:hydra}`."""
SCRIPT_SUFFIXES = (".py", ".sh", ".bash", ".r", ".R", ".jl", ".pl", ".rb", ".js", ".lua")
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w.-]*)(?::(\w+))?\}")
# A word such as `A=1`, which `env` takes as a variable where it stands before the program.
_ASSIGNMENT = re.compile(r"\w+=")
_INTERPRETER = re.compile(r"python[\d.]*|(ba|z)?sh")
"""Programs whose first word, after flags without a value, is a script."""
# A flag of an interpreter that takes no value: -c, -m, -o, -W and -X take one.
_FLAG = re.compile(r"-[^-cmoWX]+")
_HYDRA_PLAIN = re.compile(r"(?!(?i:null|true|false|nan|inf)$)[A-Za-z_/][\w./@%+-]*", re.ASCII)
"""A text that Hydra takes as it is; any other is quoted, also what would be a number there."""


@checked
class Options:
    """The options of an arm with a command, beside the command's words; `study.arm.Arm` declares them.

    `metrics` has patterns of the output or names of files to read metrics from. `names` is setting -> name of its flag,
    and `code` has names of files and folders of the project. `SpecError` for an entry that is none of these.
    """

    metrics: tuple[str, ...] = ()
    names: Mapping[str, str] = pydantic.Field(default_factory=dict)
    code: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for source in self.metrics:
            metrics.check(source)
        for name in self.code:
            if not any((folder / name).exists() for folder in project_folders()):
                hint = f"it is looked for in {project_folders()[0]}"
                raise SpecError(
                    "there is no such file or folder", place="code", value=name, hint=hint
                )


class _Command:
    """The settings of an arm with a command: the words of `command`, and any other settings for its placeholders."""

    command: list[str]

    def __post_init__(self) -> None:
        # pydantic keeps the other settings as attributes, beside some of its own.
        config = {
            key: value
            for key, value in vars(self).items()
            if not key.startswith("__") and key != COMMAND
        }
        check(self.command, config)

    def resolve(self, data: Manifest) -> "_Command":
        """Return the settings unchanged; raise `SpecError` where the command has `{data}` and the study has no data."""
        if data.kind == NO_DATA and "data" in names(self.command):
            raise SpecError(
                "a study without data has nothing for {data}",
                place=COMMAND,
                value=f"data: {NO_DATA}",
            )
        return self


CommandSettings = checked(_Command, extra="allow")


def check(words: Sequence[str], config: Config) -> None:
    """Raise `SpecError` for a command that cannot run.

    Such a command has no words, a placeholder without a value in `config`, a placeholder with an unknown form (see
    `FORMS`), or a program or script that is not here. It is raised too for a setting `seed` or `fold`, and for one with
    the name of a placeholder of the command that stands for something else (`TRIAL_NAMES`, `ALL_SETTINGS`).
    """
    if not words:
        raise SpecError("a command has at least one word", place=COMMAND, value=list(words))
    settings = {key: value for key, value in config.items() if key != OPTIONS}
    known_names = [*TRIAL_NAMES, *ALL_SETTINGS, *flatten(settings)]
    for placeholder in fields(words):
        name, _, form = placeholder.partition(":")
        if name not in known_names and lookup(settings, name) is None:
            raise SpecError(
                "the command names a setting that the config does not have",
                place=COMMAND,
                value=f"{{{name}}}",
                hint=choose_from("placeholders", known_names, name),
            )
        forms = FORMS.get(name, ("",))
        if form not in forms:
            hint = ", ".join(f"{{{name}:{known}}}" if known else f"{{{name}}}" for known in forms)
            raise SpecError(
                "a placeholder has no such form",
                place=COMMAND,
                value=f"{{{name}:{form}}}",
                hint=hint,
            )
    # `{args}` gives a setting such as `data` where the command has no `{data}`. A setting `seed` or `fold` would give
    # all trials the same one.
    for name in {*names(words), "seed", "fold"} & {*TRIAL_NAMES, *ALL_SETTINGS}:
        # A mapping of such a name hides nothing: its settings are named by dotted keys, `{data.size}`.
        if not isinstance(settings.get(name, {}), Mapping):
            raise SpecError(
                "the trial has a value of this name itself",
                place=name,
                hint=f"{{{name}}} is the trial's own",
            )
    _check_program(words)


def names(words: Sequence[str]) -> list[str]:
    """Return the names of all placeholders in a command, each once and in order.

    The name of `{data:images}` is `data`.
    """
    return list(dict.fromkeys(name.partition(":")[0] for name in fields(words)))


def fields(words: Sequence[str]) -> list[str]:
    """Return what stands between the braces of placeholders, each once and in order, such as `data:images`."""
    matches = [match for word in words for match in _PLACEHOLDER.findall(word)]
    return list(dict.fromkeys(f"{name}:{form}" if form else name for name, form in matches))


def unplaced(words: Sequence[str], keys: Collection[str]) -> list[str]:
    """Return the dotted `keys` of a config that no placeholder names, so that the command is not given them.

    Empty where a placeholder stands for all settings. The keys of the command itself and of its options are left out:
    they are no settings for the command.
    """
    placed = names(words)
    if set(placed) & set(ALL_SETTINGS):
        return []
    settings = [key for key in keys if key.partition(".")[0] not in (COMMAND, OPTIONS)]
    return [key for key in settings if not _is_placed(key, placed)]


def filled(
    words: Sequence[str],
    config: Config,
    trial_values: Config,
    renamed: Mapping[str, str] | None = None,
    home: Path | None = None,
) -> list[str]:
    """Return the words with each placeholder's value: text as it is, anything else as JSON.

    Args:
        words: The command. `python` becomes the interpreter of this process.
        config: The settings.
        trial_values: Placeholder -> value, of those in `TRIAL_NAMES`, and of `config` and `data` with a form behind a
            colon, such as `data:images` (see `FORMS`).
        renamed: Setting -> its name in `{args}`, which gives the settings that no other placeholder names.
        home: The project's folder, below which files of the project get their whole path; None: it is the working
            folder, and they stay as they are.

    A word that is nothing but an empty placeholder is left out. So is a word with `{resume}` in a first attempt, which
    resumes nothing, and the flag before it: `--resume {resume}`.
    """
    placed = [name for name in names(words) if name not in (*TRIAL_NAMES, *ALL_SETTINGS)]
    unnamed = {key: value for key, value in flatten(config).items() if not _is_placed(key, placed)}
    values = {**config, **trial_values}

    def args(form: str | None) -> list[str]:
        """Return the words that `{args}`, or `{args:form}`, stands for."""
        return _args(unnamed, form or "", renamed or {})

    def text(match: "re.Match[str]") -> str:
        """Return the value of a placeholder, `{name}` or `{name:form}`, as text."""
        name, form = match.groups()
        if name == "args":
            return shlex.join(args(form))
        if form:
            return _text(values[f"{name}:{form}"])
        # A dotted name is a setting. Of any other name the trial's own value takes precedence over a setting.
        return _text(lookup(config if "." in name else values, name))

    first_attempt = trial_values.get("resume") is None
    filled_words: list[str] = []
    for word in words:
        lone = _PLACEHOLDER.fullmatch(word)  # the word is one placeholder and nothing else
        if lone and lone[1] == "args":  # several words
            filled_words += args(lone[2])
        elif "{resume}" in word and first_attempt:
            # The flag before it, which is a word of its own, is left out too.
            if word.startswith("{resume}") and re.fullmatch(r"-[^=]+", filled_words[-1]):
                filled_words.pop()
        elif home is not None and _leads_into(home, word):  # the command runs in another folder
            filled_words.append(str(home / word))
        else:
            value = _PLACEHOLDER.sub(text, word)
            if value or not lone:
                filled_words.append(value)
    program, *arguments = filled_words
    return [_program(program) or program, *arguments]


def _leads_into(home: Path, word: str) -> bool:
    """Whether a word is a relative path below `home`: of a file, or of a folder if the word has a slash."""
    if Path(word).is_absolute():
        return False
    path = home / word
    return os.path.isfile(path) or ("/" in word and os.path.isdir(path))


def _args(settings: Config, form: str, renamed: Mapping[str, str]) -> list[str]:
    """Return the words that pass all settings to a command: `--name value` for each, or in another `form`.

    `renamed` is setting -> its name on the command line, where that differs.

    The form `hydra` is `name=value`, and `wandb` is `--name=value` with the value as Python writes it. Without a form,
    a setting that is true is its flag alone, and one that is false or None is left out. A list is one flag with a word
    for each value. A name that begins with a dash is used as the flag.
    """
    words: list[str] = []
    for key, value in settings.items():
        name = renamed.get(key, key)
        flag = name if name.startswith("-") else f"--{name}"
        if form == "hydra":
            words.append(f"{name}={_hydra(value)}")
        elif form == "wandb":
            words.append(f"{flag}={list(value) if isinstance(value, tuple) else value}")
        elif isinstance(value, list | tuple):
            words += [flag, *map(_text, value)]
        elif value is True:
            words.append(flag)
        # argparse takes a word of its own such as -1e-05 for a flag.
        elif flag.startswith("--") and _text(value).startswith("-"):
            words.append(f"{flag}={_text(value)}")
        elif value is not None and value is not False:
            words += [flag, _text(value)]
    return words


def _hydra(value: Any) -> str:
    """Return a value as Hydra's command line takes it, quoted where it has signs of that language: `['a b',{x:2}]`."""
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_hydra, value))}]"
    if isinstance(value, Mapping):
        members = ",".join(f"{key}:{_hydra(inner)}" for key, inner in value.items())
        return "{" + members + "}"
    if isinstance(value, str) and not _HYDRA_PLAIN.fullmatch(value):
        # Backslashes are doubled before a quote only.
        return "'" + re.sub(r"(\\+)(?='|\Z)", r"\1\1", value).replace("'", "\\'") + "'"
    return _text(value)


def _text(value: Any) -> str:
    """Return a setting as a word: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def _is_placed(key: str, placed: Sequence[str]) -> bool:
    """Return whether a placeholder names the dotted `key`, or a mapping that it lies in."""
    return any(f"{key}.".startswith(f"{name}.") for name in placed)


def _program(word: str) -> str | None:
    """Return the program that the first word of a command names; None where there is none.

    It is looked for in the project, on the PATH, and beside this interpreter, in this order. `python` is this
    interpreter.
    """
    if word == "python":
        return sys.executable
    if file := project_file(word):
        return str(file)
    return word if shutil.which(word) else shutil.which(word, path=str(Path(sys.executable).parent))


def scripts(words: Sequence[str]) -> list[str]:
    """Return the words of a command that name what it runs: its program, and scripts for it.

    `env A=1 python -u train.py --lr {lr}` gives `python` and `train.py`. Words with placeholders are left out.
    """
    program, *rest = words
    if program == "env":  # variables that it sets, then the command that it runs
        inner = list(dropwhile(_ASSIGNMENT.match, rest))
        # Where the command begins is not known behind an option of `env`, which may have a value.
        if not inner or inner[0].startswith(("-", "{")):
            return [program]
        return scripts(inner)
    named = [word for word in rest if word.endswith(SCRIPT_SUFFIXES) and " " not in word]
    if _INTERPRETER.fullmatch(program):
        # The first word behind the flags of an interpreter is a script, whatever its suffix.
        first_word = list(dropwhile(_FLAG.fullmatch, rest))[:1]
        named = first_word + named
    known = [word for word in named if not word.startswith("-") and "{" not in word]
    return [program, *dict.fromkeys(known)]


def _check_program(words: Sequence[str]) -> None:
    """Raise `SpecError` where the command's program, module or script is not on this machine.

    A program or script that is named by a placeholder or by an absolute path is not looked for.
    """
    program, *script_words = scripts(words)
    # An absolute path may be that of another machine.
    if not Path(program).is_absolute() and _program(program) is None:
        raise SpecError(
            "there is no such program",
            place=COMMAND,
            value=program,
            hint=f"it is looked for on the PATH, beside {sys.executable} and in {project_folders()[0]}",
        )
    # The module behind -m. `python` is this interpreter; what another one imports is not known here.
    after_flags = list(dropwhile(_FLAG.fullmatch, words[words.index(program) + 1 :]))
    if program == "python" and len(after_flags) > 1 and after_flags[0] == "-m":
        module = after_flags[1]
        if not _is_module(module):
            hint = f"it is looked for in {project_folders()[0]} and where {sys.executable} imports from"
            raise SpecError("there is no such module", place=COMMAND, value=module, hint=hint)
    for word in script_words:
        if not (Path(word).is_absolute() or project_files(word) or shutil.which(word)):
            hint = f"it is looked for in and below {project_folders()[0]}"
            raise SpecError("there is no such script", place=COMMAND, value=word, hint=hint)


def _is_module(name: str) -> bool:
    """Return whether `python -m name` has something to run; True where it cannot be known, as on a laptop."""
    if "{" in name or not is_installed("torch"):  # a machine that only plans and submits
        return True
    place = name.replace(".", "/")
    if project_file(f"{place}.py") or project_file(f"{place}/__main__.py"):
        return True
    # A module that cannot be imported here has the digest "".
    return bool(digest_of_module(name) or digest_of_module(f"{name}.__main__"))
