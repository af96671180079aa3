"""The order of trials: new ones of the source, those that wait for a larger host, and those that run again."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from contrasweep.cluster.hosts import Hosts
from contrasweep.running.engine.placement import Placements
from contrasweep.storage.record import Record, RecordsById
from contrasweep.storage.records import StudyRecords
from contrasweep.tuning.source import Finished, NextTrial, Source

MAX_WAITING_PER_ARM = 4
"""Candidates of one arm that may wait for a host before its search pauses. The search would suggest more of them from
too few results."""


@dataclass(frozen=True)
class Infeasible:
    """A candidate that fits no host and therefore ends.

    `record` is its record of an earlier run on the same hosts; None: there was no such run.
    """

    candidate: NextTrial
    record: Record | None


class TrialQueue:
    """The trials of a source, in the order in which they run.

    A trial that fits no host waits as long as a larger host may join, and is then infeasible. If a larger host joins
    later, infeasible trials run after all, those of earlier runs too, unless their search has gone on without them. The
    queue changes no records, except that it removes the record of a trial that runs again.
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
        """Queue the trials of `source`.

        `infeasible_records` are the records, by trial id, of trials that fitted no host in an earlier run. `say`
        receives messages for people.
        """
        self.source = source
        self.placements = placements
        self.hosts = hosts
        self.records = records
        self.say = say
        self.infeasible_records = dict(infeasible_records)  # later also those of this run
        self.waiting: list[NextTrial] = []  # for a larger host
        self.requeued: list[NextTrial] = []  # handed out before, and to be handed out again
        self._ended_here: dict[
            str, NextTrial
        ] = {}  # trials that ended infeasible in this run, by id
        self._tried_on = placements.inventory  # the hosts that none of them fits
        self._arms_waiting: set[str] = set()  # arms whose message that they wait was said
        # arms whose message that a host came too late was said
        self._arms_too_late: set[str] = set()

    def next(self, *, running: bool) -> NextTrial | Infeasible | Finished | None:
        """Return the next trial that fits a host, or an infeasible one; `Finished` if none is left; None: ask later.

        `running` says whether any trial runs. Once no larger host is expected, waiting trials are infeasible. A search
        should know this before it suggests more, so its waiting trials are returned at once. Those of a fixed list of
        trials are returned when no trial runs any more.
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
        """Return what the source has next. Arms of a search pause while enough of their candidates wait for a host."""
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
        """Note that a trial ended as infeasible, with this record; it may run after all once a larger host joins."""
        self._ended_here[candidate.trial.id] = candidate
        self.infeasible_records[candidate.trial.id] = record

    def _wait(self, candidate: NextTrial) -> None:
        """Let a candidate wait for a larger host, and say so once for its arm."""
        self.waiting.append(candidate)
        arm = candidate.trial.arm
        if arm not in self._arms_waiting:
            self._arms_waiting.add(arm)
            self.say(
                f"arm {arm} waits for a larger host: {self.placements.footprints.why_not(candidate.trial)}"
            )
        self._request_hosts()

    def _stop_waiting(self, candidate: NextTrial) -> NextTrial:
        """Remove a candidate from those that wait, and return it."""
        self.waiting.remove(candidate)
        self._request_hosts()
        return candidate

    def _request_hosts(self) -> None:
        """Request a host for each trial that waits and fits none."""
        unplaced = (
            candidate.trial
            for candidate in self.waiting
            if not self.placements.fits(candidate.trial)
        )
        self.hosts.request({self.placements.footprints.of(trial).footprint for trial in unplaced})

    def _retried(self) -> NextTrial | None:
        """Return a trial that was infeasible in this run but fits a host that has joined since; None if there is none.

        A search that has gone on without the trial refuses it (`_refused_here`), which is said once for its arm.
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
        """Return a candidate that may run; delete its record where it was infeasible before."""
        if self.infeasible_records.pop(candidate.trial.id, None) is not None:
            self.records.reopen(candidate.trial.id)
        return candidate

    def _infeasible(self, candidate: NextTrial) -> Infeasible:
        """Return a candidate as infeasible, with its record where the same hosts refused it before."""
        if self._refused_here(candidate.trial.id):
            return Infeasible(candidate, self.infeasible_records[candidate.trial.id])
        return Infeasible(self._reopened(candidate), None)

    def _refused_here(self, trial_id: str) -> bool:
        """Return whether a trial was infeasible on exactly these hosts before, as one that ran out of memory there."""
        record = self.infeasible_records.get(trial_id)
        return record is not None and record.notes.refused_by == str(self.placements.inventory)
