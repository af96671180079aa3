"""`Row`: the numbers of a trial at one step, as processes, files and trackers exchange them."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

Row = dict[str, float]
"""Name -> number: what a trial reports, or what it uses of its machine (a measurement).

`step` counts up from 1 in a report, and is in seconds in a measurement; `time` is in seconds since 1970.
"""


Mode = Literal["max", "min"]
"""Which values of a metric are better: the larger ones (`max`) or the smaller ones (`min`)."""

FrameRow = dict[str, Any]
"""A row of a frame of trials, column -> value; its columns are the study's axes and metrics and those of ours."""

ItemColumns = Mapping[str, Any]
"""Name -> one value per test item, as a list or an array; `group` names what the items are from."""


def step_of(row: Mapping[str, float]) -> int:
    """Return the step of a report's row."""
    return int(row["step"])


def metrics_of(row: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of a report: the row without its step and time."""
    return {name: value for name, value in row.items() if name not in ("step", "time")}


def row_beside(labels: FrameRow, columns: FrameRow) -> FrameRow:
    """Return one row with the labels of axes first (`labels`: axis -> label) and then `columns` (name -> value).

    An axis with the name of one of the columns is called `axis.NAME`.
    """
    return {
        f"axis.{name}" if name in columns else name: label for name, label in labels.items()
    } | columns


def row_tuples(frame: Any, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the values of columns of a frame, row by row: empty tuples where `names` is empty.

    Before pandas 3.1, `itertuples` gives no rows of a frame without columns.
    """
    return list(zip(*(frame[name] for name in names), strict=True)) if names else [()] * len(frame)
