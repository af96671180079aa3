"""`Record`, what a finished trial leaves in the storage as record.json, and the words in it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol, Self, TypedDict, Unpack

from contrasweep.errors import StorageError

RECORD_FORMAT = 2
"""Format version of record.json. Version 1 called the candidate `number` and the type of GPU `gpu` in its notes."""


class Status(StrEnum):
    """What became of a trial. `infeasible`: it fits no host, which is not a bad score."""

    DONE = "done"
    PRUNED = "pruned"
    FAILED = "failed"
    INFEASIBLE = "infeasible"
    PENDING = "pending"


class Phase(StrEnum):
    """The part of a Sweep that a trial belongs to."""

    SEARCH = "search"
    CONFIRM = "confirm"


class DatasetLike(Protocol):
    """What a record keeps of a dataset; a `Manifest` has it."""

    @property
    def name(self) -> str:
        """Its name in the study."""

    @property
    def digest(self) -> str:
        """Digest of its content."""

    @property
    def synthetic(self) -> bool:
        """Whether it was generated and not measured."""


class TrialLike(Protocol):
    """What a record keeps of a `Trial`."""

    @property
    def id(self) -> str:
        """Digest of what the trial computes."""

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
    def config(self) -> Mapping[str, Any]:
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


@dataclass(frozen=True)
class DatasetRef:
    """A dataset by name and digest."""

    name: str
    digest: str = ""
    synthetic: bool = False

    @classmethod
    def of(cls, data: DatasetLike) -> Self:
        """The reference to a `Manifest`."""
        return cls(data.name, data.digest, data.synthetic)


@dataclass(frozen=True)
class CodeRef:
    """The code that a trial ran, by digest; its modules and sources lie in the study's code/. No digest: recorded
    before code was kept. `commit` is of the checkout that holds the trainable, `dirty` whether the code differs from
    it; `earlier` are the digests of other codes that trained the trial up to a checkpoint, if that was accepted."""

    digest: str = ""
    commit: str = ""
    dirty: bool = False
    earlier: tuple[str, ...] = ()

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """From the plain values of record.json."""
        return cls(**{**content, "earlier": tuple(content.get("earlier", ()))})


@dataclass(frozen=True)
class TrialNotes:
    """What search and placement say of a trial; None where it does not apply."""

    phase: Phase | None = None
    candidate: int | None = None  # number of the configuration in its arm's search, in the order of asking
    generation: int | None = None  # of population based training
    parent: str | None = None  # id of the trial whose checkpoint it went on from
    from_step: int | None = None  # the step of that checkpoint
    gpus: float | None = None  # GPUs or the share of one that it held; 0: none
    gpu_type: str | None = None
    cost_per_hour: float | None = None  # of the part of a host that it held
    architecture: str | None = None  # of its `cluster.memory.Workload`
    counted_gib: float | None = None  # GPU memory that the workload counts

    def joined(self, other: "TrialNotes") -> "TrialNotes":
        """Both together; `other` where both say something."""
        return replace(self, **other.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without what does not apply."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        phase = content.get("phase")
        return cls(**{**content, "phase": None if phase is None else Phase(phase)})


class Measured(TypedDict, total=False):
    """Fields of a `Record` that are not of its trial; see there."""

    metrics: Mapping[str, float]
    step: int
    seconds: float
    started: float
    ended: float
    attempts: int
    error: str | None
    host: str
    gpu_memory_gib: float | None
    gpu_utilisation: float | None
    host_memory_gib: float | None
    items: tuple[str, ...]
    artifacts: tuple[str, ...]
    notes: TrialNotes
    versions: Mapping[str, str]
    code: CodeRef


@dataclass(frozen=True)
class Record:
    """What a finished trial leaves. Made by `of`."""

    trial_id: str
    study: str
    arm: str
    trainable: str
    config: Mapping[str, Any]
    data: DatasetRef
    fold: int | None
    seed: int
    status: Status
    metrics: Mapping[str, float] = field(default_factory=dict)  # of the last report
    step: int = 0
    seconds: float = 0.0  # training time over all attempts
    started: float = 0.0  # unix time
    ended: float = 0.0
    attempts: int = 1
    error: str | None = None  # the traceback of a failed trial
    host: str = ""
    gpu_memory_gib: float | None = None  # peak, as is `host_memory_gib`
    gpu_utilisation: float | None = None  # 0 to 1
    host_memory_gib: float | None = None
    items: tuple[str, ...] = ()  # columns of items.parquet
    artifacts: tuple[str, ...] = ()
    notes: TrialNotes = TrialNotes()
    versions: Mapping[str, str] = field(default_factory=dict)
    code: CodeRef = CodeRef()

    @classmethod
    def of(
        cls, trial: TrialLike, *, status: Status, rows: Sequence[Mapping[str, Any]] = (), **measured: Unpack[Measured]
    ) -> Self:
        """The record of `trial`. `rows` are its reports (step, time, metrics): they give metrics and step, and when it
        started and ended, where `measured` does not."""
        reported: Measured = {}
        if rows:
            metrics = {name: value for name, value in rows[-1].items() if name not in ("step", "time")}
            reported = {
                "metrics": metrics,
                "step": rows[-1]["step"],
                "started": rows[0]["time"],
                "ended": rows[-1]["time"],
            }
        given: Measured = {**reported, **measured}
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
            **given,
        )

    def to_json(self) -> bytes:
        """The content of record.json."""
        content = asdict(self) | {"notes": self.notes.to_dict(), "format_version": RECORD_FORMAT}
        return json.dumps(content, sort_keys=True, indent=1).encode()

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """The inverse of `to_json`, and of what earlier releases wrote. Raises `StorageError` for a newer format and
        ValueError, KeyError or TypeError for what is no record."""
        content = json.loads(data)
        version = content.pop("format_version")
        if version > RECORD_FORMAT:
            raise newer_format(version, RECORD_FORMAT)
        notes = dict(content["notes"])
        if version == 1:
            renamed = {"number": "candidate", "gpu": "gpu_type"}
            notes = {renamed.get(name, name): value for name, value in notes.items() if (name, value) != ("parent", "")}
        return cls(
            **content
            | {
                "status": Status(content["status"]),
                "data": DatasetRef(**content["data"]),
                "items": tuple(content["items"]),
                "artifacts": tuple(content["artifacts"]),
                "notes": TrialNotes.from_dict(notes),
                "code": CodeRef.from_dict(content.get("code", {})),
            }
        )


def newer_format(version: int, known: int) -> StorageError:
    """The error for a file of a later release; whoever knows the file's name puts it in front."""
    return StorageError(
        f"has format version {version}, and this release reads versions up to {known}; "
        f"use the release that wrote it, or a newer one"
    )
