"""A searcher or a pruner that the user wrote, in a wrapper that names it in the errors of its methods."""

from typing import Any

from contrasweep.imports import errors_named


class UsersPart:
    """Wraps an object of the user's class.

    `part` is the object, and `name` the dotted path of its class. `kind` is `searcher` or `pruner`, which is shown as
    the place of errors.
    """

    def __init__(self, kind: str, name: str, part: Any) -> None:
        self.kind = kind
        self.name = name
        self.part = part

    def __getattr__(self, method: str) -> Any:
        """Return the method of this name of the user's object, which raises its errors as `SpecError`.

        The error has the name of the class and the line that failed. Python calls this only for names that the wrapper
        itself lacks.
        """
        # While the wrapper is copied it has no `part` yet, and `self.part` would call this method again without end.
        users_method = getattr(self.__dict__["part"], method)

        def call(*args: object, **options: object) -> Any:
            """Call the user's method."""
            with errors_named(f"{self.name} fails in {method}", self.kind):
                return users_method(*args, **options)

        return call
