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
from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.names import FileName, Label, Name, as_label

RECORD_FORMAT = 3
"""Format version of record.json."""
ERROR_BYTES = 2**18
"""Bytes of an error text that a record keeps: of a longer one its head and its tail."""
MAX_COUNT = 2**53
"""The largest whole number that a reader with floats still has exactly."""
MAX_TIME = 1e11
"""The latest time of a record, in unix seconds: the year 5138."""

Count = Annotated[int, pydantic.Field(ge=0, le=MAX_COUNT)]
Measure = Annotated[float, pydantic.Field(ge=0, le=1e15, allow_inf_nan=False)]
# unix time, so that it has a date
Time = Annotated[float, pydantic.Field(ge=0, le=MAX_TIME, allow_inf_nan=False)]
Pid = Annotated[int, pydantic.Field(ge=0, lt=2**31)]
Digest = Annotated[str, pydantic.StringConstraints(pattern=r"^[0-9a-f]{0,64}$")]
Seed = Annotated[int, pydantic.Field(ge=0, le=2**63 - 1)]


class Status(StrEnum):
    """The status of a trial.

    `done`: it was trained to its end. `failed`: it ended with an error. `pruned`: a pruner stopped it. `infeasible`: it
    fits no host, which is not a bad score. No record says `pending` (there is none yet) or `broken` (it cannot be
    read).

    Nothing else compares statuses: what is done with a trial of a status is asked by the properties below.
    """

    DONE = "done"
    PENDING = "pending"
    FAILED = "failed"
    INFEASIBLE = "infeasible"
    PRUNED = "pruned"
    BROKEN = "broken"

    @property
    def counts(self) -> bool:
        """Return whether the trial was trained to its end, so that tables have its value."""
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
        """Whether the trial fits no host; it runs again where there is one."""
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
    """The cause of a failed trial, as its record has it; where none is known, the method counts as the cause."""

    METHOD = "method"  # it raised an error, gave a value that is not finite, or crashed
    TIME_LIMIT = "time limit"  # of the study: `trial_hours`, `report_minutes`
    HOST_LOST = "host lost"
    HOST_MEMORY = "host memory"  # or that of its GPU ran out, which a neighbour may have taken
    SIGNAL = "signal"  # its process was killed from outside
    STORAGE = "storage"

    @property
    def outside(self) -> bool:
        """Return whether the cause lies outside the method: the trial is missing then and has not lost.

        A time limit of the study does not lie outside: all arms have the same.
        """
        return self not in (Cause.METHOD, Cause.TIME_LIMIT)


COUNTING = frozenset(status.value for status in Status if status.counts)
"""The words of statuses whose trials have a value in tables."""


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
    canonical text of the trial's config. The study's name, host, resources and date are no part of it, so a
    rerun elsewhere is the same trial. The name of the study that it starts from is: two studies may have a trial of one
    id and other networks.
    """
    names = _texts(trial.arm, trial.trainable, trial.data.digest)
    start = "" if trial.start is None else f"\n{trial.start.study}/{trial.start.trial}"
    text = f"{names}\n{_number(trial.fold)}\n{_number(trial.seed)}\n{config}{start}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@lru_cache(maxsize=1024)  # the trials of a study have few of these
def _texts(*names: str) -> str:
    """Return the canonical texts of `names`, a line each."""
    return "\n".join(canonical.dumps(name) for name in names)


def _number(number: int | None) -> str:
    """Return the canonical text of a fold or a seed, in a quick way where it is an integer."""
    return str(number) if type(number) is int else canonical.dumps(number)


@stored
class StartRef:
    """The trial from whose checkpoint another one starts, and the time at which that trial had ended.

    The time tells a network from the one that the same trial gave when it was run again; 0: it has not ended yet.
    """

    study: Name
    trial: Name
    ended: Time = 0.0


@stored
class DatasetRef:
    """A dataset by name and digest ("" where it has none); `synthetic`: it was generated and not measured."""

    name: Label
    digest: Label = ""
    synthetic: bool = False

    @classmethod
    def of(cls, data: DatasetLike) -> Self:
        """Return the reference to a `Manifest`."""
        return cls(data.name, data.digest, data.synthetic)


@stored
class CodeRef:
    """The code that a trial ran, by digest; its modules and sources lie in the study's code/.

    An empty digest: the code was not recorded. `commit` is of the checkout that holds the trainable ("": there is
    none), `dirty` whether the code differs from it. `earlier` are the digests of other codes that trained the trial up
    to a checkpoint, if that was accepted.
    """

    digest: Digest = ""
    commit: Label = ""
    dirty: bool = False
    earlier: tuple[Digest, ...] = ()


@stored
class TrialNotes:
    """Facts on a trial from its search and its placement; None where one does not apply.

    `gpus` is a number of GPUs or the share of one, `cost_per_hour` in the inventory's currency, `counted_gib` in GiB.
    """

    phase: Phase | None = None
    # number of the configuration in its arm's search, in the order of asking
    candidate: Count | None = None
    gpus: Measure | None = None  # GPUs or the share of one that it held; 0: none
    gpu_type: Label | None = None
    cost_per_hour: Measure | None = None  # of the part of a host that it held
    architecture: Label | None = None  # of its `contrasweep.cluster.memory.Workload`
    counted_gib: Measure | None = None  # GPU memory that the workload counts
    # of an infeasible trial: the hosts there were, none of which held it
    refused_by: str | None = None

    def joined(self, other: "TrialNotes") -> "TrialNotes":
        """Return both notes as one. Where both have a value, that of `other` counts."""
        stated: Any = other.to_dict()
        return replace(self, **stated)

    def to_dict(self) -> dict[str, object]:
        """Return field -> value as plain values, without the fields that do not apply."""
        return {name: value for name, value in vars(self).items() if value is not None}


@stored(slots=True)
class Record:
    """The record of a finished trial, made by `Record.of`.

    The first fields are those of its `Trial`, as far as its id follows from them. `metrics` and `step` are of the last
    report, `seconds` is the training time over all attempts, `started` and `ended` are unix seconds (0: not known).
    `error` is the traceback of a failed trial and `cause` what it failed of. Memory is the peak in GiB,
    `gpu_utilisation` a fraction; None: not measured. `items` are the columns of items.parquet. `unused_settings` are
    the dotted keys of the config that the trainable never read, empty also where that is not known.
    """

    trial_id: Name
    study: Name
    arm: Label
    trainable: Label
    config: Config
    data: DatasetRef
    fold: Count | None
    seed: Seed
    status: Status
    start: StartRef | None = None
    metrics: Mapping[Label, float] = field(default_factory=dict)  # of the last report
    step: Count = 0
    seconds: Measure = 0.0  # training time over all attempts
    started: Time = 0.0
    ended: Time = 0.0
    attempts: Count = 1  # how often a process began it
    error: str | None = None  # the traceback of a failed trial
    cause: Cause | None = None  # of a failed trial
    host: Label = ""
    gpu_memory_gib: Measure | None = None  # peak, as is `host_memory_gib`
    gpu_utilisation: Measure | None = None  # 0 to 1
    host_memory_gib: Measure | None = None
    items: tuple[Label, ...] = ()  # columns of items.parquet
    artifacts: tuple[FileName, ...] = ()
    notes: TrialNotes = TrialNotes()
    versions: Mapping[Label, Label] = field(default_factory=dict)
    code: CodeRef = CodeRef()
    # dotted keys of the config that its trainable never read, where that is known
    unused_settings: tuple[Label, ...] = ()
    warnings: Count = 0  # lines of its log that warn

    @classmethod
    def of(
        cls, trial: TrialLike, *, status: Status, rows: Sequence[Row] = (), **measured: Any
    ) -> Self:
        """Return the record of `trial`, with this status and the fields `measured`.

        `rows` are its reports (step, time, metrics). They give metrics and step, and when it started and ended, where
        `measured` does not. A failed trial without a `cause` has failed by its method. What a record cannot hold, such
        as a long error or a negative time, is cut to what it can.
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
        """Whether the trial has no value for a reason outside its method, as a lost host or a full disk."""
        return self.status.infeasible or bool(
            self.status.failed and self.cause and self.cause.outside
        )

    def value(self, metric: str) -> float | None:
        """Return the value of the metric that tables have of the trial.

        None where it was not trained to its end, or has no finite value.
        """
        value = self.metrics.get(metric)
        return value if self.status.counts and value is not None and math.isfinite(value) else None

    def was_seen(self, metric: str) -> bool:
        """Whether the record tells something of the method.

        So it does where the trial was trained, or failed by its method after it had reported the metric.
        """
        return self.status.trained or (metric in self.metrics and not self.missing)

    def to_json(self) -> bytes:
        """Return the content of record.json."""
        # Members that most trials lack are left out where they are empty; a reader gives them their defaults.
        members = asdict(self) | {"notes": self.notes.to_dict()}
        for name in ("unused_settings", "cause", "start", "warnings"):
            if not members[name]:
                del members[name]
        return RECORD_FILE.encode(members)


_WHOLE = re.compile(r"\.0(?=[,}\]])")
"""What a whole float has that its canonical text has not."""


def _check_id(record: Record) -> Record:
    """Return `record`; raise ValueError where its id does not follow from its settings, data, fold and seed.

    A reader may rely on the fields of a record of a planned trial: they are the plan's, whoever wrote it.
    """
    # Quick, for thousands of records: the text of the config as it stands, with 1.0 written as 1. It may be wrong
    # about a text that holds ".0"; then the canonical text decides.
    text = _WHOLE.sub("", canonical.text_of(record.config))
    if id_of(record, text) == record.trial_id:
        return record
    if (computed := id_of(record, canonical.dumps(record.config))) != record.trial_id:
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
    """Return `seconds` since 1970, or now where it is None, as a `Time`: never below 0 or above `MAX_TIME`.

    A clock may be set to any value.
    """
    return min(max(time.time() if seconds is None else seconds, 0.0), MAX_TIME)


def _readable(measured: MutableConfig) -> MutableConfig:
    """Return `measured` within the bounds of `Record`, so that what is written can be read again.

    A clock may say anything, a trainable may raise anything, and a setting may have any name.
    """
    started = unix_time(measured.get("started", 0.0))
    error = measured.get("error")
    return {
        **measured,
        "seconds": max(measured.get("seconds", 0.0), 0.0),
        "started": started,
        # The clock may have been set back meanwhile: no trial ends before it starts.
        "ended": max(unix_time(measured.get("ended", 0.0)), started),
        "error": error and _clipped(error),
        "host": as_label(measured.get("host", "")),
        "unused_settings": tuple(map(as_label, measured.get("unused_settings", ()))),
    }


def _clipped(error: str) -> str:
    """Return an error text of at most `ERROR_BYTES`, without the middle of a longer one, which a line in it says."""
    # a file's name may have characters that no JSON file may have
    data = error.encode(errors="backslashreplace")
    if len(data) > ERROR_BYTES:
        end_bytes = ERROR_BYTES // 2 - 50
        mark = f"\n--- {len(data) - 2 * end_bytes:,} bytes are left out here\n"
        data = data[:end_bytes] + mark.encode() + data[-end_bytes:]
    # A character of several bytes that was cut through is dropped.
    return data.decode(errors="ignore")
