"""Scores of a classification."""

import torch

from contrasweep.trainables.pytorch import Integers


def classification(predicted: Integers, labels: Integers, classes: int) -> dict[str, float]:
    """Return `accuracy`, `f1_macro` (the mean F1 of the classes) and the F1 of each class (`f1_class_<k>`).

    A class without an item among the labels has no F1 and is left out, also where it is predicted: scikit-learn's macro
    F1 over the `labels` that occur. A wrong prediction still lowers the F1 of the item's own class.
    """
    # Items by label (row) and predicted label (column), whose pair is one number for `bincount`.
    confusion = (
        torch.bincount(labels * classes + predicted, minlength=classes**2)
        .reshape(classes, classes)
        .double()
    )
    # F1 = 2 hits / (predicted + labelled).
    hits = confusion.diag()
    labelled = confusion.sum(1)
    occurs = confusion.sum(0) + labelled
    f1 = {k: float(2 * hits[k] / occurs[k]) for k in range(classes) if labelled[k] > 0}
    scores = {
        "accuracy": float(hits.sum() / confusion.sum()),
        "f1_macro": sum(f1.values()) / len(f1),
    }
    return scores | {f"f1_class_{k}": value for k, value in f1.items()}
