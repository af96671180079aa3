"""Does A beat B, by how much, how sure, and what would it take to know: pure functions over arrays and frames."""

from contrasweep.statistics.budget import best_so_far, expected_best
from contrasweep.statistics.intervals import Interval, mean_interval
from contrasweep.statistics.multiple import holm
from contrasweep.statistics.paired import Comparison, compare_paired
from contrasweep.statistics.power import Design, design, detectable_effect, power, replicates_for
from contrasweep.statistics.resampling import (
    bca_interval,
    iqm,
    paired_bootstrap,
    probability_of_improvement,
    sign_flip_interval,
    sign_flip_p,
    smallest_p,
    stratified_bootstrap,
)
from contrasweep.statistics.variance import interactions, variance_components

__all__ = [
    "Comparison",
    "Design",
    "Interval",
    "bca_interval",
    "best_so_far",
    "compare_paired",
    "design",
    "detectable_effect",
    "expected_best",
    "holm",
    "interactions",
    "iqm",
    "mean_interval",
    "paired_bootstrap",
    "power",
    "probability_of_improvement",
    "replicates_for",
    "sign_flip_interval",
    "sign_flip_p",
    "smallest_p",
    "stratified_bootstrap",
    "variance_components",
]
