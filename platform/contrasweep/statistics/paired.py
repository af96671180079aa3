"""Two lists of paired values, compared at once: the shortest way to a verdict."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from contrasweep.errors import SpecError
from contrasweep.statistics.checks import level, overlap, pairs
from contrasweep.statistics.comparison import Comparison, judged
from contrasweep.statistics.design import Design
from contrasweep.statistics.evidence import paired_evidence
from contrasweep.statistics.family import Family


def compare_paired(
    a: ArrayLike,
    b: ArrayLike,
    *,
    train_fraction: float | None = None,
    alpha: float = 0.05,
    mode: Literal["max", "min"] = "max",
    folds: Sequence[Any] | None = None,
    seeds: Sequence[Any] | None = None,
    smallest_difference: float | None = None,
) -> Comparison:
    """Compare A with B alone, over paired replicates: `a[i]` and `b[i]` [n] are from the same fold and seed.

    With `train_fraction` (the share of rows that a fold trains on, 0.8 for 5 folds) replicates are folds that share
    training rows, one each, or those that `folds` names, of `seeds`. Without it they are independent seeds on one
    split. `statistics.design` says what is tested how. `mode` says whether larger or smaller is better,
    `smallest_difference` what difference would matter. Raises `SpecError` for unequal lengths, no replicate, or values
    that are not finite.
    """
    first, second = pairs(a, b)
    level(alpha)
    overlap(train_fraction)
    n = len(first)
    if mode not in ("max", "min"):
        raise SpecError("mode says which is better", place="mode", value=mode, hint="'max' or 'min'")
    for name, labels in (("folds", folds), ("seeds", seeds)):
        if labels is not None and len(labels) != n:
            raise SpecError(f"{name} has one entry a replicate", place=name, value=len(labels), hint=f"{n} replicates")
    design = Design(seeds=n) if train_fraction is None else Design(folds=round(1 / (1 - train_fraction)))
    frame = pd.DataFrame({"cell": 0, "a": first, "b": second, "failed_a": False, "failed_b": False})
    frame = frame.assign(
        fold=list(folds) if folds is not None else np.arange(n),
        seed=list(seeds) if seeds is not None else np.arange(n) if folds is not None or not design.folds else 0,
    )
    evidence = paired_evidence(frame, design, mode=mode)
    if evidence is None:  # every replicate is finite, so there is one
        raise AssertionError("no replicate in common")
    return judged([evidence], Family(1, alpha, smallest_difference), mode)[0]
