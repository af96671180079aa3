"""The data that a report is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pandas as pd

from contrasweep.canonical import label
from contrasweep.reporting.search_notes import SearchNotes
from contrasweep.results.advice import Advice
from contrasweep.results.answer import Answer
from contrasweep.results.rendering import NONE, DisplayNames
from contrasweep.results.table import Table
from contrasweep.shell import command_line
from contrasweep.storage.record import COUNTING, LARGEST
from contrasweep.storage.study_document import StudyDocument

Variables = Mapping[str, Any]
"""What a template shows, by the names of its variables; empty: the page has no such section."""


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """Everything that a report shows: the trials, the table with its verdicts, and what is said beside them.

    `frame` has one row per trial: trial_id, arm, the axes, fold, seed, status, cause, metrics, seconds, gpu_memory_gib
    and error (the traceback). `trials_of_sweep` has a row for each trial of a sweep, also of its search: phase,
    searched settings, and the columns of `frame`; None for a grid. `images` are figures of trials, as (trial id,
    caption, PNG in base64). `code` has a row for each code that made trials: digest, number of trials, commit.
    """

    frame: pd.DataFrame
    document: StudyDocument  # with the metric of the report
    table: Table
    names: DisplayNames = NONE  # settings that were searched are shown by their declared names
    curves: pd.DataFrame | None = None  # trial_id, step, metrics; of a search's trials too
    overall: Table | None = None  # the arms over all axes; None where `table` is that already
    links: Mapping[str, str] = field(default_factory=dict)  # trial id -> address of its MLflow run
    trials_of_sweep: pd.DataFrame | None = None
    images: list[tuple[str, str, str]] = field(default_factory=list)
    search_notes: SearchNotes = field(default_factory=SearchNotes)
    advice: Advice | None = None  # what would decide the undecided comparisons
    study_link: str = ""  # the address of the study in MLflow
    storage: str = ""  # where the study lies, for the commands that a report names
    notes: Sequence[str] = ()  # what people wrote, and the command that shows a warning
    ui_command: str = ""  # serves the pages behind `links`; "" where a server does already
    code: Sequence[Sequence[str]] = ()
    archived: int = 0  # how many trials were archived

    @property
    def metric(self) -> str:
        """The metric of the report's table."""
        return self.document.metric

    @property
    def axes(self) -> list[str]:
        """The study's axes."""
        return list(self.document.axes)

    @property
    def all_trials(self) -> pd.DataFrame:
        """The trials of the study, a row each, in a sweep those of the search too."""
        return self.frame if self.trials_of_sweep is None else self.trials_of_sweep

    @cached_property
    def arms(self) -> list[str]:
        """Every arm of the study's declaration, and behind these arms of which only recorded trials are left."""
        return list(dict.fromkeys(map(str, [*self.document.arms, *self.all_trials["arm"]])))

    @cached_property
    def done(self) -> pd.DataFrame:
        """The finished trials that have the metric: rows of `frame`, with the metric as `value` and labels for axes."""
        frame = self.frame[self.frame["status"].isin(COUNTING)]
        values = frame.get(self.metric, pd.Series(dtype="float64")).astype("float64")
        named = frame.assign(value=values)
        for axis in self.axes:
            named[axis] = [label(value) for value in frame[axis]]
        return named[named["value"].abs() <= LARGEST]

    def colour(self, arm: str) -> int:
        """Return the number of an arm's colour, the same in every drawing: its place among `arms`."""
        return self.arms.index(arm)

    def log_command(self, trial_id: str) -> str:
        """Return the command that shows a trial's log; "" where the storage is not known."""
        if not self.storage:
            return ""
        return command_line("logs", self.document.name, trial_id, storage=self.storage)

    @cached_property
    def answers(self) -> list[Answer]:
        """The verdicts of the study, then the exploratory comparisons."""
        # Where the study decides other comparisons than those of the shown table, these take the place of the tables'
        # verdicts.
        tables = filter(None, (self.overall, self.table))
        answers = [replace(table, study_answer=None).answer for table in tables]
        if self.table.study_answer is not None:
            answers = [self.table.answer, *(answer for answer in answers if not answer.decisive)]
        return sorted(answers, key=lambda answer: not answer.decisive)
