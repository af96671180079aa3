"""The plan of an `AblationGrid`: its cells and trials."""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from contrasweep import canonical
from contrasweep.canonical import label
from contrasweep.cluster.simulate import SIMILAR_FACTOR, near_end
from contrasweep.config import Config, MutableConfig
from contrasweep.data.manifest import NO_DATA, Manifest
from contrasweep.errors import DataError, NotStagedError, SpecError, plural
from contrasweep.planning.budget import BUDGET_UNITS
from contrasweep.planning.plan import Cell, PlanBase, PlanRow, Resolve
from contrasweep.planning.stages import stage
from contrasweep.planning.starts import Sources
from contrasweep.storage.planned import axis_column
from contrasweep.storage.record import Record, RecordsById, StartRef
from contrasweep.storage.records import StudyRecords
from contrasweep.study import dotted
from contrasweep.study.grid import DATA_AXIS, AblationGrid
from contrasweep.study.trainables import SettingsOfArms
from contrasweep.trial import Trial, in_turns
from contrasweep.tuning.source import Finished, NextTrial, Source

if TYPE_CHECKING:
    import pandas as pd


_CellKey = tuple[str, int, str]


def _cell_key(trial: Trial) -> _CellKey:
    """Return a key that is the same for all trials of one cell.

    It has the arm, the identity of the `config` object, and the digest of the data. The trials of a cell share one
    object `config`.
    """
    return trial.arm, id(trial.config), trial.data.digest


class FixedSource(Source):
    """A source of a fixed list of trials. It stops none early, and no trial depends on another's result.

    Trials are handed out in the order of the list. Near the end the longest come first, so that few places of the
    cluster are idle while the last trials run.
    """

    def __init__(self, trials: Iterable[Trial], *, in_order: bool = False) -> None:
        """Take the `trials` to hand out.

        With `in_order` their order is kept to the end; else the longest come first near the end.
        """
        self.waiting = deque(trials)
        self.in_order = in_order
        self.running: dict[str, _CellKey] = {}
        self.waiting_of_cell = Counter(map(_cell_key, self.waiting))
        self.seconds: dict[_CellKey, float] = {}  # of the last trial of a cell that has ended

    @property
    def finished(self) -> bool:
        """Whether all trials have been handed out."""
        return not self.waiting

    def next(self, paused_arms: Collection[str] = ()) -> NextTrial | Finished | None:
        """Return the next trial of the list; `Finished` after the last one.

        `paused_arms` has no effect: a grid pauses no arm.
        """
        if not self.waiting:
            return Finished()
        position = self._next_position()
        trial = self.waiting[position]
        del self.waiting[position]
        self.running[trial.id] = _cell_key(trial)
        self.waiting_of_cell[_cell_key(trial)] -= 1
        return NextTrial(trial)

    def done(self, record: Record) -> None:
        """Take the seconds of an ended trial as the estimate for the waiting trials of its cell."""
        cell = self.running.pop(record.trial_id, None)
        if cell is not None and record.status.counts:
            self.seconds[cell] = record.seconds

    def _next_position(self) -> int:
        """Return the index of the next trial in `waiting`: 0, but near the end that of the first long one."""
        if self.in_order or not self.seconds:
            return 0
        # A cell of which no trial has ended yet is not shorter than those that began with it.
        longest = max(self.seconds.values())
        expected = {
            cell: self.seconds.get(cell, longest) for cell, n in self.waiting_of_cell.items() if n
        }
        remaining = sum(self.waiting_of_cell[cell] * seconds for cell, seconds in expected.items())
        longest_waiting = max(expected.values())
        if not near_end(remaining, longest_waiting, len(self.running)):
            return 0
        # Cells that take about as long as each other stay in turns.
        return next(
            i
            for i, trial in enumerate(self.waiting)
            if expected[_cell_key(trial)] >= longest_waiting / SIMILAR_FACTOR
        )


@dataclass(frozen=True, repr=False)
class GridPlan(PlanBase):
    """The plan of an AblationGrid, with the trials of every cell."""

    study: AblationGrid
    cells: tuple[Cell, ...]  # in table order
    sources: Mapping[str, str] = field(default_factory=dict)  # dataset digest -> name in the study
    stops_early: ClassVar[bool] = False
    declared_search: ClassVar[None] = None

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """Each trial once: the first replicate of every cell, then the second of every cell, and so on.

        In this order a study that is stopped early has whole pairs of trials to compare.
        """
        return in_turns([cell.trials for cell in self.cells])

    @property
    def total(self) -> int:
        """The number of trials of the grid."""
        return len(self.trials)

    @property
    def example_trials(self) -> list[Trial]:
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
        """The datasets of all cells, by digest."""
        # All trials of a cell are on one dataset, so its first trial is enough.
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
        """Return what a reader of the table must know, as label -> value: `data`, `folds`, `seeds`.

        `repeats` and `replicates` are added where the study declares them. Excluded seeds are left out.
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
        """Return whether the ids of all trials are in `finished`.

        In a study with looks (interim analyses) no look may be left, and only trials count that the looks have let run.
        """
        if self.study.replicates is not None and not stage(self, records).over:
            return False
        return all(trial.id in finished for trial in self._granted(records))

    def stored_frame(self, records: StudyRecords, complete: bool) -> "pd.DataFrame":
        """Return the rows of `to_frame` that are stored as the plan: trials that may run before the next look.

        `complete` is not used; the plan of a sweep needs it.
        """
        granted = {trial.id for trial in self._granted(records)}
        frame = self.to_frame()
        return frame[frame["trial_id"].isin(granted)].reset_index(drop=True)

    def searches_of(self, arms: Collection[str]) -> dict[str, str]:
        """Return {}: no arm of a grid has a search. For a sweep it is arm -> digest of the arm's search."""
        return {}

    def trials_among(self, finished: Collection[str]) -> set[str]:
        """Return those of the trial ids `finished` that are of this grid; others are of an earlier, larger grid."""
        return {trial.id for trial in self.trials} & set(finished)

    def source(self, records: StudyRecords, finished: Collection[str]) -> FixedSource:
        """Return a source of the trials that are not `finished`, in the plan's order.

        In a study with interim analyses it has only the trials before the next analysis. In a study with a budget the
        cells take turns to the end, because the budget may end the study before its last trial.
        """
        return FixedSource(
            (trial for trial in self._granted(records) if trial.id not in finished),
            in_order=any(getattr(self.study, budget) is not None for budget in BUDGET_UNITS),
        )

    def _granted(self, records: StudyRecords) -> tuple[Trial, ...]:
        """Return the trials that may run before the next look: all of them in a study of a fixed size."""
        return self.trials if self.study.replicates is None else stage(self, records).trials

    def relocated(self, resolve: Resolve) -> "GridPlan":
        """Return the same plan, with the manifests that `resolve` gives for the datasets' names in the study.

        These manifests must have the same digests as before, so that trials keep their ids.
        """
        moved = {digest: resolve(self.sources[digest]) for digest in self.datasets}
        cells = tuple(
            replace(
                cell,
                trials=tuple(
                    replace(trial, data=moved[trial.data.digest]) for trial in cell.trials
                ),
            )
            for cell in self.cells
        )
        return replace(self, cells=cells)

    def to_frame(self) -> "pd.DataFrame":
        """Return a table with one row for each trial, cell by cell: trial_id, arm, the axes, fold, seed."""
        import pandas as pd

        rows = [
            {
                "trial_id": trial.id,
                "arm": cell.arm,
                **cell.axes,
                "fold": trial.fold,
                "seed": trial.seed,
            }
            for cell in self.cells
            for trial in cell.trials
        ]
        columns = ["trial_id", "arm", *self.study.axis_names, "fold", "seed"]
        frame = pd.DataFrame(rows, columns=columns)
        for name in self.study.axis_names:
            frame[name] = axis_column([row.get(name) for row in rows])
        return frame

    def rows(self, known: RecordsById) -> tuple[PlanRow, ...]:
        """Return one row for each cell, in the order of the table.

        `known` is trial id -> record of the finished trials, which each row counts.
        """
        return tuple(_row(cell, known) for cell in self.cells)

    def rows_of_trials_to_run(self, known: RecordsById) -> Iterable[int]:
        """Return the index of the cell of each trial without a record in `known`, in the order of the trials."""
        cell_of = {trial.id: i for i, cell in enumerate(self.cells) for trial in cell.trials}
        return [cell_of[trial.id] for trial in self.trials if trial.id not in known]

    def totals(self, known: RecordsById) -> dict[str, int]:
        """Return counts by name: `cells`, `trials`, `done` (trials with a record in `known`) and `to_run`."""
        done = len(self.trials_among(known))
        return {
            "cells": len(self.cells),
            "trials": self.total,
            "done": done,
            "to_run": self.total - done,
        }

    def lines(self, known: RecordsById) -> list[str]:
        """Return three lines: the study with its data and replicates, the number of cells, the number of trials.

        A study that grows has a fourth line, with its looks.
        """
        study = self.study
        totals = self.totals(known)
        data = ", ".join(manifest.title for manifest in self.table_datasets)
        folds = plural(study.folds, "fold") if study.folds else "the test split"
        if study.repeats and study.repeats > 1:
            folds = f"{study.repeats} x {folds}"
        seeds = len({trial.seed for trial in self.trials})
        trials = [f"trials    {totals['trials']}: {totals['done']} done, {totals['to_run']} to run"]
        if study.replicates is not None:
            # A study that grows begins with `first` of at most `most` replicates.
            first = totals["trials"] * study.replicates.first // study.replicates.most
            trials = [
                f"trials    {first} to {totals['trials']}: {totals['done']} done, at most {totals['to_run']} to run",
                f"looks     {study.replicates}",
            ]
        replicates = plural(seeds, "seed")
        if study.folds or self.table_datasets[0].kind != NO_DATA:
            replicates = f"{folds} x {replicates}"
        return [
            f"study     {study.name}: {study.metric} ({study.mode}) on {data}, {replicates}",
            f"cells     {totals['cells']}",
            *trials,
        ]


def _row(cell: Cell, known: RecordsById) -> PlanRow:
    """Return the row of a forecast for a cell.

    `known` is trial id -> record of the finished trials, which the row counts.
    """
    done = sum(trial.id in known for trial in cell.trials)
    # The facts for people, as (header, text) of each column.
    columns = [("arm", cell.arm)]
    columns += [(axis, str(value)) for axis, value in cell.axes.items()]
    columns += [("replicates", str(len(cell.trials))), ("done", str(done))]
    # All replicates of a cell need the same of a host, so the first one is a sufficient sample.
    return PlanRow(
        arm=cell.arm,
        trials=cell.trials,
        examples=cell.trials[:1],
        facts={
            "arm": cell.arm,
            "axes": dict(cell.axes),
            "replicates": len(cell.trials),
            "done": done,
        },
        columns=tuple(columns),
    )


def make_plan(
    study: AblationGrid,
    resolve: Resolve,
    without: Collection[str] = (),
    sources: Sources | None = None,
    waiting: Collection[str] = (),
) -> GridPlan:
    """Return the plan of a grid. Nothing is written.

    Args:
        study: The grid.
        resolve: Gives a dataset's manifest by its name in the study.
        without: Names of datasets whose cells are checked and left out.
        sources: The trials that arms start from; None: those of the default storage.
        waiting: Arms that wait for trials to start from; their cells are checked and left out.

    Every config is checked against its trainable's settings before a dataset is looked up. All cells have the same
    (fold, seed) pairs as replicates, so that any two cells are compared in pairs. Two cells that come to the same
    settings are joined to one cell, unless an axis has different values in them.

    Raises:
        SpecError: A trainable, a setting or a fold does not exist, or two cells would be the same trials.
        DataError: Datasets are not staged; one error names them all.
        NotTrainedError: Trials that an arm starts from are not trained.
    """
    # The replicates of a cell, in the order in which they are trained.
    fold_numbers = study.all_folds
    replicates = [(fold, seed) for seed in study.all_seeds for fold in fold_numbers]
    folds = study.folds
    if folds is not None and study.replicates is not None and study.replicates.of == "repeats":
        # Partitions into folds are added one after the other: all seeds of the first come before any of the second.
        # Fold f belongs to partition f // folds.
        replicates.sort(key=lambda replicate: (replicate[0] or 0) // folds)
    settings = SettingsOfArms(study.arms)
    declared = list(study.configs())
    # Cells that are left out below are checked too.
    for cell in declared:
        settings.build(cell.arm, cell.config, cell.axes)
    declared = [cell for cell in declared if cell.data not in without and cell.arm not in waiting]
    manifests = _manifests(study, dict.fromkeys(cell.data for cell in declared), resolve)
    # Cells by arm, whole config and dataset: two that agree in these have the same trials, and are joined to one.
    cells: dict[tuple[str, str, str], Cell] = {}
    for arm, dataset, axes, config in declared:
        path = study.arms[arm].path
        start = study.arms[arm].start
        data = manifests[dataset]
        # The trial whose network each replicate starts from, in an arm that starts from trained trials.
        starts: Sequence[StartRef | None] = [None] * len(replicates)
        if start is None:
            whole_config = settings.resolve(arm, config, data)
        else:
            whole_config, starts = (sources or Sources()).config_and_starts(
                settings, arm, start, config, axes, data, replicates
            )
        trials = tuple(
            Trial(study.name, arm, path, whole_config, data, fold, seed, origin)
            for (fold, seed), origin in zip(replicates, starts, strict=True)
        )
        key = (arm, whole_config.text, data.digest)
        if key in cells:
            axes = _joined(cells[key].axes, axes, arm)
        cells[key] = Cell(arm, axes, trials)
    plan = GridPlan(
        study,
        tuple(cells.values()),
        {manifest.digest: name for name, manifest in manifests.items()},
    )
    _check_cells(study, plan.cells)
    return plan


def _manifests(study: AblationGrid, names: Iterable[str], resolve: Resolve) -> dict[str, Manifest]:
    """Return name -> manifest of the named datasets, each of which has the rows that the study needs.

    Raises `NotStagedError` where one dataset is not staged, and a `DataError` that lists them where several are not.
    Raises `SpecError` where a dataset lacks rows or cannot have the study's folds.
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
    # All are staged. Now each must have the rows and the folds that the study needs.
    split = "test" if study.folds is None else "train"
    is_repeated = len(study.all_folds) > (study.folds or 1)  # partitioned more than once
    for name, manifest in manifests.items():
        if manifest.kind == NO_DATA:
            continue
        # Images without labels may lack a test split, because nothing is tested on them.
        if manifest.rows("train") == 0 or (manifest.rows(split) == 0 and manifest.labelled):
            hint = "declare folds" if split == "test" else "choose another dataset"
            raise SpecError(
                f"the dataset has no rows in split {split!r}", place="data", value=name, hint=hint
            )
        if is_repeated and manifest.folds is not None and manifest.folds.rule == "given":
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
    """Return the error for a dataset that has too few training rows for so many folds."""
    hint = f"{data.name} has {data.rows('train')} training rows"
    return SpecError("there cannot be more folds than rows", place="folds", value=folds, hint=hint)


def _check_cells(study: AblationGrid, cells: Collection[Cell]) -> None:
    """Raise `SpecError` where a table would show two cells of an arm, or two values of an axis, as one.

    Two cells of an arm with the same values of all axes differ in a setting of a sub-grid that is no axis.
    """
    for axis in study.axis_names:
        check_apart(axis, (cell.axes[axis] for cell in cells))
    by_text: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        first = by_text.setdefault((cell.arm, canonical.dumps(cell.axes)), cell)
        if first is cell:
            continue
        # The hint names the settings in which the two cells differ.
        config = dotted.flatten(first.trials[0].config)
        other = dotted.flatten(cell.trials[0].config)
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
    """Raise `SpecError` where tables, files or trackers would show two values of an axis as one.

    Such values are a text and the value that the text is read as ("1" and 1, "none" and null), and values that Python
    holds equal (1 and true).
    """
    # Values with the same canonical text are the same value, and come once.
    different = {canonical.dumps(value): value for value in values}.values()
    # Each form in which a value is shown or read -> the first value with this form.
    seen: dict[object, object] = {}
    for value in different:
        text = value if isinstance(value, str) else label(value)
        forms: list[object] = [text.casefold()]
        if isinstance(value, int | float):
            forms.append(value)
        elif value is None:
            forms += ["-", "null", "none"]  # as MLflow, YAML and Python write None
        for form in forms:
            other = seen.setdefault(form, value)
            # Two texts that differ in capitals alone are shown apart.
            are_texts = isinstance(other, str) and isinstance(value, str)
            if not are_texts and not canonical.same(other, value):
                raise SpecError(
                    "two values of an axis are shown alike",
                    place=f"axes.{axis}",
                    value=[other, value],
                    hint="write one of them differently, such as a text with a letter",
                )


def _joined(axes: Config, other: Config, arm: str) -> MutableConfig:
    """Return axis -> value of the one cell to which two cells of `arm` with the same trials are joined.

    `axes` and `other` are axis -> value of the two cells; both have all axes of the study. An axis that a cell does not
    vary has None there and takes the other cell's value. Raises `SpecError` where both cells have a value and these
    differ.
    """
    joined = {}
    for axis, second in other.items():
        first = axes[axis]
        if first is not None and second is not None and not canonical.same(second, first):
            hint = "both values come to the same settings; leave one of them out"
            if axis == DATA_AXIS:
                hint = "the datasets have the same content and a dataset's name is no part of a trial; name one of them"
            raise SpecError(
                f"two cells of arm {arm!r} are the same trials",
                place=f"axes.{axis}",
                value=[first, second],
                hint=hint,
            )
        joined[axis] = second if first is None else first
    return joined
