"""Trackers by their addresses, one or several: MLflow's store, `tensorboard:FOLDER`, `wandb:FOLDER`, an own class.

A follower shows MLflow through `Server`, any other tracker through `ToldTracker`: the storage keeps what a tracker with
four calls was told, so that nothing is told twice.

    <study>/told-<tracker>.json    the tracker's address, and of each trial whose end it was told the record's digest
"""

import hashlib
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from contrasweep.defaults import OF_STUDY, TRACKING
from contrasweep.errors import BrokenFileError, SpecError, choose_from
from contrasweep.imports import import_from_here, import_path
from contrasweep.rows import metrics_of, step_of
from contrasweep.secrets import redacted
from contrasweep.storage.attempts import BegunTrial
from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.names import Label, Name
from contrasweep.storage.record import DatasetRef, Record
from contrasweep.storage.records import StudyRecords
from contrasweep.tracking.folders import TensorBoardTracker, WandbTracker, check_installed
from contrasweep.tracking.mlflow.address import TrackingAddress, checked_uri
from contrasweep.tracking.mlflow.server import Server
from contrasweep.tracking.tracker import (
    EndedTrial,
    Outcome,
    TrackedStudy,
    Tracker,
    TrackingError,
    TrialFiles,
    record_digest,
    system_metrics,
)

TOLD = "told-"


@stored
class Told:
    """What a tracker has received."""

    tracker: Label
    trials: Mapping[Name, Label] = field(default_factory=dict)


TOLD_FILE = JsonFile(Told, 1, "the next run tells the tracker everything again")


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
        return f"{self.records.study}/{TOLD}{hashlib.sha256(self.name.encode()).hexdigest()[:12]}.json"


def _begun(record: Record) -> BegunTrial:
    data = DatasetRef(record.data.name, record.data.digest, record.data.synthetic)
    return BegunTrial(
        record.trial_id, record.study, record.arm, record.trainable, record.config, data, record.fold, record.seed
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


NONE = "none"
FOLDERS: dict[str, Callable[[str, TrackedStudy], Tracker]] = {"tensorboard": TensorBoardTracker, "wandb": WandbTracker}
"""Kinds of trackers that write into a folder: `KIND:FOLDER`."""
TRACKERS: dict[str, Callable[..., object]] = {"mlflow": Server, **FOLDERS}
CALLS: dict[str, tuple[str, ...]] = {
    "start": ("trial",),
    "report": ("trial_id", "step", "metrics", "time"),
    "finish": ("record",),
    "close": ("timeout_s",),
}
"""What a tracker has, with what each call is given."""


@dataclass(frozen=True)
class Trackers:
    """Checked addresses: the store of MLflow (or none), and other trackers."""

    store: TrackingAddress
    others: tuple[str, ...] = ()

    @property
    def is_none(self) -> bool:
        """Whether nothing is tracked."""
        return self.store.is_none and not self.others

    def __str__(self) -> str:
        stores = [] if self.store.is_none and self.others else [str(self.store)]
        return ",".join([*stores, *self.others])


def tracking_of(
    tracking: str | Sequence[str] | None, declared: str | Sequence[str] | None
) -> str | Sequence[str] | None:
    """Return the addresses to use: `tracking`, or for OF_STUDY those `declared` by the study, or the default."""
    if tracking != OF_STUDY:
        return tracking
    return TRACKING if declared is None else declared


def checked_tracking(
    tracking: str | Sequence[str] | TrackingAddress | Trackers | None, *, connect: bool = True
) -> Trackers:
    """Return the addresses as they must be for any working directory.

    One text may hold several, with commas between them. `SpecError` or `StorageError` for one that cannot work.
    """
    if isinstance(tracking, Trackers):
        return tracking
    if isinstance(tracking, TrackingAddress):
        return Trackers(tracking)
    stores, others = parted(tracking)
    if len(stores) > 1:
        raise SpecError("one MLflow store at a time", place="tracking", value=[redacted(uri) for uri in stores])
    return Trackers(checked_uri(*stores or [NONE], connect=connect), tuple(map(_checked, others)))


def parted(tracking: str | Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Return MLflow's addresses and those of other trackers, without `none`."""
    texts = tracking.split(",") if isinstance(tracking, str) else list(tracking or ())
    uris = [text.strip() for text in texts if text.strip() not in ("", NONE)]
    return [uri for uri in uris if _is_mlflow(uri)], [uri for uri in uris if not _is_mlflow(uri)]


def _is_mlflow(uri: str) -> bool:
    return "://" in uri or ":" not in uri or uri.startswith((".", "/"))


def _checked(uri: str) -> str:
    kind, _, place = uri.partition(":")
    if kind in FOLDERS:
        if not place:
            raise SpecError(
                "this tracker needs a folder", place="tracking", value=uri, hint=f"for example {kind}:./runs"
            )
        if kind == "wandb":
            check_installed(uri)
        return uri
    import_from_here()
    target = import_path(uri, "tracking", "tracker")
    for name in CALLS:
        if not callable(getattr(target, name, None)):
            raise SpecError(
                f"a tracker has the calls {', '.join(CALLS)}",
                place="tracking",
                value=uri,
                hint=f"it has no {name}; {choose_from('kinds', list(TRACKERS), kind)}",
            )
    try:
        inspect.signature(target).bind("study")
    except TypeError as error:
        hint = f"{error}; it is built as Class(study), a contrasweep.tracking.TrackedStudy"
        raise SpecError("a tracker takes the study", place="tracking", value=uri, hint=hint) from None
    for name, given in CALLS.items():
        own = () if isinstance(inspect.getattr_static(target, name), staticmethod | classmethod) else ("self",)
        try:
            inspect.signature(getattr(target, name)).bind(*own, *given)
        except TypeError as error:
            rule = f"{uri}.{name} takes ({', '.join(given)})"
            raise SpecError(rule, place="tracking", hint=str(error)) from None
    return uri
