"""The source of a study that is looked at as it grows: each stage is followed by an interim analysis.

After a stage comes the next stage of what is still open. What an interim analysis decides is written before anything
that follows from it.
"""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import replace

from contrasweep.planning.plan import Plan
from contrasweep.planning.stages import stage
from contrasweep.planning.sweep import SweepPlan
from contrasweep.results.interim_analysis import take_look
from contrasweep.rows import Row
from contrasweep.storage.planned import write_planned
from contrasweep.storage.record import Phase, Record, TrialNotes
from contrasweep.storage.records import StudyRecords
from contrasweep.trial import Trial
from contrasweep.tuning.source import Finished, Next, Source
from contrasweep.tuning.sweep_source import SweepSource


class InterimSource(Source):
    """The trials of `inner` (the first stage, of a sweep its search too), then stage by stage what the looks grant."""

    def __init__(
        self, plan: Plan, inner: Source, records: StudyRecords, say: Callable[[str], None]
    ) -> None:
        """Wrap the source `inner` of `plan`'s first stage; `say` receives a line for each look.

        Looks that are due by what `records` has are taken at once.
        """
        self.inner = inner
        self.records = records
        self.say = say
        self.adaptive = inner.adaptive
        self.declared = plan
        self.waiting: deque[Trial] = deque()  # of the present stage, to be handed out
        self.running: set[str] = set()  # ids of trials that were handed out and have no record
        self.over = False  # whether the last look was taken
        # The first stage was finished by an earlier run: what follows it is known now.
        if inner.finished:
            self._advance()

    @property
    def plan(self) -> Plan:
        """The plan. That of a sweep includes the best configurations that its search has found so far."""
        if isinstance(self.inner, SweepSource) and isinstance(self.declared, SweepPlan):
            return replace(self.declared, best=self.inner.plan.best)
        return self.declared

    @property
    def finished(self) -> bool:
        """Return whether the last look was taken and every trial was handed out."""
        return self.over and not self.waiting

    def next(self, paused_arms: Collection[str] = ()) -> Next | Finished | None:
        """Return a trial of this stage; None while its last ones run; afterwards the first trial of the next stage.

        `Finished` once no stage follows. Arms of `paused_arms` suggest no new trial of a search.
        """
        # The first stage comes from the inner source, and its end too.
        if not self.waiting and not self.inner.finished:
            following = self.inner.next(paused_arms)
            if isinstance(following, Next):
                self.running.add(following.trial.id)
            if not isinstance(following, Finished):
                return following
        # A stage is looked at when all of its trials have ended.
        if not self.waiting and not self.over:
            if self.running:
                return None
            self._advance()
        if not self.waiting:
            return Finished()
        # Replicates after the first stage; those of a sweep confirm its best configurations.
        trial = self.waiting.popleft()
        self.running.add(trial.id)
        return Next(
            trial,
            TrialNotes(phase=Phase.CONFIRM)
            if isinstance(self.inner, SweepSource)
            else TrialNotes(),
        )

    def keep_going(self, trial_id: str, reports: list[Row]) -> bool:
        """Return whether a trial goes on: as the search says for its trials, and always for replicates."""
        return self.inner.keep_going(trial_id, reports)

    def done(self, record: Record) -> None:
        """Pass the record of a trial on to the inner source."""
        self.running.discard(record.trial_id)
        self.inner.done(record)

    def retry(self, trial_id: str) -> bool:
        """Return whether an ended trial runs again after all: what the inner source says while it hands out trials.

        False once a look has counted the trial.
        """
        if self.inner.finished or not self.inner.retry(trial_id):
            return False
        self.running.add(trial_id)
        return True

    def warnings(self) -> list[str]:
        """Return the warnings of the inner source."""
        return self.inner.warnings()

    def _advance(self) -> None:
        """Take the looks that are due, until there are trials to run or nothing is open."""
        while not self.over and not self.waiting:
            # The trials up to this stage are the study's plan from now on: the table has them.
            plan = self.plan
            now = stage(plan, self.records)
            frame = plan.to_frame()
            granted = {trial.id for trial in now.trials}
            frame = frame[frame["trial_id"].isin(granted)].reset_index(drop=True)
            write_planned(self.records, frame, self.declared.digest)
            # Where all of them have a record already, the look after them is due.
            finished = self.records.finished()
            self.waiting.extend(trial for trial in now.trials if trial.id not in finished)
            self.over = now.over
            if not self.waiting and not self.over:
                self.say(take_look(plan, now, self.records))
