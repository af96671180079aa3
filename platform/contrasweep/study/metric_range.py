"""Which values a metric can have, by its name."""

UNIT_RANGE = (
    "accuracy",
    "balanced_accuracy",
    "f1",
    "precision",
    "recall",
    "map",
    "ndcg",
    "auc",
    "auroc",
    "knn",
    "top",
)
"""Beginnings of the names of metrics that lie between 0 and 1, and whose intervals do too."""


def metric_range(metric: str) -> tuple[float, float] | None:
    """Return the least and the largest value that a metric of this name can have; None where they are not known.

    Only the beginning of the name counts: `knn5` has the range of `knn`.
    """
    return (0.0, 1.0) if metric.startswith(UNIT_RANGE) else None
