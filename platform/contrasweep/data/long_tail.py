"""Long-tailed subsets of a balanced dataset, by the profile that the field reports on.

Cao et al. 2019 (LDAM-DRW): class i of C keeps n_i = int(n_max * (1/IF)^(i/(C-1))) images, which are the
first n_i of the class after shuffling the classes one after another from numpy's legacy seed 0.
"""

import numpy as np
from numpy.typing import NDArray

from contrasweep.errors import SpecError


def profile(n_max: int, classes: int, imbalance_factor: float) -> list[int]:
    """Images per class; the first class keeps `n_max`, the last `n_max / imbalance_factor`."""
    if imbalance_factor < 1:
        raise SpecError(
            "imbalance_factor is the largest class over the smallest, at least 1",
            place="imbalance_factor",
            value=imbalance_factor,
        )
    return [int(n_max * (1 / imbalance_factor) ** (i / max(1, classes - 1))) for i in range(classes)]


def subset(labels: NDArray[np.int64], classes: int, imbalance_factor: float, seed: int = 0) -> NDArray[np.int64]:
    """Indices of the long-tailed subset of `labels` [n], class by class as the reference implementation orders
    them. n_max is the smallest class of a (nearly) balanced source, and the largest class of one that is
    already long-tailed, which is kept whole and in its order if it has this very profile."""
    counts = np.bincount(labels, minlength=classes)
    balanced = counts.min() * 2 > counts.max()
    wanted = profile(int(counts.min() if balanced else counts.max()), classes, imbalance_factor)
    if wanted == counts.tolist():
        return np.arange(len(labels))
    short = [
        f"class {i} has {have} of {want}"
        for i, (have, want) in enumerate(zip(counts, wanted, strict=True))
        if have < want
    ]
    if short:
        raise SpecError(
            "the source has too few images for this imbalance_factor",
            place="imbalance_factor",
            value=imbalance_factor,
            hint=f"{short[0]}; stage from the balanced dataset",
        )
    random = np.random.RandomState(seed)
    kept = []
    for label, n in enumerate(wanted):
        members = np.flatnonzero(labels == label)
        random.shuffle(members)
        kept.append(members[:n])
    return np.concatenate(kept)
