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
    """One configuration of a search, its trials (one a fold) and their records."""

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
    """The content of a candidate's file."""

    config: Config


_REMEDY = "restore it from a backup, or `contrasweep verify STUDY --repair` puts the arm's search aside, to start anew"
CANDIDATE_FILE = JsonFile(CandidateSettings, 2, _REMEDY)
"""search/<digest>/<number>.json, written and read."""


def read_candidate(records: StudyRecords, key: str, space: Space) -> MutableConfig:
    """Return the candidate in a file; `BrokenFileError` where it is broken or no point of `space`."""
    remedy = records.remedy(_REMEDY)
    config = dict(CANDIDATE_FILE.read(records.store, key, remedy).config)
    if wrong := [
        name for name, value in config.items() if name not in space or not space[name].holds(value)
    ]:
        raise BrokenFileError(
            f"{records.store.uri}/{key}", f"{wrong[0]} is not in the arm's space", remedy
        )
    return config


class ArmSearch:
    """The search of one arm, within its budget.

    `infeasible` are trials whose record says that they fitted no host. They run again, as far as the budget goes.
    """

    def __init__(
        self, plan: SweepDesign, arm: str, records: StudyRecords, infeasible: Collection[str] = ()
    ) -> None:
        study = plan.study
        self.plan = plan
        self.study = study
        self.arm = arm
        self.records = records
        self.fixed = dotted.merge(study.arms[arm].config)
        self.searcher = plan.searcher(arm, self.fixed)
        self.pruner = plan.pruner()
        self.spending = Spending(study.arm_budget, len(plan.search_folds))
        self.candidates: list[Candidate] = []
        self.of: dict[str, Candidate] = {}
        self.waiting: deque[Trial] = deque()
        self.infeasible = set(infeasible)
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
        while not self.waiting and not self.closed and self._ask_more():
            self._promote()  # the end of asking may have let trials go on
        if not self.waiting:
            return None
        trial = self.waiting.popleft()
        notes = TrialNotes(phase=Phase.SEARCH, candidate=self.of[trial.id].number)
        return Next(trial, notes, stopped=trial.id in self.stopped)

    def keep_going(self, trial_id: str, reports: list[Row]) -> bool:
        """Count the reported steps as spent; return False as soon as the pruner pauses or stops the trial."""
        for row in reports:
            self.spending.report(trial_id, step_of(row))
        metric = self.study.metric
        return all(
            self.pruner.on_report(trial_id, step_of(row), row[metric]) is CONTINUE
            for row in reports
            if metric in row
        )

    def done(self, record: Record) -> None:
        """Take a trial's record; tell the searcher of candidates that are complete with it."""
        self._take(record)
        self._tell()
        self._settle()

    def retry(self, trial_id: str) -> bool:
        """Let a trial run that ended as infeasible, unless the search is over or its budget has no room.

        The searcher is asked nothing, and told what comes of it.
        """
        candidate = self.of[trial_id]
        if self.over or trial_id not in candidate.records or not self._room_again(candidate):
            return False
        del candidate.records[trial_id]
        self.spending.reopen(trial_id)
        if candidate.learned:  # that it failed
            candidate.learned = False
            self.searcher.replay(candidate.config)
        self._add_to_pruner(next(t for t in candidate.trials if t.id == trial_id), candidate.number)
        return True

    @property
    def over(self) -> bool:
        """Whether there will be no more candidates and each has ended."""
        return self.closed and all(candidate.learned for candidate in self.candidates)

    def best(self) -> Candidate | None:
        """Return the best configuration among those trained to their end on all folds, the first of equals.

        None without any.
        """
        sign = 1 if self.study.mode == "max" else -1
        values = {c.number: sign * c.value(self.study.metric) for c in self.candidates if c.counts}
        finite = {number: value for number, value in values.items() if math.isfinite(value)}
        return self.candidates[max(finite, key=finite.__getitem__)] if finite else None

    @property
    def _running(self) -> list[str]:
        """Trials that were handed out, or will be, and have not ended."""
        return [
            trial.id
            for candidate in self.candidates
            if not candidate.whole
            for trial in candidate.trials
            if trial.id not in candidate.records
        ]

    def _ask_more(self) -> bool:
        """Add one more candidate, if the budget has room for it; return whether that changed anything.

        Its trials that have a record already are not run again, whoever ran them: the same trial has the same result.
        """
        if not self.spending.room(len(self.candidates), self._running):
            return False
        if not all(candidate.learned for candidate in self.candidates[: self._due]):
            return False
        config = self._ask()
        if config is None:
            self._close()
            return True
        content = {"config": canonical.Config(config)}
        CANDIDATE_FILE.write(
            self.records.store, f"{self.folder}{len(self.candidates):06d}.json", content
        )
        candidate = self._add(config)
        recorded = self._recorded([candidate])
        self.waiting = deque(trial for trial in self.waiting if trial.id not in recorded)
        for record in recorded.values():
            self._take(record)
        self._tell()
        self._settle()
        return True

    def _settle(self) -> None:
        """Close the search once its budget is spent: what still runs may leave room for more."""
        running = self._running
        last = not running or len(self.candidates) == self.study.arm_budget.trials
        if last and not self.closed and not self.spending.room(len(self.candidates), running):
            self._close()

    def _ask(self) -> MutableConfig | None:
        if len(self.candidates) < len(self.starts):
            config = dict(self.starts[len(self.candidates)])
            self.searcher.replay(config)
            return config
        return self.searcher.ask()

    def _restore(self) -> None:
        """The candidates and their outcomes, from the storage. Trials without a record run again."""
        in_order = self.study.slots is not None
        for key in sorted(self.records.store.list(self.folder))[: self.study.arm_budget.trials]:
            config = read_candidate(self.records, key, self.study.arms[self.arm].space)
            if in_order:
                self._tell()
            self.searcher.replay(config)
            candidate = self._add(config)
            if in_order:
                self._hear_again([candidate])
        if not in_order:
            self._hear_again(self.candidates)
        self._leave_infeasible()
        self._tell()
        self._settle()

    def _hear_again(self, candidates: list[Candidate]) -> None:
        """Pass the stored reports of these candidates' trials to the pruner, and take over their records.

        Trials whose reports stop them are handed out first, to be given the record that they lack.
        """
        recorded = self._recorded(candidates)
        for candidate in candidates:
            for trial in candidate.trials:
                rows = (
                    self.records.metrics(trial.id)
                    if self.study.pruner or trial.id not in recorded
                    else []
                )
                going = [self.keep_going(trial.id, [row]) for row in rows]
                if trial.id in recorded:
                    self._take(recorded[trial.id])
                elif going and not going[-1]:
                    self.stopped.add(trial.id)
        still_waiting = (trial for trial in self.waiting if trial.id not in recorded)
        self.waiting = deque(sorted(still_waiting, key=lambda trial: trial.id not in self.stopped))

    def _recorded(self, candidates: Iterable[Candidate]) -> dict[str, Record]:
        """Return the records of their trials, without those of trials that run again."""
        ids = {trial.id for candidate in candidates for trial in candidate.trials}
        return self.records.read(ids - self.infeasible)

    def _room_again(self, candidate: Candidate) -> bool:
        """Whether the budget still has room for one of the candidates that there are."""
        trial_ids = {trial.id for trial in candidate.trials}
        return self.spending.room(
            len(self.candidates) - 1, [i for i in self._running if i not in trial_ids]
        )

    def _leave_infeasible(self) -> None:
        """Keep the records of infeasible trials for which the budget has no room any more: others had theirs."""
        for candidate in self.candidates:
            again = [trial.id for trial in candidate.trials if trial.id in self.infeasible]
            if again and not self._room_again(candidate):
                for record in self.records.read(again).values():
                    self._take(record)
        self.waiting = deque(
            trial for trial in self.waiting if trial.id not in self.of[trial.id].records
        )

    def _add(self, config: MutableConfig) -> Candidate:
        """Enter a configuration: its trials wait from now on."""
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
        self.pruner.add(trial.id, number, trial.fold if trial.fold is not None else 0)

    def _take(self, record: Record) -> None:
        """Enter the record of a trial into its candidate, the spending and the pruner."""
        self.infeasible.discard(record.trial_id)
        self.stopped.discard(record.trial_id)
        self.of[record.trial_id].records[record.trial_id] = record
        self.spending.end(record)
        if record.status.stopped_early:
            self.pruner.on_pause(record.trial_id)
        else:
            self.pruner.on_end(record.trial_id, failed=not record.status.counts)

    def _promote(self) -> None:
        """Let stopped trials go on from their checkpoints: without its record, a trial is not finished."""
        for trial_id in self.pruner.resumable():
            candidate = self.of[trial_id]
            if candidate.records.pop(trial_id, None) is not None:
                self.spending.reopen(trial_id)
                self.records.reopen(trial_id)
                self.waiting.append(next(t for t in candidate.trials if t.id == trial_id))
        self._tell()

    @property
    def _due(self) -> int:
        """Return how many candidates, from the first on, must have ended before the next one is asked for.

        With declared slots they are the only ones that may be.
        """
        slots = self.study.slots
        return 0 if slots is None else max(0, len(self.candidates) + 1 - slots)

    def _tell(self) -> None:
        """Tell the searcher of each candidate that is complete, in the order of asking where the study needs that."""
        in_order = self.study.slots is not None and not self.closed
        for candidate in self.candidates[: self._due] if in_order else self.candidates:
            if candidate.learned:
                continue
            # A stopped trial may still be promoted.
            if not candidate.whole or any(
                self.pruner.is_paused(trial.id) for trial in candidate.trials
            ):
                if in_order:
                    return
                continue
            candidate.learned = True
            value = candidate.value(self.study.metric)
            pruned = [r.step for r in candidate.records.values() if r.status.stopped_early]
            usable = candidate.trained and math.isfinite(value)
            self.searcher.tell(
                candidate.config, value if usable else None, min(pruned) if pruned else None
            )

    def _close(self) -> None:
        self.closed = True
        self.pruner.on_search_end(len(self.candidates))
        self._tell()
