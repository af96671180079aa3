"""`Tracker`: another place where trials are shown besides the storage, and the values that it receives."""

import contextlib
import hashlib
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol, Self, TypedDict

from contrasweep.errors import BrokenFileError
from contrasweep.rows import Row, metrics_of
from contrasweep.secrets import redacted
from contrasweep.storage.record import CodeRef, Record, Status
from contrasweep.storage.records import LOG, StudyRecords

Outcome = Literal["complete", "interrupted", "running"]
"""How a study stands: all that is needed is done, something is left that no process trains now, or one does."""


class Tracker(Protocol):
    """A place where trials are shown: `tracking: "package.module:Class"` is built as `Class(study)`.

    It is called in a process of its own, from one thread, with what the storage has; what a call raises stops no trial.
    """

    def start(self, trial: Record) -> None:
        """Receive a trial that has made its first report.

        A second call for the same trial means that it has started over: what was received of it before does not count.
        """

    def report(self, trial_id: str, step: int, metrics: Mapping[str, float], time: float) -> None:
        """Receive one report of a trial that was started; `time` is in unix seconds.

        A report of the same step as the one before takes its place.
        """

    def finish(self, record: Record) -> None:
        """Receive the record of a trial that was started, after all its reports, as its last call."""

    def close(self, timeout_s: float = 30.0) -> object:
        """Receive nothing more, and end within about `timeout_s` seconds."""


class TrackingError(Exception):
    """A call to a tracker that failed. `retryable` says that it may work later: no answer, 5xx, a locked file."""

    def __init__(self, message: str, *, retryable: bool) -> None:
        """Make the error; `message` is cut to one line of 300 characters, and secrets in it are removed."""
        self.retryable = retryable
        # MLflow's message has the whole text of its HTTP library, of which the kind of the error says enough.
        if silent := re.match(r"API request to \S+ failed with exception .*?(\w+Error)\(", message):
            message = f"the server does not answer ({silent[1]})"
        super().__init__(redacted(" ".join(message.split()))[:300])


class DatasetFacts(TypedDict):
    """Facts on a dataset: its address `uri` ("": not known), and `rows`, split -> number of rows."""

    uri: str
    rows: Mapping[str, int]


@dataclass(frozen=True)
class TrackedStudy:
    """A study as its trackers show it.

    Attributes:
        name: The study's name.
        plan_digest: Digest of its plan.
        axes: The config keys that tell trials apart, in the order in which a run's name shows them.
        keys: All config keys that any trial has.
        metric: The metric by which trials are ranked; "": they are not ranked.
        mode: Whether larger (`max`) or smaller (`min`) values of the metric are better.
        searches: Whether its table is of the confirmations of a search.
        trials: How many trials are planned; None: not known.
        storage: The address of the storage.
        origin: Tells the study from the study of the same name in another storage; see `StudyDocument`.
        description: What the study asks.
        extra: Further rows of its description (data, folds, seeds, ...), in order.
        datasets: What is known of datasets, by digest.
    """

    name: str
    plan_digest: str = ""
    axes: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    metric: str = ""
    mode: str = "max"
    searches: bool = False
    trials: int | None = None
    storage: str = ""
    origin: str = ""
    description: str = ""
    extra: Mapping[str, object] = field(default_factory=dict)
    datasets: Mapping[str, DatasetFacts] = field(default_factory=dict)

    @classmethod
    def stored(cls, records: StudyRecords) -> Self:
        """Return the study as its study.json describes it.

        Where it has no study.json, only name and storage are known. Facts of datasets are never known. The axes of a
        sweep are the settings that its arms search.
        """
        document = records.document()
        if document is None:
            return cls(records.study, storage=records.storage)
        searched = dict.fromkeys(key for arm in document.arms for key in document.space(arm))
        return cls(
            records.study,
            plan_digest=document.plan_digest,
            axes=document.axes or tuple(searched),
            metric=document.metric,
            mode=document.mode,
            searches=document.search is not None,
            trials=document.trials,
            storage=records.storage,
            origin=document.origin,
            description=document.description,
            extra={
                "data": ", ".join(data.name for data in document.datasets),
                "arms": document.arms,
                "folds": document.folds,
            },
        )


@dataclass(frozen=True)
class TrialFiles:
    """The stored files of a trial. Each one is read when it is first asked for, and kept in memory."""

    records: StudyRecords
    trial_id: str

    @cached_property
    def reports(self) -> list[Row]:
        """Every stored report, [] where there are none; `BrokenFileError` where they cannot be read."""
        return self.records.metrics(self.trial_id)

    @cached_property
    def system(self) -> list[Row]:
        """The system use of the trial over time; [] where there is none, or its file is broken."""
        try:
            return self.records.system(self.trial_id)
        except BrokenFileError:
            return []

    @contextmanager
    def fetched(self, record: Record) -> Iterator[Path]:
        """Yield a folder with the artifacts of an ended trial, by name, and its log; it is removed afterwards.

        `FileNotFoundError` where an artifact that the record names is not there.
        """
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for artifact in record.artifacts:
                self.records.artifact(self.trial_id, artifact, folder / artifact)
            # An artifact of that name takes precedence over the log; short trials may have printed nothing.
            if not (folder / LOG).exists():
                with contextlib.suppress(FileNotFoundError):
                    self.records.store.get_file(self.records.key(self.trial_id, LOG), folder / LOG)
            yield folder


@dataclass(frozen=True)
class EndedTrial:
    """The few facts that a follower keeps in memory of a trial that has a record.

    `ended` is in unix seconds.
    """

    status: Status
    ended: float
    code: CodeRef


def record_digest(record: Record) -> str:
    """Return a digest of the facts in a record that trackers show, 16 hexadecimal digits.

    These are the trial's id, its status, its last step, start, end and metrics. Settings are left out, because they
    follow from the id.
    """
    facts = [
        record.trial_id,
        record.status.value,
        record.step,
        record.started,
        record.ended,
        sorted(record.metrics.items()),
    ]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def system_metrics(row: Mapping[str, float]) -> dict[str, float]:
    """Return a row of system use as metrics: `system/` before the name of each quantity.

    MLflow shows metrics with such names in a tab of their own.
    """
    return {f"system/{name}": value for name, value in metrics_of(row).items()}


class Target:
    """A tracker as a follower sees it. Calls block, and raise `TrackingError`; up to `connections` are made at once.

    By default a call does nothing, so that a kind of tracker defines only the calls that it needs.
    """

    name: str
    connections = 1
    added = 0
    """How many trials the tracker shows that it did not know before."""
    removed = 0
    """How many trials it shows no more, because their records are gone."""

    def connect(self, began: float | None = None) -> None:
        """Learn what the tracker has of the study, which began at `began` (unix seconds; None: not known)."""

    def is_reachable(self) -> bool:
        """Return whether the tracker answers at all: if so, a failed call is the fault of the trial's data."""
        return True

    def begin(self) -> None:
        """Show the study as running; called once, when a driver is seen to live."""

    def learn(self, records: Collection[Record]) -> None:
        """Receive records of the study before they are shown, for instance to learn their settings."""

    def shows(self, record: Record) -> bool:
        """Return whether the tracker already shows this record, so that nothing need be sent for it."""
        return False

    def doubt(self, trial_id: str) -> None:
        """Forget what is known of a trial after a failed call, so that the tracker is asked again."""

    def show_running(self, trial: Record, started: float, files: TrialFiles) -> None:
        """Show a trial that has no record, with its reports so far; `started` is in unix seconds."""

    def show_ended(self, record: Record, files: TrialFiles) -> None:
        """Show a trial that has a record, whether or not it was shown as running before."""

    def end(self, ended: Mapping[str, EndedTrial], outcome: Outcome) -> None:
        """Receive how the study has ended, or that it still runs, and facts on each trial with a record, by id.

        Of this object only `keep` is called afterwards.
        """

    def keep(self) -> None:
        """Write to the storage what other processes need to know, such as links."""

    def url(self, trial_id: str | None = None) -> str | None:
        """Return the address of the page of a trial, or of the study where `trial_id` is None; None for no page."""
        return None
