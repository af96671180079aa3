"""The looks (interim analyses) taken at a study, in its `looks.json`, and what a sweep confirmed: `confirmations.json`.

A look is written in one atomic write before anything that follows from it. So a driver that is killed takes no look
twice, and none that does not count. A later run, on this machine or another, goes on from this file.

A second confirmation of a sweep, on other seeds or of another best configuration, is a second draw. It counts as
another look whatever its cause, such as a larger budget or another seed of the search.
"""

import itertools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal, Self

import pydantic

from contrasweep import canonical
from contrasweep.config import Config
from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.records import StudyRecords

EXTENDED = "extended"
"""Spending of a fixed-size study that is extended after its end: each look has a quarter of the level before it."""
VERDICTS = ("better", "worse", "equivalent")
Decision = Literal["open", "better", "worse", "equivalent", "futile"]
Context = tuple[tuple[str, str], ...]
"""Where in the table a comparison is: (factor, label) of each factor that is fixed; () over all cells."""
Finite = Annotated[float, pydantic.Field(allow_inf_nan=False)]
Probability = Annotated[float, pydantic.Field(ge=0, le=1)]


@stored
class LookAt:
    """The comparison of the arms `a` and `b` in one look (interim analysis), with its result."""

    context: Context
    a: str
    b: str
    pairs: int  # number of paired trials
    difference: Finite  # mean of a - b, in units of the metric
    # The interval of the difference; None: there is none. It counts the family and all looks so far.
    low: Finite | None
    high: Finite | None
    # Of this look alone; None: not tested at this look, or not kept.
    p_value: Probability | None
    equivalence_p: Probability | None
    # The adjusted values count the family and all looks so far.
    adjusted_p: Probability
    adjusted_equivalence_p: Probability | None
    level: Probability  # by which the test was chosen
    decision: Decision  # now in force, perhaps by an earlier look

    @property
    def key(self) -> tuple[Context, frozenset[str]]:
        """Return a key of the comparison: its context and its two arms, the same for a against b and b against a."""
        return self.context, frozenset((self.a, self.b))

    @property
    def interval(self) -> tuple[float, float]:
        """The two ends of the interval of a - b; they are infinite where there is no interval."""
        if self.low is None or self.high is None:
            return (-math.inf, math.inf)
        return (self.low, self.high)

    @staticmethod
    def ends(low: float, high: float) -> tuple[float | None, float | None]:
        """Return the ends of an interval for the fields `low` and `high`; both are None where one is infinite."""
        return (low, high) if math.isfinite(low) and math.isfinite(high) else (None, None)


@stored
class LookTaken:
    """A look that was taken, and what it decided."""

    replicates: Annotated[int, pydantic.Field(ge=1)]  # of each cell that was still open
    time: Annotated[float, pydantic.Field(gt=0, le=1)]  # share of alpha's spending
    comparisons: tuple[LookAt, ...]  # all of the family
    stopped: tuple[str, ...]  # cells (`planning.stages.cell_name`) that get no more replicates
    taken: float = 0.0  # unix time
    # The smallest difference of interest at that time; None: none was declared.
    margin: Annotated[float, pydantic.Field(gt=0, allow_inf_nan=False)] | None = None


@stored
class LookLog:
    """All looks at a study, the first one first.

    Raises `ValueError` where a look has no more replicates, or no later time, than the look before it.
    """

    spending: str  # how alpha is spent over the looks
    unit: str  # what replicates are: seeds or repeats
    looks: tuple[LookTaken, ...] = ()
    earlier: tuple[LookTaken, ...] = ()  # at trials that were archived and then trained again

    def __post_init__(self) -> None:
        for earlier, next_ in itertools.pairwise(self.looks):
            if not (earlier.time < next_.time and earlier.replicates < next_.replicates):
                raise ValueError("its looks do not follow one another")

    @property
    def over(self) -> bool:
        """Whether no look is left to take, because the last one has spent all that was left of alpha."""
        return bool(self.looks) and self.looks[-1].time >= 1

    def history(self, context: Context, a: str, b: str) -> list[LookAt | None]:
        """Return for each look its comparison of the arms `a` and `b`, the oldest first; None where it has none.

        The arms may be given in either order: a result may be that of b against a.
        """
        key = context, frozenset((a, b))
        history = []
        for look in self.looks:
            by_key = {comparison.key: comparison for comparison in look.comparisons}
            history.append(by_key.get(key))
        return history

    def newest(self, context: Context, a: str, b: str) -> LookAt | None:
        """Return the comparison of `a` and `b` in the newest look that has one; None where no look has."""
        entries = list(filter(None, self.history(context, a, b)))
        return entries[-1] if entries else None

    def replicates_when_stopped(self, cell: str) -> int | None:
        """Return how many replicates a cell had at the first look that stopped it; None where none has."""
        return next((look.replicates for look in self.looks if cell in look.stopped), None)

    def begun_anew(self) -> Self:
        """Return a log without looks, for a study whose trials are all trained again.

        The looks so far are kept in it as `earlier`, and do not count any more.
        """
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
    LOOKS_FILE.write(records.store, f"{records.study}/{LOOKS}", log)


@stored
class Confirmation:
    """What one confirmation of a sweep trains."""

    arms: Mapping[str, str]  # arm -> digest of its configuration
    seeds: tuple[int, ...]
    folds: tuple[int | None, ...]  # None: the test split
    began: float = 0.0  # unix time

    @classmethod
    def of(
        cls, best: Mapping[str, Config], seeds: Sequence[int], folds: Sequence[int | None]
    ) -> Self:
        """Return the confirmation, not begun yet, of the best configurations (by arm) on these seeds and folds."""
        return cls(
            {arm: canonical.digest(config, 12) for arm, config in best.items()},
            tuple(seeds),
            tuple(folds),
        )

    def goes_on(self, earlier: Self) -> bool:
        """Return whether this confirmation continues `earlier`, perhaps with more arms or further seeds.

        It does where each arm of `earlier` has the same configuration here, the folds are the same, and the seeds begin
        with those of `earlier`.
        """
        return (
            all(self.arms.get(arm) == digest for arm, digest in earlier.arms.items())
            and self.folds == earlier.folds
            and self.seeds[: len(earlier.seeds)] == earlier.seeds
        )


@stored
class ConfirmationLog:
    """The confirmations of a study, the oldest first."""

    confirmations: tuple[Confirmation, ...] = ()


CONFIRMATIONS = "confirmations.json"
CONFIRMATIONS_FILE = JsonFile(ConfirmationLog, 1, "restore it from a backup")
"""confirmations.json, written and read."""


def read_confirmations(records: StudyRecords) -> tuple[Confirmation, ...]:
    """Return the confirmations so far, the oldest first. `StorageError` if the file is broken."""
    log = CONFIRMATIONS_FILE.find(records.store, f"{records.study}/{CONFIRMATIONS}")
    return log.confirmations if log else ()


def is_another(records: StudyRecords, confirmation: Confirmation) -> bool:
    """Return whether `confirmation` would be a new draw: of other configurations, seeds or folds than those recorded.

    False for the first confirmation of a study, and for one without arms. False too for a part of a recorded one, and
    for one that continues the last recorded one.
    """
    recorded = read_confirmations(records)
    if not recorded or not confirmation.arms or _is_part(confirmation, recorded):
        return False
    return not confirmation.goes_on(recorded[-1])


def write_confirmation(records: StudyRecords, confirmation: Confirmation) -> None:
    """Record that `confirmation` begins now.

    If it continues the last recorded one, it takes the place of that, and keeps the time when that began. Nothing is
    written for a confirmation without arms, or for a part of a recorded one.
    """
    recorded = read_confirmations(records)
    if not confirmation.arms or _is_part(confirmation, recorded):
        return
    began = time.time()
    others = recorded
    if recorded and confirmation.goes_on(recorded[-1]):
        began = recorded[-1].began
        others = recorded[:-1]
    log = ConfirmationLog((*others, replace(confirmation, began=began)))
    CONFIRMATIONS_FILE.write(records.store, f"{records.study}/{CONFIRMATIONS}", log)


def _is_part(confirmation: Confirmation, recorded: Sequence[Confirmation]) -> bool:
    """Return whether each arm, fold and seed of `confirmation` is in a confirmation that is recorded already.

    That is so at first when an interrupted run goes on. The searches of its arms end again one by one, so that its
    confirmation has few arms in the beginning.
    """
    return any(earlier.goes_on(confirmation) for earlier in recorded)


CHOSEN = (
    "an arm stands for the configuration that its search chose; another search may choose another"
)
"""The note on a sweep whose arms are compared."""


def confirmation_notes(spec: Config, records: StudyRecords) -> list[str]:
    """Return notes on the study's confirmations for the table's readers; [] for a grid, and where none is needed.

    A note says that arms stand for chosen configurations, that the confirmation used data of the search, or that
    there were several confirmations. `spec` is the study's plain declaration.
    """
    if "confirm_on" not in spec:
        return []
    notes = [CHOSEN] if len(spec["arms"]) > 1 else []
    if spec["confirm_on"] == "all":
        used = "all folds, also those" if spec.get("folds") else "the data"
        notes.append(
            f"confirmed on {used} that the search chose by, where its choice has an advantage"
        )
    recorded = read_confirmations(records)
    if len(recorded) > 1:
        dates = ", ".join(
            time.strftime("%Y-%m-%d", time.gmtime(confirmation.began))
            for confirmation in recorded[:-1]
        )
        notes.append(
            f"this is confirmation {len(recorded)} of the study (before: {dates}), with other seeds, folds or "
            "configurations; each earlier one counts as a look"
        )
    return notes
