"""The looks taken at a study, in the file `looks.json` of its folder, and what a sweep confirmed: `confirmations.json`.

A look is written before anything that follows from it, in one atomic write, so that a driver that is killed takes no
look twice and none without counting. Whoever goes on with the study, here or elsewhere, goes on from this file.

A second confirmation, with other seeds or of another best, is a second draw: whatever the cause, a larger budget or
another seed of the search too, it counts as another look.
"""

import itertools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal, Self

import pydantic

from contrasweep import canonical
from contrasweep.config import Config
from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.records import StudyRecords

EXTENDED = "extended"
"""Spending of a study of a fixed size that is extended after its end: each look has a quarter of the level before."""
VERDICTS = ("better", "worse", "equivalent")
Decision = Literal["open", "better", "worse", "equivalent", "futile"]
Finite = Annotated[float, pydantic.Field(allow_inf_nan=False)]
Probability = Annotated[float, pydantic.Field(ge=0, le=1)]


@stored
class LookAt:
    """One comparison after one look: `a` against `b` in `context` (factor, label pairs; empty: over all cells).

    `difference` is the mean of a - b, in units of the metric. It rests on `pairs` paired trials. `p_value` and
    `equivalence_p` are of this look alone (None: it was not tested again). The interval `low` to `high` (None: there is
    none), `adjusted_p` and `adjusted_equivalence_p` are of the same data and count the family and the looks so far.
    `level` chose the test. `decision` is what stands now, perhaps by an earlier look.
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
        """Return a key of the comparison: its context and its two arms, the same for a against b and b against a."""
        return self.context, frozenset((self.a, self.b))

    @property
    def interval(self) -> tuple[float, float]:
        """The two ends of the interval of a - b, both infinite where there is none."""
        if self.low is None or self.high is None:
            return (-math.inf, math.inf)
        return (self.low, self.high)

    @staticmethod
    def ends(low: float, high: float) -> tuple[float | None, float | None]:
        """Return the ends of an interval for a file; both are None where either is infinite."""
        return (low, high) if math.isfinite(low) and math.isfinite(high) else (None, None)


@stored
class LookTaken:
    """A look: its time, and what it decided.

    It was taken at `replicates` of the cells that were still open, at `time` of alpha's spending (0 to 1).
    `comparisons` has every comparison of the family, `stopped` the cells (as `planning.stages.cell_name`) that get no
    more replicates. `margin` is the smallest difference of interest by which it judged (None: none was declared).
    `taken` is in unix seconds.
    """

    replicates: Annotated[int, pydantic.Field(ge=1)]
    time: Annotated[float, pydantic.Field(gt=0, le=1)]
    comparisons: tuple[LookAt, ...]
    stopped: tuple[str, ...]
    taken: float = 0.0  # unix time
    margin: Annotated[float, pydantic.Field(gt=0, allow_inf_nan=False)] | None = None


@stored
class LookLog:
    """All looks at a study, the first one first.

    `spending` names how alpha is spent over them, `unit` what their replicates are: seeds or repeats. `earlier` are
    looks at trials that were archived and then trained again. ValueError where looks do not follow one another.
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
        """Whether the last look has spent the rest of alpha, so that no look is left."""
        return bool(self.looks) and self.looks[-1].time >= 1

    @property
    def latest(self) -> dict[Any, LookAt]:
        """Return key of a comparison (`LookAt.key`) -> the newest look at it."""
        return {
            comparison.key: comparison for look in self.looks for comparison in look.comparisons
        }

    def history(self, key: Any) -> list[LookAt | None]:
        """Return what each look said of the comparison with this key, in order; None where a look did not have it."""
        return [
            next((comparison for comparison in look.comparisons if comparison.key == key), None)
            for look in self.looks
        ]

    def granted(self, cell: str) -> int | None:
        """Return the number of replicates at which a look first stopped the cell; None while it goes on."""
        return next((look.replicates for look in self.looks if cell in look.stopped), None)

    def begun_anew(self) -> Self:
        """Return the log for trials that are trained again, with its looks kept as earlier ones."""
        return replace(self, looks=(), earlier=(*self.earlier, *self.looks))

    def with_look(self, look: LookTaken) -> Self:
        """Return the log with `look` added as its last one."""
        return replace(self, looks=(*self.looks, look))


LOOKS = "looks.json"
LOOKS_FILE = JsonFile(
    LookLog,
    1,
    "restore it from a backup, or run the study under another name: a look that is lost is a look that is not counted",
)
"""looks.json, written and read."""


def read_looks(records: StudyRecords) -> LookLog | None:
    """Return the looks at a study; None where none was taken. `StorageError` if the file is broken."""
    return LOOKS_FILE.find(records.store, f"{records.study}/{LOOKS}")


def write_looks(records: StudyRecords, log: LookLog) -> None:
    """Write the study's looks.json in one atomic write, in place of what is there."""
    LOOKS_FILE.write(records.store, f"{records.study}/{LOOKS}", asdict(log))


@stored
class Confirmation:
    """The configurations, seeds and folds of one confirmation, and when it began (unix seconds).

    `arms` maps each arm to the digest of its configuration; in `folds`, None is the test split.
    """

    arms: Mapping[str, str]
    seeds: tuple[int, ...]
    folds: tuple[int | None, ...]
    began: float = 0.0  # unix time

    @classmethod
    def of(
        cls, best: Mapping[str, Config], seeds: Sequence[int], folds: Sequence[int | None]
    ) -> Self:
        """Return the confirmation of these best configurations (by arm) on these seeds and folds.

        It has not begun yet.
        """
        return cls(
            {arm: canonical.digest(config, 12) for arm, config in best.items()},
            tuple(seeds),
            tuple(folds),
        )

    def goes_on(self, earlier: Self) -> bool:
        """Whether this is `earlier` itself, gone on with: it may have more arms, and more seeds at the end of the list.

        Arms of `earlier` have the same configurations here, its folds are the same, and its seeds come first.
        """
        same = all(self.arms.get(arm) == digest for arm, digest in earlier.arms.items())
        return (
            same
            and self.folds == earlier.folds
            and self.seeds[: len(earlier.seeds)] == earlier.seeds
        )


@stored
class Ledger:
    """The confirmations of a study, the oldest first."""

    confirmations: tuple[Confirmation, ...] = ()


CONFIRMATIONS = "confirmations.json"
LEDGER_FILE = JsonFile(Ledger, 1, "restore it from a backup")
"""confirmations.json, written and read."""


def read_confirmations(records: StudyRecords) -> tuple[Confirmation, ...]:
    """The confirmations so far, the oldest first. `StorageError` if the file is broken."""
    ledger = LEDGER_FILE.find(records.store, f"{records.study}/{CONFIRMATIONS}")
    return ledger.confirmations if ledger else ()


def is_another(records: StudyRecords, confirmation: Confirmation) -> bool:
    """Return whether a confirmation would be a new one beside the recorded: of other configurations, seeds or folds.

    The first one is not, nor is one without arms, nor one that goes on with the last.
    """
    recorded = read_confirmations(records)
    # One that is part of a recorded one, as it was when fewer arms had ended, is that one.
    if (
        not recorded
        or not confirmation.arms
        or any(earlier.goes_on(confirmation) for earlier in recorded)
    ):
        return False
    return not confirmation.goes_on(recorded[-1])


def write_confirmation(records: StudyRecords, confirmation: Confirmation) -> None:
    """Record a confirmation that begins, now; one that goes on with the last replaces it and keeps when it began.

    Nothing is written for one without arms, or one that is part of a recorded one.
    """
    recorded = read_confirmations(records)
    if not confirmation.arms or any(earlier.goes_on(confirmation) for earlier in recorded):
        return
    began = recorded[-1].began if recorded and confirmation.goes_on(recorded[-1]) else time.time()
    unchanged = recorded[:-1] if recorded and confirmation.goes_on(recorded[-1]) else recorded
    LEDGER_FILE.write(
        records.store,
        f"{records.study}/{CONFIRMATIONS}",
        asdict(Ledger((*unchanged, replace(confirmation, began=began)))),
    )


def confirmation_notes(spec: Config, records: StudyRecords) -> list[str]:
    """Return notes for readers of the table on how the sweep `spec` confirmed: on data of the search, or repeatedly.

    `spec` is the plain declaration. Empty for a grid, and where there is nothing to say.
    """
    if "confirm_on" not in spec:
        return []
    notes = []
    if spec["confirm_on"] == "all":
        on = "all folds, also those" if spec.get("folds") else "the data"
        notes.append(
            f"confirmed on {on} that the search chose by, where its choice has an advantage"
        )
    recorded = read_confirmations(records)
    if len(recorded) > 1:
        dates = ", ".join(time.strftime("%Y-%m-%d", time.gmtime(c.began)) for c in recorded[:-1])
        notes.append(
            f"this is confirmation {len(recorded)} of the study (before: {dates}), with other seeds, folds or "
            "configurations; each earlier one counts as a look"
        )
    return notes
