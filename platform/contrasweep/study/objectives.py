"""Several objectives and constraints: the values of a configuration and its violated constraints."""

import math
import re

from contrasweep.errors import SpecError
from contrasweep.storage.record import Record

COSTS = ("seconds", "gpu_memory_gib", "host_memory_gib")
"""What the platform measures of every trial, and what is an objective or constraint like a reported metric."""
UNIT_RANGE = ("accuracy", "balanced_accuracy", "f1", "precision", "recall", "map", "ndcg", "auc", "auroc", "knn", "top")
"""Metrics whose names begin so lie between 0 and 1, and so do their intervals."""
CONSTRAINT = re.compile(r"\s*(<=|>=)\s*(\S+)\s*")


def metric_range(metric: str) -> tuple[float, float] | None:
    """The least and the largest value that a metric of this name can have; None where they are not known."""
    return (0.0, 1.0) if metric.startswith(UNIT_RANGE) else None


def value_of(record: Record, metric: str) -> float:
    """The metric as last reported, or the cost of that name; NaN if there is neither."""
    value = record.metrics.get(metric, getattr(record, metric) if metric in COSTS else None)
    return math.nan if value is None else float(value)


def violation(metric: str, constraint: str, value: float) -> float:
    """Return by how much `value` breaks `constraint` (`<= 2.0`, `>= 0.5`); up to 0 the constraint holds."""
    try:
        sign, bound = CONSTRAINT.fullmatch(constraint).groups()  # type: ignore[union-attr]
        limit = float(bound)
    except (AttributeError, ValueError):
        raise SpecError(
            "a constraint is <= or >= and a number",
            place=f"constraints.{metric}",
            value=constraint,
            hint="for example '<= 2.0'",
        ) from None
    return value - limit if sign == "<=" else limit - value
