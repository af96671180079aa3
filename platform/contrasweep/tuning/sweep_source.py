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
from contrasweep.tuning.source import Finished, NextTrial, Source


class SweepSource(Source):
    """Hands out trials of all arms' searches in turn, and of an arm's confirmation once its search is over.

    Each time an arm's search has ended, `on_best_found` is called with the plan whose `best` has this arm too.
    """

    adaptive = True

    def __init__(
        self,
        plan: SweepDesign,
        records: StudyRecords,
        on_best_found: Callable[[SweepDesign], None],
        infeasible: Collection[str] = (),
    ) -> None:
        """Continue the arms' searches that are in the storage, and begin the confirmations of those that are over.

        `infeasible` are ids of trials whose record says that they fitted no host; they are handed out again.
        """
        self.run_again = set(infeasible)
        self.plan = plan
        self.records = records
        self.on_best_found = on_best_found
        self.searches = {
            arm: ArmSearch(plan, arm, records, self.run_again) for arm in plan.study.arms
        }
        self.turns = deque(plan.study.arms)  # the arm whose turn it is comes first
        # arm whose search is over -> trials of its confirmation that were not handed out yet
        self.confirmation: dict[str, deque[Trial]] = {}
        self._begin()

    def next(self, paused_arms: Collection[str] = ()) -> NextTrial | Finished | None:
        """Return a trial of the searches, which take turns, or else of the confirmation that has most trials left.

        Arms in `paused_arms` are skipped. None where there is no trial before the next result; `Finished` where all
        have been handed out.
        """
        self._begin()
        for _ in range(len(self.turns)):
            arm = self.turns[0]
            self.turns.rotate(-1)
            following = None if arm in paused_arms else self.searches[arm].next()
            if following is not None:
                return following
        # A search may have found just now that it has nothing more to try.
        self._begin()
        # The longest list first, so that all arms have about as many replicates.
        confirming = [left for arm, left in self.confirmation.items() if arm not in paused_arms]
        longest = max(confirming, key=len, default=None)
        if longest:
            return NextTrial(longest.popleft(), TrialNotes(phase=Phase.CONFIRM))
        return Finished() if self.finished else None

    @property
    def finished(self) -> bool:
        """Return whether all searches are over, and every trial of the confirmations has been handed out."""
        return len(self.confirmation) == len(self.turns) and not any(self.confirmation.values())

    def keep_going(self, trial_id: str, reports: list[Row]) -> bool:
        """Return whether a trial goes on: its search decides; trials of a confirmation always go on."""
        search = self._search_of(trial_id)
        return search is None or search.keep_going(trial_id, reports)

    def done(self, record: Record) -> None:
        """Pass the record of a search's trial on to its search; records of a confirmation change nothing."""
        self.run_again.discard(record.trial_id)
        search = self._search_of(record.trial_id)
        if search is not None:
            search.done(record)

    def retry(self, trial_id: str) -> bool:
        """Return whether an infeasible trial runs after all: its search decides; trials of a confirmation do."""
        search = self._search_of(trial_id)
        return search is None or search.retry(trial_id)

    def warnings(self) -> list[str]:
        """Return a line, with the reason, for each arm whose search is over without a configuration to confirm."""
        return [
            f"arm {name}: {self._why_none(search)}; nothing to confirm"
            for name, search in self.searches.items()
            if search.over and search.best() is None
        ]

    def _why_none(self, search: ArmSearch) -> str:
        """Return why a search that is over has no best configuration, as a clause.

        For example `no trial of its search was trained to its end (3 failed, 1 infeasible)`.
        """
        ended = Counter(record.status for record in self.records.read(search.candidate_of).values())
        if not any(status.counts for status in ended):
            counts = ", ".join(f"{count} {status}" for status, count in sorted(ended.items()))
            stopped = (
                "; its search ended after these, since none of them reported anything"
                if search.spending.hopeless
                else ""
            )
            return f"no trial of its search was trained to its end ({counts or 'there was none'}{stopped})"
        return "no configuration was trained to its end on all search folds"

    def _search_of(self, trial_id: str) -> ArmSearch | None:
        """Return the search that a trial belongs to; None for a trial of a confirmation."""
        return next(
            (search for search in self.searches.values() if trial_id in search.candidate_of), None
        )

    def _begin(self) -> None:
        """Begin the confirmations of arms whose search is over, if they have not begun yet.

        An arm without a best configuration has no trials to confirm.
        """
        ended = [
            arm
            for arm, search in self.searches.items()
            if search.over and arm not in self.confirmation
        ]
        if not ended:
            return
        # All trials of a candidate have the same config.
        best = {}
        for arm, search in self.searches.items():
            candidate = search.best() if search.over else None
            if candidate is not None:
                best[arm] = dict(candidate.trials[0].config)
        self.plan = replace(self.plan, best=best)
        self.on_best_found(self.plan)
        finished = self.records.finished() - self.run_again
        for arm in ended:
            self.confirmation[arm] = deque(
                trial for trial in self.plan.trials if trial.arm == arm and trial.id not in finished
            )
