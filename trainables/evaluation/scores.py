"""Scores of a classification."""

import torch
from torch import Tensor

from contrasweep.trainables.pytorch import Int


def classification(
    predicted: Int[Tensor, " n"], labels: Int[Tensor, " n"], classes: int
) -> dict[str, float]:
    """Return `accuracy`, `f1_macro` (the mean F1 of the classes) and the F1 of each class (`f1_class_<k>`).

    As in scikit-learn, a class counts in macro F1 if it occurs in the labels or the predictions. A class that occurs
    in neither has no F1 and is left out.
    """
    # Items by label (row) and predicted label (column), whose pair is one number for `bincount`.
    confusion = (
        torch.bincount(labels * classes + predicted, minlength=classes**2)
        .reshape(classes, classes)
        .double()
    )
    # F1 = 2 hits / (predicted + labelled).
    hits = confusion.diag()
    occurs = confusion.sum(0) + confusion.sum(1)
    f1 = {k: float(2 * hits[k] / occurs[k]) for k in range(classes) if occurs[k] > 0}
    scores = {
        "accuracy": float(hits.sum() / confusion.sum()),
        "f1_macro": sum(f1.values()) / len(f1),
    }
    return scores | {f"f1_class_{k}": value for k, value in f1.items()}
