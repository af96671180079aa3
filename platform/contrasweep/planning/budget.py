"""The budgets of a study and what it has spent of them, over all its runs.

`budget_hours` limits wall time in which at least one of the study's trials trained. `budget_gpu_hours` limits training
time x share of a GPU; where there is no GPU, hours of a slot. What was spent is counted from the files of the trials,
so that it outlives a driver. A running trial counts up to its last report. Steps after a trial's last checkpoint that
were lost when a run was stopped are not counted, since nothing is left of them.
"""

import time
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from operator import add, sub

from typing_extensions import TypedDict

from contrasweep.cluster.simulate import Makespan
from contrasweep.storage.checkpoints import Checkpoints
from contrasweep.storage.record import Record
from contrasweep.storage.records import StudyRecords
from contrasweep.study.arm_budget import gpu_hours
from contrasweep.study.sweep import Study

BUDGET_UNITS = {"budget_hours": " h", "budget_gpu_hours": " hours of a GPU or slot"}
"""Field of a study that is a budget -> unit, as text after a number."""


@dataclass(frozen=True)
class Spent:
    """How many trials have ended, the GPU-hours that they trained, and what they cost, in the inventory's currency."""

    trials: int = 0
    gpu_hours: float = 0.0
    cost: float = 0.0

    @classmethod
    def of(cls, records: Iterable[Record]) -> "Spent":
        """Return what the trials of these records have taken; a host without a price costs nothing."""
        spent = cls()
        for record in records:
            price = record.notes.cost_per_hour or 0.0
            spent += cls(1, gpu_hours(record), record.seconds / 3600 * price)
        return spent

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(*map(add, astuple(self), astuple(other)))

    def beyond(self, other: "Spent") -> "Spent":
        """Return this minus `other`; each amount is at least 0, because a trial that runs again may take less."""
        differences = map(sub, astuple(self), astuple(other))
        return Spent(*(max(difference, 0) for difference in differences))

    def of_trials(self, trials: int) -> "Spent":
        """Return what so many trials take if each takes the mean of those counted here; 0 where none has ended."""
        factor = trials / max(1, self.trials)
        return Spent(trials, self.gpu_hours * factor, self.cost * factor)


@dataclass
class Unfinished:
    """A trial without a record: the seconds that it has trained, by its last report, and the number of its GPUs."""

    seconds: float
    gpus: float  # or a share of one


class BudgetRow(TypedDict):
    """A budget's limit and how much of it is spent, in the budget's units."""

    limit: float
    spent: float


class Budget:
    """What a study has spent of its budgets; a driver tells it when trials start, train and end."""

    def __init__(
        self, study: Study, records: StudyRecords, known: Iterable[Record] | None = None
    ) -> None:
        """Read what is spent from the storage of `records`.

        `known` are the study's records; None: they are read. A study without a budget reads nothing.
        """
        self.limits: dict[str, float] = {
            name: getattr(study, name) for name in BUDGET_UNITS if getattr(study, name) is not None
        }
        # By id of a trial that has ended, over all its attempts.
        self.gpu_hours: dict[str, float] = {}
        # Wall hours in which some trial trained, in this run and all earlier ones, up to the last time when none ran.
        self.hours = 0.0
        self.unfinished: dict[str, Unfinished] = {}  # by id of the trial
        self.running: set[str] = set()
        # From when on some trial has been running without a pause, by the monotonic clock: others may be set anew.
        self.since = 0.0
        if self.limits:
            if known is None:
                known = records.read(sorted(records.finished())).values()
            self._look_back(records, list(known))

    def started(self, trial_id: str, gpus: float) -> None:
        """Note that a trial begins or goes on, on so many GPUs: 0.25 for a quarter of one.

        `gpus` is 1 for a trial without a GPU, which takes a slot. The hours of its earlier attempts stay counted.
        """
        if not self.running:
            self.since = time.monotonic()
        self.running.add(trial_id)
        # A paused trial goes on: its hours so far are part of what it will report.
        paused = self.gpu_hours.pop(trial_id, 0.0) * 3600 / gpus
        trial = self.unfinished.setdefault(trial_id, Unfinished(paused, gpus))
        trial.gpus = gpus

    def trained(self, trial_id: str, seconds: float) -> None:
        """Note how many seconds a running trial has trained, over all its attempts; do nothing for an ended trial."""
        if trial_id in self.unfinished:
            self.unfinished[trial_id].seconds = seconds

    def ended(self, record: Record) -> None:
        """Count the seconds in the record of an ended trial, in place of those that were reported while it ran."""
        self.unfinished.pop(record.trial_id, None)
        self.waits(record.trial_id)  # it does not train any more
        self.gpu_hours[record.trial_id] = gpu_hours(record)

    def waits(self, trial_id: str) -> None:
        """Note that a trial trains no longer, for good or until it is started again.

        The seconds that it has trained stay counted.
        """
        # If no other trial runs, the stretch of wall time in which some trial trained is over.
        if self.running == {trial_id}:
            self.hours += (time.monotonic() - self.since) / 3600
        self.running.discard(trial_id)

    def spent(self) -> dict[str, float]:
        """Return name of a budget -> hours spent by now, also for a budget that is not set."""
        stretch = (time.monotonic() - self.since) / 3600 if self.running else 0.0
        gpu_seconds = sum(trial.seconds * trial.gpus for trial in self.unfinished.values())
        return {
            "budget_hours": self.hours + stretch,
            "budget_gpu_hours": sum(self.gpu_hours.values()) + gpu_seconds / 3600,
        }

    def used_up(self) -> str:
        """Return in one line which budgets are used up, and how to go on; "" while none is."""
        spent = self.spent()
        over = [name for name, limit in self.limits.items() if spent[name] >= limit]
        if not over:
            return ""
        spending = ", ".join(
            f"{name}={self.limits[name]:g} ({spent[name]:.3g} spent)" for name in over
        )
        # Twice the larger of limit and spent, because the limit itself would be used up at once.
        set_flags = " ".join(
            f"--set {name}={2 * max(self.limits[name], spent[name]):.3g}" for name in over
        )
        return f"used up: {spending}; raise it to go on from here, for example with {set_flags}"

    def warnings(self, to_come: Makespan | None) -> list[str]:
        """Return a warning for each budget that the hours spent and the hours `to_come` exceed together.

        Where `to_come` is None, because it is not known, there is only a warning of budgets that are used up already.
        """
        if to_come is None:
            used_up = self.used_up()
            return [used_up] if used_up else []
        ahead = {"budget_hours": to_come.hours, "budget_gpu_hours": to_come.gpu_hours}
        spent = self.spent()
        return [
            f"{name}={limit:g} will be exceeded: {spent[name]:.3g}{BUDGET_UNITS[name]} spent, about {ahead[name]:.3g}"
            f"{BUDGET_UNITS[name]} to go"
            for name, limit in self.limits.items()
            if spent[name] + ahead[name] > limit
        ]

    def to_dict(self) -> dict[str, BudgetRow]:
        """Return the limit and the amount spent of each budget that is set, by its name."""
        spent = self.spent()
        return {name: {"limit": limit, "spent": spent[name]} for name, limit in self.limits.items()}

    def _look_back(self, records: StudyRecords, known: list[Record]) -> None:
        """Count what the ended trials `known` took, and unfinished ones up to their checkpoints.

        The pauses of a trial that was interrupted are not known. Its seconds count as wall time without a pause: up to
        the end of an ended trial, from the start of an unfinished one.
        """
        spans = [(record.ended - record.seconds, record.ended) for record in known]
        self.gpu_hours = {record.trial_id: gpu_hours(record) for record in known}
        # A trial with a checkpoint has the file <study>/trials/<id>/checkpoint/latest.json.
        keys = records.store.list(f"{records.study}/trials/")
        begun = {key.split("/")[-3] for key in keys if key.endswith("/checkpoint/latest.json")}
        for trial_id in begun - {record.trial_id for record in known}:
            saved = Checkpoints.of(records, trial_id).latest()
            if saved:
                extra = saved.extra
                # A span without a known start begins at time 0. Several such spans overlap there, so that only the
                # longest adds to `hours`.
                started = extra.started or 0.0
                # `spent` adds the seconds of unfinished trials.
                self.unfinished[trial_id] = Unfinished(extra.seconds, extra.gpus or 1.0)
                spans.append((started, started + extra.seconds))
        self.hours = covered(spans) / 3600


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of intervals (start, end), in their unit: time in two of them counts once."""
    total = 0.0
    reached = float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
