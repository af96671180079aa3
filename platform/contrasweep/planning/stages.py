"""Which replicates of a study the looks so far grant, and when the next look is due."""

from dataclasses import dataclass

from contrasweep import canonical
from contrasweep.config import Config
from contrasweep.errors import SpecError, plural
from contrasweep.planning.plan import Cell, Plan
from contrasweep.storage.interim_log import EXTENDED, LookLog, read_looks
from contrasweep.storage.records import StudyRecords
from contrasweep.study.replicates import Replicates
from contrasweep.trial import Trial, in_turns


@dataclass(frozen=True)
class Stage:
    """The `trials` that may run before the next look, those that have ended too. `over`: no look is left.

    The look is due at `replicates` replicates of each of the `open` cells, the undecided ones; by then the share `time`
    (0 to 1) of alpha's spending is reached.
    """

    trials: tuple[Trial, ...]
    open: tuple[Cell, ...]
    replicates: int = 0
    time: float = 1.0
    over: bool = True


def cell_name(arm: str, axes: Config) -> str:
    """Return a text that names a cell, the same on every machine: the canonical JSON of its arm and axes."""
    return canonical.dumps([arm, dict(axes)])


def stage(plan: Plan, records: StudyRecords) -> Stage:
    """Return which of the plan's trials may run, given the looks in `records`.

    All may run where the study has a fixed number of replicates. The trials of a cell stand replicate by replicate.
    """
    declared = plan.study.replicates
    if declared is None:
        return Stage(plan.trials, ())
    return stage_after(plan, declared, read_looks(records))


def stage_after(plan: Plan, declared: Replicates, log: LookLog | None) -> Stage:
    """Return which trials may run after the looks in `log` (None: none was taken yet); see `stage`."""
    # At how many replicates a look stopped each cell; None: it goes on.
    stops = [None if log is None else log.granted(cell_name(c.arm, c.axes)) for c in plan.cells]
    # Replicates at the last look that was taken, and at those to come.
    last = log.looks[-1].replicates if log and log.looks else 0
    to_come = [n for n in declared.looks if n > last]
    open_ = tuple(cell for cell, at in zip(plan.cells, stops, strict=True) if at is None)
    over = not open_ or not to_come or (log is not None and log.over)
    due = last if over else to_come[0]
    # A stopped cell keeps the replicates that it had, an open one runs to the next look.
    trials = in_turns(
        [
            cell.trials[: (at or due) * block(cell, declared)]
            for cell, at in zip(plan.cells, stops, strict=True)
        ]
    )
    if over:
        return Stage(trials, ())
    return Stage(trials, open_, due, spending_time(declared, log, due), over=False)


def block(cell: Cell, declared: Replicates) -> int:
    """Return how many trials one replicate of a cell has: one on each fold, where seeds are added on folds."""
    return len(cell.trials) // declared.most


def spending_time(declared: Replicates, log: LookLog | None, replicates: int) -> float:
    """Return the share of alpha's spending time (0 to 1) at this many replicates: their share of `most`.

    Where earlier looks were taken under another `most`, what they spent stays spent, and the rest is spread over the
    looks to come.
    """
    if log is None or not log.looks:
        return replicates / declared.most
    # From the last look's time to 1 in equal parts a replicate.
    last = log.looks[-1]
    return min(
        1.0,
        last.time
        + (1 - last.time) * (replicates - last.replicates) / (declared.most - last.replicates),
    )


def check_log(declared: Replicates | None, log: LookLog | None) -> None:
    """Raise `SpecError` where the declared replicates do not continue the looks that were taken.

    None of `declared`: the study has a fixed number; None of `log`: no look was taken.
    """
    # Looks of a study of a fixed size that was extended are not its replicates' looks.
    if log is None or not log.looks or (declared is None and log.spending == EXTENDED):
        return
    last = log.looks[-1]
    # `2 looks, the last at 5 seeds`, for the hints.
    when = f"{plural(len(log.looks), 'look')}, the last at {last.replicates} {log.unit}"
    if declared is None:
        raise SpecError(
            "this study is looked at as it grows, and its looks are counted",
            place="replicates",
            value=None,
            hint=f"declare replicates as before ({when}), or choose another name",
        )
    if (declared.of, declared.spending) != (log.unit, log.spending):
        raise SpecError(
            "looks were taken at other replicates or spent alpha otherwise",
            place="replicates",
            value=f"of {declared.of}, spending {declared.spending}",
            hint=f"{when}, of {log.unit}, spending {log.spending}",
        )
    if last.time >= 1 and declared.most > last.replicates:
        raise SpecError(
            "all of alpha is spent: the last look was taken, and more replicates can decide nothing",
            place="replicates.most",
            value=declared.most,
            hint=f"{when}; a new study, with another name and fresh seeds, can",
        )
    if last.time < 1 and declared.most <= last.replicates:
        raise SpecError(
            "a look was taken at as many replicates already",
            place="replicates.most",
            value=declared.most,
            hint=f"{when}; set most to {last.replicates + declared.step} or more",
        )
