"""The words of a command: its placeholders, and whether there is anything to run."""

import json
import re
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from contrasweep.commands import COMMAND
from contrasweep.config import Config
from contrasweep.errors import SpecError, choose_from
from contrasweep.imports import project_file, project_folders
from contrasweep.schema import checked

OWN = ("arm", "data", "fold", "seed", "study", "trial")
"""Placeholders that are the trial's own; all others are settings of its config."""
SCRIPTS = (".py", ".sh", ".bash", ".r", ".R", ".jl", ".pl", ".rb", ".js", ".lua")
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w.-]*)\}")


class _Command:
    """The settings of an arm with a command: its words, and any others, for its placeholders."""

    command: list[str]

    def __post_init__(self) -> None:
        config = {key: value for key, value in vars(self).items() if not key.startswith("__") and key != COMMAND}
        check(self.command, config)


CommandSettings = checked(_Command, extra="allow")


def check(words: Sequence[str], config: Config) -> None:
    """Raise `SpecError` for a command that cannot run.

    A placeholder has no value in `config`, a setting has the name of one of the trial's own, or there is no such
    program or script here.
    """
    if not words:
        raise SpecError("a command has at least one word", place=COMMAND, value=list(words))
    known = [*OWN, *_leaves(config)]
    for name in names(words):
        if name not in known and _inner(config, name) is None:
            raise SpecError(
                "the command names a setting that the config does not have",
                place=COMMAND,
                value=f"{{{name}}}",
                hint=choose_from("placeholders", known, name),
            )
    for name in set(config) & set(OWN):
        raise SpecError("the trial has a value of this name itself", place=name, hint=f"{{{name}}} is the trial's own")
    _check_program(words)


def names(words: Sequence[str]) -> list[str]:
    """Return the names in braces, each once, in their order."""
    return list(dict.fromkeys(name for word in words for name in _PLACEHOLDER.findall(word)))


def unplaced(words: Sequence[str], keys: Collection[str]) -> list[str]:
    """Return the dotted `keys` of a config that no placeholder names."""
    named = names(words)
    return [key for key in keys if key != COMMAND and not any(f"{key}.".startswith(f"{name}.") for name in named)]


def filled(words: Sequence[str], values: Config) -> list[str]:
    """Return the words with each placeholder's value: text as it is, anything else as JSON.

    `python` is the interpreter of this process.
    """
    done = [_PLACEHOLDER.sub(lambda match: _text(_inner(values, match[1])), word) for word in words]
    program = sys.executable if done[0] == "python" else project_file(done[0]) or done[0]
    return [str(program), *done[1:]]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _check_program(words: Sequence[str]) -> None:
    program = words[0]
    absolute = Path(program).is_absolute()  # may be another machine's
    if program != "python" and not absolute and project_file(program) is None and shutil.which(program) is None:
        raise SpecError(
            "there is no such program",
            place=COMMAND,
            value=program,
            hint=f"it is looked for on the PATH and in {project_folders()[0]}",
        )
    for word in words[1:]:
        relative = not Path(word).is_absolute() and not word.startswith("-") and "{" not in word
        if relative and word.endswith(SCRIPTS) and " " not in word and project_file(word) is None:
            hint = f"it is looked for in {project_folders()[0]}"
            raise SpecError("there is no such script", place=COMMAND, value=word, hint=hint)


def _leaves(config: Config, prefix: str = "") -> Iterator[str]:
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _inner(config: Config, name: str) -> Any:
    """Return the value at a dotted name, which may be a whole mapping."""
    value: Any = config
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value
