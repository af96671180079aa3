"""Lanes: the ways to train a trial beside training it alone, which is what a trial does that no lane takes.

A trainable offers a lane by its attribute `lane`: an object, or the dotted path of its class, whose `kind` is the
dotted path of a function that makes a `Lane` of (plan, footprints, done, records). The core knows this protocol and no
lane. One object of each kind serves a run, so that trials of different arms may share a process.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from contrasweep.cluster.packing import Placement
from contrasweep.errors import ProcessLostError
from contrasweep.imports import import_path
from contrasweep.planning.footprints import Footprints
from contrasweep.planning.plan import Plan, PlanRow
from contrasweep.rows import Row
from contrasweep.storage.record import Record, TrialNotes
from contrasweep.storage.records import StudyRecords
from contrasweep.study.study import Study
from contrasweep.study.trainables import find_trainable
from contrasweep.trial import Report, Trial

After = Literal["place again", "as before", "by memory"]
"""What follows a failed attempt: the trial is placed again, perhaps in no lane; it is tried once more where it was; or
what the core does for a trial alone, which gives a trial more memory after it ran out of it."""


@dataclass(frozen=True)
class Ride:
    """How a lane trains one trial: its resources, its function and its notes.

    `runner` is the dotted path of what its worker calls with the run's context and the trial's description, to get what
    it calls in place of the trainable. `members`: trials that share one place, of which each asks for an equal part.
    `details` are plain values for the runner, `notes` go into the record.
    """

    runner: str
    members: int = 1
    details: Mapping[str, str | int] = field(default_factory=dict)
    notes: TrialNotes = field(default_factory=TrialNotes)


class Lane(Protocol):
    """One way to train trials; a run makes one of each."""

    def of(self, trial: Trial) -> Ride | None:
        """Return how this lane trains `trial`; None where it does not train it."""

    def options(self, trial: Trial, ride: Ride) -> list[Placement]:
        """Every way to place a trial on its ride."""

    def after_error(self, trial: Trial, ride: Ride, error: str) -> After:
        """Return how the trial goes on after an attempt that ended in `error`, a traceback."""

    def ended(self, trial: Trial, ride: Ride | None, record: Record) -> None:
        """A trial of an arm that offers this lane has its record; `ride` is None where it trained alone."""

    def arranged(self, trials: Iterable[Trial]) -> Iterable[Trial]:
        """Planned trials in the order in which they are handed out."""

    def take_changed(self) -> bool:
        """Return whether `arranged` gives another order than at the last call."""

    def annotated(self, rows: Sequence[PlanRow]) -> Sequence[PlanRow]:
        """The rows of a plan, with how their trials train."""

    def lines(self, rows: Sequence[PlanRow]) -> list[str]:
        """Return the lines that a plan shows on this lane below its table."""

    def start(self, context: Any, say: Callable[[str], object]) -> None:
        """Prepare for a run with this `RunContext`, on a connected Ray; `say` receives messages for people."""

    def check(self) -> None:
        """Do what is due in a turn of the run's loop."""

    def close(self) -> None:
        """The run ends."""


class Lanes:
    """The lanes of a study as one; without any, every trial trains alone."""

    def __init__(
        self, footprints: Footprints, of_arm: Mapping[str, Lane] | None = None, unserved: Sequence[str] = ()
    ) -> None:
        """Keep the lanes. `of_arm`: the lane of each arm that offers one; `unserved`: arms whose lane is missing."""
        self.footprints, self.of_arm, self.unserved = footprints, dict(of_arm or {}), unserved
        self.all = list({id(lane): lane for lane in self.of_arm.values()}.values())

    def of(self, trial: Trial) -> Ride | None:
        """Return how `trial` is trained; None where it trains by itself."""
        lane = self.of_arm.get(trial.arm)
        return None if lane is None else lane.of(trial)

    def options(self, trial: Trial, ride: Ride | None) -> list[Placement]:
        """Every way to place a trial on its ride, or alone."""
        return self.footprints.options(trial) if ride is None else self.of_arm[trial.arm].options(trial, ride)

    def after_error(self, trial: Trial, ride: Ride | None, error: str) -> After:
        """Return how the trial goes on after an attempt that ended in `error`, a traceback."""
        return "by memory" if ride is None else self.of_arm[trial.arm].after_error(trial, ride, error)

    def ended(self, trial: Trial, ride: Ride | None, record: Record) -> None:
        """Tell the trial's lane that the trial has its record."""
        if (lane := self.of_arm.get(trial.arm)) is not None:
            lane.ended(trial, ride, record)

    def arranged(self, trials: Iterable[Trial]) -> Iterable[Trial]:
        """Planned trials in the order in which they are handed out."""
        for lane in self.all:
            trials = lane.arranged(trials)
        return trials

    def take_changed(self) -> bool:
        """Return whether `arranged` gives another order than at the last call."""
        changed = [lane.take_changed() for lane in self.all]  # each is asked
        return any(changed)

    def annotated(self, rows: Sequence[PlanRow]) -> Sequence[PlanRow]:
        """The rows of a plan, with how their trials train."""
        for lane in self.all:
            rows = lane.annotated(rows)
        return rows

    def lines(self, rows: Sequence[PlanRow]) -> list[str]:
        """Return the lines that a plan shows on its lanes."""
        if not self.all:
            return [f"alone     arm {arm}: its trainable offers no `lane`" for arm in self.unserved]
        return [line for lane in self.all for line in lane.lines(rows)]

    def start(self, context: Any, say: Callable[[str], object]) -> None:
        """A run begins."""
        for lane in self.all:
            lane.start(context, say)

    def check(self) -> None:
        """A turn of the run's loop."""
        for lane in self.all:
            lane.check()

    def close(self) -> None:
        """The run ends."""
        for lane in self.all:
            lane.close()


def open_lanes(plan: Plan, footprints: Footprints, done: Iterable[str], records: StudyRecords) -> Lanes:
    """The lanes of a plan; none where its study asks for none by its field `cohort`."""
    opened: dict[str, Lane] = {}
    of_arm: dict[str, Lane] = {}
    asked = [arm for arm in plan.study.arms if arm_choice(plan.study, arm) != "off"]
    kinds = {arm: kind for arm in plan.study.arms if (kind := _kind(plan.study, arm))} if asked else {}
    for arm, kind in kinds.items():
        if kind not in opened:
            opened[kind] = import_path(kind, f"arms.{arm}.trainable", "lane")(plan, footprints, done, records)
        of_arm[arm] = opened[kind]
    return Lanes(footprints, of_arm, asked)


def arm_choice(study: Study, arm: str) -> str | int:
    """The field `cohort` of an arm, else of its study."""
    return study.arms[arm].cohort or study.cohort or "off"


def offer_of(function: Callable[..., Any]) -> Any:
    """Return what a trainable offers by its attribute `lane`; None where it has none."""
    offer = getattr(function, "lane", None)
    return import_path(offer, kind="lane")() if isinstance(offer, str) else offer


def _kind(study: Study, arm: str) -> str | None:
    kind: str | None = getattr(offer_of(find_trainable(study.arms[arm], f"arms.{arm}.trainable")), "kind", None)
    return kind


class TrainedElsewhere(Protocol):
    """The answer of a runner whose trial is trained by another process and reports to this one.

    It is called like a trainable.
    """

    meter: Any
    """With the methods of `contrasweep.cluster.usage.Meter`."""
    notes: TrialNotes
    """For the record, beside those of its place."""
    peers: Mapping[str, Row]
    """By id, the reports of trials that trained in step with it, as they came with its own last one."""

    def __call__(self, trial: Trial, resume: Path | None = None) -> Generator[Report, None, None]:
        """The reports of `trial`."""


def is_elsewhere(function: object) -> bool:
    """Whether what a runner returned trains in another process."""
    return hasattr(function, "peers")


class LaneFault(ProcessLostError):
    """A lane cannot train a trial any further; the trial, which is not at fault, goes on from its checkpoint."""


class FailedElsewhere(Exception):
    """A trial has failed in the process that trained it; `text` is the traceback there."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(text.strip().splitlines()[-1] if text.strip() else "no error text")
