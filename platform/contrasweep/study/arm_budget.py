"""The search budget, the same for every arm, and what each arm has spent of it, counted from its trials' files."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Literal

from contrasweep import canonical
from contrasweep.errors import SpecError, plural
from contrasweep.schema import checked
from contrasweep.storage.record import Phase, Record
from contrasweep.study.replicates import Above0, Positive


@checked
class ArmBudget:
    """The limits on the search of each arm; the first limit that is reached ends the search. None: no such limit.

    `trials` is a number of configurations, each of which is trained once on each search fold. `epochs` are steps as the
    trainable reports them, over all trials. `gpu_hours` are training hours times the share of a GPU; where there is no
    GPU, hours of a slot.
    """

    trials: Positive | None = None
    epochs: Positive | None = None
    gpu_hours: Above0 | None = None

    def __post_init__(self) -> None:
        if not (self.trials or self.epochs or self.gpu_hours):
            raise SpecError("a search needs a budget", hint="give trials, epochs or gpu_hours")

    def __str__(self) -> str:
        """Return the limits that are set: `40 configurations, 2000 epochs, 4 GPU-hours`."""
        parts = [
            plural(self.trials, "configuration") if self.trials else "",
            plural(self.epochs, "epoch") if self.epochs else "",
            f"{self.gpu_hours:g} GPU-hours" if self.gpu_hours else "",
        ]
        return ", ".join(part for part in parts if part)


Silence = Literal["method", "infeasible", "outside"]
"""Why a trial ended without a report: its code failed, it fitted no host, or a cause outside, a lost host say."""
MOST_SILENT = 10
"""After so many trials of an arm without any report its search ends: its code or its settings cannot work."""


def gpu_hours(record: Record) -> float:
    """Return the GPU-hours of a trial: its training hours times its number of GPUs, which may be a share of one.

    A trial without a GPU counts as with one: the result are then hours of a slot of the host.
    """
    # A trial without a GPU counts as if it had a whole one.
    return record.seconds * (record.notes.gpus or 1.0) / 3600


def _steps(record: Record) -> int:
    """Return the number of steps that a trial has trained, which is its last reported step.

    It is 1 where the trial has only reported at step 0, and 0 where it has reported nothing.
    """
    return record.step or int(bool(record.metrics))


@dataclass
class Spending:
    """What the search of one arm has spent of its budget, and whether more fits in.

    A trial of a new configuration is expected to have as many steps as the arm's longest trial so far. A configuration
    is started only where its expected steps, and those that running trials may still need, fit into the budget. So no
    trial is cut short for the budget, and the budget holds. No length is known before the first trial has ended.

    A running trial counts by the steps that it has reported, times the arm's mean hours a step. Once it has ended, the
    hours in its record count. A trial that ended before its first report counts as one step. If its method is the
    cause, it counts as many steps as the arm's longest trial. Otherwise an arm that fails at once would be searched for
    ever.
    """

    budget: ArmBudget
    folds: int  # trials of a configuration
    steps: dict[str, int] = field(default_factory=dict)  # trial -> the last step reported
    hours: dict[str, float] = field(default_factory=dict)  # trial -> GPU-hours, of ended ones
    # trial that ended without a report -> why
    silent: dict[str, Silence] = field(default_factory=dict)
    longest: int = 0  # steps of the longest trial that was trained to its end; 0: none was

    def report(self, trial: str, step: int) -> None:
        """Note that `trial` has reported at `step`, and so has trained that many steps.

        A trial that repeats steps after a lost host counts by the largest step.
        """
        self.steps[trial] = max(step, self.steps.get(trial, 0))

    def end(self, record: Record) -> None:
        """Count a trial that has ended, with the hours in its record. If it has no step, note why it never reported."""
        self.report(record.trial_id, _steps(record))
        self.hours[record.trial_id] = gpu_hours(record)
        if not self.steps[record.trial_id]:
            why: Silence = "method" if record.status.failed else "infeasible"
            if record.cause is not None and record.cause.outside:
                why = "outside"
            self.silent[record.trial_id] = why
        if record.status.counts:
            self.longest = max(self.longest, record.step)

    def reopen(self, trial: str) -> None:
        """Count a trial that has ended as running again: its hours do not count until it ends, but its steps do."""
        self.hours.pop(trial, None)
        self.silent.pop(trial, None)

    @property
    def hopeless(self) -> bool:
        """Whether the arm's trials all end without a report, so that it makes no sense to search on.

        That is so once `MOST_SILENT` trials have, and none of those that have ended has ever reported a step. Trials
        that a cause outside them has ended, such as a lost host, are not counted.
        """
        count = sum(why != "outside" for why in self.silent.values())
        return count >= MOST_SILENT and not any(self.steps[trial] for trial in self.hours)

    @property
    def epochs(self) -> int:
        """Steps trained by all trials of the arm; for running trials, up to their last report."""
        return sum(self.steps.values()) + self._unreported

    @property
    def _unreported(self) -> int:
        """The steps that are counted for trials that ended without a report: 1 for each trial.

        Where the method is the cause, the trial counts as many steps as the arm's longest one.
        """
        return sum(max(1, self.longest) if why == "method" else 1 for why in self.silent.values())

    @property
    def gpu_hours(self) -> float:
        """Return the GPU-hours that the arm has spent: of ended trials, and an estimate for running ones.

        The estimate is the steps that they have reported, times the arm's mean GPU-hours a step.
        """
        running = sum(n for trial, n in self.steps.items() if trial not in self.hours)
        return sum(self.hours.values()) + self._pace * (running + self._unreported)

    @property
    def _pace(self) -> float:
        """Return the mean GPU-hours that a step of the arm's ended trials has taken; 0 where none has ended."""
        steps_ended = sum(self.steps[trial] for trial in self.hours)
        return sum(self.hours.values()) / steps_ended if steps_ended else 0.0

    def room(self, configs: int, running: Iterable[str]) -> bool:
        """Return whether the budget has room for one more configuration.

        `configs` is the number of configurations so far. `running` are the ids of trials that run, or wait to start.
        False too where the search is hopeless.
        """
        if self.hopeless:
            return False
        # Before a trial has ended, the longest one so far is the best guess.
        length = self.longest or max(self.steps.values(), default=0)
        # Steps that running trials may still need, and those of one more configuration.
        due = sum(max(0, length - self.steps.get(trial, 0)) for trial in running)
        due += length * self.folds
        # For each limit: what is spent, and what one more configuration and the running trials may take.
        amounts = (
            (self.budget.trials, configs, 1),
            (self.budget.epochs, self.epochs, due),
            (self.budget.gpu_hours, self.gpu_hours, due * self._pace),
        )
        # The factor forgives sums of floats a rounding error.
        return all(
            limit is None or (spent < limit and spent + more <= limit * (1 + 1e-9))
            for limit, spent, more in amounts
        )


@dataclass(frozen=True)
class SearchCost:
    """What the search of one arm has cost, counted from the records of its ended trials.

    `epochs` are steps as the trainable reports them. `on_gpus` says whether any trial had a GPU or a share of one.
    Without it, `gpu_hours` are hours of a slot of a host.
    """

    configurations: int
    trials: int
    epochs: int
    gpu_hours: float
    on_gpus: bool

    def spent_of(self, budget: ArmBudget) -> str:
        """Return what was spent, and the budget, in words: `12 of 40 configurations, 96 epochs, 0.2 GPU-hours`.

        Where there is no GPU, it says hours of a slot (`slot-hours`).
        """
        hours = "GPU-hours" if self.on_gpus else "slot-hours"
        parts: list[tuple[object, float | None, str]] = [
            (self.configurations, budget.trials, "configurations"),
            (self.epochs, budget.epochs, "epochs"),
            (hours_text(self.gpu_hours), budget.gpu_hours, hours),
        ]
        return ", ".join(
            f"{spent} of {limit:g} {unit}" if limit else f"{spent} {unit}"
            for spent, limit, unit in parts
        )


def hours_text(hours: float) -> str:
    """Return hours with three digits, such as `0.25`; `below 0.001` for less than that, and `0` for no time at all."""
    return f"{hours:.3g}" if hours == 0 or hours >= 0.001 else "below 0.001"


def of_search(records: Iterable[Record], seed: int, folds: Collection[int | None]) -> list[Record]:
    """Return the records of search trials that have this search seed and one of these folds.

    Left out are records of confirmation trials. Left out are also records of earlier searches of the study, which were
    declared with another seed or other folds. A fold is None where the data have no folds.
    """
    return [
        record
        for record in records
        if record.notes.phase == Phase.SEARCH and record.seed == seed and record.fold in folds
    ]


def search_costs(records: Iterable[Record], arms: Iterable[str]) -> dict[str, SearchCost]:
    """Return arm -> what its search has cost, from the `records` of its ended trials.

    An arm in `arms` without any record has a cost of zeros.
    """
    by_arm: dict[str, list[Record]] = {arm: [] for arm in arms}
    for record in records:
        # Arms that the study has no more are listed too.
        by_arm.setdefault(record.arm, []).append(record)
    return {
        arm: SearchCost(
            configurations=len({canonical.dumps(record.config) for record in searched}),
            trials=len(searched),
            epochs=sum(map(_steps, searched)),
            gpu_hours=sum(map(gpu_hours, searched)),
            on_gpus=any(record.notes.gpus for record in searched),
        )
        for arm, searched in by_arm.items()
    }
