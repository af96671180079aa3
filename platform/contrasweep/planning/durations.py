"""The durations of trials, from those that have finished, and the duration of a plan."""

import random
import statistics as stats
from collections.abc import Iterable, Sequence

from contrasweep.cluster.inventory import Inventory
from contrasweep.cluster.packing import Footprint
from contrasweep.cluster.simulate import Makespan, simulate
from contrasweep.planning.learned import CPU
from contrasweep.storage.record import Record
from contrasweep.trial import Trial

SIMULATED = 20_000
"""Trials that are simulated; of a longer plan a sample, whose hours are scaled up."""


class Durations:
    """Seconds that finished trials trained, converted to a GPU of speed 1 in the inventory; on a CPU, as measured.

    Of the records `known` those count whose trials were trained to their end.
    """

    def __init__(self, known: Iterable[Record], inventory: Inventory) -> None:
        self.inventory = inventory
        # Trial id -> record; type of GPU -> speed, of which 1 is the one that seconds are converted to; arm -> median
        # seconds of its trials; and the median over arms, for arms of which no trial has finished.
        self.done = {record.trial_id: record for record in known if record.status.counts}
        self.speeds = {gpu.type: gpu.speed for gpu in inventory.gpu_types}
        by_arm: dict[str, list[float]] = {}
        for record in self.done.values():
            by_arm.setdefault(record.arm, []).append(self._seconds(record))
        self.arms = {arm: stats.median(seconds) for arm, seconds in by_arm.items()}
        self.usual = stats.median(self.arms.values()) if self.arms else None

    def of(self, arm: str, trials: Iterable[Trial] = ()) -> float | None:
        """Return the expected seconds of one trial of `arm`; None before any trial of the study has finished.

        They are the median over its cell's `trials`, else over its arm, else over the study.
        """
        seconds = [self._seconds(self.done[trial.id]) for trial in trials if trial.id in self.done]
        return stats.median(seconds) if seconds else self.arms.get(arm, self.usual)

    def makespan(
        self, footprints: Sequence[Footprint], seconds: Sequence[float | None]
    ) -> Makespan | None:
        """Simulate how long trials with these footprints and seconds take, run in this order.

        None where the seconds of one are not known. What a trial takes beside its training (start, staging, saving) is
        the median of what it took so far.
        """
        takes = [s for s in seconds if s is not None]
        if len(takes) < len(seconds):
            return None
        beside = [
            record.ended - record.started - record.seconds
            for record in self.done.values()
            if record.attempts == 1
        ]
        start_s = max(0.0, stats.median(beside)) if beside else 0.0
        if len(takes) <= SIMULATED:
            return simulate(footprints, takes, self.inventory, start_s=start_s)
        # The sample has a fixed seed, so that a plan says the same each time.
        chosen = sorted(random.Random(0).sample(range(len(takes)), SIMULATED))
        makespan = simulate(
            [footprints[i] for i in chosen],
            [takes[i] for i in chosen],
            self.inventory,
            start_s=start_s,
        )
        return makespan.scaled(len(takes) / SIMULATED)

    def warnings(self) -> list[str]:
        """Return one warning where finished trials ran on types of GPU that the inventory does not have; else []."""
        # On hosts without a GPU all is of one type, `CPU`.
        ran = {(record.notes.gpu_type or CPU) for record in self.done.values()}
        planned_types = {*self.speeds} if self.speeds else {CPU}
        odd = ", ".join(sorted(ran - planned_types))
        if odd:
            return [
                f"time is what trials took on {odd}; these hosts have {', '.join(sorted(planned_types))}"
            ]
        return []

    def _seconds(self, record: Record) -> float:
        """Return a record's training seconds at speed 1; as they are where its type has no speed in the inventory."""
        return record.seconds * self.speeds.get((record.notes.gpu_type or CPU), 1.0)


def duration(seconds: float) -> str:
    """Return seconds as text: `12 s` (below 100), `3 min` (below an hour and a half), `2.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
