"""The modules where the search for a trial's code begins: its trainable, and dotted paths in its config."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from contrasweep.imports import project_file

_DOTTED_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def module_of(path: str) -> str:
    """Return the module of the dotted path `package.module:name`."""
    return path.partition(":")[0]


FILE = "file:"
"""Before the name of a file that a command runs."""


def dotted_paths(config: Any) -> Iterator[str]:
    """Yield every text `package.module:name` in a config, however deep.

    Of a `command` in the config: `file:NAME` for each file of the project that it names, and the module that `-m`
    names.
    """
    if isinstance(config, str):
        if ":" in config and _DOTTED_PATH.fullmatch(config):
            yield config
    elif isinstance(config, Mapping):
        for key, value in config.items():
            yield from _of_command(value) if key == "command" and _is_text(value) else dotted_paths(value)
    elif isinstance(config, list | tuple):
        for value in config:
            yield from dotted_paths(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(word, str) for word in value)


def _of_command(words: list[str]) -> Iterator[str]:
    for before, word in zip(["", *words], words, strict=False):
        if before == "-m":
            yield f"{word}:__main__"
        elif "{" not in word and project_file(word) is not None:
            yield f"{FILE}{word}"
