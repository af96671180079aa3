"""What larger forms of a study would be able to decide, before anything is run: its detectable differences at two and
four times its replicates, and what its other question could decide."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from contrasweep.planning.power import study_power
from contrasweep.study.grid import AblationGrid
from contrasweep.study.study import Study

if TYPE_CHECKING:
    from contrasweep.statistics.family import Question

TIMES = (1, 2, 4)


@dataclass(frozen=True)
class PlannedSize:
    """The study with so many `times` its replicates: `seeds` (on each fold), `trials` in all, and the difference that
    it decides in 80 % of studies, in standard deviations of a paired difference, if the noise is of training."""

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
    """What the question that the study does not ask could decide, where it has two; and what would be enough."""
    if not isinstance(study, AblationGrid):
        return []
    other: Question = "cells" if study.question == "overall" else "overall"
    own, power = study_power(study), study_power(study, other)
    if power is None or own is None or power.family.size == own.family.size or not math.isfinite(power.least):
        return []
    from contrasweep.statistics.power_of_designs import HARDLY

    decided = f"hardly anything: {power.remedy}" if power.least > HARDLY else f"{power.least:.2g} standard deviations"
    return [f"other     question: {other}, {power.family.size} comparisons, would decide {decided}"]
