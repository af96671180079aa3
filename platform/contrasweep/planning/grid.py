"""The plan of an `AblationGrid`: its cells and trials."""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from contrasweep import canonical
from contrasweep.canonical import label
from contrasweep.config import Config, MutableConfig
from contrasweep.data.manifest import NO_DATA, Manifest
from contrasweep.errors import DataError, NotStagedError, SpecError, plural
from contrasweep.planning.plan import Cell, PlanDisplay, PlanRow, Resolve
from contrasweep.planning.stages import stage
from contrasweep.planning.starts import Sources
from contrasweep.storage.record import Record, StartRef
from contrasweep.storage.records import StudyRecords
from contrasweep.study import dotted
from contrasweep.study.grid import DATA_AXIS, AblationGrid
from contrasweep.study.trainables import SettingsOfArms
from contrasweep.trial import Trial, in_turns
from contrasweep.tuning.source import Finished, Next, Source

if TYPE_CHECKING:
    import pandas as pd


class FixedSource(Source):
    """A source of a fixed list of trials. It stops none early, and no trial depends on another's result."""

    def __init__(self, trials: Iterable[Trial]) -> None:
        self.waiting = deque(trials)

    @property
    def finished(self) -> bool:
        """Whether all have been handed out."""
        return not self.waiting

    def next(self, paused_arms: Collection[str] = ()) -> Next | Finished | None:
        """Return the next trial of the list, of a paused arm too, as none is suggested; `Finished` after the last."""
        return Next(self.waiting.popleft()) if self.waiting else Finished()


@dataclass(frozen=True, repr=False)
class GridPlan(PlanDisplay):
    """The trials of a grid.

    `cells` are in table order. `trials` are each once, in the order in which they should start: one replicate of every
    cell before the next replicate of any, so that an early stop leaves pairs.
    """

    study: AblationGrid
    cells: tuple[Cell, ...]
    # dataset digest -> its name in the study
    sources: Mapping[str, str] = field(default_factory=dict)
    stops_early: ClassVar[bool] = False
    declared_search: ClassVar[None] = None

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """Return the trials in order: the first replicate of every cell, then the second of every cell, and so on."""
        return in_turns([cell.trials for cell in self.cells])

    @property
    def total(self) -> int:
        """Return how many trials the grid has."""
        return len(self.trials)

    @property
    def sample_trials(self) -> list[Trial]:
        """The first trial of each cell."""
        return [cell.trials[0] for cell in self.cells]

    @cached_property
    def digest(self) -> str:
        """Return a digest, 16 hexadecimal digits, of the set of trials, the metric, its direction and the looks."""
        # Sorted, because the order of trials is no part of the question.
        question: list[object] = [
            sorted(map(attrgetter("id"), self.trials)),
            self.study.metric,
            self.study.mode,
        ]
        if (declared := self.study.replicates) is not None:
            question.append([declared.looks, declared.of, declared.spending])
        return canonical.digest(question, length=16)

    @cached_property
    def datasets(self) -> dict[str, Manifest]:
        """Digest -> dataset, of the datasets of all cells."""
        # All trials of a cell are on one dataset.
        return {trial.data.digest: trial.data for cell in self.cells for trial in cell.trials[:1]}

    @property
    def table_datasets(self) -> list[Manifest]:
        """All datasets of the grid."""
        return list(self.datasets.values())

    @property
    def table_folds(self) -> int | None:
        """Number of folds of the study; None where it uses the dataset's own test split."""
        return self.study.folds

    @property
    def varied(self) -> list[str]:
        """The axes, in the order of the study."""
        return self.study.axis_names

    def summary(self) -> dict[str, object]:
        """Return the names of the datasets, and the folds and seeds, by what a reader calls them.

        `repeats` and `replicates` are in it where the study declares them; excluded seeds are not.
        """
        study = self.study
        repeats = {"repeats": study.repeats} if study.repeats else {}
        replicates = {"replicates": str(study.replicates)} if study.replicates else {}
        return {
            "data": ", ".join(data.name for data in self.table_datasets),
            "folds": study.folds,
            **repeats,
            "seeds": [seed for seed in study.seeds if seed not in study.excluded],
            **replicates,
        }

    def complete(self, records: StudyRecords, finished: Collection[str]) -> bool:
        """Return whether every trial that the looks grant is in `finished`.

        In a study with interim analyses the last look must have been taken too.
        """
        if self.study.replicates is not None and not stage(self, records).over:
            return False
        return all(trial.id in finished for trial in self._granted(records))

    def stored_frame(self, records: StudyRecords, complete: bool) -> "pd.DataFrame":
        """Return the rows of `to_frame` of the trials that may run before the next look; `complete` changes nothing."""
        frame = self.to_frame()
        granted = {trial.id for trial in self._granted(records)}
        return frame[frame["trial_id"].isin(granted)].reset_index(drop=True)

    def searches_of(self, arms: Collection[str]) -> dict[str, str]:
        """Return {}: a grid searches nothing."""
        return {}

    def belonging(self, finished: Collection[str]) -> set[str]:
        """Return the `finished` trials of this grid. The storage may have others, of an earlier and larger grid."""
        return {trial.id for trial in self.trials} & set(finished)

    def source(self, records: StudyRecords, finished: Collection[str]) -> FixedSource:
        """Return a source of the trials that are not `finished`, in the plan's order.

        In a study with interim analyses, these are the trials before the next one.
        """
        return FixedSource(trial for trial in self._granted(records) if trial.id not in finished)

    def _granted(self, records: StudyRecords) -> tuple[Trial, ...]:
        """Return the trials that may run before the next look: all of them in a study of a fixed size."""
        return self.trials if self.study.replicates is None else stage(self, records).trials

    def relocated(self, resolve: Resolve) -> "GridPlan":
        """Return the same cells, with each trial's dataset as `resolve` finds it by its name in the study.

        The datasets must have the same content there, so that trials keep their ids.
        """
        moved = {digest: resolve(self.sources[digest]) for digest in self.datasets}
        cells = tuple(
            replace(cell, trials=tuple(replace(t, data=moved[t.data.digest]) for t in cell.trials))
            for cell in self.cells
        )
        return replace(self, cells=cells)

    def to_frame(self) -> "pd.DataFrame":
        """Return a table with one row for each trial, cell by cell: trial_id, arm, the axes, fold, seed."""
        import pandas as pd

        rows = [
            {"trial_id": t.id, "arm": c.arm, **c.axes, "fold": t.fold, "seed": t.seed}
            for c in self.cells
            for t in c.trials
        ]
        return pd.DataFrame(
            rows, columns=["trial_id", "arm", *self.study.axis_names, "fold", "seed"]
        )

    def rows(self, known: Mapping[str, Record]) -> tuple[PlanRow, ...]:
        """Return one row for each cell, in table order, given the finished records `known` by trial id."""
        return tuple(
            self._row(cell, sum(trial.id in known for trial in cell.trials)) for cell in self.cells
        )

    def _row(self, cell: Cell, done: int) -> PlanRow:
        """Return the row of a cell, of whose trials `done` have ended.

        It says the same twice, for programs (`facts`) and as text for people (`columns`).
        """
        facts = {
            "arm": cell.arm,
            "axes": dict(cell.axes),
            "replicates": len(cell.trials),
            "done": done,
        }
        columns = [("arm", cell.arm), *((axis, str(value)) for axis, value in cell.axes.items())]
        columns += [("replicates", str(len(cell.trials))), ("done", str(done))]
        # All replicates of a cell need the same of a host, so the first one is sample enough.
        return PlanRow(
            arm=cell.arm,
            trials=cell.trials,
            samples=cell.trials[:1],
            facts=facts,
            columns=tuple(columns),
        )

    def left(self, known: Mapping[str, Record]) -> Iterable[int]:
        """Return the number of the cell, from 0, of each trial that is not in `known`, in the order of the trials."""
        of_trial = {trial.id: i for i, cell in enumerate(self.cells) for trial in cell.trials}
        return [of_trial[trial.id] for trial in self.trials if trial.id not in known]

    def totals(self, known: Mapping[str, Record]) -> dict[str, int]:
        """Return numbers by name: `cells`, and of trials `trials`, `done` (those in `known`) and `to_run`."""
        done = len(self.belonging(known))
        return {
            "cells": len(self.cells),
            "trials": self.total,
            "done": done,
            "to_run": self.total - done,
        }

    def lines(self, known: Mapping[str, Record]) -> list[str]:
        """Return three lines: the study with its data and replicates, the cells, the trials.

        Of a growing study its looks too.
        """
        study = self.study
        totals = self.totals(known)
        data = ", ".join(f"{m.name} ({m.digest[:8]})" for m in self.table_datasets)
        folds = plural(study.folds, "fold") if study.folds else "the test split"
        if study.repeats and study.repeats > 1:
            folds = f"{study.repeats} x {folds}"
        seeds = len({trial.seed for trial in self.trials})
        least = [f"trials    {totals['trials']}: {totals['done']} done, {totals['to_run']} to run"]
        if study.replicates is not None:
            # A study that grows begins with `first` of at most `most` replicates.
            first = totals["trials"] * study.replicates.first // study.replicates.most
            least = [
                f"trials    {first} to {totals['trials']}: {totals['done']} done, at most {totals['to_run']} to run",
                f"looks     {study.replicates}",
            ]
        replicates = f"{folds} x {plural(seeds, 'seed')}"
        return [
            f"study     {study.name}: {study.metric} ({study.mode}) on {data}, {replicates}",
            f"cells     {totals['cells']}",
            *least,
        ]


def make_plan(
    study: AblationGrid,
    resolve: Resolve,
    without: Collection[str] = (),
    sources: Sources | None = None,
    waiting: Collection[str] = (),
) -> GridPlan:
    """Return the plan of a grid. Nothing is written.

    `resolve` gives a dataset's manifest by its name in the study. Cells of the datasets in `without` and of the arms
    `waiting` are checked and left out. `sources` has the trials that arms start from; None: those of the default
    storage.

    Every config is checked against its trainable's settings before a dataset is looked up. Replicates are the same
    (fold, seed) pairs for every cell, so that any two cells are compared in pairs. Two cells whose settings come to the
    same are one if each axis has a value in one of them alone, or the same in both.

    Raises:
        SpecError: A trainable, a setting or a fold does not exist, or two cells would be the same trials.
        DataError: Datasets are not staged, all of them in one.
        NotTrainedError: Trials that an arm starts from are not trained.
    """
    declared = list(study.configs())
    folds = study.all_folds
    seeds = study.all_seeds
    replicates = [(fold, seed) for seed in seeds for fold in folds]
    if (
        study.folds is not None
        and study.replicates is not None
        and study.replicates.of == "repeats"
    ):
        # Partitions are added one by one, so all seeds of the first come before any of the second. Fold f belongs to
        # partition f // folds.
        replicates.sort(key=lambda pair: (pair[0] or 0) // (study.folds or 1))
    settings = SettingsOfArms(study.arms)
    # Cells that are left out below are checked too.
    for cell in declared:
        settings.build(cell.arm, cell.config, cell.axes)
    declared = [cell for cell in declared if cell.data not in without and cell.arm not in waiting]
    manifests = _manifests(study, dict.fromkeys(cell.data for cell in declared), resolve)
    # Cells by arm, whole config and dataset: two that agree in these have the same trials, and are joined to one.
    cells: dict[tuple[str, str, str], Cell] = {}
    for arm, name, axes, config in declared:
        path = study.arms[arm].path
        start = study.arms[arm].start
        data = manifests[name]
        starts: Sequence[StartRef | None] = [None] * len(replicates)
        if start is None:
            whole_config = settings.resolve(arm, config, data)
        else:
            whole_config, starts = (sources or Sources()).started(
                settings, arm, start, config, axes, data, replicates
            )
        key = (arm, whole_config.text, data.digest)
        same = cells.get(key)
        trials = [
            Trial(study.name, arm, path, whole_config, data, fold, seed, origin)
            for (fold, seed), origin in zip(replicates, starts, strict=True)
        ]
        cells[key] = Cell(arm, _joined(same.axes, axes, arm) if same else axes, tuple(trials))
    plan = GridPlan(
        study,
        tuple(cells.values()),
        {manifest.digest: name for name, manifest in manifests.items()},
    )
    _check_cells(study, plan.cells)
    return plan


def cells_by_dataset(study: AblationGrid) -> Counter[str]:
    """Count the cells of each dataset, by its name in the study.

    Cells that come to the same settings are counted separately.
    """
    return Counter(cell.data for cell in study.configs())


def _manifests(study: AblationGrid, names: Iterable[str], resolve: Resolve) -> dict[str, Manifest]:
    """Return name -> manifest of each dataset, which has the rows and folds that the study needs.

    Raises `NotStagedError` or, of several, a `DataError` that lists all that are not staged, and `SpecError` where a
    dataset lacks rows or cannot have the study's folds.
    """
    manifests = {}
    missing = []
    for name in names:
        try:
            manifests[name] = resolve(name)
        except NotStagedError as error:
            missing.append(error)
    if len(missing) == 1:
        raise missing[0]
    if missing:
        commands = "; ".join(
            f"{error.dataset}: {error.command}   (PATH: {error.requires})" for error in missing
        )
        raise DataError(
            f"several datasets are not staged; stage them with: {commands}; {missing[0].looked}"
        )
    split = "test" if study.folds is None else "train"
    for name, manifest in manifests.items():
        if manifest.kind == NO_DATA:
            continue
        # Images without labels may lack a test part, because nothing is tested on them.
        if manifest.rows("train") == 0 or (manifest.rows(split) == 0 and manifest.labelled):
            hint = "declare folds" if split == "test" else "choose another dataset"
            raise SpecError(
                f"the dataset has no rows in split {split!r}", place="data", value=name, hint=hint
            )
        # Whether the data are partitioned more than once.
        partitions = len(study.all_folds) > (study.folds or 1)
        if partitions and manifest.folds is not None and manifest.folds.rule == "given":
            raise SpecError(
                "the dataset comes with folds of its own, which are the only partition",
                place="repeats" if study.repeats else "replicates.of",
                value=study.repeats or "repeats",
                hint="add seeds instead",
            )
        if study.folds is not None and study.folds > manifest.rows("train"):
            raise too_many_folds(study.folds, manifest)
    return manifests


def too_many_folds(folds: int, data: Manifest) -> SpecError:
    """Return (not raise) the error for a dataset that has too few training rows for so many folds."""
    hint = f"{data.name} has {data.rows('train')} training rows"
    return SpecError("there cannot be more folds than rows", place="folds", value=folds, hint=hint)


def _check_cells(study: AblationGrid, cells: Collection[Cell]) -> None:
    """Raise `SpecError` where a table would show two cells of an arm, or two values of an axis, as one.

    Two cells of an arm with the same values of all axes differ in a setting of a sub-grid that is no axis.
    """
    # First values of an axis, then whole cells.
    for axis in study.axis_names:
        check_apart(axis, (cell.axes[axis] for cell in cells))
    by_text: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        first = by_text.setdefault((cell.arm, canonical.dumps(cell.axes)), cell)
        if first is not cell:
            # The hint names the settings in which the two differ.
            config, other = (dotted.flatten(pair.trials[0].config) for pair in (first, cell))
            keys = [
                key
                for key in {**config, **other}
                if not canonical.same(config.get(key), other.get(key))
            ]
            raise SpecError(
                f"two cells of arm {cell.arm!r} have the same axes, so that a table would show their mean",
                place="subgrids",
                value=dict(cell.axes),
                hint=f"they differ in {', '.join(keys)}: make it an axis, or an arm of each",
            )


def check_apart(axis: str, values: Iterable[Any]) -> None:
    """Raise `SpecError` where tables, files or trackers show two values of an axis as one.

    These are a text and what it reads as (1 and "1", null and "none"), and what Python holds equal (1 and true).
    """
    # What a value may be shown or read as -> the first value that is. Equal values come once, by their canonical text.
    seen: dict[object, object] = {}
    for value in {canonical.dumps(value): value for value in values}.values():
        shown: list[object] = [
            value.casefold() if isinstance(value, str) else label(value).casefold()
        ]
        if isinstance(value, int | float):
            shown.append(value)
        elif value is None:
            shown += ["-", "null", "none"]
        for text in shown:
            other = seen.setdefault(text, value)
            # Two texts that differ in capitals alone are shown apart.
            if not canonical.same(other, value) and not (
                isinstance(other, str) and isinstance(value, str)
            ):
                raise SpecError(
                    "two values of an axis are shown alike",
                    place=f"axes.{axis}",
                    value=[other, value],
                    hint="write one of them differently, such as a text with a letter",
                )


def _joined(axes: Config, other: Config, arm: str) -> MutableConfig:
    """Return axis -> value of two cells of `arm` whose trials are the same, joined to one.

    A value of None, of an axis that a cell does not vary, gives way to the other cell's. Raises `SpecError` where both
    have a value and these differ.
    """
    # Both cells have all axes of the study.
    for axis, value in other.items():
        if value is not None and axes[axis] is not None and not canonical.same(value, axes[axis]):
            raise SpecError(
                f"two cells of arm {arm!r} are the same trials",
                place=f"axes.{axis}",
                value=[axes[axis], value],
                hint="the datasets have the same content and a dataset's name is no part of a trial; name one of them"
                if axis == DATA_AXIS
                else "both values come to the same settings; leave one of them out",
            )
    return {axis: value if axes[axis] is None else axes[axis] for axis, value in other.items()}
