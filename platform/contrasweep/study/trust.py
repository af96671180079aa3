"""What a storage names is not imported: only what a user names, by a command, a file, a program or the environment."""

import os
import re
from collections.abc import Iterator, Mapping

from contrasweep.errors import SpecError

ALLOWED = "CONTRASWEEP_CODE"
"""The variable of what a storage may name, separated by commas: packages of the user's code, and words of commands."""
_WORD = re.compile(r"\w[\w-]*")
"""A word that names no file."""


def check_named(stored: object, named: object, place: str, hint: str) -> None:
    """Raise `SpecError` at `place` where values of a storage name code or an address that the user has not named.

    Code and addresses have a colon: `package.module:function`, `s3://bucket`. So each text with a colon in `stored`
    must be in `named` too, the values that the user has given. The same holds for the words of a command, and for
    settings of a command that are no plain word, such as files.

    `hint` ends with `, or ` and says how else the user can name them.
    """
    users_texts = set(_texts(named))
    # Our own package must not be allowed as a whole: it has code that a storage may not choose.
    allowed = {name.strip() for name in os.environ.get(ALLOWED, "").split(",")} - {"contrasweep"}
    for text in _naming(stored):
        # The package of a dotted path, or the kind of an address; a text without a colon is a word of a command.
        package = re.split("[.:]", text, maxsplit=1)[0] if ":" in text else text
        if text not in users_texts and package not in allowed:
            raise SpecError(
                "what only a storage names is not used",
                place=place,
                value=text,
                hint=f"{hint}set {ALLOWED}={package} if that is yours",
            )


def _naming(value: object) -> Iterator[str]:
    """Yield the texts in the nested `value` that may name code, a program, a file or an address; not its keys."""
    if isinstance(value, Mapping) and "command" in value:
        # Any word of a command may be a program.
        yield from _texts(value["command"])
        # Another setting of the command may name a file, unless the setting is a plain word.
        for text in _texts(value):
            if not _WORD.fullmatch(text):
                yield text
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _naming(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _naming(item)
    elif isinstance(value, str) and ":" in value:
        yield value


def _texts(value: object) -> Iterator[str]:
    """Yield the texts among the values of nested mappings and lists; keys are not among them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple | set):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)
