"""What stands where in a table: its rows, its columns, what is compared and what is averaged."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from contrasweep.errors import SpecError, choose_from
from contrasweep.results.cells import Key
from contrasweep.storage.record import Status

OWN_COLUMNS = ("trial_id", "fold", "seed", "status", "seconds", "gpu_memory_gib")


@dataclass(frozen=True)
class Layout:
    """The factors (the arm and axes) in the rows and in the columns of a table, of the study's `axes`."""

    rows: Key
    columns: Key
    axes: Key

    @property
    def factors(self) -> Key:
        """The arm and every axis."""
        return ("arm", *self.axes)

    @property
    def shown(self) -> Key:
        """The factors in rows or columns."""
        return (*self.rows, *self.columns)

    @property
    def compared(self) -> Key:
        """The factor whose values are set against each other: the arm, or what stands in the columns without it."""
        return ("arm",) if "arm" in self.shown else (self.columns or self.rows)

    @property
    def pooled(self) -> Key:
        """The factors that stand nowhere: a replicate's value is its mean over them."""
        return tuple(f for f in self.factors if f not in self.shown)

    @property
    def context(self) -> Key:
        """The factors that are fixed in a comparison."""
        return tuple(f for f in self.shown if f not in self.compared)

    def answers(self, question: str | None) -> bool:
        """Whether this table's comparisons are the family of a study with this question."""
        if question is None or self.compared != ("arm",):
            return False
        return not self.context if question == "overall" else not self.pooled

    def check(self, metric: str, frame: pd.DataFrame) -> None:
        """`SpecError` for unknown or repeated factors, and for a metric that no finished trial has."""
        for name in self.shown:
            if name not in self.factors:
                raise SpecError(
                    "rows and columns are the arm or axes",
                    place="rows, columns",
                    value=name,
                    hint=choose_from("names", list(self.factors), name),
                )
            if self.shown.count(name) > 1:
                raise SpecError("a name stands in the rows or in the columns, once", place="rows, columns", value=name)
        if metric not in frame.columns and (frame["status"] == Status.DONE).any():
            known = [str(c) for c in frame.columns if c not in {*OWN_COLUMNS, *self.factors}]
            raise SpecError(
                "no trial reported this metric",
                place="metric",
                value=metric,
                hint=choose_from("metrics", known, metric),
            )


def names_of(value: str | Sequence[str] | None) -> Key:
    """One name, several or none as a tuple."""
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)
