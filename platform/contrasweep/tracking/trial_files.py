"""What the storage has of one trial, as trackers are given it."""

import contextlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from contrasweep.errors import BrokenFileError
from contrasweep.rows import Row
from contrasweep.storage.record import Record
from contrasweep.storage.records import LOG, StudyRecords


@dataclass(frozen=True)
class TrialFiles:
    """The files of a trial as they are when they are first asked for."""

    records: StudyRecords
    trial_id: str

    @cached_property
    def reports(self) -> list[Row]:
        """Every report that is stored; `BrokenFileError` where they cannot be read."""
        return self.records.metrics(self.trial_id)

    @cached_property
    def system(self) -> list[Row]:
        """What the trial used over time; nothing where that is broken."""
        try:
            return self.records.system(self.trial_id)
        except BrokenFileError:
            return []

    @contextmanager
    def fetched(self, record: Record) -> Iterator[Path]:
        """A folder with the artifacts of a trial that has ended, by name, and what it printed; gone afterwards."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for artifact in record.artifacts:
                self.records.artifact(self.trial_id, artifact, folder / artifact)
            if not (folder / LOG).exists():
                with contextlib.suppress(FileNotFoundError):
                    self.records.store.get_file(self.records.key(self.trial_id, LOG), folder / LOG)
            yield folder
