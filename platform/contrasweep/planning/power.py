"""The power of a study's own family of comparisons, from its declaration and the noise of earlier trials.

The noise of a metric is estimated from finished trials of the storage. With it a plan gives differences in units of the
metric, and knows how much the folds of one seed have in common.
"""

import contextlib
import math
import statistics as stats
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from contrasweep.errors import SpecError, StorageError
from contrasweep.imports import is_installed
from contrasweep.planning.grid import GridPlan
from contrasweep.planning.plan import PlanBase
from contrasweep.storage import compact
from contrasweep.storage.interim_log import read_confirmations, read_looks
from contrasweep.storage.planned import axes_of, planned_rows, read_planned
from contrasweep.storage.record import RecordsById
from contrasweep.storage.records import StudyRecords, study_names
from contrasweep.storage.study_document import StudyDocument
from contrasweep.study.grid import AblationGrid
from contrasweep.study.sweep import Study, Sweep

if TYPE_CHECKING:
    import pandas as pd

    from contrasweep.statistics.design import Contrast, Design, SeedPart
    from contrasweep.statistics.family import Question
    from contrasweep.statistics.power_of_designs import PlannedPower


SHIPPED = "contrasweep.trainables."
"""How the dotted paths of shipped methods begin. Their random draws follow from the seed and the fold together, so that
no two folds share draws."""


@dataclass(frozen=True)
class EarlierNoise:
    """The noise of a metric, as finished trials of an earlier study show it.

    `study` is the name of that study, or the file that the noise was read from. `contrasts` has what the paired
    differences of every two arms say, one contrast at least. Their differences are of means over about as many cells as
    the values that are to be compared, because a mean over more cells has less noise.
    """

    study: str
    contrasts: tuple["Contrast", ...]

    def detectable(self, design: "Design", level: float) -> float:
        """Return the smallest difference, in units of the metric, that `design` decides at `level` in 80 % of studies.

        It is the median over the pairs of arms; for an even number of pairs the larger one of the middle two.
        """
        from contrasweep.statistics.predictive import detectable_difference

        return stats.median_high(
            detectable_difference(estimate, design, level) for estimate in self.contrasts
        )

    @property
    def seed_part(self) -> "SeedPart | None":
        """How much the mean over folds and cells varies between seeds: the largest variance of all pairs of arms.

        None where no pair has folds and several seeds, which alone tell that.
        """
        from contrasweep.statistics.design import SeedPart

        # (variance, degrees of freedom) of each pair. The mean of n folds has the seed's own variance and 1/n of the
        # residual one.
        parts = []
        for pair in self.contrasts:
            if pair.design.folds and pair.design.seeds > 1:
                variance = pair.components.seed + pair.components.residual / pair.n
                parts.append((variance, pair.design.seeds - 1.0))
        if not parts:
            return None
        variance, degrees = max(parts)
        return SeedPart(variance, degrees, self.study)


def user_methods(trainables: Collection[str]) -> set[str]:
    """Return those of the dotted paths `trainables` that are not shipped.

    Such a trainable may draw from the seed alone, so that all folds of a seed share the draws.
    """
    return {path for path in trainables if not path.startswith(SHIPPED)}


def noise_of(
    name: str,
    planned: "pd.DataFrame",
    records: RecordsById,
    metric: str,
    folds: int | None,
    cells: int,
) -> EarlierNoise | None:
    """Return the noise of a study's finished trials; None where no two arms have two pairs that differ.

    The noise is that of means over `cells` cells; of a study with fewer cells, over all of them.

    Args:
        name: The study's name.
        planned: The table of its trials: `trial_id`, `arm`, the axes, `fold`, `seed`.
        records: Trial id -> record. Those of trials that were not trained to their end or lack the metric are left out.
        metric: The metric's name.
        folds: The number of folds; None: trials are on one test split.
        cells: The number of cells over which the values that are to be compared will be averaged.
    """
    import pandas as pd

    from contrasweep.statistics.design import Design, SeedPart

    # How much the folds of a seed have in common: with shipped methods nothing, else it is not known.
    part = SeedPart(0.0)
    if user_methods({record.trainable for record in records.values()}):
        part = SeedPart()
    design = Design(folds=folds, seed_part=part)
    values = {
        trial_id: record.metrics[metric]
        for trial_id, record in records.items()
        if record.status.counts and metric in record.metrics
    }
    # A cell is named by its values of the axes. The test split is fold -1, because rows without a fold would not be
    # paired.
    frame = planned.assign(
        value=planned["trial_id"].map(values).astype(float),
        fold=planned["fold"].fillna(-1),
        cell=list(map(repr, planned[axes_of(planned)].to_numpy().tolist())),
    ).dropna(subset=["value"])
    codes, names = pd.factorize(frame["cell"])
    # Groups of `cells` cells, each of which shows the noise of such means. A last group with fewer cells is left out,
    # unless it is the only one.
    groups = frame.assign(group=codes // cells)
    whole = min(MOST_GROUPS, max(1, len(names) // cells))
    contrasts = _contrasts(groups[groups["group"] < whole], design)
    return EarlierNoise(name, contrasts) if contrasts else None


def _contrasts(trials: "pd.DataFrame", design: "Design") -> tuple["Contrast", ...]:
    """Return what the paired differences of every two arms say, in each group of `trials` (its column `group`).

    Left out are two arms with fewer than two pairs of trials, or without any spread in their differences.
    """
    from contrasweep.statistics.design import contrast

    contrasts = []
    for _, rows in trials.groupby("group"):
        # A row for each fold and seed, a column for each arm: two arms are paired within a row.
        wide = rows.pivot_table(index=["fold", "seed"], columns="arm", values="value")
        for a, b in combinations(wide.columns, 2):
            differences = (wide[a] - wide[b]).dropna()
            if len(differences) < 2 or not all(map(math.isfinite, differences)):
                continue
            estimate = contrast(
                differences,
                folds=list(differences.index.get_level_values("fold")) if design.folds else None,
                seeds=list(differences.index.get_level_values("seed")),
                design=design,
            )
            if estimate.n > 1 and estimate.standard_error > 0:
                contrasts.append(estimate)
    return tuple(contrasts)


def earlier_noise(
    storage: str,
    study: str,
    *,
    metric: str,
    folds: int | None,
    data: Collection[str],
    cells: int,
    trainables: Collection[str] = (),
) -> Iterator[EarlierNoise]:
    """Yield the noise of each study in the storage that is similar to `study`, the newest first.

    A similar study has the same `metric`, the same number of `folds` (None: no folds) and one of the datasets whose
    digests are `data`. If `trainables` (dotted paths) are given, it has run all of them. A study that is broken, or
    whose trials show no noise, is passed over. `cells` is as for `noise_of`.
    """
    others: dict[str, StudyDocument] = {}
    for name in study_names(storage):
        try:
            document = StudyRecords(storage, name).document() if name != study else None
        except StorageError:  # the file is broken; `contrasweep verify` names it
            continue
        if document is None or (document.metric, document.folds) != (metric, folds):
            continue
        if not set(data).isdisjoint(dataset.digest for dataset in document.datasets):
            others[name] = document
    for name in sorted(others, key=lambda name: -others[name].created):
        records = StudyRecords(storage, name)
        try:
            recorded = compact.read_records(records, broken=[])
            if set(trainables) <= {record.trainable for record in recorded.values()}:
                planned = read_planned(records)
                noise = noise_of(others[name].name, planned, recorded, metric, folds, cells)
                if noise is not None:
                    yield noise
        except StorageError:
            continue


def study_design(study: Study, noise: EarlierNoise | None) -> "Design":
    """Return how each cell of the study's table is replicated: seeds, folds, and repeats of the folds.

    Without folds, and for a sweep that confirms on the test split, these are seeds alone. How much the folds of one
    seed have in common is taken from the `noise` of earlier trials, if they show it.
    """
    from contrasweep.statistics.design import Design, SeedPart

    seeds = len(study.all_seeds)
    if study.folds is None or (isinstance(study, Sweep) and study.confirm_on == "test"):
        return Design(seeds=seeds)
    repeats = 1
    searched = 0
    if isinstance(study, Sweep):
        searched = study.folds - len(study.confirm_folds)
    else:
        repeats = len(study.all_folds) // study.folds
    # Shipped methods draw from seed and fold together, so that the folds of a seed have nothing in common. A user's
    # method may draw from the seed alone.
    part = None
    if user_methods({arm.path for arm in study.arms.values()}):
        part = (noise.seed_part if noise else None) or SeedPart()
    return Design(
        folds=study.folds, repeats=repeats, seeds=seeds, seed_part=part, searched=searched
    )


def study_power(
    study: Study, noise: EarlierNoise | None = None, looks: int = 0
) -> "PlannedPower | None":
    """Return the smallest difference between arms that is decided in 80 % of studies like this one.

    With the `noise` of earlier trials the difference is given in units of the metric too. `looks` is the number of
    earlier looks at the table, which lower the level of the comparisons. None where there is nothing to compare, and
    without SciPy, which a machine that only plans and submits need not have.
    """
    if not is_installed("scipy"):
        return None
    from contrasweep.statistics.family import LEVEL_DIVISOR, Family, family_size
    from contrasweep.statistics.power_of_designs import PlannedPower

    cells = _cells(study)
    question = _question(study)
    size = family_size(cells, study.reference, question)
    if not size:
        return None
    # Each look has divided the level once.
    family = Family(size, study.level / LEVEL_DIVISOR**looks, study.smallest_difference)
    # In a study of one cell both questions are the same, so none is named.
    name = question if len(cells) > 1 else ""
    return _in_units(PlannedPower(study_design(study, noise), family, name), noise)


def _in_units(power: "PlannedPower", noise: EarlierNoise | None) -> "PlannedPower":
    """Return `power`, to which the difference in units of the metric is added if `noise` is known."""
    if noise is None or not math.isfinite(power.least):
        return power
    least = noise.detectable(power.design, power.family.level)
    if not math.isfinite(least):
        return power
    return replace(power, in_units=least, study=noise.study)


def looks_before(plan: PlanBase, records: StudyRecords, finished: Collection[str]) -> int:
    """Return how many looks at the study's table were taken before that of `plan`; each lowers the level of the next.

    0 for a study with `replicates`, which counts its looks itself. Where all trials of a grid are `finished` and `plan`
    adds trials to its arms, the present table counts as a look. In a sweep each confirmation but the last is a look.
    """
    document = records.document()
    if document is None or plan.study.replicates is not None:
        return 0
    # Looks by later declarations (`spent`), and those of interim analyses.
    log = read_looks(records)
    looks = document.spent + (len(log.looks) if log else 0)
    if not isinstance(plan, GridPlan):
        return looks + max(0, len(read_confirmations(records)) - 1)
    # A table that is complete has been seen, and this plan adds to it.
    stored = {row["trial_id"] for row in planned_rows(records)}
    adds_trials = any(
        trial.arm in document.arms and trial.id not in stored for trial in plan.trials
    )
    if stored and stored <= set(finished) and adds_trials:
        looks += 1
    return looks


def known_noise(plan: PlanBase, records: StudyRecords, known: RecordsById) -> EarlierNoise | None:
    """Return the noise of the metric by the study's own finished trials `known`, else by the newest similar study.

    `records` names the storage in which similar studies are looked for. None where no study shows any noise, or without
    SciPy.
    """
    study = plan.study
    if not is_installed("scipy"):
        return None
    # An overall difference is a mean over all cells, so its noise is smaller than that of one cell.
    cells = len(_cells(study)) if _question(study) == "overall" else 1
    # Where the table of the study's own trials is broken, other studies may still show noise.
    if known:
        with contextlib.suppress(StorageError):
            planned = read_planned(records)
            noise = noise_of(study.name, planned, known, study.metric, plan.table_folds, cells)
            if noise is not None:
                return noise
    data = {manifest.digest for manifest in plan.table_datasets}
    others = earlier_noise(
        records.storage,
        study.name,
        metric=study.metric,
        folds=plan.table_folds,
        data=data,
        cells=cells,
    )
    return next(others, None)


def noise_in(path: Path, study: Study) -> EarlierNoise:
    """Return the noise of the study's metric from a file that `contrasweep noise --json` wrote.

    Its runs are taken as unpaired, also those with the same seed. Raises `SpecError` for a study with folds, and for a
    file that has other content.
    """
    from contrasweep.statistics.noise import read_noise

    noise = read_noise(path, study.metric)
    if study.folds:
        raise SpecError(
            "an A/A tells the noise of one split", place="--noise", value=f"folds {study.folds}"
        )
    return EarlierNoise(str(path), (noise.unpaired,))


def power_warnings(study: Study, power: "PlannedPower | None") -> tuple[str, ...]:
    """Return the warnings of `power` (None: there are none), and one for a study that spends alpha early."""
    warnings = power.warnings if power else ()
    if study.replicates is not None and study.replicates.spending == "power":
        warnings += EARLY
    return warnings


def _question(study: Study) -> "Question":
    """Return the question of the study, "overall" or "cells"; "overall" for a sweep, whose table has one cell."""
    return study.question if isinstance(study, AblationGrid) else "overall"


def _cells(study: Study) -> list[set[str]]:
    """Return for each cell of the study's table the names of the arms in it; a sweep has one cell with all arms.

    Arms with the same values of axes and the same settings of sub-grids are in one cell.
    """
    if isinstance(study, Sweep):
        return [set(study.arms)]
    cells: dict[str, set[str]] = {}
    for arm, axes, config in study.cells():
        # Values may be lists and mappings, which are no keys of a dict: their text is.
        key = repr((sorted(axes.items()), config))
        cells.setdefault(key, set()).add(arm)
    return list(cells.values())


EARLY = (
    "spending: power stops early, on seeds that may not show how often an arm collapses; obrien-fleming waits longer",
)
"""The warning on a study that spends alpha early."""
MOST_GROUPS = 20
"""The most groups of cells of an earlier study from which its noise is taken."""
TIMES = (1, 2, 4)
"""Sizes for which a plan says what can be decided, as multiples of the declared number of replicates."""


@dataclass(frozen=True)
class PlannedSize:
    """The smallest difference that a study can decide if it has `times` as many replicates as it declares."""

    times: int
    seeds: int  # on each fold
    trials: int | None  # of the whole study; None: not known
    detectable: float  # difference that 80 % of such studies decide, in spreads: deviations of a paired difference
    in_units: float | None  # the same in units of the metric; None: the noise is not known

    @property
    def text(self) -> str:
        """The difference as text: in units of the metric (`0.013`), or `0.9 spreads` where the noise is not known."""
        return f"{self.detectable:.2g} spreads" if self.in_units is None else f"{self.in_units:.2g}"


def planned_sizes(
    study: Study, power: "PlannedPower", trials: int | None, noise: EarlierNoise | None
) -> tuple[PlannedSize, ...]:
    """Return what a study can decide as declared (`power`), and a grid of fixed replicates also with more seeds.

    `trials` is the number of its trials as declared (None: not known beforehand). With `noise`, the differences are in
    units of the metric too. Empty where nothing can be decided at any of these sizes.
    """
    sizes = []
    for times in TIMES:
        # Replicates are added as seeds, each on all folds.
        design = replace(power.design, seeds=times * power.design.seeds)
        resized = _in_units(replace(power, design=design, in_units=None), noise)
        all_trials = None if trials is None else times * trials
        sizes.append(PlannedSize(times, design.seeds, all_trials, resized.least, resized.in_units))
    # A study that grows declares its own sizes, and a sweep confirms one configuration per arm.
    if study.replicates is not None or not isinstance(study, AblationGrid):
        sizes = sizes[:1]
    return tuple(sizes) if any(math.isfinite(size.detectable) for size in sizes) else ()
