"""The loop over the trials of a run, for any engine: which trial is next, what it reports, and how it ends.

The next trial may be a new one of the source, one that waited for a larger host, or one that runs again.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from contrasweep.cluster.hosts import Hosts
from contrasweep.code import CurrentCode
from contrasweep.code.version import versions
from contrasweep.errors import SpecError
from contrasweep.live.state import Progress, replicate_of
from contrasweep.results.notices import early_notices, notices_of
from contrasweep.rows import Row
from contrasweep.running.engine.accounts import Accounts, ActiveTrial
from contrasweep.running.engine.placement import Placements
from contrasweep.running.failures import (
    NOTHING_REPORTED,
    failure_line,
    lacks_metric,
    unreported_metric,
)
from contrasweep.storage.attempts import read_owner
from contrasweep.storage.checkpoints import Checkpoints, Extra
from contrasweep.storage.code_files import write_code
from contrasweep.storage.record import Cause, CodeRef, Record, RecordsById, Status, TrialNotes
from contrasweep.storage.records import StudyRecords
from contrasweep.study.arm_budget import MOST_SILENT
from contrasweep.trial import Trial
from contrasweep.tuning.source import Finished, NextTrial, Source


@dataclass
class StudyCode:
    """The code that each trial of a run uses. Its sources are written to the storage of `records`, each once.

    `on_message` receives a line for each code whose sources are too large to be stored.
    """

    records: StudyRecords
    current: CurrentCode
    on_message: Callable[[str], object]
    _kept: set[str] = field(default_factory=set)  # digests of codes that are stored

    def of(self, trial: Trial) -> CodeRef:
        """Return digest and commit of the code of `trial`, and write its sources to the storage unless it has them."""
        code = self.current.of(trial.trainable, trial.config)
        version = code.version
        if version.digest not in self._kept:
            warning = write_code(self.records, code)
            if warning:
                self.on_message(warning)
            self._kept.add(version.digest)
        return CodeRef(version.digest, version.commit, version.dirty)


MAX_WAITING_PER_ARM = 4
"""Candidates of one arm that may wait for a host before its search pauses. The search would suggest more of them from
too few results."""


@dataclass(frozen=True)
class Infeasible:
    """A trial of the queue, `candidate`, that fits no host and ends without being trained.

    `record` is the record that it got in an earlier run on the same hosts; None where it has none.
    """

    candidate: NextTrial
    record: Record | None


class TrialQueue:
    """The trials of a source, in the order in which they run.

    A trial that fits no host waits as long as a larger host may join the cluster; then it ends as infeasible. If a
    larger host joins after that, infeasible trials run after all, also those of earlier runs. Only a search that has
    gone on without such a trial refuses it. The queue deletes the record of a trial that runs again, and changes no
    other record.
    """

    def __init__(
        self,
        source: Source,
        placements: Placements,
        hosts: Hosts,
        records: StudyRecords,
        say: Callable[[str], object],
        infeasible_records: RecordsById,
    ) -> None:
        """Make the queue of the trials of `source`.

        `placements` tells which trials fit a host, and `hosts` whether larger hosts may join. `infeasible_records` is
        trial id -> record, of trials that fitted no host in an earlier run. `say` receives messages for the user.
        """
        self.source = source
        self.placements = placements
        self.hosts = hosts
        self.records = records
        self.say = say
        self.infeasible_records = dict(infeasible_records)  # later also those of this run
        self.waiting: list[NextTrial] = []  # for a larger host
        self.requeued: list[NextTrial] = []  # handed out before, and to be handed out again
        # trial id -> trial, of those that ended infeasible in this run
        self._ended_here: dict[str, NextTrial] = {}
        self._tried_on = placements.inventory  # the hosts that none of them fits
        self._arms_waiting: set[str] = set()  # arms whose message that they wait was said
        # arms whose message that a host came too late was said
        self._arms_too_late: set[str] = set()

    def next(self, *, running: bool) -> NextTrial | Infeasible | Finished | None:
        """Return the next trial to run, or one that ends as infeasible; `Finished` if none is left; None: ask later.

        Trials whose worker was lost come first, then those that have waited for a host, then those of the source.

        `running` says whether any trial runs. Once no larger host is expected, waiting trials are infeasible. Those of
        a search are returned at once, because the search should know this before it suggests more. Those of a fixed
        list are returned when no trial runs any more.
        """
        # Trials that were running when their worker or the engine was lost come first.
        if self.requeued:
            return self.requeued.pop(0)
        # Then those that wait, in their order, if a host has joined that they fit.
        self.poll_hosts()
        for candidate in self.waiting:
            if self.placements.fits(candidate.trial):
                return self._reopened(self._stop_waiting(candidate))
        adaptive = self.source.adaptive
        may_grow = self.hosts.may_grow()
        if adaptive and self.waiting and not may_grow:
            return self._infeasible(self._stop_waiting(self.waiting[0]))
        # Then those that were infeasible before a larger host joined.
        retried = self._retried()
        if retried is not None:
            return retried
        # Then new ones of the source. Those that fit no host wait, as long as a larger one may join.
        following = self._suggested()
        while isinstance(following, NextTrial):
            # The reports of this trial have ended it already, so it needs no host.
            if following.stopped:
                return following
            fits = self.placements.fits(following.trial)
            if fits and not self._refused_here(following.trial.id):
                return self._reopened(following)
            # The trial fits by its estimate but ended as infeasible on these very hosts before, or it fits no host.
            if fits or not may_grow:
                return self._infeasible(following)
            self._wait(following)
            following = self._suggested()
        # The source has no trial now (None), or no trial any more (`Finished`).
        if not self.waiting:
            return following
        if running or may_grow:
            return None
        return self._infeasible(self._stop_waiting(self.waiting[0]))

    def _suggested(self) -> NextTrial | Finished | None:
        """Return the next trial of the source; `Finished`: it has none any more; None: it has none now.

        In a search, an arm with `MAX_WAITING_PER_ARM` trials that wait for a larger host suggests none meanwhile.
        """
        counts = Counter(candidate.trial.arm for candidate in self.waiting)
        return self.source.next(
            {arm for arm, count in counts.items() if count >= MAX_WAITING_PER_ARM}
        )

    def poll_hosts(self) -> None:
        """Ask whether hosts have joined, and place trials on them from now on."""
        inventory = self.hosts.poll()
        if inventory is not None:
            self.placements.grow(inventory)

    def ended_infeasible(self, candidate: NextTrial, record: Record) -> None:
        """Note that the trial of `candidate` has ended as infeasible with `record`.

        It may run after all once a larger host joins.
        """
        self._ended_here[candidate.trial.id] = candidate
        self.infeasible_records[candidate.trial.id] = record

    def _wait(self, candidate: NextTrial) -> None:
        """Let a trial wait for a larger host, and ask the autoscaler for one.

        A message tells the user why, once for the arm.
        """
        self.waiting.append(candidate)
        arm = candidate.trial.arm
        if arm not in self._arms_waiting:
            self._arms_waiting.add(arm)
            self.say(
                f"arm {arm} waits for a larger host: {self.placements.footprints.why_not(candidate.trial)}"
            )
        self._request_hosts()

    def _stop_waiting(self, candidate: NextTrial) -> NextTrial:
        """Remove a trial from those that wait for a larger host, and return it."""
        self.waiting.remove(candidate)
        self._request_hosts()
        return candidate

    def _request_hosts(self) -> None:
        """Ask the autoscaler for a host for each waiting trial that fits no host of the cluster."""
        unplaced = (
            candidate.trial
            for candidate in self.waiting
            if not self.placements.fits(candidate.trial)
        )
        self.hosts.request({self.placements.footprints.of(trial).footprint for trial in unplaced})

    def _retried(self) -> NextTrial | None:
        """Return a trial that ended as infeasible in this run and fits a host that has joined since; None without one.

        Its source must agree (`Source.retry`). Where a search has gone on without the trial, a message says so, once
        for each arm.
        """
        # No host has joined since the last time.
        if self._tried_on == self.placements.inventory:
            return None
        for trial_id, candidate in list(self._ended_here.items()):
            if self._refused_here(trial_id) or not self.placements.fits(candidate.trial):
                continue
            del self._ended_here[trial_id]
            if self.source.retry(trial_id):
                self.placements.infeasible.discard(trial_id)
                return self._reopened(candidate)
            arm = candidate.trial.arm
            if arm not in self._arms_too_late:
                self._arms_too_late.add(arm)
                self.say(
                    f"arm {arm}: what fitted no host fits one by now, after its search; the same command takes it up"
                )
        self._tried_on = self.placements.inventory
        return None

    def _reopened(self, candidate: NextTrial) -> NextTrial:
        """Return `candidate`, which is about to run.

        If it has a record because it was infeasible earlier, the record is deleted.
        """
        if self.infeasible_records.pop(candidate.trial.id, None) is not None:
            self.records.reopen(candidate.trial.id)
        return candidate

    def _infeasible(self, candidate: NextTrial) -> Infeasible:
        """Return `candidate` as infeasible.

        Where it ended so on the same hosts before, the result has that record. Any other record of it is deleted.
        """
        if self._refused_here(candidate.trial.id):
            return Infeasible(candidate, self.infeasible_records[candidate.trial.id])
        return Infeasible(self._reopened(candidate), None)

    def _refused_here(self, trial_id: str) -> bool:
        """Return whether a trial has ended as infeasible on exactly these hosts before, in this run or an earlier one.

        Even a trial that fits by its estimated memory may have: it ran out of memory there.
        """
        record = self.infeasible_records.get(trial_id)
        return record is not None and record.notes.refused_by == str(self.placements.inventory)


class TrialLoop:
    """Takes trials from the queue and follows each until it ends.

    When a trial has its record, it tells the source, frees the trial's place and updates the display. All methods are
    called from the driver's main thread. They do nothing with the id of a trial that has ended.
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
    ) -> None:
        """Make the loop of one run.

        `unreported` is the name of the study's metric if no trial has reported it yet, and else "". With a name, the
        loop stops the run if trials end without the metric (see `_end`).
        """
        self.queue = queue
        self.accounts = accounts
        self.placements = queue.placements
        self.records = records
        self.code = code
        self.progress = progress
        self._unreported_metric = unreported
        self._silent = Counter[str]()  # arm -> trials of a grid that failed before any report
        self._noticed: set[tuple[str, str]] = set()  # (arm, name of a notice) that was said
        # Arms that the others should beat: see `_compare_with_floors`.
        trainables = self.placements.footprints.trainables
        self._floors = {
            arm for arm, function in trainables.items() if getattr(function, "floor", False)
        }
        # (digest of the dataset, fold) -> arm -> the metric of its first trial there
        self._scores: defaultdict[tuple[str, int | None], dict[str, float]] = defaultdict(dict)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as an empty object, because the loop holds open files, which cannot be pickled.

        Tune pickles its configuration to restore it later, which never happens here.
        """
        return object, ()

    def next(self) -> ActiveTrial | Finished | None:
        """Hand out the next trial and return it; None: there is none now; `Finished`: there will be none any more.

        A trial that need not be trained is not handed out. It ends here with its record: it fits no host, or it was
        stopped in an earlier run.
        """
        while not self.accounts.closing():
            match self.queue.next(running=bool(self.accounts.active)):
                # It fits no host. Its record is that of an earlier run, or a new one says why.
                case Infeasible(candidate, record):
                    trial = candidate.trial
                    self.accounts.begin(trial, candidate.notes)
                    if record is None:
                        why_not = f"{self.placements.footprints.why_not(trial)}\n"
                        self.give_up(trial.id, why_not, Status.INFEASIBLE)
                    else:
                        self.queue.ended_infeasible(candidate, record)
                        self._end(record)
                # An earlier driver should have stopped it, but was lost before. The record is as that driver would have
                # written it: the trial's checkpoint has the notes of that time.
                case NextTrial(trial, notes, stopped=True):
                    if self.placements.fits(trial):
                        self.placements.place(trial)
                    self.accounts.begin(trial, notes)
                    saved = Checkpoints.of(self.records, trial.id).latest()
                    self.give_up(trial.id, "", Status.PRUNED, saved.extra if saved else None)
                case NextTrial() as candidate:
                    self.placements.place(candidate.trial)
                    return self.accounts.begin(candidate.trial, candidate.notes)
                case no_trial:  # None, or `Finished`
                    return no_trial
        return Finished()

    def begin_again(self) -> None:
        """Prepare another start of the engine: queue each active trial again.

        A trial whose worker has written its record meanwhile is ended by this record instead.
        """
        # Records that workers wrote while no engine ran end their trials.
        for active in list(self.accounts.active.values()):
            record = self._recorded(active)
            if record is not None:
                self._end(record)
        self.queue.requeued = [
            NextTrial(active.trial, active.notes) for active in self.accounts.active.values()
        ]
        for trial_id in self.accounts.active:
            self.accounts.waits(trial_id)
            self.progress.lost(trial_id)

    def placed_again(self, waiting: Iterable[str]) -> list[ActiveTrial]:
        """Choose places anew for trials that have not begun; return those that need other resources than before.

        `waiting` are the ids of these trials. Where an autoscaler starts hosts, many trials wait, and little was known
        of their memory when they got their first places.
        """
        self.queue.poll_hosts()
        if not self.placements.places_outdated:
            return []
        waiting_trials = [
            self.accounts.active[trial_id]
            for trial_id in waiting
            if trial_id in self.accounts.active
        ]
        changed = {
            trial.id
            for trial in self.placements.place_again(active.trial for active in waiting_trials)
        }
        return [active for active in waiting_trials if active.trial.id in changed]

    def requeue(self, trial_id: str) -> bool:
        """Queue a trial again that Tune has given up because of a lost host; return whether it was queued.

        It is not where the trial has ended, or has lost too many hosts.
        """
        active = self.accounts.active.get(trial_id)
        if active is None or not self.accounts.lost_host(active):
            return False
        self.queue.requeued.append(NextTrial(active.trial, active.notes))
        return True

    def notes(self, active: ActiveTrial) -> TrialNotes:
        """Return the notes for the record of an active trial: those of its source, and those on its place, if any."""
        placed = active.trial.id in self.placements.placed
        return active.notes.joined(self.placements.notes(active.trial)) if placed else active.notes

    def started(self, trial_id: str) -> None:
        """Note that a worker begins or resumes a trial."""
        active = self.accounts.active.get(trial_id)
        if active is not None:
            # The budget counts the hours of a trial without a GPU as if it had one.
            self.accounts.started(active, float(self.placements.place(active.trial).share) or 1.0)
            self.progress.started(active.trial)

    def reported(self, trial_id: str, reports: list[Row], seconds: float) -> bool:
        """Count the reports of a worker after `seconds` of training; return whether the trial has reached a new step.

        False for a trial that has ended.
        """
        # Once a trial has reported the metric, this is "", which is no metric of any report.
        if any(self._unreported_metric in row for row in reports):
            self._unreported_metric = ""
        active = self.accounts.active.get(trial_id)
        if active:
            self._notice(
                active.trial.arm,
                replicate_of(active.trial, self.progress.axes),
                early_notices(reports),
            )
        return active is not None and self.accounts.reported(active, reports, seconds)

    def _notice(self, arm: str, trial: str, notices: Mapping[str, str]) -> None:
        """Show messages about a trial to the user, each kind of message only once for an arm.

        `trial` is the trial's name for people, such as `a lr=0.1 seed=1`. `notices` is name of the kind -> sentence.
        """
        for name, sentence in notices.items():
            if (arm, name) not in self._noticed:
                self._noticed.add((arm, name))
                self.progress.say(f"{trial}: {sentence}")

    def _compare_with_floors(self, record: Record) -> None:
        """Tell the user, once for each arm and floor, that the arm scores below the floor.

        A floor is an arm whose trainable has the attribute `floor = True`, such as nearest neighbours by raw pixels.
        Compared are the first trials of the arm and of the floor on the fold and the dataset of `record`.
        """
        study = self.placements.footprints.study
        scores = self._scores[record.data.digest, record.fold]
        sign = 1 if study.mode == "max" else -1
        value = record.value(study.metric)
        if value is None or not self._floors:
            return
        scores.setdefault(record.arm, value)
        # Each arm that is no floor against each floor, as far as they have scores here.
        for arm, floor in product(scores.keys() - self._floors, scores.keys() & self._floors):
            if sign * scores[arm] < sign * scores[floor]:
                values = f"{study.metric} {scores[arm]:.4g} against {scores[floor]:.4g}"
                self._notice(arm, f"arm {arm}", {floor: f"it is below {floor}: {values}"})

    def goes_on(self, trial_id: str, reports: list[Row]) -> bool:
        """Return whether a trial goes on after these reports.

        Its source may stop it early, and a used-up budget or a fault stops all trials.
        """
        active = self.accounts.active.get(trial_id)
        if active is not None:
            # The source sees report by report, and none after the one that ends the trial.
            keep_going = self.queue.source.keep_going
            try:
                if not all(keep_going(trial_id, [row]) for row in reports):
                    active.stopped = True
            except SpecError as error:  # of the user's pruner
                self.accounts.stop(str(error))
            if active.stopped:
                return False
        return not self.accounts.closing()

    def lost(self, trial_id: str, reason: str) -> None:
        """Note that a trial has lost its worker and starts again, and tell the user, with the `reason`."""
        self.accounts.waits(trial_id)
        active = self.accounts.active.get(trial_id)
        if active is not None:
            self.progress.lost(trial_id)
            self.progress.say(
                f"again: {replicate_of(active.trial, self.progress.axes)}: {reason}; it resumes from its checkpoint"
            )

    def worker_recorded(self, trial_id: str, data: bytes) -> None:
        """Keep the record that a trial's worker has sent as JSON, so that `ended` need not read the storage."""
        active = self.accounts.active.get(trial_id)
        if active is not None:
            active.record = self.records.parsed(trial_id, data)

    def ended(self, trial_id: str) -> None:
        """End a trial that the engine has finished: its worker has written the record, or its source stopped it early.

        In the second case its record is written here, with the status `pruned`. A trial of neither case stays active:
        Tune has ended it by a fault of its own.
        """
        active = self.accounts.active.get(trial_id)
        if active is None:
            return
        record = self._recorded(active)
        if record is not None:
            self._end(record)
        elif active.stopped:
            self.give_up(trial_id, "", Status.PRUNED)

    def give_up(
        self,
        trial_id: str,
        error: str,
        status: Status = Status.FAILED,
        extra: Extra | None = None,
        *,
        cause: Cause | None = None,
    ) -> None:
        """End a trial whose worker could not write its record, which is written here from the stored reports.

        Where the worker has written a record before it was lost, the trial ends with that one.

        Args:
            trial_id: The trial; nothing is done where it has ended.
            error: The traceback; "" where the trial did not fail.
            status: The status of the record.
            extra: What is kept beside the checkpoint of a trial that only an earlier driver ran; else None.
            cause: The cause of a failure; None: the method.
        """
        active = self.accounts.active.get(trial_id)
        if active is None:
            return
        record = self._recorded(active)
        if record is None:
            record = self._record(active, error, status, extra, cause)
            # The worker may have written its own meanwhile, which stays.
            if not self.records.create(record):
                record = self._recorded(active) or record
            if record.status.infeasible:
                self.queue.ended_infeasible(NextTrial(active.trial, active.notes), record)
        self._end(record)

    def _recorded(self, active: ActiveTrial) -> Record | None:
        """Return the record that the worker of an active trial has made: as it was sent, else from the storage.

        None where there is none.
        """
        return active.record or self.records.read_one(active.trial.id)

    def _end(self, record: Record) -> None:
        """End a trial by its record: tell its source and the user, and free its place.

        The run is stopped where going on is useless, in two cases. The trial was trained to its end without the study's
        metric, and no trial has reported the metric yet. Or many trials have failed before any report, at least one of
        each arm.
        """
        # A trial without an account has ended before.
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
            # Failures before any report are counted, except for causes outside the method, and except in a sweep, which
            # learns from failures.
            if not (record.missing or record.metrics or record.notes.phase):
                self._silent[record.arm] += 1
        # The last reports of a trial come with its record only.
        if self._unreported_metric in record.metrics:
            self._unreported_metric = ""
        # The trial was trained to its end and lacks the metric at last. If an earlier report has it, its name is right.
        if self._unreported_metric and lacks_metric(record):
            if any(self._unreported_metric in row for row in self.records.metrics(record.trial_id)):
                self._unreported_metric = ""
            else:
                self.accounts.stop(unreported_metric(self._unreported_metric, record))
        # Many trials failed before any report, of each arm at least one.
        every_arm = len(self._silent) == len(self.placements.footprints.study.arms)
        if self._unreported_metric and every_arm and self._silent.total() >= MOST_SILENT:
            self.accounts.stop(NOTHING_REPORTED.format(self._silent.total()))

    def _record(
        self,
        active: ActiveTrial,
        error: str,
        status: Status,
        extra: Extra | None,
        cause: Cause | None,
    ) -> Record:
        """Return a new record of a trial, made here from its stored reports; the arguments are those of `give_up`.

        Its training time is what the worker has reported last, or else the time from the first report to the last.
        """
        owner = read_owner(self.records, active.trial.id)
        trial = active.trial
        notes = self.notes(active)
        # A later run tries an infeasible trial again only on other hosts than these.
        if status.infeasible:
            notes = notes.joined(TrialNotes(refused_by=str(self.placements.inventory)))
        rows = self.records.metrics(trial.id)
        now = time.time()
        code = self.code.of(trial)
        seconds = rows[-1]["time"] - rows[0]["time"] if rows else 0.0
        # Only an earlier driver ran the trial: its place, time and code are known from the checkpoint alone.
        if extra is not None:
            placed = TrialNotes(gpus=extra.gpus, cost_per_hour=extra.cost_per_hour)
            notes = notes.joined(placed)
            seconds = max(seconds, extra.seconds)
            if extra.code is not None and extra.code != code.digest:
                code = CodeRef(extra.code)
            code = replace(code, earlier=extra.earlier_code)
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
