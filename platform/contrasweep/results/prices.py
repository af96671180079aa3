"""What a larger form of a study costs, by the trials that it has."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from contrasweep.planning.budget import covered
from contrasweep.statistics.sizes import Unit
from contrasweep.storage.record import Record, Status

Hours = Callable[[Mapping[str, int]], float | None]
"""Wall hours of so many more trials of each arm; None where it is not known."""


@dataclass(frozen=True)
class Size:
    """A larger study: `count` seeds or repeats (`unit`), the `trials` that it takes beyond those there are, and their
    wall `hours` (None: not known)."""

    unit: Unit
    count: int
    trials: int
    hours: float | None

    @property
    def replicates(self) -> str:
        """`10 seeds`."""
        return f"{self.count} {self.unit if self.count != 1 else self.unit[:-1]}"


class Prices:
    """What a larger study costs, by the trials there are: as many to each replicate, as long, and as many at a time.

    `present` counts the study's replicates, `trials` each arm's in the first of them, which no look has cut short."""

    def __init__(
        self, planned: pd.DataFrame, folds: int | None, records: Iterable[Record], hours: Hours | None
    ) -> None:
        seed, fold = planned["seed"], planned["fold"]
        repeats = 1 if folds is None else fold.nunique() // folds
        self.present: dict[Unit, int] = {"seeds": seed.nunique(), "repeats": max(1, repeats)}
        first = {"seeds": seed.isin(seed[:1]), "repeats": fold.isna() if folds is None else fold < folds}
        self.trials = {unit: planned["arm"][rows].value_counts() for unit, rows in first.items()}
        done = [record for record in records if record.status == Status.DONE and record.ended > record.started]
        self.hours = hours or _as_so_far(done)

    def of(self, unit: Unit, count: int, fresh: bool) -> Size:
        """The study with so many replicates."""
        more = count if fresh else count - self.present[unit]
        added = {str(arm): more * int(n) for arm, n in self.trials[unit].items()}
        return Size(unit, count, sum(added.values()), self.hours(added))


def _as_so_far(done: Sequence[Record]) -> Hours:
    """The median time of each arm's trials, as many at a time as there were."""
    spans = [(record.started, record.ended) for record in done]
    wall = covered(spans)
    at_once = max(1.0, sum(end - start for start, end in spans) / wall) if wall > 0 else 1.0
    arms = {record.arm for record in done}
    seconds = {arm: statistics.median(r.ended - r.started for r in done if r.arm == arm) for arm in arms}

    def hours(added: Mapping[str, int]) -> float | None:
        if not set(added) <= set(seconds):
            return None
        return sum(n * seconds[arm] for arm, n in added.items()) / at_once / 3600

    return hours
