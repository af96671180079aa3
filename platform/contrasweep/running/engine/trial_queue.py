"""The order of trials: new ones of the source, those that wait for a larger host, and those that run again."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from contrasweep.cluster.hosts import Hosts
from contrasweep.running.engine.placement import Placements
from contrasweep.storage.record import Record
from contrasweep.storage.records import StudyRecords
from contrasweep.tuning.source import Finished, Next, Source

MAX_WAITING_PER_ARM = 4
"""Candidates of one arm that wait for a host while its search goes on: of many, the first to be suggested would know
too few results."""


@dataclass(frozen=True)
class Infeasible:
    """A candidate that fits no host and therefore ends.

    `record`: its record of an earlier run, if these hosts were too small then too.
    """

    candidate: Next
    record: Record | None


class TrialQueue:
    """The trials of a source in the order in which they run. It changes no record but that of a trial that runs again.

    A trial that fits no host waits while a larger one may join, and is infeasible after that. When a larger host has
    come, infeasible trials of this run and of earlier ones run, unless their source has gone on without them.
    """

    def __init__(
        self,
        source: Source,
        placements: Placements,
        hosts: Hosts,
        records: StudyRecords,
        say: Callable[[str], object],
        infeasible_records: Mapping[str, Record],
    ) -> None:
        """Queue the trials of `source`.

        `infeasible_records` are those of an earlier run, by trial id. `say` receives messages for people.
        """
        self.source = source
        self.placements = placements
        self.hosts = hosts
        self.records = records
        self.say = say
        self.infeasible_records = dict(infeasible_records)  # of this run too
        self.waiting: list[Next] = []  # for a larger host
        self.requeued: list[Next] = []  # handed out before, and to be handed out again
        # by trial id, those that ended infeasible in this run
        self._ended_here: dict[str, Next] = {}
        self._tried_on = placements.inventory  # the hosts that refused them
        self._arms_waiting: set[str] = set()  # of which it was said
        self._arms_too_late: set[str] = set()  # of which an infeasible trial stays so in this run

    def next(self, *, running: bool) -> Next | Infeasible | Finished | None:
        """Return the next trial that fits some host, or one that is to end as infeasible; None: ask again later.

        Once no host is expected, what waits is infeasible: of a search at once, because what it suggests next should
        know that; of a list of trials when nothing is `running` any more. `Finished` once the source has no more and
        nothing waits.
        """
        # What was running when its worker or the engine was lost goes before all else.
        if self.requeued:
            return self.requeued.pop(0)
        self.look()
        # Hosts may have joined by now: what waited first goes first.
        for candidate in self.waiting:
            if self.placements.fits(candidate.trial):
                return self._without_record(self._leave(candidate))
        adaptive = self.source.adaptive
        may_grow = self.hosts.may_grow()
        if adaptive and self.waiting and not may_grow:
            return self._infeasible(self._leave(self.waiting[0]))
        if (retried := self._retried()) is not None:
            return retried
        # New ones, until one fits; those that fit nowhere yet wait where a larger host may join.
        while isinstance(
            following := self.source.next(self._paused_arms() if adaptive else ()), Next
        ):
            # Its reports have ended it already, so that it needs no host.
            if following.stopped:
                return following
            if self.placements.fits(following.trial):
                # On these very hosts it ran out of memory in an earlier run.
                if self._refused_here(following.trial.id):
                    return self._infeasible(following)
                return self._without_record(following)
            if not may_grow:
                return self._infeasible(following)
            self._wait(following)
        # The source has none now, or no more.
        if not self.waiting:
            return following
        return None if running or may_grow else self._infeasible(self._leave(self.waiting[0]))

    def look(self) -> None:
        """Ask for hosts that have joined, and place trials on them from now on."""
        if (inventory := self.hosts.poll()) is not None:
            self.placements.grow(inventory)

    def ended_infeasible(self, candidate: Next, record: Record) -> None:
        """Note that a trial ended with this record, and may run after all once a larger host has come."""
        self._ended_here[candidate.trial.id] = candidate
        self.infeasible_records[candidate.trial.id] = record

    def _wait(self, candidate: Next) -> None:
        """Let a candidate wait for a larger host, and say so once for its arm."""
        self.waiting.append(candidate)
        if (arm := candidate.trial.arm) not in self._arms_waiting:
            self._arms_waiting.add(arm)
            self.say(
                f"arm {arm} waits for a larger host: {self.placements.footprints.why_not(candidate.trial)}"
            )
        self._request()

    def _leave(self, candidate: Next) -> Next:
        """Take a candidate from those that wait, and return it."""
        self.waiting.remove(candidate)
        self._request()
        return candidate

    def _request(self) -> None:
        """Request a host for each trial that waits and fits none."""
        unplaced = (c.trial for c in self.waiting if not self.placements.fits(c.trial))
        self.hosts.request({self.placements.footprints.of(trial).footprint for trial in unplaced})

    def _paused_arms(self) -> set[str]:
        """Return the arms that suggest nothing new, because enough of their candidates wait."""
        counts = Counter(candidate.trial.arm for candidate in self.waiting)
        return {arm for arm, count in counts.items() if count >= MAX_WAITING_PER_ARM}

    def _retried(self) -> Next | None:
        """Return a trial that ended infeasible in this run and fits a host that has joined since; None where none does.

        A search that has gone on without the trial does not take it back, which is said once for its arm.
        """
        # The hosts are those that refused them all.
        if self._tried_on == self.placements.inventory:
            return None
        for trial_id, candidate in list(self._ended_here.items()):
            if self._refused_here(trial_id) or not self.placements.fits(candidate.trial):
                continue
            del self._ended_here[trial_id]
            if self.source.retry(trial_id):
                self.placements.infeasible.discard(trial_id)
                return self._without_record(candidate)
            if (arm := candidate.trial.arm) not in self._arms_too_late:
                self._arms_too_late.add(arm)
                self.say(
                    f"arm {arm}: what fitted no host fits one by now, after its search; the same command takes it up"
                )
        self._tried_on = self.placements.inventory
        return None

    def _without_record(self, candidate: Next) -> Next:
        """Drop the record of a trial that fitted no host before, and return its candidate."""
        if self.infeasible_records.pop(candidate.trial.id, None) is not None:
            self.records.reopen(candidate.trial.id)
        return candidate

    def _infeasible(self, candidate: Next) -> Infeasible:
        """Return a candidate to be ended: with its record where these very hosts refused it before, else without."""
        if self._refused_here(candidate.trial.id):
            return Infeasible(candidate, self.infeasible_records[candidate.trial.id])
        return Infeasible(self._without_record(candidate), None)

    def _refused_here(self, trial_id: str) -> bool:
        """Whether the very hosts that there are refused a trial before: it ran out of memory on the largest."""
        record = self.infeasible_records.get(trial_id)
        return record is not None and record.notes.refused_by == str(self.placements.inventory)
