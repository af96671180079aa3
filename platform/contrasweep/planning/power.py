"""The power of a study's own family of comparisons, from its declaration."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from contrasweep.errors import SpecError
from contrasweep.imports import is_installed
from contrasweep.study.grid import AblationGrid
from contrasweep.study.study import Study
from contrasweep.study.sweep import Sweep

if TYPE_CHECKING:
    from contrasweep.statistics.design import Design
    from contrasweep.statistics.family import Question
    from contrasweep.statistics.power_of_designs import PlannedPower


def study_design(study: Study) -> "Design":
    """Return how the cells of the study's table are replicated."""
    from contrasweep.statistics.design import Design

    seeds = len(study.all_seeds)
    if study.folds is None or (isinstance(study, Sweep) and study.confirm_on == "test"):
        return Design(seeds=seeds)
    repeats = 1 if isinstance(study, Sweep) else len(study.all_folds) // study.folds
    return Design(folds=study.folds, repeats=repeats, seeds=seeds)


def study_power(study: Study, question: "Question | None" = None) -> "PlannedPower | None":
    """Return what the study decides in 80 % of studies like it, for its own question or another one.

    None where there is nothing to compare, or no SciPy to say so.
    """
    if not _has_scipy():
        return None
    from contrasweep.statistics.family import Family, family_size
    from contrasweep.statistics.power_of_designs import planned_power

    cells = _cells(study)
    asked = question or (study.question if isinstance(study, AblationGrid) else "overall")
    size = family_size(cells, study.reference, asked)
    if not size:
        return None
    what = asked if len(cells) > 1 else ""
    design, family = study_design(study), Family(size, study.alpha, study.smallest_difference)
    return planned_power(design, family, what=what)


def check_looks(study: Study) -> None:
    """Raise `SpecError` where the last look at a study that grows could decide hardly anything.

    Without SciPy nothing is checked, which `power_lines` says.
    """
    power = study_power(study) if study.replicates is not None else None
    if power is None:
        return
    from contrasweep.statistics.power_of_designs import HARDLY

    if study.replicates is not None and power.least > HARDLY:
        raise SpecError(
            "even the last look can decide hardly anything",
            place="replicates.most",
            value=study.replicates.most,
            hint=f"{power.sentence}; {power.remedy}",
        )


def power_lines(study: Study) -> list[str]:
    """Return the line of a plan that says which differences the study can detect."""
    if not _has_scipy():
        return ["decides   not computed: SciPy is not installed here (pip install scipy)"]
    power = study_power(study)
    if power is None:
        return []
    return [f"decides   {power.sentence}"]


def power_warnings(study: Study) -> tuple[str, ...]:
    """Return warnings where the study has too few replicates to decide its question."""
    power = study_power(study)
    early = study.replicates is not None and study.replicates.spending == "power"
    return (*(power.warnings if power else ()), *(EARLY * early))


def _has_scipy() -> bool:
    """Whether SciPy is installed, which computes power; a machine that only plans and submits may do without."""
    return is_installed("scipy")


def _cells(study: Study) -> list[set[str]]:
    """The arms of each cell."""
    if isinstance(study, Sweep):
        return [set(study.arms)]
    cells: dict[str, set[str]] = {}
    for arm, point, config in study.cells():
        cells.setdefault(repr((sorted(point.items()), config)), set()).add(arm)
    return list(cells.values())


EARLY = (
    "spending: power stops early, on seeds that may not show how often an arm collapses; obrien-fleming waits longer",
)
"""The warning of a study with this spending."""
TIMES = (1, 2, 4)


@dataclass(frozen=True)
class PlannedSize:
    """The study with so many `times` its replicates: `seeds` (on each fold) and `trials` in all.

    `detectable` is the difference that it decides in 80 % of studies, in standard deviations of a paired difference, if
    the noise is of training.
    """

    times: int
    seeds: int
    trials: int | None
    detectable: float


def planned_sizes(study: Study, trials: int | None) -> list[PlannedSize]:
    """The study as declared (with `trials` trials; None: not known beforehand), twice and four times as large."""
    power = study_power(study)
    if power is None:
        return []
    from contrasweep.statistics.power_of_designs import planned_power

    sizes = []
    for times in TIMES:
        design = replace(power.design, seeds=times * power.design.seeds)
        least = planned_power(design, power.family).least
        sizes.append(PlannedSize(times, design.seeds, None if trials is None else times * trials, least))
    return sizes


def other_question(study: Study) -> list[str]:
    """Return what the question that the study does not ask could decide, and how many replicates would be enough."""
    if not isinstance(study, AblationGrid):
        return []
    other: Question = "cells" if study.question == "overall" else "overall"
    own, power = study_power(study), study_power(study, other)
    if power is None or own is None or power.family.size == own.family.size or not math.isfinite(power.least):
        return []
    from contrasweep.statistics.power_of_designs import HARDLY

    decided = f"hardly anything: {power.remedy}" if power.least > HARDLY else f"{power.least:.2g} standard deviations"
    return [f"other     question: {other}, {power.family.size} comparisons, would decide {decided}"]
