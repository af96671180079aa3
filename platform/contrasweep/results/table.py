"""The table of a study: means with intervals, the best marked, what is missing shown as missing, verdicts below."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import pandas as pd

from contrasweep.results.answer import Answer
from contrasweep.results.cells import Cell, Key, Pair
from contrasweep.results.display_names import NONE, DisplayNames
from contrasweep.results.legend import legend, replicates_of
from contrasweep.results.rendering import Renderable
from contrasweep.statistics.design import Design
from contrasweep.storage.record import Status

COUNTED = (Status.DONE, Status.PENDING, Status.FAILED, Status.INFEASIBLE, Status.PRUNED, Status.BROKEN)


@dataclass(frozen=True)
class Table(Renderable):
    """Cells by (row, column), in the order of the study, with every comparison that the table makes.

    `compared` names the factor whose values are set against each other: the arms, or what stands in the
    columns where no arm is in the table. `pooled` are the axes that stand in neither rows nor columns:
    a replicate's value is its mean over them. With `spread` a cell tells (min-max) too, as papers' tables do.
    `unit` says what its replicates are where their design does not say it, `notes` what else a reader must know.

    `decisive` says whether its own `pairs` are the family that the study decides; `given_answer` is that family where
    the table shows other comparisons, `averages` the cells of its last row then: each column over all rows.
    """

    metric: str
    mode: Literal["max", "min"]
    alpha: float
    design: Design
    row_factors: tuple[str, ...]
    column_factors: tuple[str, ...]
    rows: tuple[Key, ...]
    columns: tuple[Key, ...]
    cells: Mapping[tuple[Key, Key], Cell]
    pairs: tuple[Pair, ...]
    compared: tuple[str, ...]
    pooled: tuple[str, ...]
    reference: str | None
    title: str = ""
    spread: bool = False
    unit: str = ""
    notes: tuple[str, ...] = ()
    decisive: bool = False
    given_answer: Answer | None = None
    averages: Mapping[Key, Cell] = field(default_factory=dict)
    names: DisplayNames = NONE  # what every format shows in place of declared names

    @cached_property
    def decimals(self) -> int:
        """Decimals that show two digits of the typical half-width."""
        halves = [(c.high - c.low) / 2 for c in self.cells.values() if c.low is not None and c.high is not None]
        halves = [h for h in halves if math.isfinite(h) and h > 0]
        return int(np.clip(1 - math.floor(math.log10(np.median(halves))), 0, 6)) if halves else 3

    @property
    def heading(self) -> str:
        """Title, metric and which of its values are better."""
        better = "larger is better" if self.mode == "max" else "smaller is better"
        return (f"{self.title}: " if self.title else "") + f"{self.metric} ({better})"

    @property
    def column_titles(self) -> list[str]:
        """What stands over the columns of cells: their labels, or the metric where no factor is in the columns."""
        return [" ".join(column) for column in self.columns] if self.column_factors else [self.metric]

    @cached_property
    def legend(self) -> list[str]:
        """What the marks and brackets mean, and what the table leaves out, as sentences."""
        shown = [*self.cells.values(), *self.averages.values()]
        lines = legend(
            shown,
            alpha=self.alpha,
            spread=self.spread,
            replicates=self._replicates,
            compared=self.compared,
            pooled=self.pooled,
            reference=self.reference,
            verdicts=bool(self.pairs) and (self.decisive or bool(self.averages)),
        )
        if self.given_answer is not None and not self.decisive and self.pairs:
            lines.append("single cells are exploratory: the study's question is overall")
        return [*lines, *self.notes]

    @property
    def _replicates(self) -> str:
        """What the means are over; by what is compared where all of its cells have the same, else cell by cell."""
        if self.unit:
            return self.unit
        by_place: dict[str, dict[str, None]] = {}
        by_compared: dict[str, dict[str, None]] = {}
        for place, cell in self.cells.items():
            if cell.over:
                labels = dict(zip((*self.row_factors, *self.column_factors), (*place[0], *place[1]), strict=True))
                by_place.setdefault(cell.over, {})[" ".join(labels.values())] = None
                by_compared.setdefault(cell.over, {})[" ".join(labels[name] for name in self.compared)] = None
        if not by_place:
            return "folds, seeds of a fold averaged" if self.design.folds else "seeds"
        compared = [label for labels in by_compared.values() for label in labels]
        chosen = by_compared if len(set(compared)) == len(compared) else by_place
        return replicates_of({kind: list(labels) for kind, labels in chosen.items()})

    @cached_property
    def answer(self) -> Answer:
        """What is said below the table: the verdicts of the study, or the numbers of its own comparisons."""
        if self.given_answer is not None:
            return self.given_answer
        context = bool(self.pairs) and bool(self.pairs[0].context)
        return Answer(self.pairs, ("cells" if context else "overall") if self.decisive else None, self.pooled)

    @property
    def verdicts(self) -> list[str]:
        """What `answer` says, line by line: its heading, a sentence for each comparison, and notes."""
        answer = self.answer
        if not answer.pairs:
            return []
        return [f"{answer.heading}:", *answer.sentences(), *(f"Note: {note}." for note in answer.notes)]

    def bottom(self) -> list[Cell | None]:
        """The last row, of averages over all rows; empty where there is none."""
        return [self.averages.get(column) for column in self.columns] if self.averages else []

    def row_labels(self) -> list[list[str]]:
        """The labels of each row, empty where a label only says what the row above says; never the last one."""
        shown = []
        for row, above in zip(self.rows, [(), *self.rows], strict=False):
            same = [bool(above) and row[: i + 1] == above[: i + 1] for i in range(len(row) - 1)]
            shown.append(["" if hidden else name for name, hidden in zip(row, [*same, False], strict=False)])
        return shown

    def cell_text(self, cell: Cell | None) -> str:
        """What stands in a cell, without its marks."""
        return "not planned" if cell is None else cell.to_text(self.decimals, self.spread)

    def to_html(self) -> str:
        """A fragment with its own style; each cell opens on its replicates and their runs."""
        return self._rendered("html")

    def to_frame(self) -> pd.DataFrame:
        """One row a cell, plain columns: the factors, metric, mean, low, high, min, max, n (finished, of
        which the mean is), planned, counts, best, mark, and how many of its trials ran other code than the newest."""
        rows = []
        for row in self.rows:
            for column in self.columns:
                cell = self.cells.get((row, column))
                if cell is None:
                    continue
                factors = dict(zip((*self.row_factors, *self.column_factors), (*row, *column), strict=True))
                counts = {status.value: cell.statuses.get(status, 0) for status in COUNTED}
                rows.append(
                    factors
                    | {
                        "metric": self.metric,
                        "mean": cell.mean,
                        "low": cell.low,
                        "high": cell.high,
                        "min": cell.least,
                        "max": cell.most,
                        "n": cell.n,
                    }
                    | {"planned": cell.planned, **counts, "interval": cell.method, "best": cell.best, "mark": cell.mark}
                    | {"other_code": cell.other_code}
                    | {"trial_ids": " ".join(r.trial_id for r in cell.replicates)}
                )
        frame = pd.DataFrame(rows)
        return frame.astype({name: "float64" for name in ("mean", "low", "high", "min", "max") if name in frame})

    def comparisons(self) -> pd.DataFrame:
        """One row a comparison: context, a, b, and all that `Comparison.to_dict` has; `raw_p` is the unadjusted p."""
        return pd.DataFrame(
            [
                dict(pair.context)
                | {"a": pair.a, "b": pair.b, "raw_p": pair.comparison.raw_p}
                | pair.comparison.to_dict()
                for pair in self.pairs
            ]
        )

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return self.to_html()
