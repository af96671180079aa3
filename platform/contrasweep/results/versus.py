"""One arm against another: over everything, and in each cell of the table."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from contrasweep.errors import SpecError
from contrasweep.results.cells import Pair
from contrasweep.results.rendering import Renderable
from contrasweep.results.table import Table


@dataclass(frozen=True)
class Versus(Renderable):
    """`a` against `b`. `overall`: over all values of the free axes, its p adjusted over the pairs of arms; `cells`:
    where the study has axes, each cell's comparison with its p adjusted over the table's whole family."""

    title: str
    a: str
    b: str
    metric: str
    overall: Pair
    cells: tuple[Pair, ...] = ()

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Every comparison, the one over everything first."""
        return (self.overall, *self.cells)

    def to_frame(self) -> pd.DataFrame:
        """One row a comparison, the one over everything first (its axes are None): the axes, a, b, `p_raw` and all that
        `Comparison.to_dict` tells, with `p_value` adjusted."""
        return pd.DataFrame(
            [
                {factor: dict(pair.context).get(factor) for factor in self.factors}
                | {"a": pair.a, "b": pair.b, "metric": pair.metric, "p_raw": pair.raw_p}
                | pair.comparison.to_dict()
                for pair in self.pairs
            ]
        )

    def to_dict(self) -> dict[str, object]:
        """`overall` and `cells` as JSON has them."""
        rows = [dict(pair.context) | {"p_raw": pair.raw_p} | pair.comparison.to_dict() for pair in self.pairs]
        return {"a": self.a, "b": self.b, "metric": self.metric, "overall": rows[0], "cells": rows[1:]}

    @property
    def factors(self) -> list[str]:
        """The axes by whose values `cells` are told apart."""
        return [factor for factor, _ in self.cells[0].context] if self.cells else []

    @property
    def notes(self) -> list[str]:
        """What a reader must know about the comparisons, each note once."""
        return list(dict.fromkeys(note for pair in self.pairs for note in pair.comparison.notes))


def versus(title: str, a: str, b: str, overall: Table, cells: Table | None) -> Versus:
    """`a` against `b` as the two tables compare them; `SpecError` if they have no replicate in common."""
    whole = _of(overall.pairs, a, b)
    if not whole:
        raise SpecError("the arms have no finished replicate in common", place="compare", value=(a, b))
    return Versus(title, a, b, overall.metric, whole[0], tuple(_of(cells.pairs, a, b)) if cells else ())


def _of(pairs: Sequence[Pair], a: str, b: str) -> list[Pair]:
    """Those of the two arms, seen from `a`."""
    return [
        p if p.a == a else replace(p, a=p.b, b=p.a, comparison=p.comparison.reversed())
        for p in pairs
        if {p.a, p.b} == {a, b}
    ]
