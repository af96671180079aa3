"""A searcher or a pruner that the user wrote: its methods are called, and their errors name it and its line."""

from typing import Any

from contrasweep.imports import errors_named


class UsersPart:
    """Wraps the object `part` that was built from a dotted path.

    `kind` is what it is, `searcher` or `pruner`, which is the place of errors; `name` is its path.
    """

    def __init__(self, kind: str, name: str, part: Any) -> None:
        self.kind = kind
        self.name = name
        self.part = part

    def __getattr__(self, method: str) -> Any:
        """Return a method of the part whose errors are `SpecError`, with the part's name and the line that failed.

        Python calls this only for names that the wrapper itself lacks.
        """
        # Through __dict__: `self.part` would call this again while there is no part yet, as when it is copied.
        called = getattr(self.__dict__["part"], method)

        def call(*args: object, **options: object) -> Any:
            with errors_named(f"{self.name} fails in {method}", self.kind):
                return called(*args, **options)

        return call
