"""The messages of a cohort's host to its members' processes.

All are plain values, because those processes import neither torch nor the trainable.
"""

import shutil
import traceback
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from contrasweep.cluster import out_of_memory
from contrasweep.cluster.usage import Meter
from contrasweep.errors import ProcessLostError, StorageError
from contrasweep.planning.lanes import FailedElsewhere, LaneFault
from contrasweep.trainables.fusing.protocol import CannotFuse, Event
from contrasweep.trial import Report

STOPPED_HOST = "the cohort's host failed"
"""How the error of members begins whose host has failed as a whole."""


class CohortFault(LaneFault):
    """A cohort cannot go on as a whole.

    That is no fault of its members: they go on from their checkpoints, in a smaller cohort where memory may have run
    out, else alone.
    """


@dataclass(frozen=True)
class Usage:
    """A member's share of its host's use: peaks in GiB, utilisation from 0 to 1, and rows of its timeline."""

    peak_host_memory_gib: float = 0.0
    peak_gpu_memory_gib: float | None = None
    gpu_utilisation: float | None = None
    rows: tuple[Mapping[str, float], ...] = ()

    @classmethod
    def part_of(cls, meter: Meter, first_row: int, members: int) -> Self:
        """Return an equal share, for each of `members`, of what `meter` has measured so far.

        Its timeline begins at `first_row`.
        """
        gpu, busy = meter.peak_gpu_memory_gib, meter.gpu_utilisation
        return cls(
            meter.peak_host_memory_gib / members,
            None if gpu is None else gpu / members,
            None if busy is None else busy / members,
            tuple(_part(row, members) for row in meter.timeline[first_row:]),
        )


@dataclass
class Message:
    """An event of one member, with what the host printed for it since the one before.

    `peers` are the reports that the other members made in the same step (id -> step and metrics), where a pruner
    compares them.
    """

    report: Report | None = None
    failure: str = ""
    lost: bool = False  # a process or the storage failed, and not the trial
    output: str = ""
    usage: Usage = field(default_factory=Usage)
    peers: dict[str, dict[str, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, event: Event) -> "Message":
        """Return the message of an event, whose metrics and items are numbers and NumPy's arrays, not torch's."""
        if isinstance(event.error, CannotFuse):
            return cls(failure=f"{STOPPED_HOST}: its trials run alone, because {event.error.reason}")
        if event.error is not None:
            text = "".join(traceback.format_exception(event.error))
            return cls(failure=text, lost=isinstance(event.error, StorageError | ProcessLostError))
        report = event.report
        if not isinstance(report, Report):
            return cls() if report is None else cls(failure=f"TypeError: a cohort's event has a report, got {report!r}")
        metrics = {name: _plain(value) for name, value in report.metrics.items()}
        items = {name: np.asarray(scores) for name, scores in report.items.items()}
        return cls(Report(report.step, metrics, report.checkpoint, items, dict(report.artifacts)))

    @property
    def row(self) -> dict[str, float]:
        """The report as a pruner compares it; empty where there is none."""
        if self.report is None:
            return {}
        numbers = {name: value for name, value in self.report.metrics.items() if isinstance(value, float)}
        return {"step": self.report.step, **numbers}

    def raise_failure(self) -> None:
        """Raise what made the member fail, if it did."""
        if self.lost:
            raise ProcessLostError(self.failure)
        if self.failure.startswith(STOPPED_HOST):
            raise CohortFault(self.failure)
        if self.failure and out_of_memory.which(self.failure):
            raise CohortFault(f"{STOPPED_HOST}: {self.failure}")
        if self.failure:
            raise FailedElsewhere(self.failure)


def moved(report: Report, folder: Path) -> Report:
    """Return `report` with copies of its files in `folder`, so that the cohort may go on and use its own again."""
    checkpoint = report.checkpoint
    if checkpoint is not None:
        checkpoint = Path(shutil.copytree(checkpoint, folder / "checkpoint"))
    artifacts: dict[str, Path] = {}
    for number, (name, path) in enumerate(report.artifacts.items()):
        folder.mkdir(parents=True, exist_ok=True)
        artifacts[name] = Path(shutil.copy2(path, folder / f"artifact-{number}"))
    return Report(report.step, report.metrics, checkpoint, report.items, artifacts)


def _part(row: Mapping[str, float], members: int) -> dict[str, float]:
    """Return one member's part of a row of the host's timeline; what is the whole machine's stays."""
    own = ("process_memory_gib", "gpu_memory_gib", "gpu_utilization_percentage")
    return {name: value / members if name in own else value for name, value in row.items()}


def _plain(value: Any) -> Any:
    """Return a metric as a float, or as its text where it is no number: the trial's record then names it."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return repr(value)


class Outbox:
    """The reports of one member, from when they are made to when its own process has dealt with them.

    Their files are copied to `folder`: the member may go on before they are fetched, and its host may die before they
    have been dealt with. Used under the lock of its host.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.waiting: deque[Message] = deque()  # to be fetched
        self._copies: list[Path] = []  # folders with the files of those that wait
        self._in_use: list[Path] = []  # folders with the files of those that were fetched last
        self._count = 0

    def put(self, message: Message) -> None:
        """Append a message, whose files are copied."""
        report = message.report
        if report is not None and (report.checkpoint or report.artifacts):
            self._count += 1
            self._copies.append(self.folder / str(self._count))
            message.report = moved(report, self._copies[-1])
        self.waiting.append(message)

    def fetch(self) -> list[Message]:
        """Return the messages that wait; an end alone, once the files of the reports before it have been dealt with."""
        messages = list(self.waiting)
        if len(messages) > 1 and messages[-1].report is None:
            messages.pop()
        for _ in messages:
            self.waiting.popleft()
        self._in_use, self._copies = self._copies, []
        return messages

    def drop_fetched(self) -> None:
        """Remove the copies that belong to what was fetched last."""
        for folder in self._in_use:
            shutil.rmtree(folder, ignore_errors=True)
        self._in_use = []

    def close(self) -> None:
        """Remove all copies."""
        shutil.rmtree(self.folder, ignore_errors=True)
