"""The source of a study with interim analyses (looks): it trains stage by stage, with a look after each stage.

A look decides comparisons; the next stage has the trials of those that are still open. The decision is written before
the first trial that follows from it.
"""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import replace

from contrasweep.planning.planner import Plan
from contrasweep.planning.stages import stage
from contrasweep.planning.sweep import SweepPlan
from contrasweep.results.interim_analysis import take_look
from contrasweep.rows import Row
from contrasweep.storage.planned import write_planned
from contrasweep.storage.record import Phase, Record, TrialNotes
from contrasweep.storage.records import StudyRecords
from contrasweep.trial import Trial
from contrasweep.tuning.source import Finished, NextTrial, Source
from contrasweep.tuning.sweep_source import SweepSource


class InterimSource(Source):
    """Hands out the trials of the first stage from the source `inner`, and then those of each further stage.

    After each stage comes a look (interim analysis), which decides what the next stage has. In a sweep `inner` also
    hands out the trials of the search, before the first stage ends.
    """

    def __init__(
        self, plan: Plan, inner: Source, records: StudyRecords, say: Callable[[str], None]
    ) -> None:
        """Wrap the source `inner` of `plan`'s first stage; `say` receives a line for each look.

        Where `records` has all trials of the first stage, the looks that are due are taken at once.
        """
        self.inner = inner
        self.records = records
        self.say = say
        self.adaptive = inner.adaptive
        self.declared = plan
        self.waiting: deque[Trial] = deque()  # of the present stage, to be handed out
        self.running: set[str] = set()  # ids of trials that were handed out and have no record
        self.over = False  # whether no stage follows
        # An earlier run has finished the first stage.
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

    def next(self, paused_arms: Collection[str] = ()) -> NextTrial | Finished | None:
        """Return the next trial of the present stage, or of the next stage once all trials of the present one ended.

        None while the last trials of a stage run; `Finished` once no stage follows. In a search, the arms in
        `paused_arms` suggest no new trial.
        """
        if not self.waiting:
            # The first stage comes from the inner source, until that is finished: then the next stage begins below.
            if not self.inner.finished:
                following = self.inner.next(paused_arms)
                if isinstance(following, NextTrial):
                    self.running.add(following.trial.id)
                if not isinstance(following, Finished):
                    return following
            # A stage is looked at when all of its trials have ended.
            if not self.over:
                if self.running:
                    return None
                self._advance()
        if not self.waiting:
            return Finished()
        # Replicates after the first stage; those of a sweep confirm its best configurations.
        trial = self.waiting.popleft()
        self.running.add(trial.id)
        if isinstance(self.inner, SweepSource):
            return NextTrial(trial, TrialNotes(phase=Phase.CONFIRM))
        return NextTrial(trial)

    def keep_going(self, trial_id: str, reports: list[Row]) -> bool:
        """Return whether a trial goes on: the search decides for its own trials; replicates always go on."""
        return self.inner.keep_going(trial_id, reports)

    def done(self, record: Record) -> None:
        """Note that a trial has ended with this record, and tell the inner source."""
        self.running.discard(record.trial_id)
        self.inner.done(record)

    def retry(self, trial_id: str) -> bool:
        """Return whether a trial that ended as infeasible runs after all.

        The inner source decides, as long as it hands out trials. After that the answer is False, because a look has
        counted the trial as ended.
        """
        if self.inner.finished or not self.inner.retry(trial_id):
            return False
        self.running.add(trial_id)
        return True

    def warnings(self) -> list[str]:
        """Return the warnings of the inner source."""
        return self.inner.warnings()

    def _advance(self) -> None:
        """Go on to the next stage that has trials to run, and take each look on the way there; or to the end.

        A stage whose trials all have records already is passed at once. Each stage is written to the stored plan.
        """
        while not self.over and not self.waiting:
            # The stored plan has the trials up to this stage, so that the table shows them.
            plan = self.plan
            present = stage(plan, self.records)
            frame = plan.to_frame()
            granted = {trial.id for trial in present.trials}
            frame = frame[frame["trial_id"].isin(granted)].reset_index(drop=True)
            write_planned(self.records, frame, self.declared.digest)
            # Where all of them have a record already, the look after them is due.
            finished = self.records.finished()
            self.waiting.extend(trial for trial in present.trials if trial.id not in finished)
            self.over = present.over
            if not self.waiting and not self.over:
                self.say(take_look(plan, present, self.records))
