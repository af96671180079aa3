"""Names that a study, an axis, a metric or an arm may not have, because something else is called so beside it."""

import re
from collections.abc import Iterable

from contrasweep.errors import SpecError

STUDIES = (
    "archive",
    "archive",
    "calibration",
    "datasets",
    "code",
    "compact",
    "lease",
    "looks",
    "records",
    "search",
    "trials",
)
"""Folders of a storage."""
COLUMNS = ("trial_id", "arm", "fold", "seed", "status", "step", "time", "etag", "value", "weight", "side", "cell")
"""What a table of trials has beside axes and metrics."""
MEASURED = ("seconds", "gpu_memory_gib")
"""What the platform measures of each trial."""
_TRIAL_ID = re.compile(r"[0-9a-f]{16}")


def check_study_name(name: str) -> None:
    """`SpecError` for the name of a folder that all studies of a storage share."""
    if name.lower() in STUDIES:
        raise SpecError(
            "no study has this name, which is a folder of the storage", place="name", value=name, hint="choose another"
        )


def check_arms(names: Iterable[str]) -> None:
    """`SpecError` for an arm that reads like the id of a trial, as which `--rerun` would take it."""
    for name in names:
        if _TRIAL_ID.fullmatch(name):
            raise SpecError("an arm's name may not look like a trial's id", place=f"arms.{name}", hint="choose another")


def check_axis(axis: str, metrics: Iterable[str], place: str) -> None:
    """`SpecError` for an axis that would take the column of something else."""
    if axis in (*COLUMNS, *MEASURED) or axis.startswith("metric."):
        hint = "seeds: [0, 1, 2] and folds: 5 are fields of the study" if axis in ("seed", "fold") else ""
        raise SpecError("no axis has this name, which is a column of every table", place=place, value=axis, hint=hint)
    if axis in metrics:
        raise SpecError("an axis and the metric have one name", place=place, value=axis, hint="rename the metric")
    if not axis.isprintable() or len(axis) > 200 or not axis:
        raise SpecError("an axis is a setting's name", place=place[:100], value=axis)


def check_metric(metric: str, place: str = "metric", taken: tuple[str, ...] = (*COLUMNS, *MEASURED)) -> None:
    """`SpecError` for a metric that would take the column of something else."""
    if metric in taken:
        raise SpecError(
            "no metric has this name, which is a column of every table",
            place=place,
            value=metric,
            hint="choose another",
        )
    if not metric or not metric.isprintable() or len(metric) > 200:
        raise SpecError("a metric is a line of at most 200 printable characters", place=place, value=metric)
