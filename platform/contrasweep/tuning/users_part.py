"""A searcher or a pruner that the user wrote: its methods are called, and their errors name it and its line."""

from typing import Any

from contrasweep.imports import errors_named


class UsersPart:
    """Wraps what was built from a dotted path; `kind` is what it is, `name` its path."""

    def __init__(self, kind: str, name: str, part: Any) -> None:
        self.kind = kind
        self.name = name
        self.part = part

    def __getattr__(self, method: str) -> Any:
        """Return a method of the part, whose errors are named."""
        called = getattr(self.__dict__["part"], method)

        def call(*args: object, **options: object) -> Any:
            with errors_named(f"{self.name} fails in {method}", self.kind):
                return called(*args, **options)

        return call
