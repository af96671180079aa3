"""Evaluation of an encoder: neighbours, linear probe, retrieval, similarities to target and noise."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from contrasweep.rows import ItemColumns
from contrasweep.trainables.evaluation.extra import EXTRA
from contrasweep.trainables.evaluation.neighbours import Neighbours, search
from contrasweep.trainables.evaluation.probe import linear_probe
from contrasweep.trainables.evaluation.scores import classification
from contrasweep.trainables.pytorch import Float, Int, Integers, Matrix

KS = (1, 5)
"""Numbers of neighbours that vote: `knn1` and `knn5`."""
RECALL_AT = (1, 5)
"""How many nearest items `recall_at_<k>` looks among."""


@dataclass(frozen=True)
class EncoderScores:
    """The scores of an evaluation.

    `metrics` is name -> value, `items` name -> a value for each test item in the part's order.
    """

    metrics: Mapping[str, float]
    items: ItemColumns


def evaluate(
    train: Float[Tensor, "m d"],
    train_labels: Int[Tensor, " m"],
    test: Matrix,
    test_labels: Integers,
    classes: int,
    *,
    classifier: str = "knn",
    retrieval: bool = True,
    probe: bool = True,
    extra: tuple[str, ...] = (),
) -> EncoderScores:
    """Score the test items by their neighbours among the training items, and by a linear probe fitted to these.

    Args:
        train: The features of the training items.
        train_labels: Their labels.
        test: The features of the test items.
        test_labels: Their labels.
        classes: The number of classes.
        classifier: What gives `accuracy`, `f1_macro` and `f1_class_<k>`: `knn`, the nearest neighbour, or `probe`.
        retrieval: Whether MAP@R, R-precision and recall@k are computed, which takes a while.
        probe: Whether the linear probe is fitted, which takes a while; it is in any case where it is the classifier.
        extra: Names of further scores (`EXTRA`).

    Returns:
        The metrics and the items. `knn1`, `knn5` and `probe` are accuracies. `target_similarity` and `noise_similarity`
        are medians over the test items that have both; of two middle values the lower, as in SINCERE's code.
        `similarity_margin` is their difference. `items` has both similarities, and the values whose means are metrics:
        of accuracies 1 where the classifier is right, of retrieval each item's.
    """
    neighbours = search(
        train, train_labels, test, test_labels, ks=KS, recall_at=RECALL_AT, retrieval=retrieval
    )
    # The predicted labels of the test items, by the name of the classifier.
    predicted = {f"knn{k}": labels for k, labels in neighbours.votes.items()}
    if probe or classifier == "probe":
        predicted["probe"] = linear_probe(train, train_labels, test, classes)
    # The chosen classifier gives accuracy and F1; the accuracies of all stand beside them by their names.
    headline = "probe" if classifier == "probe" else "knn1"
    correct = {name: (labels == test_labels).double() for name, labels in predicted.items()}
    metrics = classification(predicted[headline], test_labels, classes)
    metrics |= {name: float(hits.mean()) for name, hits in correct.items()}
    metrics |= {name: float(values.mean()) for name, values in neighbours.retrieval.items()}
    metrics |= _similarity_medians(neighbours)
    # Values of each test item, by the names of the metrics that are their means; then the item's similarities.
    items = {name: hits.cpu().numpy().astype(np.uint8) for name, hits in correct.items()}
    items["accuracy"] = items[headline]
    items |= {name: values.cpu().numpy() for name, values in neighbours.retrieval.items()}
    items["target_similarity"] = neighbours.target.cpu().numpy()
    items["noise_similarity"] = neighbours.noise.cpu().numpy()
    for name in extra:
        extra_metrics, extra_items = EXTRA[name](train, train_labels, test, test_labels, classes)
        metrics |= dict(extra_metrics)
        items |= dict(extra_items)
    return EncoderScores(metrics, items)


def _similarity_medians(neighbours: Neighbours) -> dict[str, float]:
    """Return the medians of target and noise similarity over items that have both, and their difference.

    {} where no item has both.
    """
    has_both = neighbours.target.isfinite() & neighbours.noise.isfinite()
    if not has_both.any():
        return {}
    target = float(neighbours.target[has_both].median())
    noise = float(neighbours.noise[has_both].median())
    return {
        "target_similarity": target,
        "noise_similarity": noise,
        "similarity_margin": target - noise,
    }
