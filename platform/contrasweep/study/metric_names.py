"""What the name of a metric says: which values it can have, and which of them are better."""

import re
from typing import Any

from pydantic_core import ArgsKwargs

from contrasweep.errors import SpecError

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
SMALLER = re.compile(
    r"(^|[^a-z])(loss|error|err|rmse|mse|mae|wer|cer|fid|perplexity|ppl|nll|bpb|latency|seconds|time|memory|gib|regret|noise|"
    r"collapsed)($|[^a-z])"
)
"""What stands in the names of metrics of which smaller values are better."""


def metric_range(metric: str) -> tuple[float, float] | None:
    """Return the least and the largest value that a metric of this name can have; None where they are not known.

    Only the beginning of the name counts: `knn5` has the range of `knn`.
    """
    return (0.0, 1.0) if metric.startswith(UNIT_RANGE) else None


def smaller_is_better(metric: str) -> bool:
    """Return whether smaller values of a metric are better, by its name; that of a score may be DATASET/METRIC."""
    return SMALLER.search(metric.rpartition("/")[2].lower()) is not None


def check_mode(declared: Any) -> Any:
    """Return `declared`, the fields of a declaration as pydantic gives them to a validator that comes before its own.

    Raises:
        SpecError: They lack `mode`, and the metric is better if smaller, by its name: the worst arm would win.
    """
    fields = declared.kwargs or {} if isinstance(declared, ArgsKwargs) else declared
    metric = str(fields.get("metric", ""))
    if "mode" not in fields and smaller_is_better(metric):
        raise SpecError(
            "by its name, smaller values of the metric are better; without a mode larger ones are",
            place="mode",
            value=metric,
            hint="mode: min, or mode: max",
        )
    return declared
