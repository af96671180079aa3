"""A study that searches each arm's settings and confirms the best."""

from typing import Annotated, Literal

import pydantic

from contrasweep.config import MutableConfig
from contrasweep.errors import SpecError, choose_from
from contrasweep.schema import checked
from contrasweep.storage.names import Label
from contrasweep.study import reserved
from contrasweep.study.arm import Arm
from contrasweep.study.arm_budget import ArmBudget
from contrasweep.study.checks import check_number, check_study
from contrasweep.study.cohort_choice import CohortChoice
from contrasweep.study.fields import Budget, Name, Seeds, SmallestDifference, Tracking
from contrasweep.study.objectives import violation
from contrasweep.study.replicates import Replicates, extended


@checked
class Sweep:
    """A search per arm under equal budgets, then a confirmation of each arm's best on fresh seeds and unsearched folds.

    Only the confirmation reaches the table. `searcher` and `pruner` are names (`contrasweep list searchers`)
    or `package.module:Class`; `freeze` maps an arm to the arm whose tuned settings it starts from, so that an
    add-on is tuned on a frozen base; `warm_start` names earlier studies in the same storage.

    Each arm's search has the same `budget`; `trials_per_arm` is short for one of so many configurations. It never sees
    the test split: it looks at `search_folds`, or at the dataset's dev split where there are no folds. The confirmation
    is on the held-out part of every fold that was not searched, if `confirm_on` is `all` on that of every fold (the
    table then says so), or, if it is `test`, on the test split after training on all else.

    A trial that trains longer than `trial_hours`, or does not report for `report_minutes`, ends as failed.

    `objectives` (metric -> mode, `metric` among them) are searched at once; `constraints` (metric -> `<= 2.0` or
    `>= 0.5`) have to hold. Of the feasible configurations the best by `metric` is confirmed.
    """

    name: Name
    arms: Annotated[dict[Name, Arm], pydantic.Field(min_length=1)]
    data: str
    trials_per_arm: Annotated[int, pydantic.Field(ge=1)] | None = None
    budget: ArmBudget | None = None
    searcher: str = "tpe"
    searcher_options: MutableConfig = pydantic.Field(default_factory=dict)
    pruner: str | None = None
    pruner_options: MutableConfig = pydantic.Field(default_factory=dict)
    folds: Annotated[int, pydantic.Field(ge=2)] | None = None
    search_folds: Annotated[list[int], pydantic.Field(min_length=1)] | None = None
    search_seed: Annotated[int, pydantic.Field(ge=0)] = 0
    slots: Annotated[int, pydantic.Field(ge=1)] | None = None
    """Configurations of an arm that train at a time. Where it is set, the k-th is chosen by the results of those up to
    k - slots alone, told in their order, so that the same study tries the same configurations on any machine."""
    confirm_seeds: Seeds = pydantic.Field(default_factory=lambda: list(range(1000, 1006)))
    confirm_on: Literal["folds", "all", "test"] = "folds"
    """The folds that were not searched, all folds, or the test split."""
    replicates: Replicates | None = None
    """Seeds of the confirmation where they are needed: those of `confirm_seeds`, and on from there."""
    metric: str = "accuracy"
    mode: Literal["max", "min"] = "max"
    objectives: dict[str, Literal["max", "min"]] = pydantic.Field(default_factory=dict)
    constraints: dict[str, str] = pydantic.Field(default_factory=dict)
    reference: str | None = None
    smallest_difference: SmallestDifference | None = None
    freeze: dict[str, str] = pydantic.Field(default_factory=dict)
    warm_start: list[str] = pydantic.Field(default_factory=list)
    alpha: Annotated[float, pydantic.Field(gt=0, lt=0.5)] = 0.05
    description: str = ""
    labels: dict[Label, Label] | None = None
    """What arms, axes, their values, metrics and datasets are called where people read them: tables, reports, a run as
    it is watched. JSON, frames and CSV keep the declared names."""
    tracking: Tracking = None
    """Where runs are shown, where the command does not say: an address, or several; see `contrasweep list trackers`."""
    max_failures: Annotated[int, pydantic.Field(ge=0)] = 3
    budget_hours: Budget | None = None
    budget_gpu_hours: Budget | None = None
    budget_cost: Budget | None = None
    trial_hours: Budget | None = None
    report_minutes: Budget | None = None
    process: Literal["shared", "own"] = "shared"
    """Whether a process trains many trials, one after the other, or one (`own`); changes no trial's id."""
    cohort: CohortChoice | None = None
    """Whether trials of equal shapes train several as one network (`off` unless set); changes no trial's id."""
    type: Literal["sweep"] = "sweep"

    def __post_init__(self) -> None:
        check_study(self, self.confirm_seeds, "confirm_seeds")
        seeds = self.replicates.most if self.replicates else len(self.confirm_seeds)
        check_number(len(self.arms), seeds * (self.folds or 1))
        if self.replicates is not None:
            self.replicates.check_seeds(self.confirm_seeds, "confirm_seeds")
        if self.search_seed in self.all_seeds:
            raise SpecError(
                "the confirmation needs fresh seeds, none that the search saw",
                place="confirm_seeds",
                value=self.search_seed,
                hint=f"leave {self.search_seed} out or change search_seed",
            )
        if self.replicates is not None and self.replicates.of == "repeats":
            raise SpecError(
                "a confirmation adds seeds", place="replicates.of", value="repeats", hint="leave it out, or say seeds"
            )
        for fold in self.search_folds or []:
            if self.folds is None or not 0 <= fold < self.folds:
                raise SpecError(
                    "search_folds name folds of the study",
                    place="search_folds",
                    value=fold,
                    hint=f"folds is {self.folds}",
                )
        if self.folds is not None and not self.confirm_folds:
            raise SpecError(
                "every fold is searched, and none is left to confirm on",
                place="search_folds",
                value=self.search_folds,
                hint="search fewer, or set confirm_on: all (the table then says so) or confirm_on: test",
            )
        if self.trials_per_arm is None and self.budget is None:
            raise SpecError(
                "a search needs a budget for each arm",
                place="budget",
                hint="for example trials_per_arm: 40, or budget: {epochs: 2000} or {gpu_hours: 4}",
            )
        if self.trials_per_arm is not None and self.budget is not None and self.budget.trials is not None:
            raise SpecError(
                "trials_per_arm and budget.trials say the same", place="trials_per_arm", value=self.trials_per_arm
            )
        check_number(len(self.arms), self.arm_budget.trials or 1, "trials_per_arm")
        for metric in (self.metric, *self.objectives, *self.constraints):
            reserved.check_metric(metric, taken=reserved.COLUMNS)
        self._check_goals()
        for arm, base in self.freeze.items():
            for name in (arm, base):
                if name not in self.arms:
                    raise SpecError(
                        "there is no such arm",
                        place=f"freeze.{arm}",
                        value=name,
                        hint=choose_from("arms", list(self.arms), name),
                    )

    def _check_goals(self) -> None:
        if self.objectives and self.objectives.get(self.metric) != self.mode:
            raise SpecError(
                "the metric, which chooses what is confirmed, is one of the objectives, with its mode",
                place="objectives",
                value=self.objectives,
                hint=f"add {self.metric}: {self.mode}, or set metric",
            )
        if self.pruner is not None and len(self.objectives) > 1:
            raise SpecError(
                "early stopping compares trials by one metric",
                place="pruner",
                value=self.pruner,
                hint="leave the pruner out, or search for one objective and constrain the rest",
            )
        for metric, text in self.constraints.items():
            violation(metric, text, 0.0)

    @property
    def all_seeds(self) -> list[int]:
        """The seeds that the confirmation may use."""
        return extended(self.confirm_seeds, self.replicates.most) if self.replicates else list(self.confirm_seeds)

    @property
    def confirm_folds(self) -> list[int] | list[None]:
        """The folds of the confirmation."""
        if self.folds is None or self.confirm_on == "test":
            return [None]
        searched = () if self.confirm_on == "all" else self.search_folds or [0]
        return [fold for fold in range(self.folds) if fold not in searched]

    @property
    def arm_budget(self) -> ArmBudget:
        """What the search of each arm may spend."""
        given = self.budget or ArmBudget(self.trials_per_arm)
        return ArmBudget(self.trials_per_arm or given.trials, given.epochs, given.gpu_hours)

    @property
    def goals(self) -> dict[str, str]:
        """What the search optimises: metric -> mode."""
        return dict(self.objectives) or {self.metric: self.mode}

    @property
    def axis_names(self) -> list[str]:
        """A Sweep's table has arms only."""
        return []
