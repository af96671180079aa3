"""`Record`, the content of a finished trial's record.json, and the enumerations in it."""

import hashlib
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Protocol, Self

import pydantic

from contrasweep import canonical
from contrasweep.config import Config, MutableConfig
from contrasweep.rows import Row, metrics_of, step_of
from contrasweep.secrets import redacted
from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.names import FileName, Label, Name, as_label

RECORD_FORMAT = 3
"""Format version of record.json."""
LONGEST_ADDRESS = 2**12
"""Bytes of the longest address whose secret is found where an error is cut."""
ERROR_BYTES = 2**18
"""The most bytes of an error text in a record; a longer text loses its middle."""
LARGEST = 1e150
"""A metric beyond it counts as lost, as one that is not finite does: its square would overflow."""
MAX_COUNT = 2**53
"""Up to this number, a float has every whole number exactly."""
MAX_TIME = 1e11
"""The latest time of a record, in unix seconds: the year 5138."""

Count = Annotated[int, pydantic.Field(ge=0, le=MAX_COUNT)]
Measure = Annotated[float, pydantic.Field(ge=0, le=1e15, allow_inf_nan=False)]
# Unix seconds, with a bound so that every time has a date.
Time = Annotated[float, pydantic.Field(ge=0, le=MAX_TIME, allow_inf_nan=False)]
Pid = Annotated[int, pydantic.Field(ge=0, lt=2**31)]
Digest = Annotated[str, pydantic.StringConstraints(pattern=r"^[0-9a-f]{0,64}$")]
Seed = Annotated[int, pydantic.Field(ge=0, le=2**63 - 1)]


class Status(StrEnum):
    """The status of a trial.

    `done`: it was trained to its end. `failed`: it ended with an error. `pruned`: a pruner stopped it. `infeasible`: it
    fits no host. No record.json has the status `pending` (the trial has no record yet) or `broken` (its record cannot
    be read).

    Other code compares no statuses, but asks the properties below.
    """

    DONE = "done"
    PENDING = "pending"
    FAILED = "failed"
    INFEASIBLE = "infeasible"
    PRUNED = "pruned"
    BROKEN = "broken"

    @property
    def counts(self) -> bool:
        """Whether the trial was trained to its end, so that tables have its value."""
        return self is Status.DONE

    @property
    def stopped_early(self) -> bool:
        """Whether a pruner stopped the trial."""
        return self is Status.PRUNED

    @property
    def trained(self) -> bool:
        """Whether the trial trained as far as it was meant to: to its end, or until a pruner stopped it."""
        return self.counts or self.stopped_early

    @property
    def failed(self) -> bool:
        """Whether the trial ended with an error; it runs again with `--retry-failed`."""
        return self is Status.FAILED

    @property
    def infeasible(self) -> bool:
        """Whether the trial fits no host; it runs again once a host fits."""
        return self is Status.INFEASIBLE

    @property
    def pending(self) -> bool:
        """Whether the trial is still to run."""
        return self is Status.PENDING

    @property
    def lost(self) -> bool:
        """Whether the trial has ended and has no value in tables: it was stopped, failed, or fits no host."""
        return self.stopped_early or self.failed or self.infeasible


class Cause(StrEnum):
    """Why a trial failed; where that is not known, the method counts as the cause."""

    METHOD = "method"  # it raised an error, gave a value that is not finite, or crashed
    TIME_LIMIT = "time limit"  # of the study: `trial_hours`, `report_minutes`
    HOST_LOST = "host lost"
    # memory of the host or its GPU ran out; another trial may have taken it
    HOST_MEMORY = "host memory"
    SIGNAL = "signal"  # the trial's process was killed from outside
    STORAGE = "storage"

    @property
    def outside(self) -> bool:
        """Whether the cause lies outside the method, as a lost host does.

        Then the trial counts as missing; otherwise it counts as lost by its arm. A time limit of the study does not lie
        outside, because it is the same for all arms.
        """
        return self not in (Cause.METHOD, Cause.TIME_LIMIT)


COUNTING = frozenset(status.value for status in Status if status.counts)
"""The values of statuses whose trials have a value in tables."""


class Phase(StrEnum):
    """The part of a Sweep that a trial belongs to."""

    SEARCH = "search"
    CONFIRM = "confirm"


class DatasetLike(Protocol):
    """The fields of a dataset that a record keeps; a `Manifest` has them."""

    @property
    def name(self) -> str:
        """The name that the study gives to the dataset."""

    @property
    def digest(self) -> str:
        """The digest of its content."""

    @property
    def synthetic(self) -> bool:
        """Whether it was generated and not measured."""


class TrialLike(Protocol):
    """The fields of a `Trial` that a record keeps."""

    @property
    def id(self) -> str:
        """The trial's id."""

    @property
    def study(self) -> str:
        """Name of the study."""

    @property
    def arm(self) -> str:
        """Name of the arm."""

    @property
    def trainable(self) -> str:
        """Dotted path of the trainable."""

    @property
    def config(self) -> Config:
        """All its settings, resolved and nested."""

    @property
    def data(self) -> DatasetLike:
        """The dataset it trains on."""

    @property
    def fold(self) -> int | None:
        """The fold that is held out; None: it is tested on the test split."""

    @property
    def seed(self) -> int:
        """The seed of everything random in it."""

    @property
    def start(self) -> "StartRef | None":
        """The trial from whose checkpoint it starts."""


def id_of(trial: TrialLike, config: str) -> str:
    """Return the id of a trial: 16 hexadecimal digits of the digest of all that changes its result.

    That is arm, trainable, config, the dataset's digest, fold, seed, and study and id of `start`. `config` is the
    canonical text of the trial's config. The study's name, host, resources and date are no part of it, so that a rerun
    elsewhere is the same trial. The name of the study of `start` is a part: two studies may have trials with the same
    id whose networks differ.
    """
    names = _texts(trial.arm, trial.trainable, trial.data.digest)
    start = "" if trial.start is None else f"\n{trial.start.study}/{trial.start.trial}"
    text = f"{names}\n{_number(trial.fold)}\n{_number(trial.seed)}\n{config}{start}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@lru_cache(maxsize=1024)  # the trials of a study have few different names
def _texts(*names: str) -> str:
    """Return the names as canonical JSON, one on each line, as a part of the text of which `id_of` makes a digest."""
    return "\n".join(canonical.dumps(name) for name in names)


def _number(number: int | None) -> str:
    """Return a fold or a seed as canonical JSON, such as `3`, or `null` for None."""
    # `str` is quick, and the same for integers. It is not for other types that a caller may give.
    return str(number) if type(number) is int else canonical.dumps(number)


@stored
class StartRef:
    """The trial from whose checkpoint another one starts."""

    study: Name
    trial: Name  # its id
    # When its training had ended, by which its network differs from that of a later training; 0: it has not ended yet.
    ended: Time = 0.0


@stored
class DatasetRef:
    """A dataset, by name and digest."""

    name: Label
    digest: Label = ""  # "": it has none
    synthetic: bool = False  # it was generated and not measured

    @classmethod
    def of(cls, data: DatasetLike) -> Self:
        """Return name, digest and `synthetic` mark of `data`, which is a `Manifest` for example, as a `DatasetRef`."""
        return cls(data.name, data.digest, data.synthetic)


@stored
class CodeRef:
    """The code that a trial ran; its modules and sources are in the study's code/."""

    digest: Digest = ""  # "": the code was not recorded
    commit: Label = ""  # of the checkout with the trainable; "": there is none
    dirty: bool = False  # the code differs from the commit
    # of other code that trained the trial up to a checkpoint, which was accepted
    earlier: tuple[Digest, ...] = ()


@stored
class TrialNotes:
    """Facts about a trial's search and its placement; None where a fact does not apply."""

    phase: Phase | None = None
    candidate: Count | None = None  # index of the configuration in its arm's search
    gpus: Measure | None = None  # number of GPUs that it had, or share of one; 0: no GPU
    gpu_type: Label | None = None
    cost_per_hour: Measure | None = None  # of its part of a host, in the inventory's currency
    architecture: Label | None = None  # of its `contrasweep.cluster.memory.Workload`
    counted_gib: Measure | None = None  # GPU memory that the workload counts
    refused_by: str | None = None  # the hosts that an infeasible trial did not fit

    def joined(self, other: "TrialNotes") -> "TrialNotes":
        """Return both notes as one. Where both have a value, that of `other` is taken."""
        stated: Any = other.to_dict()
        return replace(self, **stated)

    def to_dict(self) -> dict[str, object]:
        """Return name of the field -> value; fields that are None are left out."""
        return {name: value for name, value in vars(self).items() if value is not None}


@stored(slots=True)
class Record:
    """The record of a finished trial, made by `Record.of`; the first fields are those of its `Trial`.

    None: not known, not measured, or does not apply.
    """

    trial_id: Name
    study: Name
    arm: Label
    trainable: Label
    config: Config
    data: DatasetRef
    fold: Count | None  # None: it was tested on the test split
    seed: Seed
    status: Status
    start: StartRef | None = None  # None: it started with new weights
    metrics: Mapping[Label, float] = field(default_factory=dict)  # of the last report
    step: Count = 0  # of the last report
    seconds: Measure = 0.0  # training time over all attempts
    started: Time = 0.0  # 0: not known, as for `ended`
    ended: Time = 0.0
    attempts: Count = 1  # how often a process began it
    error: str | None = None  # the traceback of a failed trial
    cause: Cause | None = None  # of a failed trial
    host: Label = ""
    gpu_memory_gib: Measure | None = None  # peak
    gpu_utilisation: Measure | None = None  # fraction, 0 to 1
    host_memory_gib: Measure | None = None  # peak
    items: tuple[Label, ...] = ()  # columns of items.parquet
    artifacts: tuple[FileName, ...] = ()
    notes: TrialNotes = TrialNotes()
    versions: Mapping[Label, Label] = field(default_factory=dict)  # package -> version
    code: CodeRef = CodeRef()
    # Dotted keys of the config that the trainable never read; () where that is not known too.
    unused_settings: tuple[Label, ...] = ()
    warnings: Count = 0  # lines of its log that warn

    @classmethod
    def of(
        cls, trial: TrialLike, *, status: Status, rows: Sequence[Row] = (), **measured: Any
    ) -> Self:
        """Return the record of `trial` with this status; `measured` has values for further fields, by name.

        `rows` are its reports (step, time, metrics). Metrics, step, start and end are taken from them where `measured`
        does not have them. Where the trial failed and `measured` has no `cause`, the cause is `Cause.METHOD`. Values
        that a record cannot have, such as a long error or a negative time, are cut to its bounds.
        """
        reported: dict[str, object] = {"cause": Cause.METHOD} if status.failed else {}
        if rows:
            reported |= {
                "metrics": metrics_of(rows[-1]),
                "step": step_of(rows[-1]),
                "started": rows[0]["time"],
                "ended": rows[-1]["time"],
            }
        return cls(
            trial_id=trial.id,
            study=trial.study,
            arm=trial.arm,
            trainable=trial.trainable,
            config=dict(trial.config),
            data=DatasetRef.of(trial.data),
            fold=trial.fold,
            seed=trial.seed,
            status=status,
            start=trial.start,
            **_readable({**reported, **measured}),
        )

    @property
    def id(self) -> str:
        """The trial's id, by the name that a `Trial` has for it."""
        return self.trial_id

    @property
    def missing(self) -> bool:
        """Whether the trial has no value for a reason outside its method, such as a lost host or a full disk."""
        if self.status.infeasible:
            return True
        return self.status.failed and self.cause is not None and self.cause.outside

    def reported(self, metric: str) -> float:
        """Return the value of the metric in the trial's last report.

        NaN where the report lacks the metric, and where the value is infinite or too large to compute with (`LARGEST`).
        """
        value = self.metrics.get(metric, math.nan)
        return value if abs(value) <= LARGEST else math.nan

    def value(self, metric: str) -> float | None:
        """Return the value of the metric with which tables show the trial.

        None where the trial was not trained to its end, or where `reported` is NaN.
        """
        value = self.reported(metric)
        return None if math.isnan(value) or not self.status.counts else value

    def was_seen(self, metric: str) -> bool:
        """Whether somebody may have learned something about the method from this trial's values of the metric.

        That is so where the trial was trained to its end, or was stopped early. It is also so where it failed by its
        method, or fitted no host, after it had reported the metric.
        """
        return self.status.trained or (metric in self.metrics and not self.missing)

    def to_json(self) -> bytes:
        """Return the content of record.json."""
        members = asdict(self) | {"notes": self.notes.to_dict()}
        # These are empty in most records, and left out where they are; a reader gives them their defaults.
        for name in ("unused_settings", "cause", "start", "warnings"):
            if not members[name]:
                del members[name]
        return RECORD_FILE.encode(members)


_WHOLE = re.compile(r"\.0(?=[,}\]])")
"""The end of a whole float such as 1.0, which its canonical text, 1, does not have."""
RecordsById = Mapping[str, Record]
"""Trial id -> record."""


def _check_id(record: Record) -> Record:
    """Return `record`; raise `ValueError` where its id is not the one that its settings, data, fold and seed have.

    So nobody can write a record with the id of a planned trial and the settings of another one.
    """
    # A quick way for thousands of records: the config as JSON, with 1.0 written as 1. It fails for a setting whose text
    # has ".0" in it; then the canonical text decides.
    text = _WHOLE.sub("", canonical.text_of(record.config))
    if id_of(record, text) == record.trial_id:
        return record
    computed = id_of(record, canonical.dumps(record.config))
    if computed != record.trial_id:
        raise ValueError(
            f"its settings, data, fold and seed are those of trial {computed}, not of {record.trial_id}"
        )
    return record


RECORD_FILE: JsonFile[Record] = JsonFile(
    Annotated[Record, pydantic.AfterValidator(_check_id)],  # type: ignore[arg-type]
    RECORD_FORMAT,
    "`contrasweep verify STUDY --repair` puts it aside, and its trial runs again",
)
"""record.json, written and read."""


def unix_time(seconds: float | None = None) -> float:
    """Return a time as a record can have it: `seconds` since 1970, or now (None), cut to 0 to `MAX_TIME`.

    It is cut because a clock may be set to any value.
    """
    return min(max(time.time() if seconds is None else seconds, 0.0), MAX_TIME)


def _readable(measured: MutableConfig) -> MutableConfig:
    """Return the fields `measured` of a record, with values cut to what a stored record may have.

    Otherwise a record could be written that cannot be read again. A clock may be wrong, an error may have any length,
    and a setting may have any name.
    """
    started = unix_time(measured.get("started", 0.0))
    error = measured.get("error")
    return {
        **measured,
        "seconds": max(measured.get("seconds", 0.0), 0.0),
        "started": started,
        # No trial ends before it starts, though the clock may have been set back meanwhile.
        "ended": max(unix_time(measured.get("ended", 0.0)), started),
        "error": error and _clipped(error),
        "host": as_label(measured.get("host", "")),
        "unused_settings": tuple(map(as_label, measured.get("unused_settings", ()))),
    }


def _clipped(error: str) -> str:
    """Return an error text without passwords in addresses, cut to about `ERROR_BYTES`.

    Of a longer text the middle is replaced by a line that says so.
    """
    # A traceback may name a file with characters that no JSON file can have.
    data = error.encode(errors="backslashreplace")
    if len(data) <= ERROR_BYTES:
        return redacted(data.decode())
    end_bytes = ERROR_BYTES // 2 - 50
    mark = f"\n--- {len(data) - 2 * end_bytes:,} bytes are left out here\n"
    # More than is kept of each end, so that an address is whole where its secret is looked for, and cut later. A
    # character of several bytes that was cut through is dropped.
    seen_bytes = end_bytes + LONGEST_ADDRESS
    head = redacted(data[:seen_bytes].decode(errors="ignore")).encode()
    tail = redacted(data[-seen_bytes:].decode(errors="ignore")).encode()
    return (head[:end_bytes] + mark.encode() + tail[-end_bytes:]).decode(errors="ignore")
