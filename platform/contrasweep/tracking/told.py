"""A `Tracker` with four calls as a target of a follower.

The storage keeps what the tracker was told, so that nothing is told twice.

<study>/told-<tracker>.json    the tracker's address, and of each trial whose end it was told the record's digest
"""

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, ClassVar

import pydantic

from contrasweep.errors import BrokenFileError
from contrasweep.rows import metrics_of, step_of
from contrasweep.storage.attempts import BegunTrial
from contrasweep.storage.json_file import SCHEMA, JsonFile
from contrasweep.storage.names import Label, Name
from contrasweep.storage.record import DatasetRef, Record
from contrasweep.storage.records import StudyRecords
from contrasweep.tracking.tracker import (
    EndedTrial,
    Outcome,
    Tracker,
    TrackingError,
    TrialFiles,
    record_digest,
    system_metrics,
)

PREFIX = "told-"


@dataclass(frozen=True)
class Told:
    """What a tracker has received."""

    __pydantic_config__: ClassVar[pydantic.ConfigDict] = SCHEMA

    tracker: Label
    trials: Mapping[Name, Label] = field(default_factory=dict)


TOLD_FILE = JsonFile(pydantic.TypeAdapter(Told), 1, "the next run tells the tracker everything again")


class ToldTracker:
    """Tells the tracker that `build` makes: each trial from its first report on, and each report once."""

    connections = 1

    def __init__(self, name: str, records: StudyRecords, build: Callable[[], Tracker]) -> None:
        self.name, self.records, self.build = name, records, build
        self.tracker: Tracker | None = None
        self.told: dict[str, str] = {}
        self.added = 0
        self._last: dict[str, tuple[float, int, int]] = {}  # time of the first report, last step of reports, of use
        self._kept = True

    def connect(self, began: float | None = None, *, whole: bool = False) -> None:
        """Build the tracker, once."""
        if self.tracker is None:
            try:
                self.told = dict(TOLD_FILE.read(self.records.store, self._key).trials)
            except (FileNotFoundError, BrokenFileError):
                self.told = {}
            self.tracker = _tried(self.build)

    def is_reachable(self) -> bool:
        """Return True: an error of the tracker is an error of the call."""
        return True

    def begin(self) -> None:
        """Do nothing: such a tracker is not told of a study."""

    def learn(self, records: Collection[Record]) -> None:
        """Do nothing: such a tracker is not told of settings beforehand."""

    def shows(self, record: Record) -> bool:
        """Return whether the tracker has received the end of this trial."""
        return self.told.get(record.trial_id) == record_digest(record)

    def doubt(self, trial_id: str) -> None:
        """Tell a trial from its beginning again."""
        self._last.pop(trial_id, None)

    def show_running(self, trial: BegunTrial, started: float, files: TrialFiles) -> None:
        """Tell of the reports that are new."""
        tracker, rows, used = self._built, files.reports, files.system
        first = rows[0]["time"] if rows else 0.0
        known = self._last.get(trial.id)
        if known is None or (known[0] and known[0] != first):  # it has started over
            _tried(lambda: tracker.start(trial))
            known = (first, -1, -1)
        for row in rows:
            if step_of(row) > known[1]:
                _tried(partial(tracker.report, trial.id, step_of(row), metrics_of(row), row["time"]))
        for row in used:
            if step_of(row) > known[2]:
                _tried(partial(tracker.report, trial.id, step_of(row), system_metrics(row), row["time"]))
        self._last[trial.id] = first, _last_step(rows, known[1]), _last_step(used, known[2])

    def show_ended(self, record: Record, files: TrialFiles) -> None:
        """Tell of the rest of a trial, and of its end."""
        self.show_running(_begun(record), record.started, files)
        _tried(lambda: self._built.finish(record))
        self._last.pop(record.trial_id, None)
        self.added += record.trial_id not in self.told
        self.told[record.trial_id] = record_digest(record)
        self._kept = False

    def mend(self, record: Record, files: TrialFiles) -> int:
        """Return 0: a tracker of four calls cannot be asked what it has."""
        return 0

    def end(self, ended: Mapping[str, EndedTrial], outcome: Outcome) -> None:
        """Close the tracker, and keep what it has received."""
        if self.tracker is not None:
            _tried(lambda: self._built.close(30.0))

    def keep(self) -> None:
        """Write to the storage what the tracker has received."""
        if not self._kept:
            TOLD_FILE.write(self.records.store, self._key, asdict(Told(self.name, self.told)))
            self._kept = True

    def url(self, trial_id: str | None = None) -> None:
        """None: it may have no pages."""

    @property
    def _built(self) -> Tracker:
        if self.tracker is None:
            raise TrackingError("it was not built", retryable=False)
        return self.tracker

    @property
    def _key(self) -> str:
        return f"{self.records.study}/{PREFIX}{hashlib.sha256(self.name.encode()).hexdigest()[:12]}.json"


def _begun(record: Record) -> BegunTrial:
    data = DatasetRef(record.data.name, record.data.digest, record.data.synthetic)
    return BegunTrial(
        record.trial_id,
        record.study,
        record.arm,
        record.trainable,
        record.config,
        data,
        record.fold,
        record.seed,
        record.start,
    )


def _last_step(rows: list[dict[str, float]], before: int) -> int:
    return max(before, step_of(rows[-1])) if rows else before


def _tried(call: Callable[[], Any]) -> Any:
    """Return the result of `call`; any error of the user's code is caught, also `SystemExit`."""
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        try:
            text = str(error)
        except Exception:
            text = "its text cannot be made"
        raise TrackingError(f"{type(error).__name__}: {text}", retryable=False) from error
