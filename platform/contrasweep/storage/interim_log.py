"""The looks taken at a study, in the file `looks.json` of its folder.

A look is written before anything that follows from it, in one atomic write, so that a driver that is killed takes no
look twice and none without counting. Whoever goes on with the study, here or elsewhere, goes on from this file.
"""

import itertools
import math
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal, Self

import pydantic

from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.records import StudyRecords

EXTENDED = "extended"
"""Spending of a study of a fixed size that was extended after its end: each look has half the level of the last."""
VERDICTS = ("better", "worse", "equivalent")
Decision = Literal["open", "better", "worse", "equivalent", "futile"]
Finite = Annotated[float, pydantic.Field(allow_inf_nan=False)]
Probability = Annotated[float, pydantic.Field(ge=0, le=1)]


@stored
class LookAt:
    """One comparison after one look: `a` against `b` in `context` (factor, label pairs).

    It rests on `pairs` paired trials. `p_value` and `equivalence_p` are of this look alone (None: it was not tested
    again). The interval `low` to `high` (None: there is none), `adjusted_p` and `adjusted_equivalence_p` are of the
    same data and count the family and the looks so far. `decision` is what stands.
    """

    context: tuple[tuple[str, str], ...]
    a: str
    b: str
    pairs: int
    difference: Finite
    low: Finite | None
    high: Finite | None
    p_value: Probability | None
    equivalence_p: Probability | None
    adjusted_p: Probability
    adjusted_equivalence_p: Probability | None
    level: Probability  # which chose the test
    decision: Decision

    @property
    def key(self) -> tuple[tuple[tuple[str, str], ...], frozenset[str]]:
        """Return a key of the comparison, the same for a against b and b against a."""
        return self.context, frozenset((self.a, self.b))

    @property
    def interval(self) -> tuple[float, float]:
        """The interval, infinite where there is none."""
        return (-math.inf, math.inf) if self.low is None or self.high is None else (self.low, self.high)

    @staticmethod
    def ends(low: float, high: float) -> tuple[float | None, float | None]:
        """Return `low` and `high` of an interval, with None for an infinite one."""
        return (low, high) if math.isfinite(low) and math.isfinite(high) else (None, None)


@stored
class LookTaken:
    """A look: its time, and what it decided.

    It was taken at `replicates` of the cells that were still open, at `time` of alpha's spending (0 to 1).
    `comparisons` has every comparison of the family, `stopped` the cells (as `planning.stages.cell_name`) that get no
    more replicates. `margin` is the smallest difference of interest by which it judged.
    """

    replicates: Annotated[int, pydantic.Field(ge=1)]
    time: Annotated[float, pydantic.Field(gt=0, le=1)]
    comparisons: tuple[LookAt, ...]
    stopped: tuple[str, ...]
    taken: float = 0.0  # unix time
    margin: Annotated[float, pydantic.Field(gt=0, allow_inf_nan=False)] | None = None


@stored
class LookLog:
    """All looks at a study.

    `earlier` are looks at trials that were archived and then trained again.
    """

    spending: str
    unit: str  # what is counted: seeds or repeats
    looks: tuple[LookTaken, ...] = ()
    earlier: tuple[LookTaken, ...] = ()

    def __post_init__(self) -> None:
        for earlier, next_ in itertools.pairwise(self.looks):
            if not (earlier.time < next_.time and earlier.replicates < next_.replicates):
                raise ValueError("its looks do not follow one another")

    @property
    def over(self) -> bool:
        """Whether all of alpha is spent."""
        return bool(self.looks) and self.looks[-1].time >= 1

    @property
    def latest(self) -> dict[Any, LookAt]:
        """Return the last decision on each comparison, by its key."""
        return {comparison.key: comparison for look in self.looks for comparison in look.comparisons}

    def history(self, key: Any) -> list[LookAt | None]:
        """A comparison at each look; None where it was not there yet."""
        return [
            next((comparison for comparison in look.comparisons if comparison.key == key), None) for look in self.looks
        ]

    def granted(self, cell: str) -> int | None:
        """Replicates at which a cell was stopped; None while it goes on."""
        return next((look.replicates for look in self.looks if cell in look.stopped), None)

    def begun_anew(self) -> Self:
        """Return the log for trials that are trained again, with its looks kept as earlier ones."""
        return replace(self, looks=(), earlier=(*self.earlier, *self.looks))

    def with_look(self, look: LookTaken) -> Self:
        """The log with one look more."""
        return replace(self, looks=(*self.looks, look))


LOOKS = "looks.json"
LOOKS_FILE = JsonFile(
    LookLog,
    1,
    "restore it from a backup, or run the study under another name: a look that is lost is a look that is not counted",
)
"""looks.json, written and read."""


def read_looks(records: StudyRecords) -> LookLog | None:
    """Return the looks at a study; None where there are none. `StorageError` if the file is broken."""
    return LOOKS_FILE.find(records.store, f"{records.study}/{LOOKS}")


def write_looks(records: StudyRecords, log: LookLog) -> None:
    """Keep the log, in one atomic write."""
    LOOKS_FILE.write(records.store, f"{records.study}/{LOOKS}", asdict(log))
