"""Figures of a trial, drawn from the tables that it leaves (`tables`)."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch

from contrasweep.trainables.evaluation.pictures import COLOURS, matrix, save, shares
from contrasweep.trainables.evaluation.scores import classification, confusions
from contrasweep.trainables.paired.tables import class_names
from contrasweep.trainables.pytorch import Integers


def draw(folder: Path, to: Path) -> dict[str, Path]:
    """Draw the figures of a trial as PNG in `to` and return name -> file.

    `embeddings.parquet` and `centres.parquet` of the trial lie in `folder`.
    """
    table = pq.read_table(folder / "embeddings.parquet")
    names = class_names(table)
    rows = table.to_pandas()
    predicted, labels = (torch.tensor(rows[name].to_numpy()) for name in ("predicted", "label"))
    counts = confusions(predicted, labels, len(names))
    centres = pq.read_table(folder / "centres.parquet").to_pandas()
    # LOCAL aims at the identity, SCL at -1/(K-1) off the diagonal.
    of_test = centres[centres.part == "test"]
    gram = of_test.pivot(index="class_a", columns="class_b", values="cosine").to_numpy(float)
    cosines = torch.tensor(gram)
    to.mkdir(parents=True, exist_ok=True)
    # Name of a figure -> what draws it on axes.
    figures = {
        "tsne_z": lambda ax: scatter(ax, rows, "z", names),
        "tsne_e_post": lambda ax: scatter(ax, rows, "e_post", names),
        "centre_gram": lambda ax: matrix(ax, cosines, names, "cosine of class centres of z", -1),
        "z_raw": lambda ax: norms(ax, rows, names),
        "f1_per_class": lambda ax: f1_bars(ax, predicted, labels, names),
        "confusion": lambda ax: shares(ax, counts, names, "predicted, of each true class (rows)"),
    }
    return {name: _save(paint, to / f"{name}.png") for name, paint in figures.items()}


def scatter(ax: Any, rows: Any, what: str, names: list[str]) -> None:
    """Draw the t-SNE points of a representation, `what` ("z" or "e_post"), on the axes `ax`, coloured by class.

    `rows` is a data frame with a row for each test item: `label`, the index of its class in `names`, and the
    coordinates `{what}_tsne_0` and `{what}_tsne_1`. More classes than colours have no legend.
    """
    for k, name in enumerate(names):
        rows_of_class = rows[rows.label == k]
        ax.scatter(
            rows_of_class[f"{what}_tsne_0"],
            rows_of_class[f"{what}_tsne_1"],
            s=6,
            color=COLOURS[k % len(COLOURS)],
            label=name,
            linewidths=0,
        )
    ax.set(xticks=[], yticks=[], title=f"t-SNE of {what}, test fold")
    if len(names) <= len(COLOURS):
        ax.legend(fontsize=7, markerscale=2, frameon=False)


def norms(ax: Any, rows: Any, names: list[str]) -> None:
    """Draw |e_pre - e_post| of the items of each class, as box plots: how much change the network sees.

    `rows` is a data frame with a row for each test item: its length `z_raw`, and `label`, the index of its class in
    `names`.
    """
    ax.boxplot(
        [rows.z_raw[rows.label == k].to_numpy() for k in range(len(names))],
        tick_labels=names,
        showfliers=False,
    )
    ax.set(ylabel="|z| before normalisation", ylim=(0, 2), title="|z| per class")


def f1_bars(ax: Any, predicted: Integers, labels: Integers, names: list[str]) -> None:
    """Draw the F1 of each class that has test rows, and their mean as a dashed line."""
    scores = classification(predicted, labels, len(names))
    ax.bar(
        names, [scores.get(f"f1_class_{k}", np.nan) for k in range(len(names))], color=COLOURS[0]
    )
    ax.axhline(scores["f1_macro"], color="black", linewidth=0.8, linestyle="--")
    ax.set(ylim=(0, 1), ylabel="F1", title=f"F1 per class (macro {scores['f1_macro']:.3f}, dashed)")


def _save(paint: Any, to: Path) -> Path:
    """Draw a figure to the file `to`, whose one pair of axes `paint(axes)` fills; return `to`."""
    return save(to, (4.2, 3.6), lambda figure: paint(figure.add_subplot()), dpi=110)
