"""Which replicates of a study the looks so far grant, and when the next look is due.

A look is an interim analysis of a study that grows: it decides which cells get more replicates.
"""

from dataclasses import dataclass

from contrasweep import canonical
from contrasweep.config import Config
from contrasweep.errors import SpecError, plural
from contrasweep.planning.plan import Cell, PlanBase
from contrasweep.storage.interim_log import EXTENDED, LookLog, read_looks
from contrasweep.storage.records import StudyRecords
from contrasweep.study.replicates import Replicates
from contrasweep.trial import Trial, in_turns


@dataclass(frozen=True)
class Stage:
    """Which trials of a growing study may run before its next look, and at how many replicates that look is taken."""

    trials: tuple[Trial, ...]  # that may run before the next look, those that have ended too
    open: tuple[Cell, ...]  # the cells that no look has stopped
    replicates: int = 0  # of each open cell, at which the next look is due
    time: float = 1.0  # share of alpha's spending, 0 to 1, that the next look reaches
    over: bool = True  # no look is left


def cell_name(arm: str, axes: Config) -> str:
    """Return a text that names a cell, the same on every machine: the canonical JSON of its arm and axes."""
    return canonical.dumps([arm, dict(axes)])


def stage(plan: PlanBase, records: StudyRecords) -> Stage:
    """Return which of the plan's trials may run after the looks that are stored in `records`.

    All may run where the study has a fixed number of replicates.
    """
    declared = plan.study.replicates
    if declared is None:
        return Stage(plan.trials, ())
    return stage_after(plan.cells, declared, read_looks(records))


def stage_after(cells: tuple[Cell, ...], declared: Replicates, log: LookLog | None) -> Stage:
    """Return which trials of a growing study may run after the looks in `log` (None: no look was taken yet).

    The trials of each cell must be in the order of its replicates: the first ones of them may run.
    """
    log = log or LookLog(declared.spending, declared.of)
    # Replicates at which a look stopped each cell; None: the cell goes on.
    stops = [log.replicates_when_stopped(cell_name(cell.arm, cell.axes)) for cell in cells]
    open_ = tuple(cell for cell, stop in zip(cells, stops, strict=True) if stop is None)
    # Replicates at the last look that was taken, and at those to come.
    last = log.looks[-1].replicates if log.looks else 0
    to_come = [replicates for replicates in declared.looks if replicates > last]
    over = not open_ or not to_come or log.over
    due = last if over else to_come[0]
    # A stopped cell keeps the replicates that it had, an open one runs to the next look.
    granted = []
    for cell, stop in zip(cells, stops, strict=True):
        replicates = due if stop is None else stop
        # A replicate is a seed (a trial on each fold), or a repeat of the folds (on each fold a trial with each seed).
        trials_a_replicate = len(cell.trials) // declared.most
        granted.append(cell.trials[: replicates * trials_a_replicate])
    trials = in_turns(granted)
    if over:
        return Stage(trials, ())
    return Stage(trials, open_, due, spending_time(declared, log, due), over=False)


def spending_time(declared: Replicates, log: LookLog | None, replicates: int) -> float:
    """Return the share of alpha's spending time, 0 to 1, that a look at this many replicates reaches.

    It is the share of these replicates in `declared.most`. After looks that were taken under another `most`, it grows
    evenly from the last look's time to 1.
    """
    if log is None or not log.looks:
        return replicates / declared.most
    last = log.looks[-1]
    added = replicates - last.replicates
    to_final_look = declared.most - last.replicates
    return min(1.0, last.time + (1 - last.time) * added / to_final_look)


def check_log(declared: Replicates | None, log: LookLog | None) -> None:
    """Raise `SpecError` where the declared replicates do not continue the looks that were taken.

    `declared` is None for a study with a fixed number of replicates, `log` is None where no look was taken.
    """
    # The looks of a fixed-size study that was extended after its end belong to no declared replicates.
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
