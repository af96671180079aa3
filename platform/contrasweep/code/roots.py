"""Where the walk over a trial's code begins: its trainable, and what its config names by a dotted path."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

_DOTTED_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def module_of(path: str) -> str:
    """The module of the dotted path `package.module:name`."""
    return path.partition(":")[0]


def dotted_paths(config: Any) -> Iterator[str]:
    """Every text `package.module:name` in a config, however deep."""
    if isinstance(config, str):
        if ":" in config and _DOTTED_PATH.fullmatch(config):
            yield config
    elif isinstance(config, Mapping):
        for value in config.values():
            yield from dotted_paths(value)
    elif isinstance(config, list | tuple):
        for value in config:
            yield from dotted_paths(value)
