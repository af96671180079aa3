"""One arm against another: over everything, and in each cell of the table; as text, Markdown, LaTeX, CSV or JSON."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from contrasweep.errors import SpecError, choose_from
from contrasweep.report import latex, text
from contrasweep.report.table import Pair, Table

FORMATS = ("text", "markdown", "latex", "csv", "json")
HEAD = ("difference", "interval", "p", "p by Holm", "n", "verdict", "replicates missing")


@dataclass(frozen=True)
class Versus:
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
        return (self.overall, *self.cells)

    def to_frame(self) -> pd.DataFrame:
        """One row a comparison, the one over everything first (its axes are None): the axes, a, b, `p_raw` and all that
        `Comparison.to_dict` tells, with `p_value` adjusted."""
        return pd.DataFrame(
            [
                {factor: dict(pair.context).get(factor) for factor in self._factors}
                | {"a": pair.a, "b": pair.b, "metric": pair.metric, "p_raw": pair.raw_p}
                | pair.comparison.to_dict()
                for pair in self.pairs
            ]
        )

    def to_text(self, width: int = 100) -> str:
        lines = [f"{self.title}: {self.metric}", "", text.wrapped(self.overall.sentence, width)]
        if self.cells:
            lines += ["", *(line.rstrip() for line in text.aligned(self._rows())), ""]
        return "\n".join([*lines, *(text.wrapped(f"Note: {note}.", width) for note in self._notes)]).rstrip() + "\n"

    def to_markdown(self) -> str:
        rows = [[entry.replace("|", "\\|") for entry in row] for row in self._rows()]
        body = [text.bar(rows[0]), text.bar(["---"] * len(rows[0])), *map(text.bar, rows[1:])]
        return (
            "\n".join(
                [
                    f"**{self.title}: {self.metric}**",
                    "",
                    *body,
                    "",
                    self.overall.sentence,
                    *(f"Note: {n}." for n in self._notes),
                ]
            )
            + "\n"
        )

    def to_latex(self) -> str:
        """A table environment; needs \\usepackage{booktabs}."""
        rows = [[latex.escape(entry) for entry in row] for row in self._rows()]
        body = [" & ".join(row) + r" \\" for row in rows]
        return (
            "\n".join(
                [
                    r"% needs \usepackage{booktabs}",
                    r"\begin{table}",
                    r"\centering",
                    rf"\caption{{{latex.escape(f'{self.title}: {self.metric}, {self.a} - {self.b}')}}}",
                    rf"\begin{{tabular}}{{{'l' * len(rows[0])}}}",
                    r"\toprule",
                    body[0],
                    r"\midrule",
                    *body[1:],
                    r"\bottomrule",
                    r"\end{tabular}",
                    r"\end{table}",
                ]
            )
            + "\n"
        )

    def render(self, format: str) -> bytes:
        """The content of a file in one of `FORMATS`."""
        if format not in FORMATS:
            raise SpecError(
                "there is no such format",
                place="--format",
                value=format,
                hint=choose_from("formats", list(FORMATS), format),
            )
        made: dict[str, Callable[[], str]] = {
            "text": self.to_text,
            "markdown": self.to_markdown,
            "latex": self.to_latex,
            "csv": lambda: str(self.to_frame().to_csv(index=False)),
            "json": lambda: json.dumps(self.to_dict(), indent=1) + "\n",
        }
        return made[format]().encode()

    def to_dict(self) -> dict[str, object]:
        """`overall` and `cells` as JSON has them."""
        rows = [dict(pair.context) | {"p_raw": pair.raw_p} | pair.comparison.to_dict() for pair in self.pairs]
        return {"a": self.a, "b": self.b, "metric": self.metric, "overall": rows[0], "cells": rows[1:]}

    @property
    def _factors(self) -> list[str]:
        return [factor for factor, _ in self.cells[0].context] if self.cells else []

    @property
    def _notes(self) -> list[str]:
        return list(dict.fromkeys(note for pair in self.pairs for note in pair.comparison.notes))

    def _rows(self) -> list[list[str]]:
        rows = [[*self._factors, *HEAD]] if self.cells else [list(HEAD)]
        for pair in self.pairs:
            found = pair.comparison
            where = [dict(pair.context).get(factor, "all") for factor in self._factors]
            more = "no number" if found.more_needed is None else str(found.more_needed)
            rows.append(
                [
                    *where,
                    f"{found.difference:+.3g}",
                    f"[{found.low:+.3g}, {found.high:+.3g}]",
                    f"{pair.raw_p:.2g}",
                    f"{found.p_value:.2g}",
                    str(found.n),
                    found.verdict,
                    more,
                ]
            )
        return rows


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
