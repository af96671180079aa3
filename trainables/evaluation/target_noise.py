"""Similarity of test items to their own class and to the nearest other class: series, histograms, figures."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from contrasweep.trainables.evaluation.pictures import save
from contrasweep.trainables.pytorch import Float, Int

PerItem = Float[np.ndarray, " n"]
RANGE = (-0.1, 1.0)
"""Similarities that histograms span."""
BINS = 100
CLASS_BINS = 40
"""Bins of a single class's histogram, which has fewer items."""
MAX_CLASSES = 20
"""Classes with a histogram of their own, at most."""
ACROSS = 5
"""Classes side by side in a figure."""
SERIES = {"target": "#1b7837", "noise": "#b2182b"}
"""Name in the legend -> colour."""


@dataclass(frozen=True)
class Histogram:
    """The counts of `target` and of `noise` similarities in the bins between `edges`.

    Values beyond the range are counted in the first or last bin, so that nothing is dropped. `missing` has the number
    of items without a target, and that of items without a noise, whose similarity is -inf.
    """

    edges: Float[np.ndarray, " bins_and_1"]
    target: Int[np.ndarray, " bins"]
    noise: Int[np.ndarray, " bins"]
    missing: tuple[int, int]

    def shares(self) -> tuple[Float[np.ndarray, " bins"], Float[np.ndarray, " bins"]]:
        """Return the shares of target and of noise similarities in each bin; all 0 where there are none."""
        target, noise = (series / max(1, series.sum()) for series in (self.target, self.noise))
        return target, noise


def histogram(
    target: PerItem,
    noise: PerItem,
    bins: int = BINS,
    span: tuple[float, float] = RANGE,
) -> Histogram:
    """Count target and noise similarities in `bins` equal bins over `span`."""
    edges = np.linspace(*span, bins + 1)
    counts = []
    missing = []
    for series in (np.asarray(target, dtype=float), np.asarray(noise, dtype=float)):
        # -inf: there is no such neighbour. Values beyond the span are moved to its ends.
        finite = series[np.isfinite(series)]
        counts.append(np.histogram(np.clip(finite, *span), bins=bins, range=span)[0])
        missing.append(len(series) - len(finite))
    return Histogram(edges, counts[0], counts[1], (missing[0], missing[1]))


def arc_length(cosine: PerItem) -> PerItem:
    """Return the arc length similarity 1 - arccos(cos) / pi, in [0, 1], of cosine similarities; -inf stays -inf."""
    values = 1 - np.arccos(np.clip(cosine, -1, 1)) / math.pi
    return np.where(np.isfinite(cosine), values, cosine)


def by_class(
    target: PerItem,
    noise: PerItem,
    labels: Int[np.ndarray, " n"],
    span: tuple[float, float] = RANGE,
) -> dict[int, Histogram]:
    """Return class -> histogram of its test items, for the `MAX_CLASSES` most frequent classes that have any.

    How far a class's noise reaches into its target tells which classes lie close to another one.
    """
    # The most frequent classes; of equally frequent ones, those of the lowest numbers. Then by number.
    classes, counts = np.unique(labels, return_counts=True)
    chosen = np.sort(classes[np.argsort(-counts, kind="stable")[:MAX_CLASSES]])
    return {
        int(k): histogram(target[labels == k], noise[labels == k], CLASS_BINS, span) for k in chosen
    }


def figure(histogram: Histogram, path: Path, *, title: str, axis: str) -> Path:
    """Draw target and noise as shares of their items to `path` (PNG), over the similarity `axis`; return `path`."""

    def paint(figure: Any) -> None:
        """Draw target and noise, with their names."""
        axes = figure.subplots()
        _draw(histogram, axes)
        axes.set(title=title, xlabel=axis, ylabel="share of test items")
        axes.legend(frameon=False)

    return save(path, (6, 3.6), paint)


def class_figure(
    histograms: Mapping[int, Histogram], names: Sequence[str], path: Path, *, title: str, axis: str
) -> Path:
    """Draw the histograms of `by_class`, each class on axes of its own, to `path` (PNG); return `path`.

    `axis` names the similarity. A class beyond `names` is called by its number.
    """
    # Rounded up; axes that are left over in the last row are hidden.
    rows = -(-len(histograms) // ACROSS)

    def paint(figure: Any) -> None:
        """Draw each class on axes of its own."""
        grid = figure.subplots(rows, ACROSS, sharex=True, squeeze=False)
        for axes in grid.flat[len(histograms) :]:
            axes.set_visible(False)
        for (label, histogram), axes in zip(histograms.items(), grid.flat, strict=False):
            _draw(histogram, axes)
            axes.set_title(names[label] if label < len(names) else str(label), fontsize="small")
            axes.set_yticks([])
        grid[0, 0].legend(frameon=False, fontsize="x-small")
        figure.suptitle(title)
        figure.supxlabel(axis)

    return save(path, (2.2 * ACROSS, 0.7 + 1.6 * rows), paint)


def _draw(histogram: Histogram, axes: Any) -> None:
    """Draw target and noise on these axes as bars over each other."""
    widths = np.diff(histogram.edges)
    starts = histogram.edges[:-1]
    for series, (name, colour) in zip(histogram.shares(), SERIES.items(), strict=True):
        axes.bar(starts, series, widths, align="edge", label=name, color=colour, alpha=0.6)
    axes.set_xlim(histogram.edges[0], histogram.edges[-1])
