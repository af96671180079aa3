"""Where the spread of a metric comes from: initialisation, fold, data order."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from contrasweep.errors import SpecError, check_known
from contrasweep.statistics.checks import Floats
from contrasweep.statistics.design import codes_of


def variance_components(
    frame: pd.DataFrame, metric: str, sources: Sequence[str], within: Sequence[str] = ()
) -> pd.DataFrame:
    """Variance of `metric` due to each of `sources` (columns such as seed, fold, order) and the rest.

    Crossed random effects within cells (the distinct values of `within`: arm and axes), whose means are
    removed first. Estimated by equating quadratic forms with their expectations (Rao's MINQUE(0)): unbiased for any
    pattern of missing trials, equal to the analysis of variance for complete ones. An estimate below 0 is
    noise around a small component and is shown as 0.
    Columns: source, variance, share (of the total). `rest` is what no source explains, interactions included.
    """
    for name in (metric, *sources, *within):
        check_known(name, "columns", list(map(str, frame)), "there is no such column", place="frame")
    kept = frame[frame[metric].notna()]
    y = kept[metric].to_numpy(dtype=np.float64)
    sources = [s for s in sources if kept[s].nunique(dropna=False) > 1]
    cell = _codes(kept, within)
    centred = y - _sums(y, cell)[cell] / np.bincount(cell)[cell]
    codes = [_codes(kept, [s]) for s in sources]
    counts = [_crossed(code, cell) for code in codes]
    sizes = np.bincount(cell)
    degrees = len(y) - len(np.bincount(cell))
    if degrees < 1:
        raise SpecError("variance needs more than one trial in a cell", place="within", value=list(within))
    # E|Z_i' M y|^2 = sum_j |Z_i' M Z_j|^2 s_j + |Z_i' M|^2 s_0, and E|M y|^2 likewise with M for Z_i'
    left = np.empty((len(sources) + 1, len(sources) + 1))
    for i, j in itertools.product(range(len(sources)), repeat=2):
        left[i, j] = ((_crossed(codes[i], codes[j]) - (counts[i] / sizes) @ counts[j].T) ** 2).sum()
    for i, count in enumerate(counts):
        left[i, -1] = left[-1, i] = len(y) - (count**2 / sizes).sum()
    left[-1, -1] = degrees
    right = np.array([*((_sums(centred, code) ** 2).sum() for code in codes), (centred**2).sum()])
    components = np.maximum(np.linalg.lstsq(left, right, rcond=None)[0], 0)
    total = components.sum()
    share = components / total if total > 0 else np.zeros_like(components)
    return pd.DataFrame({"source": [*sources, "rest"], "variance": components, "share": share})


def _codes(frame: pd.DataFrame, names: Sequence[str]) -> Any:
    """One code [n] for each distinct combination of `names`."""
    keys = list(zip(*(frame[n].astype(str) for n in names), strict=True)) if names else [()] * len(frame)
    return codes_of(keys)


def _sums(values: Floats, codes: Any) -> Floats:
    sums: Floats = np.bincount(codes, values).astype(np.float64)
    return sums


def _crossed(one: Any, other: Any) -> Floats:
    """Z_1' Z_2: how many rows have each pair of codes [levels of one, levels of the other]."""
    width = int(other.max()) + 1
    counted: Floats = np.bincount(one * width + other, minlength=(int(one.max()) + 1) * width).astype(np.float64)
    return counted.reshape(-1, width)
