"""A study that searches each arm's settings and confirms the best; and `Study`, which is this or an `AblationGrid`."""

from collections.abc import Mapping
from typing import Annotated, Literal

import pydantic

from contrasweep.config import MutableConfig
from contrasweep.errors import SpecError, check_known
from contrasweep.schema import checked
from contrasweep.storage.record import Seed
from contrasweep.study.arm_budget import ArmBudget
from contrasweep.study.base import (
    MAX_TRIALS,
    Seeds,
    StudyBase,
    check_trial_count,
)
from contrasweep.study.grid import AblationGrid
from contrasweep.study.replicates import Positive, extended

SET_BY_STUDY = {"searcher", "pruner", "space", "fixed", "seed", "mode", "budget", "folds"}
"""What a searcher or a pruner is built with beside its own options."""


@checked
class Sweep(StudyBase):
    """A search per arm under equal budgets, then a confirmation of each arm's best on fresh seeds and unsearched folds.

    Only the confirmation reaches the table. The search never sees the test split.

    Args:
        trials_per_arm: Configurations that each arm's search may try; short for `budget: {trials: ...}`.
        budget: What each arm's search may spend; see `contrasweep.study.arm_budget.ArmBudget`.
        searcher: The name of a searcher (`contrasweep list searchers`), or `package.module:Class`.
        searcher_options: The searcher's own options.
        pruner: The name of a rule for early stopping (`contrasweep list pruners`), or `package.module:Class`.
            Default: none.
        pruner_options: The pruner's own options.
        search_folds: The folds that the search evaluates on. Default: fold 0; without folds, the dataset's dev split.
        search_seed: The seed of the search and of its trials.
        slots: Configurations of an arm that train at a time. Where it is set, the k-th configuration is chosen by the
            results of the first k - slots alone. So the study tries the same configurations on any machine.
        confirm_seeds: Seeds of the confirmation.
        confirm_on: Where the best is confirmed: the `folds` that were not searched, `all` folds (the table then says
            so), or the `test` split after training on all else.
        type: The kind of study, for files: `sweep`.

    Raises:
        SpecError: A field breaks a rule. The message is one line: place, rule, value, and what would have worked.

    Example:
        >>> import contrasweep as cs
        >>> arm = cs.Arm("contrastive", {"loss": "supcon"}, {"loss.temperature": cs.Float(0.05, 0.5, log=True)})
        >>> sweep = cs.Sweep("tuned", {"scl": arm}, "digits-lt", trials_per_arm=20, folds=5, searcher="random")
        >>> sweep.confirm_folds
        [1, 2, 3, 4]
    """

    trials_per_arm: Positive | None = None
    budget: ArmBudget | None = None
    searcher: str = "tpe"
    searcher_options: MutableConfig = pydantic.Field(default_factory=dict)
    pruner: str | None = None
    pruner_options: MutableConfig = pydantic.Field(default_factory=dict)
    search_folds: Annotated[list[int], pydantic.Field(min_length=1)] | None = None
    search_seed: Seed = 0
    slots: Positive | None = None
    confirm_seeds: Seeds = pydantic.Field(default_factory=lambda: list(range(1000, 1006)))
    confirm_on: Literal["folds", "all", "test"] = "folds"
    type: Literal["sweep"] = "sweep"

    def __post_init__(self) -> None:
        self.check_shared(self.confirm_seeds, "confirm_seeds")
        self._check_confirmation()
        self._check_search()

    def _check_confirmation(self) -> None:
        """Raise `SpecError` where the confirmation would use the search's seed, or no fold is left for it.

        It is also raised for folds that the study does not have, for a fold named twice, and for too many trials.
        """
        seeds = self.replicates.most if self.replicates else len(self.confirm_seeds)
        check_trial_count(len(self.arms), seeds * (self.folds or 1))
        if self.search_seed in self.all_seeds:
            raise SpecError(
                "the confirmation needs fresh seeds, none that the search saw",
                place="confirm_seeds",
                value=self.search_seed,
                hint=f"leave {self.search_seed} out or change search_seed",
            )
        if self.replicates is not None and self.replicates.of == "repeats":
            raise SpecError(
                "a confirmation adds seeds",
                place="replicates.of",
                value="repeats",
                hint="leave it out, or say seeds",
            )
        for fold in self.search_folds or []:
            if self.folds is None or not 0 <= fold < self.folds:
                raise SpecError(
                    "search_folds name folds of the study",
                    place="search_folds",
                    value=fold,
                    hint=f"folds is {self.folds}",
                )
        folds = self.search_folds or []
        if len(set(folds)) < len(folds):
            raise SpecError(
                "a fold is searched once", place="search_folds", value=self.search_folds
            )
        if self.folds is not None and not self.confirm_folds:
            raise SpecError(
                "every fold is searched, and none is left to confirm on",
                place="search_folds",
                value=self.search_folds,
                hint="search fewer, or set confirm_on: all (the table then says so) or confirm_on: test",
            )

    def _check_search(self) -> None:
        """Raise `SpecError` where the search has no budget or two of them, or an arm more start points than it allows.

        It is also raised for an arm that starts from a checkpoint, and for a setting with the name of a column of
        tables. So it is for options of the searcher or the pruner that do not go with the study.
        """
        if self.trials_per_arm is None and self.budget is None:
            raise SpecError(
                "a search needs a budget for each arm",
                place="budget",
                hint="for example trials_per_arm: 40, or budget: {epochs: 2000} or {gpu_hours: 4}",
            )
        if self.trials_per_arm and self.budget and self.budget.trials:
            raise SpecError(
                "trials_per_arm and budget.trials say the same",
                place="trials_per_arm",
                value=self.trials_per_arm,
            )
        check_trial_count(len(self.arms), self.arm_budget.trials or 1, "trials_per_arm")
        levels = self.searcher_options.get("levels")
        if self.searcher == "grid" and isinstance(levels, Mapping):
            searched = [name for arm in self.arms.values() for name in arm.space]
            for name in levels:
                check_known(
                    name,
                    "settings",
                    searched,
                    "no arm searches this setting",
                    place="searcher_options.levels",
                )
        for place in ("searcher_options", "pruner_options"):
            of_study = SET_BY_STUDY & getattr(self, place).keys()
            if of_study:
                raise SpecError(
                    "fields of the study set this",
                    place=place,
                    value=", ".join(of_study),
                    hint="search_seed, mode, search_folds, trials_per_arm",
                )
        for name, arm in self.arms.items():
            for setting in {"trial_id", "arm", "value", "status", "phase"} & set(arm.space):
                raise SpecError(
                    "no searched setting has this name, which is a column of every search",
                    place=f"arms.{name}.space",
                    value=setting,
                )
            if arm.start is not None:
                raise SpecError(
                    "an arm of a Sweep starts from no checkpoint",
                    place=f"arms.{name}.start",
                    hint="declare an AblationGrid",
                )
            # A budget of epochs or hours has no number of trials of its own.
            if (self.arm_budget.trials or MAX_TRIALS) < len(arm.start_points or []):
                raise SpecError(
                    "start points count in the budget of their arm, which has fewer trials",
                    place=f"arms.{name}.start_points",
                    value=len(arm.start_points or []),
                    hint=f"the budget has {self.arm_budget.trials}",
                )

    @property
    def all_seeds(self) -> list[int]:
        """The seeds of the confirmation. With `replicates` these are as many as a cell has at the last look."""
        if self.replicates:
            return extended(self.confirm_seeds, self.replicates.most)
        return list(self.confirm_seeds)

    @property
    def confirm_folds(self) -> list[int] | list[None]:
        """The folds of the confirmation; [None]: its trials use the dataset's own test split."""
        if self.folds is None or self.confirm_on == "test":
            return [None]
        searched = () if self.confirm_on == "all" else self.search_folds or [0]
        return [fold for fold in range(self.folds) if fold not in searched]

    @property
    def arm_budget(self) -> ArmBudget:
        """Return the budget of the search of each arm, with `trials_per_arm` as its `trials`."""
        budget = self.budget or ArmBudget(self.trials_per_arm)
        return ArmBudget(self.trials_per_arm or budget.trials, budget.epochs, budget.gpu_hours)


Study = AblationGrid | Sweep
"""What a researcher declares. Python objects and YAML have the same fields, checked as they are made."""
