"""What a Sweep would run: a search per arm under one budget, then the confirmation. Pure, like `planning`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pandas as pd

from contrasweep import canonical, schedule, search
from contrasweep.data.manifest import Manifest
from contrasweep.errors import SpecError
from contrasweep.planning import Resolve, check_settings, find_trainable, trainable_path
from contrasweep.space import sample
from contrasweep.spec import Arm, Sweep
from contrasweep.specfile import to_plain
from contrasweep.trial import Trial

DEV_SPLITS = ("dev", "validation")
"""Splits of a dataset that a search without folds may read, by metrics that are named after them."""


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

    @property
    def searched(self) -> int:
        """Trials of the search, of all arms."""
        return len(self.study.arms) * self.study.trials_per_arm * len(self.search_folds)

    @property
    def replicates(self) -> list[tuple[int | None, int]]:
        """(fold, seed) of each confirmation trial of an arm; the same for every arm."""
        folds: list[int | None] = [None] if self.study.folds is None else list(range(self.study.folds))
        return [(fold, seed) for seed in self.study.confirm_seeds for fold in folds]

    @property
    def total(self) -> int:
        """Trials of search and confirmation."""
        return self.searched + len(self.study.arms) * len(self.replicates)

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """The confirmation as far as it is known: one replicate of every arm before the next of any."""
        return tuple(self.trial(arm, config, fold, seed) for fold, seed in self.replicates for arm, config in self.best.items())

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
        return {key: value for key, value in plain.items() if key not in ("name", "description", "budget_hours", "max_failures")}

    def search_digest(self, arm: str) -> str:
        """Digest of one arm's search, but its budget: a larger budget goes on with the same search."""
        kept = ("searcher", "searcher_options", "scheduler", "scheduler_options", "search_seed", "metric", "mode", "warm_start")
        base = self.study.freeze.get(arm)
        parts = [self.question["arms"][arm], {k: self.question.get(k) for k in kept}, self.search_folds, self.data.digest]
        return canonical.digest([*parts, self.search_digest(base) if base else None], length=12)

    @property
    def datasets(self) -> dict[str, Manifest]:
        return {self.data.digest: self.data}

    def relocated(self, resolve: Resolve) -> "SweepPlan":
        """The same plan with its dataset where `resolve` puts it."""
        return replace(self, data=resolve(self.study.data))

    def trial(self, arm: str, config: Mapping[str, Any], fold: int | None, seed: int) -> Trial:
        path = trainable_path(self.study.arms[arm])
        return Trial(study=self.study.name, arm=arm, trainable=path, config=canonical.Config(config), data=self.data, fold=fold, seed=seed)

    def to_frame(self) -> pd.DataFrame:
        """One row a confirmation trial. Where the best configuration is not known yet, neither is the trial's id,
        and the row says `unknown-...`."""
        rows = [
            {"trial_id": self.trial(arm, self.best[arm], fold, seed).id if arm in self.best else f"unknown-{arm}-{fold}-{seed}",
             "arm": arm, "fold": fold, "seed": seed}
            for arm in self.study.arms for fold, seed in self.replicates
        ]  # fmt: skip
        return pd.DataFrame(rows, columns=["trial_id", "arm", "fold", "seed"])


def make_sweep_plan(study: Sweep, resolve: Resolve) -> SweepPlan:
    """Plan `study`; what can be wrong about it is found here. A configuration from the middle of each space, and
    those at its corners of the first two parameters, are built by the trainable's settings."""
    order(study)
    functions = {name: find_trainable(arm, f"arms.{name}.trainable") for name, arm in study.arms.items()}
    for name, arm in study.arms.items():
        for u in (0.0, 0.5, 1.0):
            _check_point(study, name, functions[name], u)
        if not arm.space:
            raise SpecError("every arm of a Sweep searches something", place=f"arms.{name}.space", value={},
                            hint="give it a space, or declare an AblationGrid")  # fmt: skip
        search.build(study.searcher, arm.space, fixed=arm.config, seed=study.search_seed, mode=study.mode,
                     budget=study.trials_per_arm, **study.searcher_options)  # fmt: skip
    if study.scheduler is not None:
        schedule.build(study.scheduler, mode=study.mode, budget=study.trials_per_arm, **study.scheduler_options)
    data = resolve(study.data)
    _check_data(study, data)
    local = {trainable_path(arm): functions[name] for name, arm in study.arms.items() if not isinstance(arm.trainable, str)}
    return SweepPlan(study, data, local)


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
    return {key: value for key, value in {**base, **arm.config}.items() if key not in arm.space}


def _check_point(study: Sweep, name: str, function: Callable[..., Any], u: float) -> None:
    base: dict[str, Any] = {}
    chain = [name]
    while (below := study.freeze.get(chain[0])) is not None:
        chain.insert(0, below)
    for arm in (study.arms[link] for link in chain):
        fixed = fixed_of(arm, base)
        drawn = sample(arm.space, [u] * len(arm.space), fixed)
        base = {**{k: v for k, v in base.items() if k not in arm.config}, **drawn}
    check_settings(function, {**fixed, **drawn}, {}, name)


def _check_data(study: Sweep, data: Manifest) -> None:
    if study.folds is None:
        splits = [split for split in DEV_SPLITS if data.rows(split)]
        if not any(study.metric.startswith(f"{split}_") for split in splits):
            raise SpecError(
                "a search must not look at the test split: without folds, its metric has to be one of a dev split",
                place="folds", value=None, hint=f"declare folds, or a metric named {' or '.join(f'{s}_...' for s in splits)}" if splits else
                f"declare folds; {data.name} has no split {' or '.join(DEV_SPLITS)}",
            )  # fmt: skip
    elif study.folds > data.rows("train"):
        raise SpecError("there cannot be more folds than rows", place="folds", value=study.folds,
                        hint=f"{data.name} has {data.rows('train')} training rows")  # fmt: skip
