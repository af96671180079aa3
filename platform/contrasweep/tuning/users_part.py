"""A wrapper around a searcher or a pruner that the user wrote. Errors in its methods name the user's class."""

from collections.abc import Callable
from typing import Any, ClassVar

from contrasweep.config import Config
from contrasweep.errors import SpecError
from contrasweep.imports import build_part, errors_named


class UsersPart:
    """Wraps an object of the user's class: `target(*first, **options)`, where `name` is the class's dotted path.

    A subclass defines `kind`, which is `searcher` or `pruner` and the place that errors name, and `protocol`, whose
    methods the object must have. `rule` and `hint` are the error for an object that lacks one. An error names the class
    and the line of its code that failed.

    Raises `SpecError` where the class does not take the options, fails, or lacks a method of the protocol.
    """

    kind: ClassVar[str]
    protocol: ClassVar[Any]
    rule: ClassVar[str]
    hint: ClassVar[str]

    def __init__(
        self, name: str, target: Callable[..., Any], *first: object, options: Config
    ) -> None:
        self.name = name
        self.part = build_part(self.kind, name, target, *first, options=options)
        if not isinstance(self.part, self.protocol):
            raise SpecError(self.rule, place=self.kind, value=name, hint=self.hint)

    def __getattr__(self, method: str) -> Any:
        """Return the method of this name of the user's object, which raises its errors as `SpecError`.

        The error has the name of the class and the line that failed. Python calls this only for names that the wrapper
        itself lacks.
        """
        # While the wrapper is copied it has no `part` yet, and `self.part` would call this method again without end.
        users_method = getattr(self.__dict__["part"], method)

        def call(*args: object, **options: object) -> Any:
            """Call the user's method with these arguments; an error that it raises becomes a `SpecError`."""
            with errors_named(f"{self.name} fails in {method}", self.kind):
                return users_method(*args, **options)

        return call
