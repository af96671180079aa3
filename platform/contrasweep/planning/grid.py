"""What a study would run: its cells and trials. Pure: nothing is written and no Ray is started."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pandas as pd

from contrasweep import canonical
from contrasweep.data.manifest import Manifest
from contrasweep.errors import SpecError
from contrasweep.study import dotted
from contrasweep.study.study import DATA_AXIS, AblationGrid
from contrasweep.study.trainables import check_settings, find_trainable, trainable_path
from contrasweep.trial import Trial

Resolve = Callable[[str], Manifest]
"""Dataset name -> manifest, dealt into the study's folds."""


@dataclass(frozen=True)
class Cell:
    """One combination of arm and axis values, and its replicates."""

    arm: str
    axes: Mapping[str, Any]
    trials: tuple[Trial, ...]


@dataclass(frozen=True)
class Plan:
    """The trials of a study. `cells` are in table order; `trials` are each once, in the order they should
    start: one replicate of every cell before the next replicate of any, so that an early stop leaves pairs."""

    study: AblationGrid
    cells: tuple[Cell, ...]
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)  # trainables given as functions
    sources: Mapping[str, str] = field(default_factory=dict)  # dataset digest -> its name in the study

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        most = max((len(cell.trials) for cell in self.cells), default=0)
        rounds = (cell.trials[i] for i in range(most) for cell in self.cells if i < len(cell.trials))
        return tuple({trial.id: trial for trial in rounds}.values())

    @cached_property
    def digest(self) -> str:
        """Digest of what is asked: the set of trials, the metric and its direction."""
        return canonical.digest([sorted(t.id for t in self.trials), self.study.metric, self.study.mode], length=16)

    @cached_property
    def datasets(self) -> dict[str, Manifest]:
        """The datasets of the trials, by digest."""
        return {trial.data.digest: trial.data for cell in self.cells for trial in cell.trials[:1]}

    def relocated(self, resolve: Resolve) -> "Plan":
        """The same plan with its datasets where `resolve` puts them: same digests, same trial ids."""
        moved = {digest: resolve(self.sources[digest]) for digest in self.datasets}
        cells = tuple(
            replace(cell, trials=tuple(replace(t, data=moved[t.data.digest]) for t in cell.trials))
            for cell in self.cells
        )
        return replace(self, cells=cells)

    def to_frame(self) -> pd.DataFrame:
        """One row a trial: trial_id, arm, the axes, fold, seed."""
        rows = {
            t.id: {"trial_id": t.id, "arm": c.arm, **c.axes, "fold": t.fold, "seed": t.seed}
            for c in self.cells
            for t in c.trials
        }
        return pd.DataFrame(list(rows.values()), columns=["trial_id", "arm", *self.study.axis_names, "fold", "seed"])


def make_plan(study: AblationGrid, resolve: Resolve) -> Plan:
    """Plan `study`. Every config is checked against its trainable's settings before a dataset is looked up;
    replicates are the same (fold, seed) pairs for every cell, so that any two cells are compared in pairs.

    Raises `SpecError` for a trainable, a setting or a fold that does not exist.
    """
    functions = {name: find_trainable(arm, f"arms.{name}.trainable") for name, arm in study.arms.items()}
    drafts = list(_distinct(study))
    for arm_name, axes, config in drafts:
        check_settings(functions[arm_name], config, axes, arm_name)
    manifests = {
        name: resolve(name) for name in dict.fromkeys(axes.get(DATA_AXIS, study.data) for _, axes, _ in drafts)
    }
    folds = list(range(study.folds)) if study.folds is not None else [None]
    for name, manifest in manifests.items():
        _check_data(study, name, manifest)
    cells = []
    for arm_name, axes, config in drafts:
        path = trainable_path(study.arms[arm_name])
        data = manifests[axes.get(DATA_AXIS, study.data)]
        trials = tuple(
            Trial(study=study.name, arm=arm_name, trainable=path, config=config, data=data, fold=fold, seed=seed)
            for seed in study.seeds
            for fold in folds
        )
        cells.append(Cell(arm_name, axes, trials))
    local = {
        trainable_path(arm): functions[name] for name, arm in study.arms.items() if not isinstance(arm.trainable, str)
    }
    return Plan(study, tuple(cells), local, {manifest.digest: name for name, manifest in manifests.items()})


def _distinct(study: AblationGrid) -> Iterator[tuple[str, dict[str, Any], canonical.Config]]:
    """Each different (arm, axis values, config) once: sub-grids may repeat cells of the product."""
    seen = set()
    for arm_name, axes, extra in study.cells():
        values = (dotted.nest(axis, value) for axis, value in axes.items() if axis != DATA_AXIS)
        config = canonical.Config(dotted.merge(study.arms[arm_name].config, extra, *values), f"arms.{arm_name}.config")
        shown = {axis: axes[axis] if axis in axes else dotted.get(config, axis) for axis in study.axis_names}
        key = (arm_name, axes.get(DATA_AXIS), config.text)
        if key not in seen:
            seen.add(key)
            yield (
                arm_name,
                shown if DATA_AXIS not in shown else {**shown, DATA_AXIS: axes.get(DATA_AXIS, study.data)},
                config,
            )


def _check_data(study: AblationGrid, name: str, manifest: Manifest) -> None:
    split = "test" if study.folds is None else "train"
    if manifest.rows("train") == 0 or manifest.rows(split) == 0:
        hint = "declare folds" if split == "test" else "choose another dataset"
        raise SpecError(f"the dataset has no rows in split {split!r}", place="data", value=name, hint=hint)
    if study.folds is not None and study.folds > manifest.rows("train"):
        raise SpecError(
            "there cannot be more folds than rows",
            place="folds",
            value=study.folds,
            hint=f"{name} has {manifest.rows('train')} training rows",
        )
