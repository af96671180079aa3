"""What a Sweep would run: a search per arm under one budget, then the confirmation. Pure, like `planning`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pandas as pd

from contrasweep import canonical
from contrasweep.data.manifest import Manifest
from contrasweep.errors import SpecError
from contrasweep.planning.grid import Resolve
from contrasweep.study import dotted
from contrasweep.study.file import to_plain
from contrasweep.study.space import sample
from contrasweep.study.study import Arm, Sweep
from contrasweep.study.trainables import check_settings, find_trainable, trainable_path
from contrasweep.trial import Trial
from contrasweep.tuning import pruners as schedule
from contrasweep.tuning import searchers as search
from contrasweep.tuning.pruners import scheduled

DEV_SPLITS = ("dev", "validation")
"""Splits of a dataset that a search without folds looks at."""


@dataclass(frozen=True)
class SweepPlan:
    """The budget of a Sweep's search and, once `best` is known, the trials of its confirmation."""

    study: Sweep
    data: Manifest
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)  # trainables given as functions
    best: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # arm -> its whole config, where found

    @property
    def search_folds(self) -> list[int | None]:
        """Fold 0 unless the study names others; the dataset's own splits where it has no folds."""
        return [None] if self.study.folds is None else list(self.study.search_folds or [0])

    @cached_property
    def search_data(self) -> Manifest:
        """What the search sees: the dataset without its test split, so that nothing can look at it. Without folds, a
        trial finds the dev split in its place."""
        splits = {name: shards for name, shards in self.data.splits.items() if name != "test"}
        if self.study.folds is None:
            splits["test"] = next(splits[name] for name in DEV_SPLITS if self.data.rows(name))
        return replace(self.data, splits=splits)

    @cached_property
    def population(self) -> schedule.Population | None:
        """What the study asks of population based training, if it does."""
        return schedule.population_of(self.study)

    @property
    def searched(self) -> int | None:
        """Trials of the search, of all arms, at most; None where the budget counts none."""
        configurations = self.study.arm_budget.trials
        generations = len(self.population.ends) if self.population else 1
        return (
            None
            if configurations is None
            else len(self.study.arms) * configurations * generations * len(self.search_folds)
        )

    @property
    def replicates(self) -> list[tuple[int | None, int]]:
        """(fold, seed) of each confirmation trial of an arm; the same for every arm."""
        on_folds = self.study.folds is not None and self.study.confirm_on == "folds"
        folds: list[int | None] = list(range(self.study.folds or 0)) if on_folds else [None]
        return [(fold, seed) for seed in self.study.confirm_seeds for fold in folds]

    @property
    def confirmed(self) -> int:
        """Trials of the confirmation, of all arms."""
        return len(self.study.arms) * len(self.replicates)

    @property
    def total(self) -> int | None:
        """Trials of search and confirmation; None where the budget counts none."""
        return None if self.searched is None else self.searched + self.confirmed

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """The confirmation as far as it is known: one replicate of every arm before the next of any."""
        return tuple(
            self.trial(arm, config, fold, seed) for fold, seed in self.replicates for arm, config in self.best.items()
        )

    @cached_property
    def digest(self) -> str:
        """Digest of what is asked: the whole study (but its time budget) and the data."""
        return canonical.digest([self.question, self.data.digest], length=16)

    @cached_property
    def question(self) -> dict[str, Any]:
        """The study as plain values, without what changes no result."""
        plain: dict[str, Any] = to_plain(self.study)
        for name, arm in self.study.arms.items():
            plain["arms"][name]["trainable"] = trainable_path(arm)
            plain["arms"][name].pop("footprint", None)
        kept = {key: value for key, value in plain.items() if key not in ("name", "description", "max_failures")}
        return {key: value for key, value in kept.items() if not key.startswith("budget_")}

    def search_digest(self, arm: str) -> str:
        """Digest of one arm's search, but its budget: a larger budget goes on with the same search."""
        kept = (
            "searcher",
            "searcher_options",
            "scheduler",
            "scheduler_options",
            "search_seed",
            "metric",
            "mode",
            "warm_start",
        )
        base = self.study.freeze.get(arm)
        goals = {"objectives": self.study.objectives, "constraints": self.study.constraints}
        parts = [
            self.question["arms"][arm],
            {k: self.question.get(k) for k in kept},
            goals,
            self.search_folds,
            self.search_data.digest,
        ]
        return canonical.digest([*parts, self.search_digest(base) if base else None], length=12)

    @property
    def datasets(self) -> dict[str, Manifest]:
        return {data.digest: data for data in (self.data, self.search_data)}

    def relocated(self, resolve: Resolve) -> "SweepPlan":
        """The same plan with its dataset where `resolve` puts it."""
        return replace(self, data=resolve(self.study.data))

    def trial(self, arm: str, config: Mapping[str, Any], fold: int | None, seed: int) -> Trial:
        """A trial of the confirmation."""
        return self._trial(arm, config, self.data, fold, seed)

    def search_trials(self, arm: str, config: Mapping[str, Any]) -> list[Trial]:
        """The trials of one configuration of the search, one a fold."""
        return [self._trial(arm, config, self.search_data, fold, self.study.search_seed) for fold in self.search_folds]

    def samples(self, arm: str) -> list[Trial]:
        """Trials at both ends and in the middle of an arm's space: some that its search may ask for."""
        return [self.search_trials(arm, point(self.study, arm, u))[0] for u in (0.0, 0.5, 1.0)]

    def searcher(self, arm: str, fixed: Mapping[str, Any]) -> search.Searcher:
        """A new searcher for an arm whose other settings are `fixed`."""
        study = self.study
        return search.build(
            study.searcher,
            study.arms[arm].space,
            fixed=fixed,
            seed=study.search_seed,
            mode=list(study.goals.values()),
            budget=study.arm_budget.trials,
            constraints=len(study.constraints),
            **study.searcher_options,
        )

    def scheduler(self) -> schedule.Scheduler | None:
        """A new rule for early stopping; None: there is none."""
        study = self.study
        if study.scheduler is None or self.population is not None:
            return None
        return schedule.build(
            study.scheduler,
            mode=study.mode,
            budget=study.arm_budget.trials,
            folds=len(self.search_folds),
            **study.scheduler_options,
        )

    def _trial(self, arm: str, config: Mapping[str, Any], data: Manifest, fold: int | None, seed: int) -> Trial:
        path = trainable_path(self.study.arms[arm]) if self.population is None else scheduled.PATH
        return Trial(
            study=self.study.name,
            arm=arm,
            trainable=path,
            config=canonical.Config(config),
            data=data,
            fold=fold,
            seed=seed,
        )

    def to_frame(self) -> pd.DataFrame:
        """One row a confirmation trial. Where the best configuration is not known yet, neither is the trial's id,
        and the row says `unknown-...`."""
        rows = [
            {
                "trial_id": self.trial(arm, self.best[arm], fold, seed).id
                if arm in self.best
                else f"unknown-{arm}-{fold}-{seed}",
                "arm": arm,
                "fold": fold,
                "seed": seed,
            }
            for arm in self.study.arms
            for fold, seed in self.replicates
        ]
        return pd.DataFrame(rows, columns=["trial_id", "arm", "fold", "seed"])


def make_sweep_plan(study: Sweep, resolve: Resolve) -> SweepPlan:
    """Plan `study`; what can be wrong about it is found here. A configuration from the middle of each space, and
    those at its corners of the first two parameters, are built by the trainable's settings."""
    order(study)
    functions = {name: find_trainable(arm, f"arms.{name}.trainable") for name, arm in study.arms.items()}
    for name, arm in study.arms.items():
        for u in (0.0, 0.5, 1.0):
            check_settings(functions[name], point(study, name, u), {}, name)
        if not arm.space:
            raise SpecError(
                "every arm of a Sweep searches something",
                place=f"arms.{name}.space",
                value={},
                hint="give it a space, or declare an AblationGrid",
            )
    data = resolve(study.data)
    _check_data(study, data)
    local = {
        trainable_path(arm): functions[name] for name, arm in study.arms.items() if not isinstance(arm.trainable, str)
    }
    planned = SweepPlan(study, data, local)
    planned.scheduler()
    for name, arm in study.arms.items():
        _check_searcher(planned.searcher(name, arm.config), study)
    return planned


def order(study: Sweep) -> list[str]:
    """Arms with each frozen base before what builds on it; `SpecError` on a circle."""
    done: list[str] = []
    while waiting := [arm for arm in study.arms if arm not in done]:
        ready = [arm for arm in waiting if study.freeze.get(arm) is None or study.freeze[arm] in done]
        if not ready:
            raise SpecError("arms are frozen on each other in a circle", place="freeze", value=dict(study.freeze))
        done += ready
    return done


def fixed_of(arm: Arm, base: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of `arm` that it does not search: its own on top of its base's tuned ones."""
    tuned = (dotted.nest(key, value) for key, value in base.items() if key not in arm.space)
    return dotted.merge(*tuned, arm.config)


def point(study: Sweep, name: str, u: float) -> dict[str, Any]:
    """The config of an arm (and of what it is frozen on) at the same place `u` (0 to 1) of every searched setting."""
    base: dict[str, Any] = {}
    chain = [name]
    while (below := study.freeze.get(chain[0])) is not None:
        chain.insert(0, below)
    for arm in (study.arms[link] for link in chain):
        fixed = fixed_of(arm, base)
        drawn = sample(arm.space, [u] * len(arm.space), fixed)
        base = {**base, **drawn}
    return dotted.merge(fixed, dotted.expand(drawn))


def _check_searcher(searcher: search.Searcher, study: Sweep) -> None:
    """Whether it can ask: what a sampler cannot do, several objectives say, it tells only then."""
    try:
        searcher.ask()
    except ValueError as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError(
            "the searcher cannot search this", place="searcher", value=study.searcher, hint=str(error).splitlines()[0]
        ) from None


def _check_data(study: Sweep, data: Manifest) -> None:
    if study.folds is None:
        if not any(data.rows(split) for split in DEV_SPLITS):
            raise SpecError(
                "a search must not look at the test split: without folds, it needs a dev split",
                place="folds",
                value=None,
                hint=f"declare folds; {data.name} has no split {' or '.join(DEV_SPLITS)}",
            )
    elif study.folds > data.rows("train"):
        raise SpecError(
            "there cannot be more folds than rows",
            place="folds",
            value=study.folds,
            hint=f"{data.name} has {data.rows('train')} training rows",
        )
    if (study.folds is None or study.confirm_on == "test") and not data.rows("test"):
        raise SpecError(
            "there is no test split to confirm on",
            place="confirm_on",
            value="test",
            hint=f"{data.name} has {', '.join(data.splits)}; declare folds and confirm on them",
        )
