"""One comparison of two lists of numbers by the code that judges the arms of a study, for benchmarks and tests."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from contrasweep.statistics.comparison import Comparison, judged_comparisons
from contrasweep.statistics.design import Design
from contrasweep.statistics.evidence import paired_evidence
from contrasweep.statistics.family import Family


def compare_paired(
    a: ArrayLike,
    b: ArrayLike,
    *,
    train_fraction: float | None = None,
    mode: Literal["max", "min"] = "max",
    folds: Sequence[Any] | None = None,
    seeds: Sequence[Any] | None = None,
    smallest_difference: float | None = None,
) -> Comparison:
    """Compare A with B, a family of its own; `b[i]` is from the same fold and seed as `a[i]`.

    With `train_fraction` replicates are folds that share training rows, one each, or those that `folds` names, of
    `seeds`. Without it they are independent seeds on one split.
    """
    n = len(np.asarray(a))
    design = (
        Design(seeds=n) if train_fraction is None else Design(folds=round(1 / (1 - train_fraction)))
    )
    frame = pd.DataFrame({"cell": 0, "a": a, "b": b, "failed_a": False, "failed_b": False})
    if seeds is None:
        seeds = range(n) if folds is not None or not design.folds else [0] * n
    frame = frame.assign(fold=list(range(n) if folds is None else folds), seed=list(seeds))
    evidence = paired_evidence(frame, design, mode=mode)
    assert evidence is not None
    return judged_comparisons([evidence], Family(1, margin=smallest_difference), mode)[0]
