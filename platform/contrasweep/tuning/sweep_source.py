"""The engine's source for a Sweep: a search per arm, interleaved, then the confirmation of each arm's best."""

from collections import Counter, deque
from collections.abc import Callable, Collection
from dataclasses import replace

from contrasweep.rows import Row
from contrasweep.storage.record import Phase, Record, TrialNotes
from contrasweep.storage.records import StudyRecords
from contrasweep.trial import Trial
from contrasweep.tuning.arm_search import ArmSearch
from contrasweep.tuning.design import SweepDesign
from contrasweep.tuning.source import Finished, Next, Source


class SweepSource(Source):
    """All arms' searches in turns; an arm's confirmation starts when its search is over and a place is free.

    `confirmed` is called with the plan, in which `best` has one more arm, each time an arm's search has ended.
    """

    adaptive = True

    def __init__(
        self,
        plan: SweepDesign,
        records: StudyRecords,
        confirmed: Callable[[SweepDesign], None],
        infeasible: Collection[str] = (),
    ) -> None:
        """Take up the arms' searches from the storage, and begin the confirmation of those that are over.

        `infeasible` are ids of trials with a record that says that they fitted no host: they are handed out again.
        """
        self.infeasible = set(infeasible)
        self.plan = plan
        self.records = records
        self.confirmed = confirmed
        self.searches = {
            arm: ArmSearch(plan, arm, records, self.infeasible) for arm in plan.study.arms
        }
        self.turns = deque(plan.study.arms)  # whose turn it is comes first
        # arm whose search is over -> trials of its confirmation that are left to hand out
        self.confirmation: dict[str, deque[Trial]] = {}
        self._begin()

    def next(self, paused_arms: Collection[str] = ()) -> Next | Finished | None:
        """Return a trial of the arms' searches, which take turns; `paused_arms` are passed over.

        If no search has one now, it is a trial of the confirmation whose arm has most of them left. None where neither
        has one before the next result, `Finished` where all have been handed out.
        """
        self._begin()
        for _ in range(len(self.turns)):
            arm = self.turns[0]
            self.turns.rotate(-1)
            following = None if arm in paused_arms else self.searches[arm].next()
            if following is not None:
                return following
        self._begin()  # a search may just have found its space exhausted
        confirming = (left for arm, left in self.confirmation.items() if arm not in paused_arms)
        longest = max(confirming, key=len, default=None)  # replicate by replicate, not arm by arm
        if longest:
            return Next(longest.popleft(), TrialNotes(phase=Phase.CONFIRM))
        return Finished() if self.finished else None

    @property
    def finished(self) -> bool:
        """Whether every trial has been handed out: every arm's search is over, and no confirmation has any left."""
        return len(self.confirmation) == len(self.turns) and not any(self.confirmation.values())

    def keep_going(self, trial_id: str, reports: list[Row]) -> bool:
        """Return the answer of the search of its arm; trials of the confirmation always go on."""
        arm = self._arm(trial_id)
        return arm is None or arm.keep_going(trial_id, reports)

    def done(self, record: Record) -> None:
        """Pass a record of the search on to its arm; the confirmation's records change nothing."""
        self.infeasible.discard(record.trial_id)
        if (arm := self._arm(record.trial_id)) is not None:
            arm.done(record)

    def retry(self, trial_id: str) -> bool:
        """Return the answer of the search of its arm; True for trials of the confirmation."""
        arm = self._arm(trial_id)
        return arm is None or arm.retry(trial_id)

    def warnings(self) -> list[str]:
        """Return a line for each arm whose search is over and that has no configuration to confirm, with the reason."""
        over = (name for name, arm in self.searches.items() if arm.over and arm.best() is None)
        return [
            f"arm {name}: {self._why_none(self.searches[name])}; nothing to confirm"
            for name in over
        ]

    def _why_none(self, search: ArmSearch) -> str:
        """Return why a search that is over has no best configuration, as a clause without an end.

        `no trial of its search was trained to its end (3 failed, 1 infeasible)`
        """
        ended = Counter(record.status for record in self.records.read(search.of).values())
        if not any(status.counts for status in ended):
            counts = ", ".join(f"{count} {status}" for status, count in sorted(ended.items()))
            stopped = (
                "; its search ended after these, since none of them reported anything"
                if search.spending.hopeless
                else ""
            )
            return f"no trial of its search was trained to its end ({counts or 'there was none'}{stopped})"
        return "no configuration was trained to its end on all search folds"

    def _arm(self, trial_id: str) -> ArmSearch | None:
        """Return the search that a trial belongs to; None for a trial of the confirmation."""
        return next((arm for arm in self.searches.values() if trial_id in arm.of), None)

    def _begin(self) -> None:
        """Start the confirmations of arms whose search is over and were not started yet; do nothing where none is.

        An arm without a best configuration has no trials to confirm.
        """
        if over := [
            arm
            for arm, tried in self.searches.items()
            if tried.over and arm not in self.confirmation
        ]:
            # The plan has the best of all arms that are done, in the order of the study.
            done = {*over, *self.confirmation}
            winners = {arm: self.searches[arm].best() for arm in self.searches if arm in done}
            # All trials of a candidate have one config, the first fold's too.
            best = {arm: dict(won.trials[0].config) for arm, won in winners.items() if won}
            self.plan = replace(self.plan, best=best)
            self.confirmed(self.plan)
            finished = self.records.finished() - self.infeasible
            for arm in over:
                self.confirmation[arm] = deque(
                    t for t in self.plan.trials if t.arm == arm and t.id not in finished
                )
