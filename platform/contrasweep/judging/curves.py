"""Which value of a curve counts, a curve being a table with a row a step: the last, that of a step, or a validated one.

The best value of the metric itself is a maximum over noise, and is taken only where somebody insists.
"""

from dataclasses import dataclass
from typing import Self

import pandas as pd

from contrasweep.commands.files import STEPS
from contrasweep.errors import SpecError
from contrasweep.judging.roles import better


@dataclass(frozen=True)
class At:
    """Where a curve is read: where `metric` is best, at `step`, or with neither at its end."""

    text: str = "last"
    metric: str = ""
    mode: str = "max"
    step: int | None = None

    @classmethod
    def of(cls, text: str) -> Self:
        """Return what `--at` says. `SpecError` for any other text."""
        kind, _, what = text.partition(":")
        if text == "last":
            return cls()
        if kind == "step" and what.isdecimal() and len(what) < 20:
            return cls(text, step=int(what))
        if kind == "best-of-validation" and what:
            name, _, mode = what.rpartition(":")
            return cls(text, name, mode) if name and mode in ("max", "min") else cls(text, what, better(what, "--at"))
        hint = "last, best-of-validation:METRIC, best-of-validation:METRIC:min, or step:N"
        raise SpecError("there is no such value of a curve", place="--at", value=text, hint=hint)

    def of_curve(self, curve: pd.DataFrame) -> pd.DataFrame:
        """Return the row that counts, with the value of each column that was the last by then.

        What was logged a single time, as a test after the training, is that value wherever the curve is read.
        """
        whole = curve.ffill()
        if not (self.metric or self.step is not None):
            return whole.tail(1)
        steps = next((name for name in STEPS if name in curve), "")
        column = pd.to_numeric(curve.get(self.metric or steps, pd.Series(dtype=float)), errors="coerce").dropna()
        if self.step is not None:
            found = whole.loc[column.index[column == self.step]].tail(1)
        else:
            ends = column.index[:0] if column.empty else [column.idxmax() if self.mode == "max" else column.idxmin()]
            found = whole.loc[ends]
        if found.empty:
            hint = f"its columns are {', '.join(map(str, curve.columns[:20]))}"
            raise SpecError("a curve has no such place", place="--at", value=self.text, hint=hint)
        once = curve.columns[curve.count() == 1]
        return found.assign(**{str(name): whole[name].iloc[-1] for name in once})


LAST = At()
