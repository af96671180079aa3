"""Plan a study: `cs.plan`, and what can be planned while datasets are missing."""

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from contrasweep import data
from contrasweep.config import Config
from contrasweep.data.manifest import Manifest
from contrasweep.data.resolving import with_folds
from contrasweep.defaults import STORAGE
from contrasweep.errors import NotStagedError, NotTrainedError, SpecError, plural
from contrasweep.planning.grid import GridPlan, make_plan
from contrasweep.planning.plan import Resolve
from contrasweep.planning.starts import Sources
from contrasweep.planning.sweep import SweepPlan, check_arms, make_sweep_plan
from contrasweep.study.file import as_study
from contrasweep.study.grid import AblationGrid
from contrasweep.study.sweep import Study, Sweep

Plan = GridPlan | SweepPlan
"""What a study would run; `contrasweep.plan` returns one. Code after planning uses what both kinds have."""


def plan(
    study: Study | str | Path | Config, *, storage: str = STORAGE, before: Sequence[Plan] = ()
) -> Plan:
    """Return what a study would run. Nothing is written and nothing is started.

    Args:
        study: The study; or its name (`module:NAME`), the path of its YAML file, or a mapping of its fields.
        storage: The folder or address of the storage, where staged datasets and trials to start from are looked for.
        before: Plans of studies that run first, from whose trials arms may start.

    Returns:
        The plan: its `trials` with their ids, the `cells` of the table; `to_frame()` has a row for each trial.

    Raises:
        SpecError: The study breaks a rule; the message says which, where, and what would have worked.
        DataError: A dataset of the study is not staged; the message has the command that stages it.
        NotTrainedError: An arm starts from trials that are not trained.

    Example:
        >>> import contrasweep as cs
        >>> arms = {"scl": cs.Arm("contrastive", {"loss": "supcon"}), "ocl": cs.Arm("contrastive", {"loss": "ocl"})}
        >>> study = cs.AblationGrid(name="losses", arms=arms, data="digits-lt", folds=5, metric="f1_macro")
        >>> planned = cs.plan(study)
        >>> planned.total, list(planned.to_frame().columns)
        (10, ['trial_id', 'arm', 'fold', 'seed'])
    """
    declared = as_study(study)
    resolve = functools.cache(
        functools.partial(data.resolve, folds=declared.folds, storage=storage)
    )
    planned: Plan
    if isinstance(declared, Sweep):
        planned = make_sweep_plan(declared, resolve)
    else:
        planned = make_plan(declared, resolve, sources=Sources(storage, before))
    # Last, because the study's own mistakes come first.
    for evaluation in declared.evaluate or ():
        evaluation.check(resolve, "evaluate")
    return planned


@dataclass(frozen=True)
class MissingDataset:
    """A dataset that is not staged, with the command that stages it and what waits for it."""

    name: str  # in the study
    command: str  # stages the dataset
    requires: str  # what PATH in the command must be
    cells: int  # cells (of a sweep: arms) that wait for it; 0: scores that `evaluate` declares wait
    trials: int | None  # of these cells; None: not known
    described: bool  # its cells are in the plan, because its paper gives rows and shapes

    @property
    def waiting(self) -> str:
        """Return what cannot run without this dataset: `2 cells, 40 trials`.

        For a sweep, whose trials are not known, it is `2 arms`.
        """
        if not self.cells:
            return "the scores that evaluate declares"
        noun = "arm" if self.trials is None else "cell"
        trials = "" if self.trials is None else f", {plural(self.trials, 'trial')}"
        return plural(self.cells, noun) + trials

    def __str__(self) -> str:
        """Return a line: what waits for the dataset, the command that stages it, and what PATH in it must be."""
        planned = ", planned by what its paper says" if self.described else ""
        return f"{self.name}: {self.waiting}{planned}; not staged: {self.command}   (PATH: {self.requires})"


class MissingStudy(MissingDataset):
    """A study that arms start from and that is not trained.

    Its fields are those of a `MissingDataset`, where `command` is the one that trains the study.
    """

    def __str__(self) -> str:
        """Return a line: what waits for the study, and the command that trains it."""
        return f"study {self.name}: {self.waiting}; not trained: {self.command}"


def missing_lines(missing: Sequence[MissingDataset]) -> list[str]:
    """Return a line for each missing dataset: its name, what waits for it, and the command."""
    return [f"missing   {dataset}" for dataset in missing]


def outline(study: Study, missing: Sequence[MissingDataset]) -> list[str]:
    """Return lines on a study of which no trial can be planned, because datasets or trials to start from are missing.

    The first line says which study it is and the reason. A line for each of `missing` follows.
    """
    why = "none of its datasets is staged"
    if any(isinstance(dataset, MissingStudy) for dataset in missing):
        why = "it starts from trials that are not trained"
    return [
        f"study     {study.name}: {study.metric} ({study.mode}); {why}, so nothing is planned",
        *missing_lines(missing),
    ]


def plan_staged(
    study: Study, *, storage: str, before: Sequence[Plan] = ()
) -> tuple[Plan | None, tuple[MissingDataset, ...]]:
    """Return the plan of the cells whose datasets are staged (None where there are none), and what is missing.

    An arm that starts from trials that are not trained is left out of the plan. The study of these trials is then among
    what is missing. `before` are plans of studies that run first, from whose trials arms may start.

    The settings of the cells that are left out are checked too. A missing dataset whose paper gives its rows and shapes
    is planned by these. Its trials get other ids once the dataset is staged.
    """
    find = functools.cache(functools.partial(data.resolve, folds=study.folds, storage=storage))
    missing, described = _missing_datasets(study, find)
    # Datasets whose cells are left out: nothing is known of their rows and shapes.
    without = {dataset.name for dataset in missing if not dataset.described}

    def resolve(name: str) -> Manifest:
        """Return a dataset as it is staged, or as its paper describes it."""
        return described[name] if name in described else find(name)

    for evaluation in study.evaluate or ():
        evaluation.check(resolve, "evaluate", without)
    if isinstance(study, Sweep):
        check_arms(study)
        sweep_plan = None if study.data in without else make_sweep_plan(study, resolve)
        return sweep_plan, tuple(missing)
    sources = Sources(storage, before)
    # `waiting` are the arms that start from trials which are not trained.
    missing_studies, waiting = _missing_studies(study, sources)
    grid_plan = make_plan(study, resolve, without, sources, waiting)
    return grid_plan if grid_plan.cells else None, (*missing, *missing_studies)


def _missing_datasets(
    study: Study, find: Resolve
) -> tuple[list[MissingDataset], dict[str, Manifest]]:
    """Return the datasets of the study that `find` says are not staged, and the manifests of those with a description.

    The manifests are by dataset name, and have the rows and shapes that the datasets' papers give.
    """
    from contrasweep.data import published  # imports the importers

    # Dataset -> number of cells that wait for it: 0 for one that only evaluations use; of a sweep, its arms.
    cells = {name: 0 for evaluation in study.evaluate or () for name in evaluation.data}
    if isinstance(study, Sweep):
        cells[study.data] = len(study.arms)
    else:
        cells |= Counter(cell.data for cell in study.configs())
    missing = []
    described = {}
    for name, count in cells.items():
        try:
            find(name)
        except NotStagedError as error:
            manifest = published.described(name)
            # Without folds, a study needs the test split.
            if manifest is not None and (study.folds or manifest.rows("test")):
                described[name] = with_folds(manifest, study.folds)
            trials = None  # of a sweep, whose number of trials is not known beforehand
            if not isinstance(study, Sweep):
                trials = count * len(study.all_seeds) * len(study.all_folds)
            missing.append(
                MissingDataset(
                    name, error.command, error.requires, count, trials, name in described
                )
            )
    return missing, described


def _missing_studies(study: AblationGrid, sources: Sources) -> tuple[list[MissingStudy], list[str]]:
    """Return the studies without trained trials that arms of `study` start from, and the names of these arms.

    Raises `SpecError` where an arm can never start from the trials that it names.
    """
    cells_of_arm = Counter(cell.arm for cell in study.configs())
    waiting = []  # arms
    commands = {}  # study that is missing -> command that trains it
    cells = Counter[str]()  # study that is missing -> number of cells that wait for it
    for name, arm in study.arms.items():
        try:
            if arm.start:
                sources.trials(arm.start)
        except NotTrainedError as error:
            waiting.append(name)
            commands[error.study] = error.command
            cells[error.study] += cells_of_arm[name]
        except SpecError as error:
            raise error.at(f"arms.{name}") from None
    replicates = len(study.all_seeds) * len(study.all_folds)
    missing = [
        MissingStudy(name, commands[name], "", count, count * replicates, described=False)
        for name, count in cells.items()
    ]
    return missing, waiting
