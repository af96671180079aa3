"""Metrics on a test fold: scores of the classifier, and the geometry of the embeddings."""

from collections.abc import Mapping

import torch
from torch import Tensor

from contrasweep.data.reading import Part
from contrasweep.trainables.evaluation.scores import centre_cosines, classification
from contrasweep.trainables.pytorch import Float, Int, Matrix
from contrasweep.trial import Report, Trial

Labels = Int[Tensor, " n"]
MANY_SHOT_ABOVE = 100
"""Long-tailed learning: classes with more training rows than these are many-shot."""
FEW_SHOT_BELOW = 20
"""Classes with fewer training rows than these are few-shot."""


def scores(predicted: Labels, labels: Labels, train_counts: Int[Tensor, " k"]) -> dict[str, float]:
    """Return accuracy, macro F1, F1 per class, and the accuracy over many-shot, medium-shot and few-shot classes.

    `train_counts` has the number of training rows of each class, by which `shots` tells these kinds apart. A kind
    without scored rows is left out. `prevalence_class_<k>` is the share of class k among the scored rows (LOCAL, table
    3).
    """
    measured = classification(predicted, labels, len(train_counts))
    shares = torch.bincount(labels, minlength=len(train_counts)).double() / len(labels)
    measured |= {f"prevalence_class_{k}": float(share) for k, share in enumerate(shares)}
    hits = predicted == labels
    for shot, is_shot in shots(train_counts).items():
        rows = is_shot[labels]
        if rows.any():
            measured[f"accuracy_{shot}"] = float(hits[rows].double().mean())
    return measured


def baseline_report(trial: Trial, predicted: Labels, train: Part, test: Part) -> Report:
    """Return the single report of a baseline: the scores of the labels that it predicts for the test part.

    Its items are `accuracy`, 1 where a label is right and else 0, and the groups of the items, if they have any.
    """
    labels = torch.tensor(test.labels)
    train_labels = torch.tensor(train.labels)
    # Without named classes, the largest label says how many there are.
    classes = len(trial.data.classes) or 1 + int(max(labels.max(), train_labels.max()))
    measured = scores(predicted, labels, torch.bincount(train_labels, minlength=classes))
    right = (predicted == labels).long().tolist()
    return Report(1, measured, items={"accuracy": right, **test.grouping})


def shots(counts: Int[Tensor, " k"]) -> Mapping[str, Tensor]:
    """Return masks [k] over the classes: `many`, `medium` and `few`, by the number of training rows of each (`counts`).

    Many-shot classes have more than 100 training rows, few-shot ones less than 20, medium ones 20 to 100.
    """
    return {
        "many": counts > MANY_SHOT_ABOVE,
        "medium": (counts <= MANY_SHOT_ABOVE) & (counts >= FEW_SHOT_BELOW),
        "few": counts < FEW_SHOT_BELOW,
    }


def geometry(
    embeddings: Matrix,
    raw_norms: Float[Tensor, " n"],
    labels: Labels,
    classes: int,
    prefix: str = "",
) -> dict[str, float]:
    """Measure how far the classes are apart; `prefix` stands before each name.

    Three metrics are of the cosines between the centres of different classes; they are missing where fewer than two
    classes have a direction:

    - `centre_cosine`, their mean: 1 where all centres have one direction, 0 where they are orthogonal,
      -1/(K-1) where they make a simplex;
    - `centre_cosine_abs`, the mean of their absolute values: 0 only where all classes are orthogonal;
    - `centre_cosine_max`, the largest absolute value.

    `z_raw` is the mean of `raw_norms`, |z| before normalisation, and `z_raw_class_<k>` that of class k.
    """
    # The cosines of different classes.
    gram = centre_cosines(embeddings, labels, classes)
    cosines = gram[~torch.eye(classes, dtype=torch.bool)]
    cosines = cosines[~cosines.isnan()]
    measured = {f"{prefix}z_raw": float(raw_norms.double().mean())}
    if len(cosines):
        measured |= {
            f"{prefix}centre_cosine": float(cosines.mean()),
            f"{prefix}centre_cosine_abs": float(cosines.abs().mean()),
            f"{prefix}centre_cosine_max": float(cosines.abs().max()),
        }
    counts = torch.bincount(labels, minlength=classes)
    sums = torch.zeros(classes, dtype=torch.float64).index_add_(0, labels, raw_norms.double())
    per_class = {
        f"{prefix}z_raw_class_{k}": float(sums[k] / counts[k]) for k in range(classes) if counts[k]
    }
    return measured | per_class
