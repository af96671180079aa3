"""Scores that a study must ask for by name: evaluation protocols of other papers.

Each is a function and its line in `EXTRA`: (train [m d], their labels, test [n d], their labels, number of classes) ->
(metrics, values per test item). Features are on one device; nothing is random but for seeds that are fixed.
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from contrasweep.rows import ItemColumns
from contrasweep.trainables.evaluation.neighbours import SCORES_AT_ONCE
from contrasweep.trainables.evaluation.probe import linear_probe
from contrasweep.trainables.pytorch import Float, Int

Rows = Float[Tensor, "m d"]
Labels = Int[Tensor, " m"]
Scores = tuple[Mapping[str, float], ItemColumns]
"""Name -> metric, and name -> a value for each test item."""
KS = (20, 200)
"""Numbers of neighbours that vote in `weighted_knn`."""
TEMPERATURE = 0.07


def weighted_knn(
    train: Rows, labels: Labels, test: Tensor, test_labels: Tensor, classes: int
) -> Scores:
    """Accuracy of k = 20 and 200 neighbours that vote with weights e^{cosine / .07} (Wu et al. 2018, section 3.4)."""
    index = F.normalize(train.float(), dim=1)
    queries = F.normalize(test.float(), dim=1)
    predictions: dict[int, list[Tensor]] = {k: [] for k in KS}
    for tile in torch.split(queries, max(1, SCORES_AT_ONCE // len(index))):
        # Cosines and rows of the index, the nearest first. A stable sort, so that ties fall alike everywhere.
        cosines, rows = torch.sort(tile @ index.T, dim=1, descending=True, stable=True)
        for k in KS:
            votes = torch.zeros(len(tile), classes, device=tile.device)
            # e^{(cosine - 1) / t}: the largest weight is 1, and the common factor changes no vote.
            weights = ((cosines[:, :k] - 1) / TEMPERATURE).exp()
            votes.scatter_add_(1, labels[rows[:, :k]], weights)
            predictions[k].append(votes.argmax(1))
    return _accuracies(
        {f"weighted_knn{k}": torch.cat(parts) for k, parts in predictions.items()}, test_labels
    )


def sgd_probe(
    train: Rows, labels: Labels, test: Tensor, test_labels: Tensor, classes: int
) -> Scores:
    """Accuracy of a linear layer on frozen features, by SGD: 100 epochs of batches of 256, rate .1 along a cosine.

    Features are standardised by the training features. There are momentum .9 and no weight decay (He et al. 2020,
    section 4.1, where the rate is tuned for raw features).
    """
    mean = train.float().mean(0)
    std = train.float().std(0, correction=0) + 1e-6
    train_x, test_x = ((features.float() - mean) / std for features in (train, test))
    weight = train_x.new_zeros(classes, train_x.shape[1], requires_grad=True)
    bias = train_x.new_zeros(classes, requires_grad=True)
    optimizer = torch.optim.SGD([weight, bias], 0.1, momentum=0.9)
    # The last batch of an epoch is smaller.
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, 100 * math.ceil(len(train_x) / 256)
    )
    generator = torch.Generator().manual_seed(0)
    with torch.enable_grad():
        for _ in range(100):
            order = torch.randperm(len(train_x), generator=generator).to(train_x.device)
            for rows in torch.split(order, 256):
                value = F.cross_entropy(F.linear(train_x[rows], weight, bias), labels[rows])
                weight.grad, bias.grad = torch.autograd.grad(value, (weight, bias))
                optimizer.step()
                schedule.step()
    return _accuracies({"sgd_probe": F.linear(test_x, weight, bias).argmax(1)}, test_labels)


def nmi(train: Rows, labels: Labels, test: Tensor, test_labels: Tensor, classes: int) -> Scores:
    """Normalised mutual information of classes and of k-means clusters of the test items' unit features.

    There are as many clusters as classes, those of the best of ten starts of scikit-learn's k-means (Musgrave et al.
    2020, section 3.2).
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import normalized_mutual_info_score

    unit = F.normalize(test.float(), dim=1).cpu().numpy()
    clusters = KMeans(min(classes, len(unit)), n_init=10, random_state=0).fit_predict(unit)
    return {"nmi": float(normalized_mutual_info_score(test_labels.cpu().numpy(), clusters))}, {}


def few_labels(
    train: Rows, labels: Labels, test: Tensor, test_labels: Tensor, classes: int
) -> Scores:
    """Accuracy of the linear probe fitted to one label in a hundred, at least one of each class.

    All trials of a dataset use the same labels: the first ones of each class in a fixed random order. Features stay
    frozen (Chen et al. 2020, table 7, train the whole network on such a share).
    """
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0)).to(
        labels.device
    )
    by_class = [order[labels[order] == label] for label in range(classes)]
    # -(-n // 100) is n / 100 rounded up.
    rows = torch.cat([of_class[: -(-len(of_class) // 100)] for of_class in by_class])
    return _accuracies(
        {"few_labels": linear_probe(train[rows], labels[rows], test, classes)}, test_labels
    )


EXTRA: Mapping[str, Callable[[Tensor, Tensor, Tensor, Tensor, int], Scores]] = MappingProxyType(
    {"weighted_knn": weighted_knn, "sgd_probe": sgd_probe, "nmi": nmi, "few_labels": few_labels}
)
"""name -> (train, labels, test, test labels, classes) -> (metrics, values per test item)."""


def _accuracies(predicted: Mapping[str, Tensor], labels: Tensor) -> Scores:
    """Return each name's accuracy, and for each test item 1 where its predicted label is right, else 0."""
    is_right = {name: of_name == labels for name, of_name in predicted.items()}
    metrics = {name: float(hits.double().mean()) for name, hits in is_right.items()}
    return metrics, {name: hits.cpu().numpy().astype(np.uint8) for name, hits in is_right.items()}
