"""Pictures of what an encoder has learned: embeddings, neighbours, confusions, class centres, augmented views."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from contrasweep.trainables.evaluation.scores import centre_cosines, confusions
from contrasweep.trainables.pytorch import Float, Int, Integers, Matrix, UInt8

COLOURS = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#F0E442",
    "#999999",
    "#000000",
    "#7F3C8D",
)
"""Okabe and Ito's colours, told apart by colour-blind readers too; they repeat beyond ten classes."""
QUERIES = 8
"""Test images that are shown with their neighbours."""
NEAREST = 6
"""Neighbours of each of them."""
VIEWED = 8
"""Images that are shown with their views."""
MAX_POINTS = 2000
"""Points of the plane, at most."""
MAX_CLASSES = 20
"""More classes have no legend and no matrices, which could not be read."""
RIGHT = "#009E73"
"""The frame of a neighbour of the test image's class."""
WRONG = "#D55E00"
"""That of one of another class."""


class ShownPart(NamedTuple):
    """A part of the data that pictures show: its embeddings, its labels, and a function from rows to their images."""

    embeddings: Matrix
    labels: Integers
    take: Callable[[Int[Tensor, " k"]], UInt8[Tensor, "k c h w"]]


def neighbours(
    index: Float[Tensor, "m d"], queries: Matrix, k: int = NEAREST
) -> Int[Tensor, "n k"]:
    """Return the rows of the k items of the index that are most similar to each query by cosine, the nearest first."""
    return (
        (F.normalize(queries, dim=1) @ F.normalize(index, dim=1).T)
        .topk(min(k, len(index)), dim=1)
        .indices
    )


def plane(embeddings: Matrix) -> Float[np.ndarray, "n 2"]:
    """Return the first two principal components of the embeddings at unit length."""
    unit = F.normalize(embeddings.double(), dim=1)
    centred = unit - unit.mean(0)
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    flat = centred @ directions[:2].T
    # Embeddings of one dimension have a second component of 0.
    return F.pad(flat, (0, 2 - flat.shape[1])).cpu().numpy()


def draw(
    train: ShownPart,
    test: ShownPart,
    views: Sequence[UInt8[Tensor, "k c h w"]],
    names: Sequence[str],
    folder: Path,
    title: str,
) -> Mapping[str, Path]:
    """Draw all pictures as PNG into a folder.

    Args:
        train: The training part, among which neighbours are looked for.
        test: The test part.
        views: First a tensor of k images, then a tensor for each view, with that view of each of the k images.
        names: What the classes are called.
        folder: Where the files are written.
        title: What stands above each picture.

    Returns:
        File name (`views.png`) -> path. Matrices of classes are left out where there are more than `MAX_CLASSES`.
    """
    # Labels may be more than the names that the dataset gives.
    classes = max(len(names), int(max(train.labels.max(), test.labels.max())) + 1)
    words = [names[k] if k < len(names) else str(k) for k in range(classes)]
    near = neighbours(train.embeddings, test.embeddings)
    # Name -> (width and height in inches, the function that paints it on a figure).
    pictures: dict[str, tuple[tuple[float, float], Callable[[Any], None]]] = {
        "embeddings": ((5.5, 4.2), lambda figure: _points(figure, test, words)),
        "neighbours": ((5.6, 6.2), lambda figure: _neighbours(figure, train, test, near)),
        "views": ((6.4, 0.9 * len(views) + 0.5), lambda figure: _strip(figure, views)),
    }
    # A matrix of many classes could not be read.
    if classes <= MAX_CLASSES:
        counts = confusions(train.labels[near[:, 0]], test.labels, classes)
        cosines = centre_cosines(test.embeddings, test.labels, classes)
        side = (1.8 + 0.32 * classes, 1.6 + 0.3 * classes)
        pictures["confusions"] = (
            side,
            lambda figure: shares(
                figure.subplots(), counts, words, "taken for (nearest neighbour)"
            ),
        )
        pictures["centres"] = (
            side,
            lambda figure: matrix(figure.subplots(), cosines, words, "cosine of class centres", -1),
        )
    return {
        f"{name}.png": save(folder / f"{name}.png", *drawing, title=title)
        for name, drawing in pictures.items()
    }


def save(
    path: Path,
    size: tuple[float, float],
    paint: Callable[[Any], object],
    title: str | None = None,
    dpi: float | None = None,
) -> Path:
    """Draw a figure of this `size` in inches by `paint(figure)` and write it to `path` as PNG; return `path`.

    A `title` stands above all that is painted. `dpi` is in dots per inch; None: Matplotlib's. A `$` in a text of the
    figure is shown as `$`: it does not begin a formula. pyplot is not used, whose global state would outlive a trial.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # What stands between two `$` would be read as a formula, and a wrong one ends the trial.
    with rc_context({"text.parse_math": False}):
        canvas = FigureCanvasAgg(Figure(figsize=size, dpi=dpi, layout="constrained"))
        paint(canvas.figure)
        if title is not None:
            canvas.figure.suptitle(title, fontsize="small")
        canvas.print_png(str(path))
    return path


def _points(figure: Any, test: ShownPart, words: Sequence[str]) -> None:
    """Draw test embeddings in the plane of their first two principal components, a colour per class (`words`)."""
    axes = figure.subplots()
    # The components are those of all points; of many, evenly spaced ones are drawn.
    count = len(test.labels)
    rows = torch.linspace(0, count - 1, min(MAX_POINTS, count)).long()
    points = plane(test.embeddings)[rows.numpy()]
    labels = test.labels.cpu()[rows].numpy()
    for k in np.unique(labels):
        x, y = points[labels == k].T
        colour = COLOURS[k % len(COLOURS)]
        axes.scatter(x, y, s=7, color=colour, linewidths=0, label=words[k])
    axes.set(xticks=[], yticks=[], xlabel="first two principal components of the test embeddings")
    if len(words) <= MAX_CLASSES:
        axes.legend(
            fontsize="x-small",
            frameon=False,
            markerscale=2,
            loc="center left",
            bbox_to_anchor=(1, 0.5),
        )


def _neighbours(figure: Any, train: ShownPart, test: ShownPart, near: Tensor) -> None:
    """Draw test images, wrong ones first, and beside each its nearest training images, framed as right or wrong.

    `near` [n k] has the rows of the nearest training images of each test image, the nearest first.
    """
    # Which neighbours are of the test image's class [n k]. A test image is right or wrong by its nearest, column 0.
    of_class = (train.labels[near] == test.labels[:, None]).cpu()
    right = of_class[:, 0]
    # At most half of the images are wrong ones, the others the first right one of each class.
    wrong_rows = torch.where(~right)[0][: QUERIES // 2].tolist()
    right_rows: dict[int, int] = {}
    for query in torch.where(right)[0].tolist():
        right_rows.setdefault(int(test.labels[query]), query)
    chosen = [*wrong_rows, *right_rows.values()][:QUERIES]
    # A row for each test image: itself, then its neighbours.
    grid = figure.subplots(len(chosen), 1 + near.shape[1], squeeze=False)
    for row, query in zip(grid, chosen, strict=True):
        _image(row[0], test.take(torch.tensor([query]))[0])
        images = train.take(near[query])
        for axes, image, hit in zip(row[1:], images, of_class[query], strict=True):
            _image(axes, image, RIGHT if hit else WRONG)
    figure.supxlabel(
        "test image, then its nearest training images: green of its class, orange of another",
        fontsize=8,
    )


def _strip(figure: Any, views: Sequence[Tensor]) -> None:
    """Draw k images in a row, and below them a row for each of their views; `views` has a tensor [k c h w] a row."""
    grid = figure.subplots(len(views), len(views[0]), squeeze=False)
    for row, images in zip(grid, views, strict=True):
        for axes, image in zip(row, images, strict=True):
            _image(axes, image)
    figure.supxlabel("images, and below them their augmented views", fontsize=8)


def _image(axes: Any, image: Tensor, frame: str = "") -> None:
    """Draw one image [c h w], with a coloured frame where one is named."""
    pixels = image.permute(1, 2, 0).cpu().numpy()
    # One channel in gray, of two the first one, of more than three the first three as RGB.
    axes.imshow(
        pixels[..., 0] if pixels.shape[-1] < 3 else pixels[..., :3], cmap="gray", vmin=0, vmax=255
    )
    axes.set(xticks=[], yticks=[])
    for side in axes.spines.values():
        side.set(visible=bool(frame), color=frame or "black", linewidth=2.5)


def shares(axes: Any, counts: Float[Tensor, "k k"], words: Sequence[str], label: str) -> None:
    """Draw the share of the items of each class (row) that are taken for each class (column), from their `counts`.

    `words` name the classes, `label` the columns.
    """
    matrix(axes, counts / counts.sum(1, keepdim=True).clamp(min=1), words, label, 0)


def matrix(
    axes: Any, values: Float[Tensor, "k k"], words: Sequence[str], label: str, low: float
) -> None:
    """Draw a matrix by class, with values from `low` to 1, as a heat map.

    `words` name the classes, `label` the columns.
    """
    numbers = values.cpu().numpy()
    # With values below 0, red and blue are the two signs.
    image = axes.imshow(numbers, vmin=low, vmax=1, cmap="Blues" if low == 0 else "RdBu_r")
    axes.set_xticks(range(len(words)), words, rotation=90, fontsize="x-small")
    axes.set_yticks(range(len(words)), words, fontsize="x-small")
    axes.set_xlabel(label, fontsize="small")
    axes.figure.colorbar(image, ax=axes, shrink=0.8)
    # Numbers of more classes could not be read; on dark cells they are white.
    if len(words) <= len(COLOURS):
        for (i, j), value in np.ndenumerate(numbers):
            colour = "white" if abs(value) > 0.6 else "black"
            axes.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=7, color=colour)
