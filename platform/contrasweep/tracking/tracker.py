"""`Tracker`: where trials are shown besides the storage. Trackers are views: the storage is the truth."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, Self

from contrasweep.rows import metrics_of
from contrasweep.storage.attempts import BegunTrial
from contrasweep.storage.record import CodeRef, Record, Status

Outcome = Literal["complete", "interrupted", "running"]
"""How a study stands: all that is needed is done, something is left that no process trains now, or one does."""


class Tracker(Protocol):
    """Where trials are shown: `tracking: "package.module:Class"` names a class that is built as `Class(study)`.

    It is called in a process of its own, from one thread, with what the storage has; what a call raises stops no trial.
    """

    def start(self, trial: BegunTrial) -> None:
        """A trial begins to be told, from its first report on. For the second time: what was told of it is void."""

    def report(self, trial_id: str, step: int, metrics: Mapping[str, float], time: float) -> None:
        """One report of a trial that was started; `time` in unix seconds."""

    def finish(self, record: Record) -> None:
        """A trial has its record; all its reports were told."""

    def close(self, timeout_s: float = 30.0) -> object:
        """Nothing more comes. What it takes to end should take no longer than `timeout_s` seconds."""


@dataclass(frozen=True)
class EndedTrial:
    """What is kept of each trial that has a record: `ended` in unix seconds."""

    status: Status
    ended: float
    code: CodeRef

    @classmethod
    def of(cls, record: Record) -> Self:
        """From its record."""
        return cls(record.status, record.ended, record.code)


def record_digest(record: Record) -> str:
    """Tells two records of a trial apart by what is shown of them. 16 hexadecimal digits."""
    metrics = sorted(record.metrics.items())
    shown = [record.trial_id, record.status.value, record.step, record.started, record.ended, metrics]
    return hashlib.sha256(repr(shown).encode()).hexdigest()[:16]


def system_metrics(row: Mapping[str, float]) -> dict[str, float]:
    """A row of what a trial used as metrics; MLflow shows those below `system/` in a tab of their own."""
    return {f"system/{name}": value for name, value in metrics_of(row).items()}
