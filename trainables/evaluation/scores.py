"""Scores of a classification, and the matrices of its classes."""

import torch
import torch.nn.functional as F

from contrasweep.trainables.pytorch import Float, Integers, Matrix, Tensor


def confusions(predicted: Integers, labels: Integers, classes: int) -> Float[Tensor, "k k"]:
    """Return how many items of each class (row) are taken for each class (column), in float64."""
    # A pair (label, predicted) is one number for `bincount`: row and column of the matrix.
    pairs = torch.bincount(labels * classes + predicted, minlength=classes**2)
    return pairs.view(classes, classes).double()


def centre_cosines(embeddings: Matrix, labels: Integers, classes: int) -> Float[Tensor, "k k"]:
    """Return the cosines between the class centres (means of unit embeddings).

    A class without members has no direction, nor has one whose embeddings add up to zero: its row and its column are
    NaN, because 0 would say that it is orthogonal to the others. Embeddings are zero where the same image is given as
    both sides of each pair, since an embedding is then a difference of equal vectors.
    """
    unit = F.normalize(embeddings.double(), dim=1)
    sums = unit.new_zeros(classes, unit.shape[1]).index_add_(0, labels, unit)
    centres = F.normalize(sums, dim=1)
    has_centre = torch.linalg.vector_norm(sums, dim=1) > 0
    return torch.where(has_centre[:, None] & has_centre, centres @ centres.T, torch.nan)


def classification(predicted: Integers, labels: Integers, classes: int) -> dict[str, float]:
    """Return `accuracy`, `f1_macro` (the mean F1 of the classes) and the F1 of each class (`f1_class_<k>`).

    A class without an item among the labels has no F1 and is left out, also where it is predicted: scikit-learn's macro
    F1 over the `labels` that occur. A wrong prediction still lowers the F1 of the item's own class.
    """
    confusion = confusions(predicted, labels, classes)
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
