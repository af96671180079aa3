"""The durations of trials, from those that have finished, and the duration of a plan."""

import statistics as stats
from collections import defaultdict
from collections.abc import Iterable, Sequence

from contrasweep.cluster.inventory import Inventory
from contrasweep.cluster.packing import Footprint
from contrasweep.cluster.simulate import Makespan, simulate
from contrasweep.planning.footprints import cell_of
from contrasweep.planning.learned import CPU, cell_key
from contrasweep.planning.plan import PlanRow
from contrasweep.storage.record import Record


class Durations:
    """How many seconds a trial trains, from the records `known` of trials that were trained to their end.

    `equal` are (cell key, record) of such trials in other studies, which `studies` names.
    Seconds are converted to a GPU whose speed is 1 in the inventory; those on a CPU stay as measured.
    """

    def __init__(
        self, known: Iterable[Record], inventory: Inventory, equal: Sequence[tuple[str, Record]]
    ) -> None:
        self.inventory = inventory
        self.done = {record.trial_id: record for record in known if record.status.counts}
        self.speeds = {gpu.type: gpu.speed for gpu in inventory.gpu_types}
        # By arm, or by the cell key of other studies' trials.
        seconds_of = defaultdict[str, list[float]](list)
        for key, record in [*((record.arm, record) for record in self.done.values()), *equal]:
            seconds_of[key].append(self._seconds(record))
        self.usual = {key: stats.median(seconds) for key, seconds in seconds_of.items()}
        others = [record for _, record in equal]
        self.studies = sorted({record.study for record in others})
        self.measured = [*self.done.values()] or others

    def of(self, row: PlanRow) -> float | None:
        """Return the expected seconds of one trial of `row`; None where neither the study nor `equal` has a trial.

        The seconds are the median over the row's finished trials. Where none has finished, they are that over equal
        trials of other studies, else over the arm's finished trials, and for an arm without any the median of all.
        """
        done = [self.done[trial.id] for trial in row.trials if trial.id in self.done]
        if done:
            return stats.median(map(self._seconds, done))
        for key in [*(cell_key(*cell_of(trial)) for trial in row.examples), row.arm]:
            if key in self.usual:
                return self.usual[key]
        return stats.median(self.usual.values()) if self.usual else None

    def makespan(
        self, footprints: Sequence[Footprint], seconds: Sequence[float | None]
    ) -> Makespan | None:
        """Simulate how long trials with these footprints and training seconds take, run in this order.

        None where the seconds of a trial are not known. The time that a trial takes beside its training (start,
        staging, saving) is the median over finished trials.
        """
        known = [duration for duration in seconds if duration is not None]
        if len(known) < len(seconds):
            return None
        # A trial that was interrupted has waited too, so it does not count.
        overheads_s = [
            record.ended - record.started - record.seconds
            for record in self.measured
            if record.attempts == 1
        ]
        start_s = max(0.0, stats.median(overheads_s)) if overheads_s else 0.0
        return simulate(footprints, known, self.inventory, start_s=start_s)

    def warnings(self) -> list[str]:
        """Return one warning where finished trials ran on types of GPU that the inventory does not have; else []."""
        # On hosts without a GPU all trials have one type, `CPU`.
        types = {(record.notes.gpu_type or CPU) for record in self.done.values()}
        planned_types = {*self.speeds} or {CPU}
        others = ", ".join(sorted(types - planned_types))
        if not others:
            return []
        return [
            f"time is what trials took on {others}; these hosts have {', '.join(sorted(planned_types))}"
        ]

    def _seconds(self, record: Record) -> float:
        """Return a record's training seconds at speed 1, or as measured where the inventory lacks its type of GPU."""
        return record.seconds * self.speeds.get((record.notes.gpu_type or CPU), 1.0)


def duration(seconds: float) -> str:
    """Return seconds as text: `12 s` (below 100), `3 min` (below an hour and a half), `2.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
