"""The power of a study's own family of comparisons, from its declaration and the noise of earlier trials.

What finished trials of a storage say of the noise of a metric serves plans in its units, and folds of one seed.
"""

import contextlib
import math
import statistics as stats
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from contrasweep.errors import SpecError, StorageError, plural
from contrasweep.imports import is_installed
from contrasweep.planning.plan import Plan
from contrasweep.storage import compact
from contrasweep.storage.planned import axes_of, read_planned
from contrasweep.storage.record import Record
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.store import open_store
from contrasweep.storage.study_document import StudyDocument
from contrasweep.study.grid import AblationGrid
from contrasweep.study.sweep import Study, Sweep

if TYPE_CHECKING:
    import pandas as pd

    from contrasweep.statistics.design import Contrast, Design, SeedPart
    from contrasweep.statistics.family import Question
    from contrasweep.statistics.power_of_designs import PlannedPower


SHIPPED = "contrasweep.trainables."
"""Methods whose random draws all follow from the seed and the fold together, so that no two folds share them."""


@dataclass(frozen=True)
class EarlierNoise:
    """Noise of a study's finished trials: the paired differences of every two arms.

    `study` names it for people; `contrasts` has at least one.
    """

    study: str
    contrasts: tuple["Contrast", ...]

    def detectable(self, design: "Design", level: float) -> float:
        """Return the smallest difference, in units of the metric, that `design` decides at `level` in 80 % of studies.

        It is the median over the pairs of arms, of an even number the larger of the middle two.
        """
        from contrasweep.statistics.predictive import detectable_difference

        return stats.median_high(
            detectable_difference(estimate, design, level) for estimate in self.contrasts
        )

    @property
    def seed_part(self) -> "SeedPart | None":
        """The variance between seeds of a mean over the folds: the largest of its pairs.

        None where no pair has folds and several seeds.
        """
        from contrasweep.statistics.design import SeedPart

        # Variance and degrees of freedom of each pair: one mean has the seed's own part and 1/n of the rest.
        parts = [
            (e.components.seed + e.components.residual / e.n, e.design.seeds - 1.0)
            for e in self.contrasts
            if e.design.folds and e.design.seeds > 1
        ]
        return SeedPart(*max(parts), self.study) if parts else None


def own_methods(trainables: Collection[str]) -> set[str]:
    """Return those of these dotted paths that are not shipped.

    Such a trainable may draw from the seed alone, so that all folds of a seed share the draws.
    """
    return {path for path in trainables if not path.startswith(SHIPPED)}


def noise_of(
    name: str,
    planned: "pd.DataFrame",
    records: Mapping[str, Record],
    metric: str,
    folds: int | None,
    per_cell: bool = False,
) -> EarlierNoise | None:
    """Return the noise of a study's finished trials; None where no two arms have two pairs that differ.

    Args:
        name: The study's name.
        planned: The table of its trials: `trial_id`, `arm`, the axes, `fold`, `seed`.
        records: Trial id -> record; those count that were trained to their end and have the metric.
        metric: The metric's name.
        folds: The number of folds; None: trials are on one test split.
        per_cell: Whether differences are taken in each cell alone; else values are averaged over the axes first.
    """
    from contrasweep.statistics.design import Design, SeedPart, contrast

    # Where a trainable may draw from the seed alone, all folds of a seed share these draws: their part is not known.
    part = (
        SeedPart()
        if own_methods({record.trainable for record in records.values()})
        else SeedPart(0.0)
    )
    design = Design(folds=folds, seed_part=part)
    done = {
        i: r.metrics[metric] for i, r in records.items() if r.status.counts and metric in r.metrics
    }
    frame = planned.assign(
        value=planned["trial_id"].map(done).astype(float), fold=planned["fold"].fillna(-1)
    )
    # A cell is a combination of values of the axes.
    cells = planned[axes_of(planned)].astype(str).sum(axis=1)
    frame = frame.dropna(subset=["value"]).assign(cell=cells)
    contrasts = []
    for _, rows in frame.groupby("cell") if per_cell else [("", frame)]:
        # A row for each fold and seed, a column for each arm: a pair of arms differs within a row.
        wide = rows.pivot_table(index=["fold", "seed"], columns="arm", values="value")
        for a, b in combinations(wide.columns, 2):
            d = (wide[a] - wide[b]).dropna()
            labels = {name: list(d.index.get_level_values(name)) for name in ("fold", "seed")}
            if len(d) < 2 or not all(map(math.isfinite, d)):
                continue
            estimate = contrast(
                d, folds=labels["fold"] if folds else None, seeds=labels["seed"], design=design
            )
            if estimate.n > 1 and estimate.standard_error > 0:
                contrasts.append(estimate)
    return EarlierNoise(name, tuple(contrasts)) if contrasts else None


def earlier_noise(
    storage: str,
    study: str,
    *,
    metric: str,
    folds: int | None,
    data: Collection[str],
    trainables: Collection[str] = (),
    per_cell: bool = False,
) -> Iterator[EarlierNoise]:
    """Yield the noise of other studies of the storage than `study`, of this metric, number of folds and data.

    The newest comes first. A study is like it that has one of the datasets, whose digests `data` are, and with
    `trainables` that ran all of these. One that is broken, or shows no noise, is passed over. `per_cell` is that of
    `noise_of`.
    """
    store = open_store(storage)
    others: list[tuple[float, StudyRecords, StudyDocument]] = []
    for name in sorted(key.split("/")[0] for key in store.etags("", "study.json")):
        try:
            records = StudyRecords(storage, name)
            document = records.document() if name != study else None
        except StorageError:  # broken: it teaches nothing, and `verify` names it
            continue
        if document is None or (document.metric, document.folds) != (metric, folds):
            continue
        if not set(data).isdisjoint(dataset.digest for dataset in document.datasets):
            others.append((document.created, records, document))
    for _, records, document in sorted(others, key=lambda other: -other[0]):
        try:
            other_records = compact.read_records(records, records.etags(), [])
            if set(trainables) <= {record.trainable for record in other_records.values()}:
                noise = noise_of(
                    document.name, read_planned(records), other_records, metric, folds, per_cell
                )
                if noise is not None:
                    yield noise
        except StorageError:
            continue


def study_design(study: Study, noise: "EarlierNoise | None" = None) -> "Design":
    """Return how each cell of the study's table is replicated, with what earlier trials' `noise` says of one seed.

    Without folds, and for a sweep that confirms on the test split, these are seeds alone.
    """
    from contrasweep.statistics.design import Design, SeedPart

    seeds = len(study.all_seeds)
    if study.folds is None or (isinstance(study, Sweep) and study.confirm_on == "test"):
        return Design(seeds=seeds)
    repeats = 1 if isinstance(study, Sweep) else len(study.all_folds) // study.folds
    # What folds of one seed share counts only where a trainable may draw from the seed alone.
    part = None
    if own_methods({arm.path for arm in study.arms.values()}):
        part = (noise.seed_part if noise else None) or SeedPart()
    return Design(folds=study.folds, repeats=repeats, seeds=seeds, seed_part=part)


def study_power(
    study: Study, question: "Question | None" = None, noise: "EarlierNoise | None" = None
) -> "PlannedPower | None":
    """Return what the study decides in 80 % of studies like it, for its own question or another one.

    With the `noise` of earlier trials it says so in units of the metric. None where there is nothing to compare, or no
    SciPy to say so: a machine that only plans and submits may do without.
    """
    if not is_installed("scipy"):
        return None
    from contrasweep.statistics.family import Family, family_size
    from contrasweep.statistics.power_of_designs import planned_power

    cells = _cells(study)
    design = study_design(study, noise)
    wanted_question = question or (study.question if isinstance(study, AblationGrid) else "overall")
    size = family_size(cells, study.reference, wanted_question)
    if not size:
        return None
    # Of one cell both questions are the same, so none is named.
    question_name = wanted_question if len(cells) > 1 else ""
    family = Family(size, study.level, study.smallest_difference)
    return _in_units(planned_power(design, family, what=question_name), noise)


def _in_units(power: "PlannedPower", noise: "EarlierNoise | None") -> "PlannedPower":
    """Return `power` with its difference in units of the metric too, where the noise is known; else as it is."""
    if noise is None or not math.isfinite(power.least):
        return power
    least = noise.detectable(power.design, power.family.level)
    return replace(power, in_units=least, study=noise.study) if math.isfinite(least) else power


def known_noise(
    plan: Plan, records: StudyRecords, known: Mapping[str, Record]
) -> EarlierNoise | None:
    """Return the noise of the study's own finished trials `known`, else of the newest other study that is like it.

    None where no study shows any, or without SciPy.
    """
    study = plan.study
    if not is_installed("scipy"):
        return None
    per_cell = isinstance(study, AblationGrid) and study.question == "cells"
    # The study's own trials come first; a broken table of them is no reason to fail.
    if known:
        with contextlib.suppress(StorageError):
            planned = read_planned(records)
            noise = noise_of(study.name, planned, known, study.metric, plan.table_folds, per_cell)
            if noise is not None:
                return noise
    data = {manifest.digest for manifest in plan.table_datasets}
    others = earlier_noise(
        records.storage,
        study.name,
        metric=study.metric,
        folds=plan.table_folds,
        data=data,
        per_cell=per_cell,
    )
    return next(others, None)


def noise_in(path: Path, study: Study) -> EarlierNoise:
    """Return the noise of the study's metric that `contrasweep noise --json` wrote to the file.

    Runs are taken as unpaired, even of one seed. Raises `SpecError` for a study with folds.
    """
    from contrasweep.statistics.noise import read_noise

    noise = read_noise(path, study.metric)
    if study.folds:
        raise SpecError(
            "an A/A tells the noise of one split", place="--noise", value=f"folds {study.folds}"
        )
    return EarlierNoise(str(path), (noise.unpaired,))


def power_lines(power: "PlannedPower | None") -> list[str]:
    """Return a line on what the study's question can decide; [] where there is nothing to compare.

    Without SciPy the line says that it is not computed.
    """
    if not is_installed("scipy"):
        return ["decides   not computed: SciPy is not installed here (pip install scipy)"]
    return [f"decides   {power.sentence}"] if power else []


def power_warnings(study: Study, power: "PlannedPower | None") -> tuple[str, ...]:
    """Return warnings on what the study's question cannot decide with this many replicates; () where `power` is None.

    A study that spends alpha early is warned of that too.
    """
    warnings = power.warnings if power else ()
    if study.replicates is not None and study.replicates.spending == "power":
        warnings += EARLY
    return warnings


def _cells(study: Study) -> list[set[str]]:
    """Return the arms of each cell of the study's table; of a sweep, one cell with all arms.

    Arms share a cell that have the same values of axes and the same settings of sub-grids.
    """
    if isinstance(study, Sweep):
        return [set(study.arms)]
    # A text is the key, since values may be lists and mappings.
    cells: dict[str, set[str]] = {}
    for arm, point, config in study.cells():
        cells.setdefault(repr((sorted(point.items()), config)), set()).add(arm)
    return list(cells.values())


EARLY = (
    "spending: power stops early, on seeds that may not show how often an arm collapses; obrien-fleming waits longer",
)
"""The warning of a study with this spending."""
TIMES = (1, 2, 4)
"""Sizes that are said: as declared, and with so many times its replicates."""


@dataclass(frozen=True)
class PlannedSize:
    """The study with `times` as many replicates: `seeds` (on each fold) and `trials` in all.

    `detectable` is the difference that 80 % of such studies decide, in standard deviations of a paired difference;
    `in_units` the same in units of the metric, where earlier trials show the noise.
    """

    times: int
    seeds: int
    trials: int | None
    detectable: float
    in_units: float | None = None

    @property
    def text(self) -> str:
        """The difference in units of the metric, `0.013`; where these are not known in spreads, `0.9 spreads`."""
        return f"{self.detectable:.2g} spreads" if self.in_units is None else f"{self.in_units:.2g}"


def planned_sizes(
    power: "PlannedPower", trials: int | None, noise: "EarlierNoise | None" = None
) -> list[PlannedSize]:
    """Return what the study decides as declared, and with twice and four times its replicates.

    `trials` counts its trials as declared (None: not known beforehand).
    """
    from contrasweep.statistics.power_of_designs import planned_power

    sizes = []
    for times in TIMES:
        # Replicates are added as seeds, each on all folds.
        design = replace(power.design, seeds=times * power.design.seeds)
        larger = _in_units(planned_power(design, power.family), noise)
        count = None if trials is None else times * trials
        sizes.append(PlannedSize(times, design.seeds, count, larger.least, larger.in_units))
    return sizes


def other_question(
    study: Study, asked: "PlannedPower", noise: "EarlierNoise | None" = None
) -> list[str]:
    """Return a line on what the other of the two questions, `overall` and `cells`, could decide.

    Where that is hardly anything, it says what would be enough for it. [] where the study has one question, as a sweep
    has, where both have as many comparisons as the question `asked`, and where nothing is decided at all.
    """
    if not isinstance(study, AblationGrid):
        return []
    # As many comparisons mean one cell: then both questions are one.
    other: Question = "cells" if study.question == "overall" else "overall"
    power = study_power(study, other, noise)
    if power is None or power.family.size == asked.family.size or not math.isfinite(power.least):
        return []
    from contrasweep.statistics.power_of_designs import HARDLY

    decided = (
        f"hardly anything: {power.remedy}" if power.least > HARDLY else f"{power.least:.2g} spreads"
    )
    if power.in_units is not None:
        decided = f"{power.in_units:.2g}"
    return [
        f"other     question: {other}, {plural(power.family.size, 'comparison')}, would decide {decided}"
    ]
