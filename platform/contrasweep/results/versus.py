"""One arm against another: over everything, and in each cell of the table."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from contrasweep.errors import SpecError
from contrasweep.results.answer import Answer, pairs_between
from contrasweep.results.cells import Pair
from contrasweep.results.display_names import NONE, DisplayNames
from contrasweep.results.rendering import Renderable
from contrasweep.statistics.family import Question


@dataclass(frozen=True, repr=False)
class Versus(Renderable):
    """`a` against `b`. `overall`: over all values of the free axes; `cells`: where there are free axes, in each cell.

    Those that belong to the study's question have its verdicts and p-values, adjusted over all of its comparisons;
    the others are exploratory.
    """

    title: str
    a: str
    b: str
    metric: str
    overall: Pair
    cells: tuple[Pair, ...] = ()
    free: tuple[str, ...] = ()
    names: DisplayNames = NONE  # what every format shows in place of declared names

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Every comparison, the one over everything first."""
        return (self.overall, *self.cells)

    @property
    def answers(self) -> list[Answer]:
        """What is said of it: over everything, and cell by cell."""
        parts = [Answer((self.overall,), self._question(self.overall), self.free)]
        return [*parts, Answer(self.cells, self._question(self.cells[0]))] if self.cells else parts

    def _question(self, pair: Pair) -> Question | None:
        if pair.comparison.judgement is None:
            return None
        return "cells" if pair.context else "overall"

    def to_frame(self) -> pd.DataFrame:
        """One row a comparison, the one over everything first (its axes are None): the axes, a, b, `p_raw` and all that
        `Comparison.to_dict` has, with `p_value` adjusted where it has a verdict."""
        return pd.DataFrame(
            [
                {factor: dict(pair.context).get(factor) for factor in self.factors}
                | {"a": pair.a, "b": pair.b, "metric": pair.metric, "p_raw": pair.comparison.raw_p}
                | pair.comparison.to_dict()
                for pair in self.pairs
            ]
        )

    def to_dict(self) -> dict[str, object]:
        """`overall` and `cells` as JSON has them."""
        rows = [dict(p.context) | {"p_raw": p.comparison.raw_p} | p.comparison.to_dict() for p in self.pairs]
        return {"a": self.a, "b": self.b, "metric": self.metric, "overall": rows[0], "cells": rows[1:]}

    def __repr__(self) -> str:
        return f"Versus({self.overall.sentence}{f'; and {len(self.cells)} cells' if self.cells else ''})"

    def _repr_html_(self) -> str:
        return self._rendered("html")

    @property
    def factors(self) -> list[str]:
        """The axes by whose values `cells` are told apart."""
        return [factor for factor, _ in self.cells[0].context] if self.cells else []

    @property
    def notes(self) -> list[str]:
        """What a reader must know about the comparisons, each note once."""
        return list(dict.fromkeys(note for answer in self.answers for note in answer.notes))


def versus(
    title: str, a: str, b: str, overall: Sequence[Pair], cells: Sequence[Pair], free: Sequence[str] = ()
) -> Versus:
    """`a` against `b` as they stand among `overall` and `cells`; `SpecError` if they have no replicate in common."""
    whole = pairs_between(overall, a, b)
    if not whole:
        raise SpecError("the arms have no finished replicate in common", place="compare", value=(a, b))
    return Versus(title, a, b, whole[0].metric, whole[0], tuple(pairs_between(cells, a, b)), tuple(free))
