"""Peaks that were measured, and the memory that training will take by them.

Model: peak = a + b (count), with the count of `cluster.memory`. a is what a process holds anyway (CUDA context, cuDNN
workspaces), b what allocation rounds up. Both are learned from measured peaks.
"""

from dataclasses import dataclass, field

PRIOR = (1.974, 1.083)
"""a in GiB and b before anything is measured: what the two rows at 256 pixels of the LOCAL paper's Table 1 give, on
a GPU that the paper does not name. `MARGIN_UNMEASURED` is there because another host's differ."""
HOST_PRIOR = (0.42, 1.2)
"""The same for host memory of training on a CPU, as measured in benchmarks/results/memory.md."""
_PRIOR_SPREAD = (2.0, 0.15)  # standard deviations of that guess
_NOISE = 0.01  # standard deviation of a measured peak, relative
MARGIN_UNMEASURED = 1.25
MARGIN = 1.1
ENOUGH = 5
"""Measured peaks of a key from which on `MARGIN` is enough."""


@dataclass
class Calibration:
    """The measurements of a key, and the constants a and b that follow from them.

    A key names what shares a and b: a type of GPU and a trainable or architecture, `H100/resnet50-fp32`.
    For each key, the highest peak of each count is kept, so that many measurements of one cell stay one line.
    """

    peaks: dict[str, dict[float, tuple[float, int]]] = field(default_factory=dict)
    """key -> count in GiB -> (highest peak in GiB, times measured)"""
    overflows: dict[str, dict[float, float]] = field(default_factory=dict)
    """key -> count in GiB -> GiB in which it ran out of memory"""
    prior: tuple[float, float] = PRIOR
    """a in GiB and b before anything is measured"""

    def observe(self, key: str, counted_gib: float, peak_gib: float, times: int = 1) -> None:
        """Trials whose count was `counted_gib`, so many `times`, were measured at `peak_gib` at most."""
        rows = self.peaks.setdefault(key, {})
        highest, before = rows.get(_rounded(counted_gib), (0.0, 0))
        rows[_rounded(counted_gib)] = (max(highest, peak_gib), before + times)

    def observe_out_of_memory(self, key: str, counted_gib: float, limit_gib: float) -> None:
        """Record that a trial whose count was `counted_gib` did not fit into `limit_gib`."""
        rows = self.overflows.setdefault(key, {})
        rows[_rounded(counted_gib)] = max(rows.get(_rounded(counted_gib), 0.0), limit_gib)

    def constants(self, key: str) -> tuple[float, float]:
        """Return a in GiB, and b. A key begins with what all the others say, and that with `prior`."""
        others = [row for other, rows in sorted(self.peaks.items()) if other != key for row in rows.items()]
        start = _fit([(counted, peak) for counted, (peak, _) in others], self.prior)
        return _fit([(counted, peak) for counted, (peak, _) in self.peaks.get(key, {}).items()], start)

    def predict(self, key: str, counted_gib: float) -> float:
        """Return the peak in GiB, without margin; at least any peak of the same count that was seen."""
        a, b = self.constants(key)
        seen, _ = self.peaks.get(key, {}).get(_rounded(counted_gib), (0.0, 0))
        over = self.overflows.get(key, {}).get(_rounded(counted_gib), 0.0)
        return max(a + b * counted_gib, seen, over * MARGIN)

    def margin(self, key: str) -> float:
        """Return what a prediction is multiplied by before it is packed."""
        measured = sum(times for _, times in self.peaks.get(key, {}).values())
        return MARGIN if measured >= ENOUGH else MARGIN_UNMEASURED


def _rounded(counted_gib: float) -> float:
    return round(counted_gib, 4)


def _fit(rows: list[tuple[float, float]], start: tuple[float, float]) -> tuple[float, float]:
    """Return a and b of peak = a + b count by least squares of the relative errors.

    They are drawn to `start` by its spread: the mean of the posterior of a linear model with a normal prior.
    """
    if not rows:
        return start
    import numpy as np

    counted, peak = np.array(rows, dtype=float).T
    weight = 1 / (_NOISE * np.maximum(peak, 1e-3)) ** 2
    design = np.stack([np.ones_like(counted), counted], axis=1)
    certainty = np.diag(1 / np.square(_PRIOR_SPREAD))
    solved = np.linalg.solve(
        design.T @ (weight[:, None] * design) + certainty, design.T @ (weight * peak) + certainty @ start
    )
    return float(solved[0]), float(solved[1])
