"""The trials that were handed out and have no record yet: what is known of each, and how it ends."""

import time
from typing import Any

from contrasweep.planning.budget import Budget
from contrasweep.running.listener import RunListener
from contrasweep.running.placement import Placements
from contrasweep.running.study_code import StudyCode
from contrasweep.running.versions import versions
from contrasweep.storage.record import Record, Status, TrialNotes
from contrasweep.storage.records import StudyRecords
from contrasweep.trial import Trial
from contrasweep.tuning.source import Finished, Next, Source


class ActiveTrials:
    """Takes trials from a `Source` and gives it their records; knows nothing of the engine that runs them."""

    def __init__(
        self,
        source: Source,
        records: StudyRecords,
        placements: Placements,
        listener: RunListener,
        budget: Budget,
        code: StudyCode,
    ) -> None:
        self.source, self.records, self.placements, self.code = source, records, placements, code
        self.listener, self.budget = listener, budget
        self.running: dict[str, tuple[Trial, TrialNotes]] = {}  # by trial id
        self.stopped: set[str] = set()  # ids of trials that the source stopped early
        self.ended = 0
        self.fault = ""  # why nothing more may run, as a worker said
        self._seconds: dict[str, float] = {}  # trial id -> training time so far, as its worker last reported
        self._furthest: dict[str, int] = {}  # trial id -> last step that was reported

    def __reduce__(self) -> tuple[Any, ...]:
        """Tune pickles what it was configured with, for a restore that we never do; open files cannot be."""
        return object, ()

    def closing(self) -> bool:
        """Whether nothing more is started: one of the study's budgets is used up, or a worker has other code."""
        return bool(self.fault or self.budget.used_up())

    def next(self) -> Next | Finished | None:
        """The source's next trial that fits some host; those that fit none end here, `infeasible`."""
        while isinstance(candidate := self.source.next(), Next) and not self.placements.fits(candidate.trial):
            trial = candidate.trial
            self.running[trial.id] = (trial, candidate.notes)
            self.give_up(trial.id, f"{self.placements.why_not(trial)}\n", Status.INFEASIBLE)
        return candidate

    def begin(self, trial: Trial, notes: TrialNotes) -> TrialNotes:
        """Hand out `trial`; the notes for its record, with those of its placement."""
        notes = notes.joined(self.placements.notes(trial))
        self.running[trial.id] = (trial, notes)
        self.stopped.discard(trial.id)  # a search may let a stopped trial go on
        return notes

    def report(self, trial_id: str, reports: list[dict[str, Any]], seconds: float) -> bool:
        """Take what a worker reports, after so many `seconds` of training in all; whether the trial got further than
        it ever was."""
        self._seconds[trial_id] = seconds
        self.budget.trained(trial_id, seconds)
        further = bool(reports) and reports[-1]["step"] > self._furthest.get(trial_id, 0)
        if further:
            self._furthest[trial_id] = reports[-1]["step"]
        return further

    def should_continue(self, trial_id: str, reports: list[dict[str, Any]]) -> bool:
        """Whether a trial goes on after these reports: the source may stop it early, a used-up budget stops all."""
        if not all(self.source.keep_going(trial_id, [row]) for row in reports):
            self.stopped.add(trial_id)
        return trial_id not in self.stopped and not self.closing()

    def end(self, record: Record) -> None:
        """The trial has its record: the source and the listener are given it."""
        if self.running.pop(record.trial_id, None) is not None:
            self.ended += 1
            self.source.done(record)
            self.listener.on_end(record)

    def end_recorded(self) -> None:
        """End the trials whose records were written while nobody listened."""
        for trial_id in list(self.running):
            if (record := self.records.read_one(trial_id)) is not None:
                self.end(record)

    def give_up(self, trial_id: str, error: str, status: Status = Status.FAILED) -> None:
        """Write the record of a trial whose worker could not: its metrics are in the storage already. One that the
        worker wrote before it was lost stands."""
        if (recorded := self.records.read_one(trial_id)) is not None:
            self.end(recorded)
            return
        trial, notes = self.running[trial_id]
        rows = self.records.metrics(trial_id)
        now = time.time()
        record = Record.of(
            trial,
            status=status,
            rows=rows,
            seconds=self._seconds.get(trial_id, rows[-1]["time"] - rows[0]["time"] if rows else 0.0),
            started=rows[0]["time"] if rows else now,
            ended=now,
            error=error or None,
            notes=notes,
            versions=versions(),
            code=self.code.of(trial),
        )
        self.records.write(record)
        self.end(record)
