"""A candidate of a search in the storage: the searched settings, written before any trial of it runs."""

from dataclasses import dataclass
from typing import ClassVar

import pydantic

from contrasweep import canonical
from contrasweep.config import Config, MutableConfig
from contrasweep.errors import BrokenFileError
from contrasweep.storage.json_file import SCHEMA, JsonFile
from contrasweep.storage.records import StudyRecords
from contrasweep.study.space import Space


@dataclass(frozen=True)
class CandidateSettings:
    """What such a file holds."""

    __pydantic_config__: ClassVar[pydantic.ConfigDict] = SCHEMA

    config: Config


_REMEDY = "restore it from a backup, or `contrasweep verify STUDY --repair` puts the arm's search aside, to start anew"
CANDIDATE_FILE = JsonFile(pydantic.TypeAdapter(CandidateSettings), 2, _REMEDY)
"""search/<digest>/<number>.json, written and read."""


def write_candidate(records: StudyRecords, key: str, config: Config) -> None:
    """Keep a candidate."""
    CANDIDATE_FILE.write(records.store, key, {"config": canonical.canonical(config)})


def read_candidate(records: StudyRecords, key: str, space: Space) -> MutableConfig:
    """What `write_candidate` wrote; `BrokenFileError` where it is broken or no point of `space`."""
    remedy = records.remedy(_REMEDY)
    config = dict(CANDIDATE_FILE.read(records.store, key, remedy).config)
    if wrong := [name for name, value in config.items() if name not in space or not space[name].holds(value)]:
        raise BrokenFileError(f"{records.store.uri}/{key}", f"{wrong[0]} is not in the arm's space", remedy)
    return config
