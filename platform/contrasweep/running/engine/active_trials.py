"""The trials that were handed out and have no record yet: what is known of each, and how it ends."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from contrasweep.planning.budget import Budget
from contrasweep.rows import Row, step_of
from contrasweep.running.engine.deferred import DeferredTrials
from contrasweep.running.engine.listener import RunListener
from contrasweep.running.engine.overdue import Overdue
from contrasweep.running.engine.placement import Placements
from contrasweep.running.failures import lacks_metric, unreported_metric
from contrasweep.running.study_code import StudyCode
from contrasweep.running.versions import versions
from contrasweep.storage.attempts import read_owner
from contrasweep.storage.checkpoints import Checkpoints, Extra
from contrasweep.storage.record import Cause, CodeRef, Record, Status, TrialNotes
from contrasweep.storage.records import StudyRecords
from contrasweep.trial import Trial
from contrasweep.tuning.source import Finished, Next, Source

MAX_HOSTS_LOST = 20


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
        overdue: Overdue | None = None,
        deferred: DeferredTrials | None = None,
        refused: Mapping[str, Record] | None = None,
        touched: set[str] | None = None,
        unreported: str = "",
    ) -> None:
        """`deferred` keeps what fits no host yet; without it, such a trial ends at once. `refused` are the records of
        trials that fitted no host in an earlier run. `touched` are the trials of which something is in the storage;
        None: that is not known. `unreported` is the study's metric, where no trial has reported it yet."""
        self.source, self.records, self.placements, self.code = source, records, placements, code
        self.listener, self.budget, self.overdue = listener, budget, overdue or Overdue()
        self.deferred, self.refused = deferred, dict(refused or {})
        self.given_up: dict[str, Next] = {}  # by trial id, those that ended `infeasible` in this run
        self._left: set[str] = set()  # arms of which something given up stays so in this run
        self.hosts = placements.inventory  # on which what was given up was last tried
        self.running: dict[str, tuple[Trial, TrialNotes]] = {}  # by trial id, with the notes of its source
        self.returned: list[tuple[Trial, TrialNotes]] = []  # of these, what is handed out again
        self.stopped: set[str] = set()  # ids of trials that the source stopped early
        self.ended = 0
        self.fault = ""  # why nothing more may run
        self._touched, self._unreported = touched, unreported
        self._told: dict[str, Record] = {}  # by trial id, records that came with a worker's last result
        self._seconds: dict[str, float] = {}  # trial id -> training time so far, as its worker last reported
        self._furthest: dict[str, int] = {}  # trial id -> last step that was reported
        self.repeated: set[str] = set()  # trials of which a loss was reported again while they waited to go on
        self._hosts_lost = Counter[str]()  # trial id -> hosts that it lost since it last got further

    def __reduce__(self) -> tuple[Any, ...]:
        """Tune pickles what it was configured with, for a restore that we never do; open files cannot be."""
        return object, ()

    def stop(self, reason: str) -> None:
        """Nothing more may run; the first reason stands."""
        self.fault = self.fault or reason

    def closing(self) -> bool:
        """Whether nothing more is started: one of the study's budgets is used up, or a worker has other code."""
        return bool(self.fault or self.budget.used_up())

    def next(self) -> Next | Finished | None:
        """The next trial that fits some host; those that fit none wait while there may be a larger one, end
        `infeasible` after that, and are taken up again when a larger one has come."""
        adaptive = self.source.adaptive
        if self.placements.lanes.take_changed():
            self.source.arrange(self.placements.lanes.arranged)
        if self.deferred is not None:
            if (candidate := self.deferred.take()) is not None:
                return self._taken_up(candidate)
            while adaptive and (refused := self.deferred.refuse()) is not None:
                self._refuse(refused)  # what it suggests next should know that; a list has time to the end
        if (candidate := self._reconsidered()) is not None:
            return candidate
        while True:
            following = self.source.next(self.deferred.held() if adaptive and self.deferred else ())
            if isinstance(following, Next):
                if following.stopped:
                    self._end_stopped(following)
                elif not self.placements.fits(following.trial):
                    if self.deferred is None or not self.deferred.put(following):
                        self._refuse(following)
                elif self._refused_here(following.trial.id):
                    self._end_as_recorded(following)
                else:
                    return self._taken_up(following)
                continue
            if not self.deferred:
                return following
            if self.running or (refused := self.deferred.refuse()) is None:
                return None
            self._refuse(refused)

    def _taken_up(self, candidate: Next) -> Next:
        """A trial that an earlier run refused has no record from now on."""
        if self.refused.pop(candidate.trial.id, None) is not None:
            self.records.reopen(candidate.trial.id)
        return candidate

    def _reconsidered(self) -> Next | None:
        """One that was given up in this run and fits a host that has joined since."""
        if self.hosts == self.placements.inventory:
            return None
        for trial_id, candidate in list(self.given_up.items()):
            if self._refused_here(trial_id) or not self.placements.fits(candidate.trial):
                continue
            del self.given_up[trial_id]
            if self.source.take_up(trial_id):
                self.placements.infeasible.discard(trial_id)
                return self._taken_up(candidate)
            if (arm := candidate.trial.arm) not in self._left:
                self._left.add(arm)
                self.listener.on_message(f"arm {arm}: what fitted no host fits one by now, {_too_late(candidate)}")
        self.hosts = self.placements.inventory
        return None

    def _refused_here(self, trial_id: str) -> bool:
        """Whether the very hosts that there are refused a trial before: it ran out of memory on the largest."""
        record = self.refused.get(trial_id)
        return record is not None and record.notes.refused_by == str(self.placements.inventory)

    def _end_as_recorded(self, candidate: Next) -> None:
        self.running[candidate.trial.id] = (candidate.trial, candidate.notes)
        self.given_up[candidate.trial.id] = candidate
        self.end(self.refused[candidate.trial.id])

    def _refuse(self, candidate: Next) -> None:
        trial = candidate.trial
        self.running[trial.id] = (trial, candidate.notes)
        if self._refused_here(trial.id):
            self._end_as_recorded(candidate)
            return
        if self.refused.pop(trial.id, None) is not None:
            self.records.reopen(trial.id)
        self.give_up(trial.id, f"{self.placements.why_not(trial)}\n", Status.INFEASIBLE)

    def _end_stopped(self, candidate: Next) -> None:
        """Write the record of a trial that an earlier driver did not live to stop: as it would have, with what the
        trial's checkpoint knows of the time before."""
        trial = candidate.trial
        if self.placements.fits(trial):
            self.begin(trial, candidate.notes)
        else:
            self.running[trial.id] = (trial, candidate.notes)
        saved = Checkpoints(self.records.store, self.records.key(trial.id, "checkpoint")).latest()
        self.give_up(trial.id, "", Status.PRUNED, saved.extra if saved else None)

    def begin(self, trial: Trial, notes: TrialNotes) -> TrialNotes:
        """Hand out `trial`; the notes for its record, with those of its placement."""
        self.placements.place(trial)
        self.running[trial.id] = (trial, notes)
        self.stopped.discard(trial.id)  # a search may let a stopped trial go on
        return self.notes(trial.id)

    def notes(self, trial_id: str) -> TrialNotes:
        """What the record of a running trial says of its source, and of the place that it has by now."""
        trial, notes = self.running[trial_id]
        return notes.joined(self.placements.notes(trial)) if trial_id in self.placements.placed else notes

    def fresh(self, trial_id: str) -> bool:
        """Whether it is known that nothing of a trial is in the storage."""
        return self._touched is not None and trial_id not in self._touched

    def start(self, trial_id: str) -> None:
        """A worker begins a trial, or goes on with it."""
        if self._touched is not None:
            self._touched.add(trial_id)
        if (entry := self.running.get(trial_id)) is not None:
            self.overdue.started(trial_id, entry[0].arm, self._seconds.get(trial_id, 0.0), time.monotonic())
            self.listener.on_start(entry[0])

    def report(self, trial_id: str, reports: list[Row], seconds: float) -> bool:
        """Take what a worker reports, after so many `seconds` of training in all; whether the trial got further than
        it ever was."""
        self._seconds[trial_id] = seconds
        if any(self._unreported in row for row in reports):
            self._unreported = ""
        self.overdue.reported(trial_id, len(reports), seconds, time.monotonic())
        self.budget.trained(trial_id, seconds)
        further = bool(reports) and reports[-1]["step"] > self._furthest.get(trial_id, 0)
        if further:
            self._furthest[trial_id] = step_of(reports[-1])
            del self._hosts_lost[trial_id]
        return further

    def lose_host(self, trial_id: str) -> bool:
        """The host on which a trial ran is lost: whether the trial may lose another one. Not after `MAX_HOSTS_LOST`
        without getting further, for then it may be what ends them."""
        self._hosts_lost[trial_id] += 1
        return self._hosts_lost[trial_id] < MAX_HOSTS_LOST

    def hand_out_again(self, trial_id: str) -> bool:
        """Whether a trial that Tune gave up is handed out again: as often as it may lose its host."""
        if trial_id not in self.running or not self.lose_host(trial_id):
            return False
        self.returned.append(self.running[trial_id])
        return True

    def peers(self, reports: Mapping[str, Row]) -> None:
        """Reports, by trial, of trials that train in step: known before any of them is decided on."""
        for trial_id, row in reports.items():
            if trial_id in self.running and trial_id not in self.stopped:
                self.source.peer_reported(trial_id, row)

    def should_continue(self, trial_id: str, reports: list[Row]) -> bool:
        """Whether a trial goes on after these reports: the source may stop it early, a used-up budget stops all."""
        if not all(self.source.keep_going(trial_id, [row]) for row in reports):
            self.stopped.add(trial_id)
        return trial_id not in self.stopped and not self.closing()

    def take_record(self, trial_id: str, data: bytes) -> None:
        """A worker has written this record."""
        self._told[trial_id] = self.records.parsed(trial_id, data)

    def recorded(self, trial_id: str) -> Record | None:
        """The record of a trial, from its worker or from the storage; None if it has none."""
        return self._told.pop(trial_id, None) or self.records.read_one(trial_id)

    def end(self, record: Record) -> None:
        """The trial has its record: the source and the listener are given it. Where it ended without the study's
        metric, and no trial has reported that yet, nothing more may run."""
        self.overdue.ended(record.trial_id)
        if self.running.pop(record.trial_id, None) is not None:
            self.ended += 1
            self.source.done(record)
            self.listener.on_end(record)
            if self._unreported in record.metrics:  # its last reports come with the record
                self._unreported = ""
            if self._unreported and lacks_metric(record):
                if any(self._unreported in row for row in self.records.metrics(record.trial_id)):
                    self._unreported = ""
                else:
                    self.stop(unreported_metric(self._unreported, record))

    def end_recorded(self) -> None:
        """End the trials whose records were written while nobody listened."""
        for trial_id in list(self.running):
            if (record := self.recorded(trial_id)) is not None:
                self.end(record)

    def give_up(
        self,
        trial_id: str,
        error: str,
        status: Status = Status.FAILED,
        earlier: Extra | None = None,
        *,
        cause: Cause | None = None,
    ) -> None:
        """Write the record of a trial whose worker could not: its metrics are in the storage already. One that the
        worker wrote before it was lost stands. `earlier` is what the checkpoint says of a trial that ran under an
        earlier driver alone. `cause` is that of a failed trial; None: the method."""
        if (recorded := self.recorded(trial_id)) is not None:
            self.end(recorded)
            return
        (trial, _), notes = self.running[trial_id], self.notes(trial_id)
        if status.infeasible:
            notes = notes.joined(TrialNotes(refused_by=str(self.placements.inventory)))
        rows = self.records.metrics(trial_id)
        now = time.time()
        code, seconds = self.code.of(trial), rows[-1]["time"] - rows[0]["time"] if rows else 0.0
        if earlier is not None:
            placed = TrialNotes(gpus=earlier.gpus, cost_per_hour=earlier.cost_per_hour, shared_by=earlier.shared_by)
            notes, seconds = notes.joined(placed), max(seconds, earlier.seconds)
            same = earlier.code in (None, code.digest)
            code = replace(code if same else CodeRef(earlier.code or ""), earlier=earlier.earlier_code)
        owner = read_owner(self.records, trial_id)
        record = Record.of(
            trial,
            status=status,
            rows=rows,
            seconds=self._seconds.get(trial_id, seconds),
            started=rows[0]["time"] if rows else now,
            ended=now,
            attempts=owner.attempts if owner else 0,
            error=error or None,
            cause=cause or (Cause.METHOD if status.failed else None),
            host=owner.host if owner else "",
            notes=notes,
            versions=versions(),
            code=code,
        )
        self.records.write(record)
        if status.infeasible:
            self.refused[trial_id], self.given_up[trial_id] = record, Next(trial, self.running[trial_id][1])
        self.end(record)


def _too_late(candidate: Next) -> str:
    """After what it was, and what can be done."""
    if candidate.notes.generation is None:
        return "after its search; the same command takes it up"
    return (
        "after its generation was compared without it; the same command takes it up if no later generation was "
        f"trained, for these stand on that comparison (--rerun {candidate.trial.arm} trains the whole search again)"
    )
