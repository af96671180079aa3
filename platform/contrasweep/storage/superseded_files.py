"""The two files of superseded/: what was put aside and why (`about.json`), and an unfinished move (`moving.json`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import pydantic

from contrasweep.storage.json_file import SCHEMA, JsonFile
from contrasweep.storage.names import FileName, Label, Name, check_file_name
from contrasweep.storage.record import Time


def _check_prefix(prefix: str) -> str:
    """`prefix`, if it is a folder's, with a slash at its end, or a file's."""
    check_file_name(prefix.removesuffix("/"))
    return prefix


Prefix = Annotated[str, pydantic.AfterValidator(_check_prefix)]


@dataclass(frozen=True)
class About:
    """Why trials were put aside, which, and the searches (arm -> digest) that started anew then."""

    __pydantic_config__: ClassVar[pydantic.ConfigDict] = SCHEMA

    reason: str
    trials: tuple[Name, ...] = ()
    searches: Mapping[Label, Name] = field(default_factory=dict)
    moved: Time = 0.0


@dataclass(frozen=True)
class Move:
    """Prefix -> prefix of a move, files that are written with it, and whether everything is copied."""

    __pydantic_config__: ClassVar[pydantic.ConfigDict] = SCHEMA

    moves: Mapping[Prefix, Prefix]
    files: Mapping[FileName, About] = field(default_factory=dict)
    copied: bool = False


ABOUT_FILE = JsonFile(pydantic.TypeAdapter(About), 2, "it says why trials were put aside, no more")
"""superseded/<when>/about.json, written and read."""
MOVE_FILE = JsonFile(
    pydantic.TypeAdapter(Move), 2, "restore it from a backup, or compare superseded/ with trials/ and delete it"
)
"""superseded/moving.json, written and read."""
