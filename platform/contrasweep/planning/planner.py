"""Plan a study: `cs.plan`, and what can be planned while datasets are missing."""

import functools
import math
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
from contrasweep.planning.grid import cells_by_dataset, make_plan
from contrasweep.planning.plan import Plan
from contrasweep.planning.power import study_power
from contrasweep.planning.starts import Sources
from contrasweep.planning.sweep import check_arms, make_sweep_plan
from contrasweep.study.file import as_study
from contrasweep.study.sweep import Study, Sweep


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
    _check_looks(declared)
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


def _check_looks(study: Study) -> None:
    """Raise `SpecError` where the last look at a study that grows could decide hardly anything.

    That is so where the difference that 80 % of such studies decide is above `HARDLY` spreads. Without SciPy nothing is
    checked, which a forecast says.
    """
    if study.replicates is None or (power := study_power(study)) is None:
        return
    from contrasweep.statistics.power_of_designs import HARDLY

    if math.isfinite(power.least) and power.least > HARDLY:
        raise SpecError(
            "even the last look can decide hardly anything",
            place="replicates.most",
            value=study.replicates.most,
            hint=f"{power.sentence}; {power.remedy}",
        )


@dataclass(frozen=True)
class MissingDataset:
    """A dataset that is not staged: its name in the study, the command that stages it, and what that `requires`.

    `cells` (of a sweep: arms) with `trials` trials wait for it (None: not known). With 0 cells, scores that `evaluate`
    declares wait for it. With `described` its cells are in the plan, because its paper gives rows and shapes.
    """

    name: str
    command: str
    requires: str
    cells: int
    trials: int | None
    described: bool

    @property
    def waiting(self) -> str:
        """Return what waits for this dataset: `2 cells, 40 trials`; of a sweep, of unknown trials, `2 arms`."""
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

    Its fields are those of a `MissingDataset`; the command trains it.
    """

    def __str__(self) -> str:
        """Return a line: what waits for the study, and the command that trains it."""
        return f"study {self.name}: {self.waiting}; not trained: {self.command}"


def missing_lines(missing: Sequence[MissingDataset]) -> list[str]:
    """Return a line for each missing dataset: its name, what waits for it, and the command."""
    return [f"missing   {dataset}" for dataset in missing]


def outline(study: Study, missing: Sequence[MissingDataset]) -> list[str]:
    """Return the lines on a study of which nothing can be planned, for lack of datasets or of trials to start from.

    The first says the study and why, then one for each of `missing`.
    """
    lacking = [dataset for dataset in missing if isinstance(dataset, MissingStudy)]
    why = (
        "it starts from trials that are not trained"
        if lacking
        else "none of its datasets is staged"
    )
    return [
        f"study     {study.name}: {study.metric} ({study.mode}); {why}, so nothing is planned",
        *missing_lines(missing),
    ]


def plan_staged(
    study: Study, *, storage: str = STORAGE, before: Sequence[Plan] = ()
) -> tuple[Plan | None, tuple[MissingDataset, ...]]:
    """Return the plan for the datasets that are staged (None where there are none), and the missing datasets.

    Arms that start from trials that are not trained are left out, and these studies are among what is missing. `before`
    is that of `plan`.

    All settings are checked, those of the cells that are left out too. A missing dataset whose rows and shapes are
    published is planned for by these. What `run` will plan for it once it is staged has other trial ids.
    """
    _check_looks(study)
    find = functools.cache(functools.partial(data.resolve, folds=study.folds, storage=storage))
    # Dataset -> cells that wait for it: 0 for one that only evaluations use; of a sweep, its arms.
    cells = {name: 0 for evaluation in study.evaluate or () for name in evaluation.data}
    cells |= {study.data: len(study.arms)} if isinstance(study, Sweep) else cells_by_dataset(study)
    missing = []
    described = {}
    for name, count in cells.items():
        try:
            find(name)
        except NotStagedError as error:
            if (manifest := _described(name, study.folds)) is not None:
                described[name] = manifest
            trials = (
                None
                if isinstance(study, Sweep)
                else count * len(study.all_seeds) * len(study.all_folds)
            )
            missing.append(
                MissingDataset(
                    name, error.command, error.requires, count, trials, manifest is not None
                )
            )
    without = {dataset.name for dataset in missing if not dataset.described}

    def resolve(name: str) -> Manifest:
        """Return a dataset as it is staged, or as its paper describes it."""
        return described[name] if name in described else find(name)

    for evaluation in study.evaluate or ():
        evaluation.check(resolve, "evaluate", without)
    if isinstance(study, Sweep):
        check_arms(study)
        return None if study.data in without else make_sweep_plan(study, resolve), tuple(missing)
    # An arm that starts from trained trials waits for their study.
    sources = Sources(storage, before)
    waiting: dict[str, NotTrainedError] = {}
    for name, arm in study.arms.items():
        try:
            if arm.start:
                sources.trials(arm.start)
        except NotTrainedError as error:
            waiting[name] = error
        except SpecError as error:
            raise error.at(f"arms.{name}") from None
    replicates = len(study.all_seeds) * len(study.all_folds)
    of_arm = Counter(cell.arm for cell in study.configs())
    for name, command in {lacking.study: lacking.command for lacking in waiting.values()}.items():
        count = sum(of_arm[arm] for arm, lacking in waiting.items() if lacking.study == name)
        missing.append(MissingStudy(name, command, "", count, count * replicates, described=False))
    planned = make_plan(study, resolve, without, sources, waiting)
    return planned if planned.cells else None, tuple(missing)


def _described(name: str, folds: int | None) -> Manifest | None:
    """Return a missing dataset, with `folds` folds, from the description in its paper.

    None where there is no description, or it lacks the test split that a study without folds needs.
    """
    from contrasweep.data.published import described  # imports the importers

    manifest = described(name)
    if manifest is None or (folds is None and not manifest.rows("test")):
        return None
    return with_folds(manifest, folds)
