"""Does A beat B, by how much, how sure, and what would it take to know: pure functions over arrays and frames.

Each is imported when it is first used: a plan needs no SciPy for what it does not compute.
"""

from typing import TYPE_CHECKING

from contrasweep.lazy import importer

if TYPE_CHECKING:
    from contrasweep.statistics.budget import best_so_far, expected_best
    from contrasweep.statistics.comparison import Comparison
    from contrasweep.statistics.intervals import Interval, mean_interval
    from contrasweep.statistics.multiple import holm
    from contrasweep.statistics.paired import compare_paired
    from contrasweep.statistics.power_of_designs import (
        PlannedPower,
        detectable_effect,
        planned_power,
        power,
        replicates_for,
    )
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
    "Interval",
    "PlannedPower",
    "bca_interval",
    "best_so_far",
    "compare_paired",
    "detectable_effect",
    "expected_best",
    "holm",
    "interactions",
    "iqm",
    "mean_interval",
    "paired_bootstrap",
    "planned_power",
    "power",
    "probability_of_improvement",
    "replicates_for",
    "sign_flip_interval",
    "sign_flip_p",
    "smallest_p",
    "stratified_bootstrap",
    "variance_components",
]

__getattr__ = importer(
    __name__,
    {
        "Comparison": "comparison",
        "Interval": "intervals",
        "PlannedPower": "power_of_designs",
        "bca_interval": "resampling",
        "best_so_far": "budget",
        "compare_paired": "paired",
        "detectable_effect": "power_of_designs",
        "expected_best": "budget",
        "holm": "multiple",
        "interactions": "variance",
        "iqm": "resampling",
        "mean_interval": "intervals",
        "paired_bootstrap": "resampling",
        "planned_power": "power_of_designs",
        "power": "power_of_designs",
        "probability_of_improvement": "resampling",
        "replicates_for": "power_of_designs",
        "sign_flip_interval": "resampling",
        "sign_flip_p": "resampling",
        "smallest_p": "resampling",
        "stratified_bootstrap": "resampling",
        "variance_components": "variance",
    },
)
