"""A configuration that a search tries: its file in the storage, its trials and its value."""

import math
import statistics
from dataclasses import dataclass, field

from contrasweep import canonical
from contrasweep.config import Config, MutableConfig
from contrasweep.errors import BrokenFileError
from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.record import Record
from contrasweep.storage.records import StudyRecords
from contrasweep.study.space import Space
from contrasweep.trial import Trial


@dataclass
class Candidate:
    """One configuration of a search, its trials (one a fold) and their records."""

    number: int
    config: MutableConfig  # the searched settings
    trials: list[Trial]
    records: dict[str, Record] = field(default_factory=dict)
    learned: bool = False  # whether the searcher has had its outcome

    def value(self, metric: str) -> float:
        """Return the mean of the metric over the trials that have ended; NaN where one lacks it, or none has."""
        values = [record.metrics.get(metric, math.nan) for record in self.records.values()]
        return statistics.fmean(values) if values else math.nan

    @property
    def whole(self) -> bool:
        """Whether each of its trials has ended, early or not."""
        return len(self.records) == len(self.trials)

    @property
    def counts(self) -> bool:
        """Whether each of its trials was trained to its end."""
        return self.whole and all(record.status.counts for record in self.records.values())

    @property
    def trained(self) -> bool:
        """Whether each of its trials was trained to its end, or until a pruner stopped it."""
        return self.whole and all(record.status.trained for record in self.records.values())


@stored
class CandidateSettings:
    """The content of a candidate's file."""

    config: Config


_REMEDY = "restore it from a backup, or `contrasweep verify STUDY --repair` puts the arm's search aside, to start anew"
CANDIDATE_FILE = JsonFile(CandidateSettings, 2, _REMEDY)
"""search/<digest>/<number>.json, written and read."""


def write_candidate(records: StudyRecords, key: str, config: Config) -> None:
    """Keep a candidate."""
    CANDIDATE_FILE.write(records.store, key, {"config": canonical.Config(config)})


def read_candidate(records: StudyRecords, key: str, space: Space) -> MutableConfig:
    """Return the candidate of `write_candidate`; `BrokenFileError` where it is broken or no point of `space`."""
    remedy = records.remedy(_REMEDY)
    config = dict(CANDIDATE_FILE.read(records.store, key, remedy).config)
    if wrong := [name for name, value in config.items() if name not in space or not space[name].holds(value)]:
        raise BrokenFileError(f"{records.store.uri}/{key}", f"{wrong[0]} is not in the arm's space", remedy)
    return config
