"""What a report is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import pandas as pd

from contrasweep.report.search_notes import SearchNotes
from contrasweep.results.building import build_table
from contrasweep.results.cells import label
from contrasweep.results.table import Table
from contrasweep.storage.record import Status
from contrasweep.storage.study_document import StudyDocument


@dataclass(frozen=True)
class ReportData:
    """Everything that a report shows; only `frame` and `document` are needed.

    `frame` has one row a trial: trial_id, arm, the axes, fold, seed, status, metrics, seconds, gpu_memory_gib, and
    where known error (traceback), host, started, ended (unix time), gpu_utilisation (0 to 1), host_memory_gib.
    """

    frame: pd.DataFrame
    document: StudyDocument  # with the metric of the report
    curves: pd.DataFrame | None = None  # trial_id, step, metrics
    search: pd.DataFrame | None = None  # as `results.searched.search_frame` has it
    importance: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by arm, the share of each setting
    links: Mapping[str, str] = field(default_factory=dict)  # trial id -> MLflow run
    images: list[tuple[str, bytes]] = field(default_factory=list)  # figures of single trials: caption, PNG
    by_item: list[dict[str, Any]] = field(default_factory=list)  # comparisons over test items of single trials
    over_groups: list[Table] = field(default_factory=list)  # tables over the test items of all folds
    spent: pd.DataFrame | None = None  # one row a trial that ended, of a search too, with its arm, phase and costs
    search_notes: SearchNotes = field(default_factory=SearchNotes)
    study_link: str = ""
    served: str = ""  # the command that serves the pages behind `links`; empty where a server does
    given: Table | None = None  # the table, where it is computed already
    code: Sequence[Sequence[str]] = ()  # one row for each code that made trials: digest, trials, commit
    superseded: int = 0  # trials that were put aside

    @property
    def metric(self) -> str:
        """The metric of the report's table."""
        return self.document.metric

    @property
    def mode(self) -> Literal["max", "min"]:
        """Whether larger or smaller values of the metric are better."""
        return self.document.mode

    @property
    def axes(self) -> list[str]:
        """The study's axes."""
        return list(self.document.axes)

    @cached_property
    def arms(self) -> list[str]:
        """Every arm of the study, of its trials and of its search, in this order."""
        searched = [] if self.search is None else list(self.search["arm"])
        return list(dict.fromkeys(map(str, [*self.document.arms, *self.frame["arm"], *searched])))

    @cached_property
    def done(self) -> pd.DataFrame:
        """Finished trials with labels for axes, and `value`."""
        frame = self.frame[self.frame["status"] == Status.DONE]
        values = frame[self.metric].astype("float64") if self.metric in frame else pd.Series(dtype="float64")
        named = frame.assign(value=values, **{axis: [label(v) for v in frame[axis]] for axis in self.axes})
        return named[named["value"].notna()]

    @cached_property
    def table(self) -> Table:
        """The table that was `given`, else the study's own: the axes down, the arms across."""
        return self.given or self._table(self.axes or ["arm"], ["arm"] if self.axes else [])

    @cached_property
    def overall(self) -> Table | None:
        """The arms over all axes at once; None where the table is that already."""
        return self._table(["arm"], []) if self.axes else None

    def _table(self, rows: Sequence[str], columns: Sequence[str]) -> Table:
        return build_table(
            self.frame,
            rows=rows,
            columns=columns,
            metric=self.metric,
            mode=self.mode,
            alpha=self.document.alpha,
            train_fraction=self.document.train_fraction,
            reference=self.document.reference,
            links=self.links,
            axes=self.axes,
        )

    def colour(self, arm: str) -> int:
        """The number of an arm's colour, the same in every drawing."""
        return self.arms.index(arm)
