"""The data that a report is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from contrasweep.canonical import label
from contrasweep.reporting.search_notes import SearchNotes
from contrasweep.results.advice import Advice
from contrasweep.results.answer import Answer
from contrasweep.results.rendering import NONE, DisplayNames
from contrasweep.results.table import Table
from contrasweep.shell import command_line
from contrasweep.storage.record import COUNTING
from contrasweep.storage.records import LOG
from contrasweep.storage.study_document import StudyDocument

Variables = Mapping[str, Any]
"""What a template shows, by the names that it uses; empty: the page has no such section."""


@dataclass(frozen=True)
class TrialData:
    """The data of figures on a study's trials; only `frame` and `document` are required.

    `frame` has one row a trial: trial_id, arm, the axes, fold, seed, status, metrics, seconds, gpu_memory_gib, and
    where known error (traceback).
    """

    frame: pd.DataFrame
    document: StudyDocument  # with the metric of the report
    names: DisplayNames = (
        NONE  # what is shown in place of declared names; settings that were searched keep theirs
    )
    curves: pd.DataFrame | None = None  # trial_id, step, metrics; of a search's trials too
    search: pd.DataFrame | None = None  # as `results.search.search_frame` has it
    importance: pd.DataFrame | None = None  # as `results.search.importance` has it

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
        """Finished trials: a row each, with the labels of their axes and the metric as `value`."""
        frame = self.frame[self.frame["status"].isin(COUNTING)]
        values = (
            frame[self.metric].astype("float64")
            if self.metric in frame
            else pd.Series(dtype="float64")
        )
        named = frame.assign(
            value=values, **{axis: [label(v) for v in frame[axis]] for axis in self.axes}
        )
        return named[named["value"].notna()]

    def colour(self, arm: str) -> int:
        """The number of an arm's colour, the same in every drawing: its place among `arms`."""
        return self.arms.index(arm)


@dataclass(frozen=True, kw_only=True)
class ReportData(TrialData):
    """Everything that a report shows: the trials, the table with its verdicts, and what is said beside them."""

    table: Table
    overall: Table | None = None  # the arms over all axes; None where the table is that already
    links: Mapping[str, str] = field(default_factory=dict)  # trial id -> MLflow run
    of_sweep: pd.DataFrame | None = (
        None  # all trials of a sweep: phase, searched settings, and what `frame` has
    )
    images: list[tuple[str, str, str]] = field(
        default_factory=list
    )  # figures of trials: id, caption, PNG in base64
    search_notes: SearchNotes = field(default_factory=SearchNotes)
    advice: Advice | None = None  # what would decide what is undecided
    study_link: str = ""
    storage: str = ""  # where the study lies, for the commands that a report names
    notes: Sequence[str] = ()  # what people wrote, and the command that shows a warning
    served: str = ""  # the command that serves the pages behind `links`; empty where a server does
    code: Sequence[
        Sequence[str]
    ] = ()  # one row for each code that made trials: digest, trials, commit
    archived: int = 0  # trials that were archived

    def log_command(self, trial_id: str) -> str:
        """The command that prints what a trial printed; "" where the storage is not known."""
        return (
            command_line("logs", self.document.name, trial_id, storage=self.storage)
            if self.storage
            else ""
        )

    def log_link(self, trial_id: str) -> str:
        """The address of a trial's log as `file://...`; "" where the storage is no folder of this machine."""
        if not self.storage.startswith("/"):
            return ""
        return f"{Path(self.storage).as_uri()}/{self.document.name}/trials/{trial_id}/{LOG}"

    @cached_property
    def answers(self) -> list[Answer]:
        """The verdicts of the study, then what is exploratory beside them."""
        # Those of both tables, unless the shown one was told the study's verdicts: these then stand in their place.
        tables = [*([self.overall] if self.overall else []), self.table]
        answers = [
            Answer(t.pairs, self.document.question if t.decisive else None, t.pooled, self.names)
            for t in tables
        ]
        if self.table.given_answer is not None:
            answers = [self.table.answer, *(answer for answer in answers if not answer.decisive)]
        return sorted(answers, key=lambda answer: not answer.decisive)
