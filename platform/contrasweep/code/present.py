"""The code there is now, of many trials."""

from collections.abc import Callable, Mapping
from typing import Any

from contrasweep.code.roots import dotted_paths
from contrasweep.code.version import Code, code_of
from contrasweep.config import Config


class PresentCode:
    """The code that trials would run now, worked out once for each trainable and what their configs name by path."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        """`functions`: trainables given as functions, by their dotted path."""
        self.functions = functions
        self._known: dict[tuple[str, ...], Code] = {}

    def of(self, trainable: str, config: Config) -> Code:
        """The code of a trial with this trainable and config."""
        key = (trainable, *sorted(set(dotted_paths(config))))
        if key not in self._known:
            self._known[key] = code_of(self.functions.get(trainable, trainable), key[1:])
        return self._known[key]
