"""The lane of fused trials, by which the platform reaches `contrasweep.trainables.fusing`.

Several trials of one architecture train as one network, or one by a compiled engine.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from contrasweep.cluster import out_of_memory
from contrasweep.cluster.packing import Placement
from contrasweep.planning.footprints import Footprints
from contrasweep.planning.lanes import After, Ride
from contrasweep.planning.plan import Plan, PlanRow
from contrasweep.storage.record import Record, TrialNotes
from contrasweep.storage.records import StudyRecords
from contrasweep.trainables.fusing.choices import Choice, Fused, Fusion, fusion_of, slots_text
from contrasweep.trainables.fusing.host.messages import CohortFault
from contrasweep.trainables.fusing.known_engines import KnownEngines, device_of
from contrasweep.trial import Trial

MEMBER, OF_ONE = (
    "contrasweep.trainables.fusing.host.member:CohortMember",
    "contrasweep.trainables.fusing.cohort_of_one:cohort_of_one",
)


def open_fusing(plan: Plan, footprints: Footprints, done: Iterable[str], records: StudyRecords) -> "Fusing":
    """Open the lane of one run; what probes of engines measured before is read from the storage."""
    return Fusing(fusion_of(plan, footprints, done, KnownEngines(records.store, device_of(footprints.inventory))))


class Fusing:
    """Satisfies `contrasweep.planning.lanes.Lane`."""

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self._check: Callable[[], None] = lambda: None
        self._end: Callable[[], None] = lambda: None

    def of(self, trial: Trial) -> Ride | None:
        """Return the ride of a cohort member or of a trial by another engine; None where its trainable trains it."""
        choice = self.fusion.of(trial)
        if not isinstance(choice, Fused):
            return None
        return Ride(
            MEMBER if choice.slots > 1 else OF_ONE,
            choice.slots,
            {"key": choice.key, "engine": choice.engine},
            TrialNotes(shared_by=choice.slots if choice.slots > 1 else None, engine=choice.engine),
        )

    def options(self, trial: Trial, ride: Ride) -> list[Placement]:
        """Return an equal part of each place that holds the whole cohort."""
        return self.fusion.options(trial, ride.members)

    def after_error(self, trial: Trial, ride: Ride, error: str) -> After:
        """Halve a cohort that failed as a whole where memory may have run out; else let its trials train alone."""
        key = str(ride.details["key"])
        if CohortFault.__name__ in error:
            if out_of_memory.may_be(error):
                self.fusion.overflowed(key, ride.members)
            else:
                self.fusion.separate(key, "its cohort failed")
            return "place again"
        return "as before" if ride.members > 1 else "by memory"

    def ended(self, trial: Trial, ride: Ride | None, record: Record) -> None:
        """Learn how long a trial takes alone, and which graphs are compiled."""
        if record.status.counts and (ride is None or ride.members == 1):
            self.fusion.ended(trial, record.seconds, compiled=ride is not None)

    def arranged(self, trials: Iterable[Trial]) -> Iterator[Trial]:
        """Trials of one cohort key together."""
        return self.fusion.arranged(trials)

    def take_changed(self) -> bool:
        """Return whether the order changes: at first, and when a probe has shown that it pays to fuse."""
        changed, self.fusion.changed = self.fusion.changed, False
        return changed

    def annotated(self, rows: Sequence[PlanRow]) -> Sequence[PlanRow]:
        """Return rows of a plan with a column on how their trials train, where any may be fused."""
        return [_annotated(row, self._choices(row)) for row in rows] if self.fusion.used else rows

    def lines(self, rows: Sequence[PlanRow]) -> list[str]:
        """Return a line for each cohort key and for each reason to train alone, with the number of cells."""
        if not self.fusion.used:
            return []
        cells = Counter(_line(choice, row.arm) for row in rows for choice in self._choices(row))
        return [line + (f" ({count} cells)" if count > 1 else "") for line, count in cells.items()]

    def start(self, context: Any, say: Callable[[str], object]) -> None:
        """Take the context that probes and hosts need."""
        from contrasweep.trainables.fusing.host.actor import end_hosts  # Ray comes with these, which a plan needs not
        from contrasweep.trainables.fusing.probes import Probes

        self._check, self._end = Probes(self.fusion, context, say).check, lambda: end_hosts(context)

    def check(self) -> None:
        """Start a probe that pays, and take the result of one that has ended."""
        self._check()

    def close(self) -> None:
        """End the remaining hosts."""
        self._end()

    def _choices(self, row: PlanRow) -> list[Choice]:
        """Return how the trials of a row run, each way once."""
        return list(dict.fromkeys(self.fusion.of(trial) for trial in row.samples))


SHORT_KEY = 6
"""Digits of a cohort key that people are shown."""


def _line(choice: Choice, arm: str) -> str:
    if not isinstance(choice, Fused):
        return f"alone     arm {arm}: {choice.reason or 'cohort is off'}"
    gain = "unknown until probed" if choice.gain is None else f"{choice.gain:.1f}x trials per hour"
    return f"cohort    {choice.key[:SHORT_KEY]}: {slots_text(choice.slots)}, engine {choice.engine}, gain {gain}"


def _annotated(row: PlanRow, choices: list[Choice]) -> PlanRow:
    shown = ", ".join(dict.fromkeys(map(_short, choices)))
    fused = [choice for choice in choices if isinstance(choice, Fused)]
    facts = {
        "cohorts": [{"key": c.key, "slots": c.slots, "engine": c.engine, "gain": c.gain} for c in fused],
        "alone": next((c.reason or "cohort is off" for c in choices if not isinstance(c, Fused)), None),
    }
    return replace(row, facts={**row.facts, **facts}, last=(*row.last, ("trains", shown)))


def _short(choice: Choice) -> str:
    if not isinstance(choice, Fused):
        return "alone"
    return f"{f'{choice.slots} as one' if choice.slots > 1 else choice.engine} ({choice.key[:SHORT_KEY]})"
