"""The loop over the trials of a run, whatever engine runs them: which is next, what it reports, and how it ends."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from contrasweep.code import CurrentCode
from contrasweep.code.version import versions
from contrasweep.live.state import Progress, replicate_of
from contrasweep.results.notices import early_notices, notices_of
from contrasweep.rows import Row
from contrasweep.running.engine.accounts import Accounts, ActiveTrial
from contrasweep.running.engine.trial_queue import Infeasible, TrialQueue
from contrasweep.running.failures import (
    NOTHING_REPORTED,
    failure_line,
    lacks_metric,
    unreported_metric,
)
from contrasweep.storage.attempts import read_owner
from contrasweep.storage.checkpoints import Checkpoints, Extra
from contrasweep.storage.code_files import write_code
from contrasweep.storage.record import Cause, CodeRef, Record, Status, TrialNotes
from contrasweep.storage.records import StudyRecords
from contrasweep.study.arm_budget import MOST_SILENT
from contrasweep.trial import Trial
from contrasweep.tuning.source import Finished, Next


class StudyCode:
    """The code of each trial; its sources are stored when they are first needed."""

    def __init__(
        self, records: StudyRecords, current: CurrentCode, on_message: Callable[[str], object]
    ) -> None:
        """Keep where sources are stored. `on_message` receives a line where they cannot be."""
        self.records = records
        self.current = current
        self.on_message = on_message
        self._kept: set[str] = set()  # digests of codes that are stored

    def of(self, trial: Trial) -> CodeRef:
        """Return the code of `trial`, and store its sources if this was not done yet."""
        code = self.current.of(trial.trainable, trial.config)
        version = code.version
        if version.digest not in self._kept:
            if warning := write_code(self.records, code):
                self.on_message(warning)
            self._kept.add(version.digest)
        return CodeRef(version.digest, version.commit, version.dirty)


class TrialLoop:
    """Takes trials from the queue, keeps the accounts, and gives each record to all that it concerns.

    All calls come from the driver's one thread. What is called with the id of a trial that has ended does nothing.
    """

    def __init__(
        self,
        queue: TrialQueue,
        accounts: Accounts,
        records: StudyRecords,
        code: StudyCode,
        progress: Progress,
        *,
        unreported: str = "",
        has_files: set[str] | None = None,
    ) -> None:
        """Make the loop of one run.

        `unreported` is the study's metric where no trial has reported it yet, "" where one has. `has_files` are the ids
        of the trials of which something is in the storage; None: that is not known.
        """
        self.queue = queue
        self.accounts = accounts
        self.placements = queue.placements
        self.records = records
        self.code = code
        self.progress = progress
        self._unreported = unreported
        self._silent = Counter[str]()  # arm -> trials of a grid that failed before any report
        self._has_files = has_files
        self._noticed: set[tuple[str, str]] = set()  # arm and notice: each is said once
        # The arms that others are compared with: see `_compare_with_floors`.
        trainables = self.placements.footprints.trainables
        self._floors = {
            arm for arm, function in trainables.items() if getattr(function, "floor", False)
        }
        # dataset's digest and fold -> arm -> the metric of its first trial there
        self._scores: defaultdict[tuple[str, int | None], dict[str, float]] = defaultdict(dict)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a plain object: Tune pickles its configuration for a restore, which is never used here.

        The loop holds open files, which cannot be pickled.
        """
        return object, ()

    def next(self) -> ActiveTrial | Finished | None:
        """Hand out the next trial, which runs from now on; None: none now; `Finished`: none any more.

        Trials that need not run end on the way, with their records.
        """
        while not self.accounts.closing():
            match self.queue.next(running=bool(self.accounts.active)):
                case Infeasible() as infeasible:
                    self._end_infeasible(infeasible)
                case Next(stopped=True) as candidate:
                    self._end_stopped(candidate)
                case Next() as candidate:
                    self.placements.place(candidate.trial)
                    return self.accounts.begin(candidate.trial, candidate.notes)
                case nothing:  # None, or `Finished`
                    return nothing
        return Finished()

    def begin_again(self) -> None:
        """Queue every trial that has no record, because the engine starts once more."""
        for active in list(self.accounts.active.values()):
            if (record := self._recorded(active)) is not None:  # written while nobody listened
                self._end(record)
        self.queue.requeued = [
            Next(active.trial, active.notes) for active in self.accounts.active.values()
        ]
        for trial_id in self.accounts.active:
            self.accounts.overdue.ended(trial_id)  # until a worker begins it again
            self.progress.lost(trial_id)

    def placed_again(self, waiting: Iterable[str]) -> list[ActiveTrial]:
        """Place trials anew, by their ids, that were handed out and wait; return those that have another place now.

        Where hosts are started by demand, many wait, and the first were placed by what little was known then.
        """
        self.queue.look()
        if not self.placements.outdated:
            return []
        active = [
            self.accounts.active[trial_id]
            for trial_id in waiting
            if trial_id in self.accounts.active
        ]
        changed = {
            trial.id for trial in self.placements.place_again(entry.trial for entry in active)
        }
        return [entry for entry in active if entry.trial.id in changed]

    def requeue(self, trial_id: str) -> bool:
        """Queue a trial that the engine gave up, within the limit of lost hosts; return whether it was queued."""
        active = self.accounts.active.get(trial_id)
        if active is None or not self.accounts.lost_host(active):
            return False
        self.queue.requeued.append(Next(active.trial, active.notes))
        return True

    def notes(self, active: ActiveTrial) -> TrialNotes:
        """Return what the record of a running trial contains on its source and on its present place."""
        placed = active.trial.id in self.placements.placed
        return active.notes.joined(self.placements.notes(active.trial)) if placed else active.notes

    def has_no_prior_state(self, trial_id: str) -> bool:
        """Whether it is known that nothing of a trial is in the storage."""
        return self._has_files is not None and trial_id not in self._has_files

    def started(self, trial_id: str) -> None:
        """Note that a worker begins a trial, or goes on with it."""
        if self._has_files is not None:
            self._has_files.add(trial_id)
        if (active := self.accounts.active.get(trial_id)) is not None:
            # A trial without a GPU counts as one of them: its hours are those of its place.
            self.accounts.started(active, float(self.placements.place(active.trial).share) or 1.0)
            self.progress.started(active.trial)

    def reported(self, trial_id: str, reports: list[Row], seconds: float) -> bool:
        """Count what a worker reports after so many `seconds` of training; whether the trial got further than ever.

        False for a trial that has ended.
        """
        # "" is in no report: once the metric was seen, nothing is looked for.
        if any(self._unreported in row for row in reports):
            self._unreported = ""
        active = self.accounts.active.get(trial_id)
        if active:
            self._notice(
                active.trial.arm,
                replicate_of(active.trial, self.progress.axes),
                early_notices(reports),
            )
        return active is not None and self.accounts.reported(active, reports, seconds)

    def _notice(self, arm: str, trial: str, notices: Mapping[str, str]) -> None:
        """Say what a method finds of a trial, once for its arm.

        `trial` is what people read, such as `a lr=0.1 seed=1`. `notices` are sentences by a name, which tells whether
        the arm had this one already.
        """
        for name, sentence in notices.items():
            if (arm, name) not in self._noticed:
                self._noticed.add((arm, name))
                self.progress.say(f"{trial}: {sentence}")

    def _compare_with_floors(self, record: Record) -> None:
        """Say once of an arm that it scores below a floor on the same test part.

        A floor is an arm whose trainable says `train.floor = True`, such as nearest neighbours by raw pixels. A test
        part is a fold of a dataset. There the first trial of each arm counts.
        """
        study = self.placements.footprints.study
        scores = self._scores[record.data.digest, record.fold]
        sign = 1 if study.mode == "max" else -1
        value = record.value(study.metric)
        if value is None or not self._floors:
            return
        scores.setdefault(record.arm, value)
        for arm, floor in product(scores.keys() - self._floors, scores.keys() & self._floors):
            if sign * scores[arm] < sign * scores[floor]:
                values = f"{study.metric} {scores[arm]:.4g} against {scores[floor]:.4g}"
                self._notice(arm, f"arm {arm}", {floor: f"it is below {floor}: {values}"})

    def goes_on(self, trial_id: str, reports: list[Row]) -> bool:
        """Whether a trial goes on after these reports: its source may stop it early, a used-up budget stops all."""
        if (active := self.accounts.active.get(trial_id)) is not None:
            # Report by report, as they came: the one that ends the trial is the last that the source sees.
            keep_going = self.queue.source.keep_going
            if not all(keep_going(trial_id, [row]) for row in reports):
                active.stopped = True
            if active.stopped:
                return False
        return not self.accounts.closing()

    def lost(self, trial_id: str, reason: str) -> None:
        """Note and say that the worker of a trial is lost, and that the trial starts again."""
        self.accounts.overdue.ended(trial_id)  # until a worker begins it again
        if (active := self.accounts.active.get(trial_id)) is not None:
            self.progress.lost(trial_id)
            self.progress.say(
                f"again: {replicate_of(active.trial, self.progress.axes)}: {reason}; it resumes from its checkpoint"
            )

    def worker_recorded(self, trial_id: str, data: bytes) -> None:
        """Keep a record that a worker has written, from its bytes: `ended` need not read it from the storage."""
        if (active := self.accounts.active.get(trial_id)) is not None:
            active.record = self.records.parsed(trial_id, data)

    def ended(self, trial_id: str) -> None:
        """End a trial that the engine is done with: it has its record, or was stopped early.

        One with neither goes on later, such as when Tune ended by a fault.
        """
        if (active := self.accounts.active.get(trial_id)) is None:
            return
        if (record := self._recorded(active)) is not None:
            self._end(record)
        elif active.stopped:
            self.give_up(trial_id, "", Status.PRUNED)

    def give_up(
        self,
        trial_id: str,
        error: str,
        status: Status = Status.FAILED,
        earlier: Extra | None = None,
        *,
        cause: Cause | None = None,
    ) -> None:
        """Write the record of a trial whose worker could not write one; its metrics are in the storage already.

        A record that the worker wrote before it was lost stands. `earlier` is what the checkpoint says of a trial that
        only an earlier driver ran. `cause` is that of a failed trial; None: the method.
        """
        if (active := self.accounts.active.get(trial_id)) is None:
            return
        if (record := self._recorded(active)) is None:
            record = self._record(active, error, status, earlier, cause)
            self.records.write(record)
            if status.infeasible:
                self.queue.ended_infeasible(Next(active.trial, active.notes), record)
        self._end(record)

    def _recorded(self, active: ActiveTrial) -> Record | None:
        """Return the record that a worker has written of a running trial; None where there is none."""
        return active.record or self.records.read_one(active.trial.id)

    def _end(self, record: Record) -> None:
        """Pass a record on to all that it concerns.

        Where the trial ended without the study's metric, and no trial has reported that yet, nothing more may run; nor
        where many trials, of all arms, failed before they reported anything.
        """
        if not self.accounts.end(record):
            return
        self.queue.source.done(record)
        self.placements.ended(record)
        self.progress.ended(record)
        if record.status.counts:
            self._notice(record.arm, replicate_of(record, self.progress.axes), notices_of(record))
            self._compare_with_floors(record)
        if record.status.failed:
            self.progress.say(failure_line(record, self.records.storage, self.progress.axes))
            # Silent: no cause outside the method, no report, and no trial of a sweep, which learns from failures.
            if not (record.missing or record.metrics or record.notes.phase):
                self._silent[record.arm] += 1
        if self._unreported in record.metrics:  # its last reports come with the record
            self._unreported = ""
        # It was trained to its end. An earlier report with the metric shows that its name is right.
        if self._unreported and lacks_metric(record):
            if any(self._unreported in row for row in self.records.metrics(record.trial_id)):
                self._unreported = ""
            else:
                self.accounts.stop(unreported_metric(self._unreported, record))
        # Of each arm at least one trial was silent.
        every_arm = len(self._silent) == len(self.placements.footprints.study.arms)
        if self._unreported and every_arm and self._silent.total() >= MOST_SILENT:
            self.accounts.stop(NOTHING_REPORTED.format(self._silent.total()))

    def _end_infeasible(self, infeasible: Infeasible) -> None:
        """End a trial that fits no host: by its record of an earlier run, else by a new one that says why."""
        candidate = infeasible.candidate
        record = infeasible.record
        self.accounts.begin(candidate.trial, candidate.notes)
        if record is None:
            self.give_up(
                candidate.trial.id,
                f"{self.placements.footprints.why_not(candidate.trial)}\n",
                Status.INFEASIBLE,
            )
        else:
            self.queue.ended_infeasible(candidate, record)
            self._end(record)

    def _end_stopped(self, candidate: Next) -> None:
        """Write the record of a trial that an earlier driver did not live to stop.

        It is the record that this driver would have written, with what the trial's checkpoint knows of the time before.
        """
        trial = candidate.trial
        if self.placements.fits(trial):
            self.placements.place(trial)
        self.accounts.begin(trial, candidate.notes)
        saved = Checkpoints(self.records.store, self.records.key(trial.id, "checkpoint")).latest()
        self.give_up(trial.id, "", Status.PRUNED, saved.extra if saved else None)

    def _record(
        self,
        active: ActiveTrial,
        error: str,
        status: Status,
        earlier: Extra | None,
        cause: Cause | None,
    ) -> Record:
        """Return the record of a trial from its reports in the storage; arguments are those of `give_up`.

        Its time of training is what its worker said last, else the time from its first report to its last.
        """
        owner = read_owner(self.records, active.trial.id)
        trial = active.trial
        notes = self.notes(active)
        # By the hosts that refused it a later run knows whether to try it.
        if status.infeasible:
            notes = notes.joined(TrialNotes(refused_by=str(self.placements.inventory)))
        rows = self.records.metrics(trial.id)
        now = time.time()
        code = self.code.of(trial)
        seconds = rows[-1]["time"] - rows[0]["time"] if rows else 0.0
        # An earlier driver ran it: what that one noted beside the checkpoint is not known here otherwise.
        if earlier is not None:
            placed = TrialNotes(gpus=earlier.gpus, cost_per_hour=earlier.cost_per_hour)
            notes = notes.joined(placed)
            seconds = max(seconds, earlier.seconds)
            same = earlier.code in (None, code.digest)
            code = replace(
                code if same else CodeRef(earlier.code or ""), earlier=earlier.earlier_code
            )
        return Record.of(
            trial,
            status=status,
            rows=rows,
            seconds=seconds if active.seconds is None else active.seconds,
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
