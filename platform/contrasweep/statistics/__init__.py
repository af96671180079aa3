"""Does A beat B, by how much, how sure, and what would it take to know: pure functions over arrays and frames.

Each name is imported when it is first used: a plan needs no SciPy for what it does not compute.
"""

from typing import TYPE_CHECKING

from contrasweep.lazy import importer

if TYPE_CHECKING:
    from contrasweep.statistics.budget import best_so_far, expected_best
    from contrasweep.statistics.comparison import Comparison, compare_paired
    from contrasweep.statistics.family import holm
    from contrasweep.statistics.power_of_designs import (
        PlannedPower,
        detectable_effect,
        planned_power,
        power,
        replicates_for,
    )
    from contrasweep.statistics.resampling import (
        Interval,
        bca_interval,
        iqm,
        mean_interval,
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

NAMES = {
    "budget": ("best_so_far", "expected_best"),
    "comparison": ("Comparison", "compare_paired"),
    "family": ("holm",),
    "power_of_designs": ("PlannedPower", "detectable_effect", "planned_power", "power", "replicates_for"),
    "resampling": (
        *("Interval", "bca_interval", "iqm", "mean_interval", "paired_bootstrap", "probability_of_improvement"),
        *("sign_flip_interval", "sign_flip_p", "smallest_p", "stratified_bootstrap"),
    ),
    "variance": ("interactions", "variance_components"),
}
__getattr__ = importer(__name__, {name: module for module, names in NAMES.items() for name in names})
