"""The search of one arm: what is tried next, when a trial is stopped, what its searcher learns, and what it costs.

Knowledge lies in the storage alone. A candidate is written before it runs, one small file each:

    <study>/search/<digest of the arm's search>/<number>.json      the searched settings

so that an interrupted search goes on with the same candidates, from their checkpoints, and its searcher learns of
every finished one again, in order of number.
"""

import math
import statistics
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from contrasweep import canonical
from contrasweep.config import Config, MutableConfig
from contrasweep.errors import BrokenFileError
from contrasweep.rows import Row, step_of
from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.record import Phase, Record, TrialNotes
from contrasweep.storage.records import StudyRecords
from contrasweep.study import dotted
from contrasweep.study.arm_budget import Spending
from contrasweep.study.space import Space
from contrasweep.trial import Trial
from contrasweep.tuning.design import SweepDesign
from contrasweep.tuning.pruners import CONTINUE
from contrasweep.tuning.source import Next


@dataclass
class Candidate:
    """One configuration of a search, its trials (one a fold) and the records of those that have ended.

    `number` counts the configurations of the arm from 0, in the order of asking. `records` is trial id -> record.
    """

    number: int
    config: MutableConfig  # the searched settings
    trials: list[Trial]
    records: dict[str, Record] = field(default_factory=dict)
    learned: bool = False  # whether the searcher has had its outcome

    def value(self, metric: str) -> float:
        """Return the mean of the metric over the trials that have ended; NaN where one lacks it, or none has."""
        values = [record.metrics.get(metric, math.nan) for record in self.records.values()]
        return statistics.fmean(values) if values else math.nan

    @property
    def whole(self) -> bool:
        """Whether each of its trials has ended, early or not."""
        return len(self.records) == len(self.trials)

    @property
    def counts(self) -> bool:
        """Whether each of its trials was trained to its end."""
        return self.whole and all(record.status.counts for record in self.records.values())

    @property
    def trained(self) -> bool:
        """Whether each of its trials was trained to its end, or until a pruner stopped it."""
        return self.whole and all(record.status.trained for record in self.records.values())


@stored
class CandidateSettings:
    """The content of a candidate's file: `config` is dotted setting -> value, of the searched settings."""

    config: Config


_REMEDY = "restore it from a backup, or `contrasweep verify STUDY --repair` puts the arm's search aside, to start anew"
CANDIDATE_FILE = JsonFile(CandidateSettings, 2, _REMEDY)
"""search/<digest>/<number>.json, written and read."""


def read_candidate(records: StudyRecords, key: str, space: Space) -> MutableConfig:
    """Return the searched settings in the file `key` of the storage, by dotted name.

    Raises `BrokenFileError` where the file is broken, or has a setting that `space` lacks or a value outside its range.
    Whether conditional settings (`when`) go together is not checked.
    """
    remedy = records.remedy(_REMEDY)
    config = dict(CANDIDATE_FILE.read(records.store, key, remedy).config)
    wrong = [
        name for name, value in config.items() if name not in space or not space[name].holds(value)
    ]
    if wrong:
        raise BrokenFileError(
            f"{records.store.uri}/{key}", f"{wrong[0]} is not in the arm's space", remedy
        )
    return config


class ArmSearch:
    """The search of one arm, within its budget.

    `plan` has the study, and makes the searcher and the pruner. `records` are those of the study, with its storage.
    `infeasible` are ids of trials whose record says that they fitted no host. They run again, as far as the budget
    goes.

    An object of this class takes up the search where the storage has it; then `next` hands out trials, and
    `keep_going` and `done` are told what becomes of them.
    """

    def __init__(
        self, plan: SweepDesign, arm: str, records: StudyRecords, infeasible: Collection[str] = ()
    ) -> None:
        study = plan.study
        self.plan = plan
        self.study = study
        self.arm = arm
        self.records = records
        self.fixed = dotted.merge(study.arms[arm].config)  # the settings that are not searched
        self.searcher = plan.searcher(arm, self.fixed)
        self.pruner = plan.pruner()
        self.spending = Spending(study.arm_budget, len(plan.search_folds))
        self.candidates: list[Candidate] = []
        self.of: dict[str, Candidate] = {}  # trial id -> its candidate
        self.waiting: deque[Trial] = deque()  # to be handed out, the next one first
        self.infeasible = set(infeasible)  # of these, the ones that are to run again
        self.folder = (
            f"{records.study}/search/{plan.search_digest(arm)}/"  # of its candidates' files
        )
        self.stopped: set[str] = set()  # trials without a record whose reports stop them
        self.closed = False  # there will be no more candidates
        self.starts = study.arms[arm].start_points or []  # tried before the searcher is asked
        self._restore()

    def next(self) -> Next | None:
        """Return a trial to start now.

        None where no trial can start now; `over` tells whether another one may follow later.
        """
        self._promote()
        # One request may give no trial to run: all of the candidate's trials may have a record already.
        while not self.waiting and not self.closed and self._ask_more():
            self._promote()  # the end of asking may have let trials go on
        if not self.waiting:
            return None
        trial = self.waiting.popleft()
        notes = TrialNotes(phase=Phase.SEARCH, candidate=self.of[trial.id].number)
        return Next(trial, notes, stopped=trial.id in self.stopped)

    def keep_going(self, trial_id: str, reports: list[Row]) -> bool:
        """Count the reported steps as spent; return whether the trial goes on.

        It does not from the first report on at which the pruner pauses or stops it; the pruner is not told of later
        ones. A report without the study's metric decides nothing.
        """
        # All steps count, because all were trained, whatever the pruner says of an earlier one.
        for row in reports:
            self.spending.report(trial_id, step_of(row))
        metric = self.study.metric
        return all(
            self.pruner.on_report(trial_id, step_of(row), row[metric]) is CONTINUE
            for row in reports
            if metric in row
        )

    def done(self, record: Record) -> None:
        """Take the record of a trial that has ended, and tell the searcher of candidates that are complete with it.

        The search is closed where the budget is spent by now.
        """
        self._take(record)
        self._tell()
        self._settle()

    def retry(self, trial_id: str) -> bool:
        """Count a trial that ended as infeasible as running again; return whether it may run.

        False where the search is over, its budget has no room, or the trial has no record. The candidate stays as it
        is; the searcher is told its outcome anew once the trial has ended. The trial is not put among those that wait:
        the caller starts it.
        """
        candidate = self.of[trial_id]
        if self.over or trial_id not in candidate.records or not self._room_again(candidate):
            return False
        del candidate.records[trial_id]
        self.spending.reopen(trial_id)
        # The searcher has heard that this candidate failed: it is asked for once more, to be told another outcome.
        if candidate.learned:
            candidate.learned = False
            self.searcher.replay(candidate.config)
        self._add_to_pruner(next(t for t in candidate.trials if t.id == trial_id), candidate.number)
        return True

    @property
    def over(self) -> bool:
        """Whether there will be no more candidates and each has ended."""
        return self.closed and all(candidate.learned for candidate in self.candidates)

    def best(self) -> Candidate | None:
        """Return the best configuration by its mean over the folds, the first of equals.

        Only those count that were trained to their end on all folds, with a finite mean; None where there is none.
        """
        sign = 1 if self.study.mode == "max" else -1  # so that the largest is the best
        values = {c.number: sign * c.value(self.study.metric) for c in self.candidates if c.counts}
        finite = {number: value for number, value in values.items() if math.isfinite(value)}
        return self.candidates[max(finite, key=finite.__getitem__)] if finite else None

    @property
    def _running(self) -> list[str]:
        """The ids of the candidates' trials that have not ended, whether they train or wait to be handed out."""
        return [
            trial.id
            for candidate in self.candidates
            if not candidate.whole
            for trial in candidate.trials
            if trial.id not in candidate.records
        ]

    def _ask_more(self) -> bool:
        """Add one more candidate, or close the search where the searcher has none left; return whether it did either.

        False where the budget has no room, or where earlier candidates must end first (see `_due`). The candidate is
        written to the storage before its trials wait. Those that have a record already are not run again, whoever ran
        them: the same trial has the same result.
        """
        if not self.spending.room(len(self.candidates), self._running):
            return False
        if not all(candidate.learned for candidate in self.candidates[: self._due]):
            return False
        config = self._ask()
        if config is None:
            self._close()
            return True
        # Written before it runs, so that an interrupted search goes on with the same candidate.
        content = {"config": canonical.Config(config)}
        CANDIDATE_FILE.write(
            self.records.store, f"{self.folder}{len(self.candidates):06d}.json", content
        )
        candidate = self._add(config)
        # What has a record is taken over from it, and leaves the trials that wait.
        recorded = self._recorded([candidate])
        self.waiting = deque(trial for trial in self.waiting if trial.id not in recorded)
        for record in recorded.values():
            self._take(record)
        self._tell()
        self._settle()
        return True

    def _settle(self) -> None:
        """Close the search where its budget has no room for another candidate, and never will have.

        While trials run, a budget of epochs or hours may get room again, because they may take less than was reckoned
        for them. A budget of configurations that are all asked for gets none.
        """
        running = self._running
        is_final = not running or len(self.candidates) == self.study.arm_budget.trials
        if is_final and not self.closed and not self.spending.room(len(self.candidates), running):
            self._close()

    def _ask(self) -> MutableConfig | None:
        """Return the next configuration: the declared start points first, then the searcher's; None where it has none.

        A start point is replayed to the searcher, so that it counts as asked for and its outcome can be told.
        """
        if len(self.candidates) < len(self.starts):
            config = dict(self.starts[len(self.candidates)])
            self.searcher.replay(config)
            return config
        return self.searcher.ask()

    def _restore(self) -> None:
        """Take up the candidates and their outcomes from the storage; trials without a record wait to run again.

        The searcher gets the candidates and outcomes in the order of number. With declared slots an outcome comes
        between the same two candidates as in the first run, because the next one was chosen by it; else all candidates
        come before the first outcome.
        """
        in_order = self.study.slots is not None
        for key in sorted(self.records.store.list(self.folder))[: self.study.arm_budget.trials]:
            config = read_candidate(self.records, key, self.study.arms[self.arm].space)
            # What the searcher knew when it chose this candidate.
            if in_order:
                self._tell()
            self.searcher.replay(config)
            candidate = self._add(config)
            if in_order:
                self._hear_again([candidate])
        # Pruners hear of all trials before they hear of any report, as where trials ran side by side.
        if not in_order:
            self._hear_again(self.candidates)
        self._leave_infeasible()
        self._tell()
        self._settle()

    def _hear_again(self, candidates: list[Candidate]) -> None:
        """Pass the stored reports of these candidates' trials to the pruner, and take over their records.

        A trial without a record whose last report stops it goes to `stopped`. These trials are handed out first, to be
        given the record that an earlier driver died before it wrote.
        """
        recorded = self._recorded(candidates)
        for candidate in candidates:
            for trial in candidate.trials:
                # Without a pruner, reports are read only to count the steps that no record says.
                rows = (
                    self.records.metrics(trial.id)
                    if self.study.pruner or trial.id not in recorded
                    else []
                )
                # One by one: a trial that was paused and resumed has reports after the one that paused it.
                going = [self.keep_going(trial.id, [row]) for row in rows]
                if trial.id in recorded:
                    self._take(recorded[trial.id])
                elif going and not going[-1]:
                    self.stopped.add(trial.id)
        # False sorts before True, so stopped trials come first; the others keep their order.
        still_waiting = (trial for trial in self.waiting if trial.id not in recorded)
        self.waiting = deque(sorted(still_waiting, key=lambda trial: trial.id not in self.stopped))

    def _recorded(self, candidates: Iterable[Candidate]) -> dict[str, Record]:
        """Return trial id -> record of these candidates' trials, without those of infeasible trials that run again."""
        ids = {trial.id for candidate in candidates for trial in candidate.trials}
        return self.records.read(ids - self.infeasible)

    def _room_again(self, candidate: Candidate) -> bool:
        """Whether the budget has room for a candidate that there is already, as if it were asked for only now."""
        # So it counts neither among the candidates nor among what runs.
        trial_ids = {trial.id for trial in candidate.trials}
        return self.spending.room(
            len(self.candidates) - 1, [i for i in self._running if i not in trial_ids]
        )

    def _leave_infeasible(self) -> None:
        """Keep the records of infeasible trials for which the budget has no room: later candidates have spent it.

        They do not run again, and leave the trials that wait.
        """
        for candidate in self.candidates:
            # `_take` drops a trial from `infeasible`, so these are the ones that would run again.
            again = [trial.id for trial in candidate.trials if trial.id in self.infeasible]
            if again and not self._room_again(candidate):
                for record in self.records.read(again).values():
                    self._take(record)
        self.waiting = deque(
            trial for trial in self.waiting if trial.id not in self.of[trial.id].records
        )

    def _add(self, config: MutableConfig) -> Candidate:
        """Return the candidate of the searched settings `config`, entered as the newest: its trials wait from now."""
        number = len(self.candidates)
        candidate = Candidate(
            number,
            config,
            self.plan.search_trials(self.arm, dotted.merge(self.fixed, dotted.expand(config))),
        )
        self.candidates.append(candidate)
        for trial in candidate.trials:
            self.of[trial.id] = candidate
            self.waiting.append(trial)
            self._add_to_pruner(trial, number)
        return candidate

    def _add_to_pruner(self, trial: Trial, number: int) -> None:
        """Tell the pruner of a trial of candidate `number`; where a study has no folds, its trials are of fold 0."""
        self.pruner.add(trial.id, number, trial.fold if trial.fold is not None else 0)

    def _take(self, record: Record) -> None:
        """Enter the record of a trial into its candidate, the spending and the pruner.

        The searcher is not told: `_tell` does that once the whole candidate has ended.
        """
        self.infeasible.discard(record.trial_id)
        self.stopped.discard(record.trial_id)
        self.of[record.trial_id].records[record.trial_id] = record
        self.spending.end(record)
        # A trial that a pruner stopped may be resumed; any other has ended for good.
        if record.status.stopped_early:
            self.pruner.on_pause(record.trial_id)
        else:
            self.pruner.on_end(record.trial_id, failed=not record.status.counts)

    def _promote(self) -> None:
        """Let stopped trials that the pruner resumes wait again; they go on from their checkpoints.

        Their records are deleted from the storage too: without a record, a trial is not finished.
        """
        for trial_id in self.pruner.resumable():
            candidate = self.of[trial_id]
            # A trial without a record waits or trains already.
            if candidate.records.pop(trial_id, None) is not None:
                self.spending.reopen(trial_id)
                self.records.reopen(trial_id)
                self.waiting.append(next(t for t in candidate.trials if t.id == trial_id))
        self._tell()

    @property
    def _due(self) -> int:
        """Return how many candidates, from the first on, must have ended before the next one is asked for.

        0 without declared slots. With `slots` of them the next candidate, number n from 1, waits for the first
        n - slots, and its choice rests on these alone, whatever else has ended.
        """
        slots = self.study.slots
        return 0 if slots is None else max(0, len(self.candidates) + 1 - slots)

    def _tell(self) -> None:
        """Tell the searcher of each candidate that is complete and that it has not heard of.

        With declared slots it hears, in the order of asking, of those alone on which the next choice may rest (see
        `_due`); once the search is closed there is no further choice, and it hears of all.
        """
        in_order = self.study.slots is not None and not self.closed
        for candidate in self.candidates[: self._due] if in_order else self.candidates:
            if candidate.learned:
                continue
            # Not complete: a trial has no record, or was paused and may still be resumed.
            if not candidate.whole or any(
                self.pruner.is_paused(trial.id) for trial in candidate.trials
            ):
                if in_order:
                    return
                continue
            candidate.learned = True
            value = candidate.value(self.study.metric)
            # A candidate with a stopped trial counts as pruned at the step of the first one; None: no trial was.
            pruned = [r.step for r in candidate.records.values() if r.status.stopped_early]
            usable = candidate.trained and math.isfinite(value)
            self.searcher.tell(
                candidate.config, value if usable else None, min(pruned) if pruned else None
            )

    def _close(self) -> None:
        """End the asking: candidates that there are train on, and the pruner decides what waited for further ones."""
        self.closed = True
        self.pruner.on_search_end(len(self.candidates))
        self._tell()
