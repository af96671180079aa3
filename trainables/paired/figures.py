"""The family's figures, drawn from what trials leave (`tables`) and from a study's table of results.

draw(folder, to)                  one trial: t-SNE of z and e_post, centre Gram, |z|, F1 bars, confusion matrix
scores_against(frame, "batch_size")   a study: a metric against an axis, with bands over the replicates
"""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch

from contrasweep.storage.record import COUNTING
from contrasweep.trainables.evaluation.pictures import COLOURS
from contrasweep.trainables.evaluation.scores import classification
from contrasweep.trainables.paired.tables import class_names


def draw(folder: Path, to: Path) -> dict[str, Path]:
    """Draw the figures of a trial as PNG in `to` and return name -> file.

    `embeddings.parquet` and `centres.parquet` of the trial lie in `folder`.
    """
    table = pq.read_table(folder / "embeddings.parquet")
    names, rows = class_names(table), table.to_pandas()
    centres = pq.read_table(folder / "centres.parquet").to_pandas()
    to.mkdir(parents=True, exist_ok=True)
    figures = {
        "tsne_z": lambda ax: scatter(ax, rows, "z", names),
        "tsne_e_post": lambda ax: scatter(ax, rows, "e_post", names),
        "centre_gram": lambda ax: gram(ax, centres[centres.part == "test"], names),
        "z_raw": lambda ax: norms(ax, rows, names),
        "f1_per_class": lambda ax: f1_bars(ax, rows, names),
        "confusion": lambda ax: confusion(ax, rows, names),
    }
    return {name: _save(paint, to / f"{name}.png") for name, paint in figures.items()}


def scatter(ax: Any, rows: Any, what: str, names: list[str]) -> None:
    """t-SNE coordinates of `what` ("z", "e_post"), coloured by class."""
    for k, name in enumerate(names):
        here = rows[rows.label == k]
        ax.scatter(
            here[f"{what}_tsne_0"],
            here[f"{what}_tsne_1"],
            s=6,
            color=COLOURS[k % len(COLOURS)],
            label=name,
            linewidths=0,
        )
    ax.set(xticks=[], yticks=[], title=f"t-SNE of {what}, test fold")
    if len(names) <= len(COLOURS):
        ax.legend(fontsize=7, markerscale=2, frameon=False)


def gram(ax: Any, centres: Any, names: list[str]) -> None:
    """Cosines between class centres: LOCAL aims at the identity, SCL at -1/(K-1) off the diagonal."""
    values = centres.pivot(index="class_a", columns="class_b", values="cosine").to_numpy(float)
    _matrix(ax, values, names, "cosine of class centres of z", cmap="RdBu_r", vmin=-1, vmax=1)


def norms(ax: Any, rows: Any, names: list[str]) -> None:
    """|e_pre - e_post| per class: how much change the network sees."""
    ax.boxplot([rows.z_raw[rows.label == k].to_numpy() for k in range(len(names))], tick_labels=names, showfliers=False)
    ax.set(ylabel="|z| before normalisation", ylim=(0, 2), title="|z| per class")


def f1_bars(ax: Any, rows: Any, names: list[str]) -> None:
    """F1 of each class, and their mean as a dashed line."""
    scores = classification(torch.tensor(rows.predicted.to_numpy()), torch.tensor(rows.label.to_numpy()), len(names))
    ax.bar(names, [scores.get(f"f1_class_{k}", 0.0) for k in range(len(names))], color=COLOURS[0])
    ax.axhline(scores["f1_macro"], color="black", linewidth=0.8, linestyle="--")
    ax.set(ylim=(0, 1), ylabel="F1", title=f"F1 per class (macro {scores['f1_macro']:.3f}, dashed)")


def confusion(ax: Any, rows: Any, names: list[str]) -> None:
    """Shares of each true class (rows) by predicted class (columns)."""
    counts = np.zeros((len(names), len(names)))
    np.add.at(counts, (rows.label, rows.predicted), 1)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    _matrix(ax, shares, names, "true class (rows), predicted (columns)", cmap="Blues", vmin=0, vmax=1)


def bands(frame: Any, axis: str, metric: str = "accuracy", band: str = "min-max") -> Any:
    """Return mean, low and high of `metric` over the finished folds and seeds of each arm at each value of `axis`.

    The frame has arm and axis as index. The band is the range, as the paper prints it (`min-max`), or one standard
    deviation (`std`).
    """
    by = frame[frame.status.isin(COUNTING)].groupby(["arm", axis], sort=False)[metric]
    mean = by.mean()
    low, high = (by.min(), by.max()) if band == "min-max" else (mean - by.std(), mean + by.std())
    return mean.to_frame("mean").assign(low=low, high=high).sort_index(level=axis, sort_remaining=False)


def scores_against(frame: Any, axis: str, to: Path, metric: str = "accuracy", band: str = "min-max") -> Path:
    """`metric` against `axis` of a study, a line per arm with its `bands`. `frame` is `Results.to_frame()`."""

    def paint(ax: Any) -> None:
        for colour, arm in zip(itertools.cycle(COLOURS), dict.fromkeys(frame.arm), strict=False):
            rows = bands(frame[frame.arm == arm], axis, metric, band).droplevel("arm")
            ax.plot(rows.index, rows["mean"], marker="o", color=colour, label=arm)
            ax.fill_between(rows.index, rows.low, rows.high, color=colour, alpha=0.15, linewidth=0)
        ax.set(xlabel=axis, ylabel=metric, xticks=sorted(set(frame[axis])), title=f"mean and {band} of replicates")
        ax.legend(fontsize=7, frameon=False)

    to.parent.mkdir(parents=True, exist_ok=True)
    return _save(paint, to)


def pooled_f1(folders: Mapping[str, list[Path]], to: Path) -> Path:
    """F1 per class, bars side by side for each arm, of the test folds in `folders` taken together."""

    def paint(ax: Any) -> None:
        width, names = 0.8 / len(folders), []
        for i, (arm, places) in enumerate(folders.items()):
            tables = [pq.read_table(place / "embeddings.parquet") for place in places]
            names = class_names(tables[0])
            label, predicted = (
                torch.tensor(np.concatenate([t[c].to_numpy() for t in tables])) for c in ("label", "predicted")
            )
            scores = classification(predicted, label, len(names))
            ax.bar(
                np.arange(len(names)) + (i - (len(folders) - 1) / 2) * width,
                [scores.get(f"f1_class_{k}", 0.0) for k in range(len(names))],
                width,
                color=COLOURS[i % len(COLOURS)],
                label=f"{arm} (macro {scores['f1_macro']:.3f})",
            )
        ax.set(ylim=(0, 1), ylabel="F1", xticks=range(len(names)), title="F1 per class, test folds pooled")
        ax.set_xticklabels(names)
        ax.legend(fontsize=7, frameon=False)

    return _save(paint, to)


def _matrix(ax: Any, values: Any, names: list[str], title: str, **style: Any) -> None:
    ax.imshow(values, **style)
    ticks = range(len(names))
    ax.set(xticks=ticks, yticks=ticks, title=title)
    ax.set_xticklabels(names, rotation=45, ha="right")
    ax.set_yticklabels(names)
    if len(names) <= len(COLOURS):
        for i, j in np.ndindex(values.shape):
            dark = abs(values[i, j]) > 0.6
            ax.text(
                j, i, f"{values[i, j]:.2f}", ha="center", va="center", fontsize=7, color="white" if dark else "black"
            )


def _save(paint: Any, to: Path) -> Path:
    """Draw without pyplot, whose global state would outlive a trial."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2, 3.6), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    paint(figure.add_subplot())
    figure.savefig(to)
    return to
