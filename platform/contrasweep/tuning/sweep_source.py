"""The engine's source for a Sweep: a search per arm, interleaved, then the confirmation of each arm's best.

The state of a search is in the storage alone. Each candidate is written before it runs, as one small file:

    <study>/search/<digest of the arm's search>/<number>.json      the searched settings

An interrupted search goes on with the same candidates, from their checkpoints. Its searcher is told the outcome of
every finished candidate again, in the order of their numbers.
"""

import math
import statistics
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from contrasweep import canonical
from contrasweep.config import Config, MutableConfig
from contrasweep.errors import BrokenFileError
from contrasweep.rows import Row, step_of
from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.record import Phase, Record, TrialNotes
from contrasweep.storage.records import StudyRecords
from contrasweep.study import dotted
from contrasweep.study.arm_budget import Spending
from contrasweep.trial import Trial
from contrasweep.tuning.design import SweepDesign
from contrasweep.tuning.source import Finished, NextTrial, Source

MOST_REPEATS = 100
"""After so many candidates in a row that come to the trials of earlier ones a search ends: it would ask for ever."""


@dataclass
class Candidate:
    """One configuration of a search, with a trial for each search fold."""

    number: int  # among the arm's different configurations, from 0, in the order of asking
    config: MutableConfig  # the searched settings
    trials: list[Trial]
    # of trials that have ended, by trial id; shared by candidates whose settings come to the same trials
    records: dict[str, Record] = field(default_factory=dict)
    told: bool = False  # whether the searcher was told the outcome

    def value(self, metric: str) -> float:
        """Return the mean of the metric over the candidate's trials that have ended.

        NaN where one of these trials lacks the metric, or where none has ended.
        """
        values = [record.reported(metric) for record in self.records.values()]
        return statistics.fmean(values) if values else math.nan

    @property
    def whole(self) -> bool:
        """Return whether each trial has ended, whether trained to its end, stopped or failed."""
        return len(self.records) == len(self.trials)

    @property
    def counts(self) -> bool:
        """Return whether each trial was trained to its end."""
        return self.whole and all(record.status.counts for record in self.records.values())

    @property
    def trained(self) -> bool:
        """Return whether each trial was trained to its end, or until a pruner stopped it."""
        return self.whole and all(record.status.trained for record in self.records.values())


@stored
class CandidateSettings:
    """The content of a candidate's file: `config` has the searched settings, dotted name -> value."""

    config: Config


_REMEDY = "restore it from a backup, or `contrasweep verify STUDY --repair` puts the arm's search aside, to start anew"
CANDIDATE_FILE = JsonFile(CandidateSettings, 2, _REMEDY)
"""search/<digest>/<number>.json, written and read."""


class ArmSearch:
    """The search of one arm, within its budget.

    A new object continues the search that is in the storage. `next` then hands out trials, and `keep_going` and `done`
    receive their reports and records.

    Args:
        design: The design of the study, which makes the searcher and the pruner.
        arm: The arm.
        records: The study in the storage.
        infeasible: Ids of trials whose record says that they fitted no host. They run again, if the budget has room.
    """

    def __init__(
        self, design: SweepDesign, arm: str, records: StudyRecords, infeasible: Collection[str]
    ) -> None:
        study = design.study
        self.design = design
        self.study = study
        self.arm = arm
        self.records = records
        self.fixed = dotted.merge(study.arms[arm].config)  # the settings that are not searched
        self.searcher = design.searcher(arm, self.fixed)
        self.pruner = design.pruner()
        self.spending = Spending(study.arm_budget, len(design.search_folds))
        self.candidates: list[Candidate] = []
        self.candidate_of: dict[str, Candidate] = {}  # trial id -> its candidate
        self.waiting: deque[Trial] = deque()  # to be handed out, the next one first
        self.run_again = set(infeasible)  # ids of infeasible trials
        self.folder = f"{records.study}/search/{design.search_digest(arm)}/"  # of candidates' files
        self.stopped: set[str] = set()  # ids of trials without a record whose reports stop them
        self.closed = False  # whether there will be no more candidates
        self.repeats = 0  # the newest candidates, in a row, that brought no trial of their own
        self.start_points = study.arms[arm].start_points or []  # tried before the searcher is asked
        self._restore()

    def next(self) -> NextTrial | None:
        """Return a trial to start now; None where there is none at present.

        After None, `over` says whether there may be another trial later.
        """
        self._promote()
        # A new candidate may bring no trial, because all of its trials have a record already. At the end of asking, the
        # pruner may resume trials.
        while not self.waiting and not self.closed and self._ask_more():
            self._promote()
        if not self.waiting:
            return None
        trial = self.waiting.popleft()
        notes = TrialNotes(phase=Phase.SEARCH, candidate=self.candidate_of[trial.id].number)
        return NextTrial(trial, notes, stopped=trial.id in self.stopped)

    def keep_going(self, trial_id: str, reports: list[Row]) -> bool:
        """Count the reported steps as spent, and return whether the trial goes on, as the pruner says.

        Of several reports, the first one at which the pruner stops the trial decides; the pruner is not told later
        ones. A report without the study's metric decides nothing.
        """
        # All steps were trained, so all of them count as spent.
        for row in reports:
            self.spending.report(trial_id, step_of(row))
        metric = self.study.metric
        return all(
            self.pruner.on_report(trial_id, step_of(row), row[metric])
            for row in reports
            if metric in row
        )

    def done(self, record: Record) -> None:
        """Note that a trial has ended with this record.

        If all trials of its candidate have ended now, the searcher is told the candidate's outcome. If the budget is
        spent now, the search closes.
        """
        self._take(record)
        self._tell()
        self._close_if_spent()

    def retry(self, trial_id: str) -> bool:
        """Let a trial that ended as infeasible run again; return whether it may. The caller then starts it.

        It may not where the search is over, where its budget has no room, or where the trial has no record. Once the
        trial has ended again, the searcher is told the new outcome of its candidate.
        """
        candidate = self.candidate_of[trial_id]
        if self.over or trial_id not in candidate.records or not self._room_again(candidate):
            return False
        del candidate.records[trial_id]
        self.spending.reopen(trial_id)
        # The searcher was told that these settings failed. Replayed, they count as asked for again, and it can be told
        # another outcome. Candidates that share the trials share `records`.
        for same in self.candidates:
            if same.records is candidate.records and same.told:
                same.told = False
                self.searcher.replay(same.config)
        self._add_to_pruner(
            next(trial for trial in candidate.trials if trial.id == trial_id), candidate.number
        )
        return True

    @property
    def over(self) -> bool:
        """Return whether there will be no more candidates and each has ended."""
        return self.closed and all(candidate.told for candidate in self.candidates)

    def best(self) -> Candidate | None:
        """Return the candidate with the best mean over the folds, the first of equals; None where there is none.

        Only candidates count that were trained to their end on all folds, and whose mean is finite.
        """
        metric = self.study.metric
        sign = 1 if self.study.mode == "max" else -1  # so that the largest is the best
        candidates = [
            candidate
            for candidate in self.candidates
            if candidate.counts and math.isfinite(candidate.value(metric))
        ]
        return max(candidates, key=lambda candidate: sign * candidate.value(metric), default=None)

    @property
    def _running(self) -> list[str]:
        """Return the ids of the trials that have not ended, whether they train or wait to be handed out."""
        return [i for i, candidate in self.candidate_of.items() if i not in candidate.records]

    def _ask_more(self) -> bool:
        """Add a candidate, or close the search where the searcher has none left; return whether either was done.

        False where the budget has no room, or where earlier candidates must end first (see `_due`).
        """
        if not self.spending.room(len(self.candidates), self._running):
            return False
        if not all(candidate.told for candidate in self.candidates[: self._due]):
            return False
        config = None if self.repeats == MOST_REPEATS else self._ask()
        if config is None:
            self._close()
            return True
        # The candidate is written before it runs, so that an interrupted search goes on with the same one.
        content = {"config": canonical.Config(config)}
        CANDIDATE_FILE.write(
            self.records.store, f"{self.folder}{len(self.candidates):06d}.json", content
        )
        candidate = self._add(config)
        # A trial that has a record already, whoever ran it, is not run again: the same trial has the same result.
        recorded = self._recorded([candidate])
        self.waiting = deque(trial for trial in self.waiting if trial.id not in recorded)
        for record in recorded.values():
            self._take(record)
        self._tell()
        self._close_if_spent()
        return True

    def _close_if_spent(self) -> None:
        """End the asking (`_close`) where the budget has no room for another candidate and cannot get room any more."""
        # While trials run, a budget of epochs or hours may get room again: they may take less than was assumed. A
        # budget of configurations gets no room once all are asked for.
        running = self._running
        is_final = not running or len(self.candidates) == self.study.arm_budget.trials
        if is_final and not self.closed and not self.spending.room(len(self.candidates), running):
            self._close()

    def _ask(self) -> MutableConfig | None:
        """Return the next configuration: first the declared start points, then what the searcher suggests.

        None where the searcher has no more.
        """
        # A start point is replayed to the searcher: it counts as asked for, so that its outcome can be told.
        if len(self.candidates) < len(self.start_points):
            config = dict(self.start_points[len(self.candidates)])
            self.searcher.replay(config)
            return config
        return self.searcher.ask()

    def _restore(self) -> None:
        """Continue the search from the candidates and records in the storage.

        Trials without a record wait to run again. The searcher is told the candidates and their outcomes, in the order
        of their numbers. Without declared slots it gets all candidates first. With slots it gets each outcome before
        the first candidate that was chosen by it in the first run.

        `BrokenFileError` where a stored candidate is not in the arm's space.
        """
        in_order = self.study.slots is not None
        remedy = self.records.remedy(_REMEDY)
        space = self.study.arms[self.arm].space
        # A budget of fewer configurations than in an earlier run takes the first of them; None takes all.
        for key in sorted(self.records.store.list(self.folder))[: self.study.arm_budget.trials]:
            config = dict(CANDIDATE_FILE.read(self.records.store, key, remedy).config)
            # Whether conditional settings (`when`) fit together is not checked.
            for name, value in config.items():
                if name not in space or not space[name].holds(value):
                    file = f"{self.records.store.uri}/{key}"
                    raise BrokenFileError(file, f"{name} is not in the arm's space", remedy)
            # The outcomes that the searcher knew when it chose this candidate.
            if in_order:
                self._tell()
            self.searcher.replay(config)
            candidate = self._add(config)
            if in_order:
                self._replay_trials([candidate])
        # Trials may have run side by side, so the pruner gets all trials before the first report.
        if not in_order:
            self._replay_trials(self.candidates)
        # Before the searcher is told: where the budget has no room for them, infeasible trials stay as they ended.
        self._leave_infeasible()
        self._tell()
        self._close_if_spent()

    def _replay_trials(self, candidates: list[Candidate]) -> None:
        """Tell the pruner the stored reports of these candidates' trials, and take the records of ended ones.

        A trial may have been stopped by its pruner in an earlier run, and that driver was lost before it wrote the
        record. Such trials are added to `stopped`. They are handed out first, only to get their record.
        """
        recorded = self._recorded(candidates)
        for candidate in candidates:
            for trial in candidate.trials:
                # An earlier candidate may have the same trials.
                if self.candidate_of[trial.id] is not candidate:
                    continue
                # Without a pruner, only reports of trials without a record are read, to count their steps.
                rows: list[Row] = []
                if self.study.pruner or trial.id not in recorded:
                    rows = self.records.metrics(trial.id)
                # The last report decides: a trial that was paused and resumed has reports after the pause.
                goes_on = True
                for row in rows:
                    goes_on = self.keep_going(trial.id, [row])
                if trial.id in recorded:
                    self._take(recorded[trial.id])
                elif not goes_on:
                    self.stopped.add(trial.id)
        # Stopped trials come first (False sorts before True); else the order stays.
        waiting = [trial for trial in self.waiting if trial.id not in recorded]
        self.waiting = deque(sorted(waiting, key=lambda trial: trial.id not in self.stopped))

    def _recorded(self, candidates: Iterable[Candidate]) -> dict[str, Record]:
        """Return trial id -> record of the trials of these candidates.

        Infeasible trials that are to run again count as having no record.
        """
        ids = {trial.id for candidate in candidates for trial in candidate.trials}
        return self.records.read(ids - self.run_again)

    def _room_again(self, candidate: Candidate) -> bool:
        """Return whether the budget has room to run `candidate` again, as if it had not been asked for yet."""
        # The candidate itself counts neither among the candidates nor among the running trials.
        trial_ids = {trial.id for trial in candidate.trials}
        running = [trial_id for trial_id in self._running if trial_id not in trial_ids]
        return self.spending.room(len(self.candidates) - 1, running)

    def _leave_infeasible(self) -> None:
        """Leave infeasible trials as they have ended where the budget has no room to run them again.

        Later candidates may have spent the budget. Such trials keep their records, and do not wait any more.
        """
        for candidate in self.candidates:
            # Trials that would run again: `_take` removes all others from `run_again`.
            rerun_ids = [trial.id for trial in candidate.trials if trial.id in self.run_again]
            if rerun_ids and not self._room_again(candidate):
                for record in self.records.read(rerun_ids).values():
                    self._take(record)
        # Trials that have a record now do not wait any more.
        self.waiting = deque(
            trial for trial in self.waiting if trial.id not in self.candidate_of[trial.id].records
        )

    def _add(self, config: MutableConfig) -> Candidate:
        """Add and return a candidate with the searched settings `config`; its trials wait to be handed out from now on.

        Two configurations may mean the same trials: `auto` and 16, for example, where `auto` is resolved to 16. Then
        the new candidate shares trials and records with the earlier one, so that each trial runs once.
        """
        whole_config = dotted.merge(self.fixed, dotted.expand(config))
        trials = self.design.search_trials(self.arm, whole_config)
        # The earlier candidate that has the same trials. `repeats` counts such candidates in a row, because a search
        # with too many of them ends (`MOST_REPEATS`).
        earlier = self.candidate_of.get(trials[0].id)
        self.repeats = 0 if earlier is None else self.repeats + 1
        if earlier is not None:
            self.candidates.append(replace(earlier, config=config, told=False))
            return self.candidates[-1]
        candidate = Candidate(self._different_configs, config, trials)
        self.candidates.append(candidate)
        for trial in trials:
            self.candidate_of[trial.id] = candidate
            self.waiting.append(trial)
            self._add_to_pruner(trial, candidate.number)
        return candidate

    @property
    def _different_configs(self) -> int:
        """Return the number of candidates so far that brought trials of their own.

        It is also the `number` of the next such candidate.
        """
        return len(self.candidate_of) // len(self.design.search_folds)

    def _add_to_pruner(self, trial: Trial, number: int) -> None:
        """Tell the pruner of a trial of candidate `number`; a trial without a fold counts as one of fold 0."""
        self.pruner.add(trial.id, number, trial.fold or 0)

    def _take(self, record: Record) -> None:
        """Note that a trial has ended with `record`: in its candidate, in what the arm has spent, and in the pruner.

        The searcher is not told here, but by `_tell` once all trials of the candidate have ended.
        """
        self.run_again.discard(record.trial_id)
        self.stopped.discard(record.trial_id)
        self.candidate_of[record.trial_id].records[record.trial_id] = record
        self.spending.end(record)
        status = record.status
        self.pruner.on_end(record.trial_id, stopped=status.stopped_early, failed=not status.counts)

    def _promote(self) -> None:
        """Hand out again the stopped trials that the pruner lets resume; they go on from their checkpoints."""
        for trial_id in self.pruner.resumable():
            candidate = self.candidate_of[trial_id]
            # A trial without a record waits or trains already. The record is deleted, also in the storage, because a
            # trial with a record is finished.
            if candidate.records.pop(trial_id, None) is not None:
                self.spending.reopen(trial_id)
                self.records.reopen(trial_id)
                self.waiting.append(
                    next(trial for trial in candidate.trials if trial.id == trial_id)
                )
        self._tell()

    @property
    def _due(self) -> int:
        """Return how many of the first candidates must have ended before the next one is asked for.

        Without declared slots it is 0. With slots, the n-th candidate (from 1) waits for the first n - slots
        candidates, and is chosen by their outcomes alone. So it does not matter which of the others have ended.
        Candidates that share the trials of earlier ones take no slot, and are not counted in n.
        """
        if self.study.slots is None:
            return 0
        # The number of the last candidate that must have ended.
        last = self._different_configs - self.study.slots
        numbers = [candidate.number for candidate in self.candidates]
        return numbers.index(last) + 1 if last >= 0 else 0

    def _tell(self) -> None:
        """Tell the searcher the outcome of each complete candidate, once.

        With declared slots these are, in the order of asking, only the candidates by which the next one is chosen (see
        `_due`). Once the search is closed no other is chosen, and all outcomes are told.
        """
        in_order = self.study.slots is not None and not self.closed
        candidates = self.candidates[: self._due] if in_order else self.candidates
        for candidate in candidates:
            if candidate.told:
                continue
            # A candidate is incomplete while a trial has no record, or is paused and may still be resumed.
            if not candidate.whole or any(
                self.pruner.is_paused(trial.id) for trial in candidate.trials
            ):
                # In order, no later candidate is told before this one.
                if in_order:
                    return
                continue
            candidate.told = True
            value = candidate.value(self.study.metric)
            score = value if candidate.trained and math.isfinite(value) else None
            # If trials were stopped early, the candidate counts as pruned at the smallest of their steps.
            pruned = [
                record.step for record in candidate.records.values() if record.status.stopped_early
            ]
            self.searcher.tell(candidate.config, score, min(pruned, default=None))

    def _close(self) -> None:
        """Ask the searcher for no more candidates, and tell this to the pruner; running trials train on.

        The pruner then decides on paused trials that waited for further candidates.
        """
        self.closed = True
        self.pruner.on_search_end(self._different_configs)
        self._tell()


class SweepSource(Source):
    """Hands out the trials of a Sweep: those of the arms' searches in turn, and those of the confirmations.

    The confirmation of an arm begins once its search is over. Then `on_best_found` is called with the design, whose
    `best` has this arm too.
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
        """Return the next trial: of the searches, which take turns, and else of the confirmation with most trials left.

        Arms in `paused_arms` are skipped. None where there is no trial before another result; `Finished` where all
        trials have been handed out.
        """
        self._begin()
        for _ in range(len(self.turns)):
            arm = self.turns[0]
            self.turns.rotate(-1)  # the next arm's turn
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
        """Return whether a trial that ended as infeasible runs after all.

        A trial of a confirmation always does; one of a search if the search allows it (`ArmSearch.retry`).
        """
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
            stopped = ""
            if search.spending.hopeless:
                stopped = "; its search ended after these, since none of them reported anything"
            return f"no trial of its search was trained to its end ({counts or 'there was none'}{stopped})"
        return "no configuration was trained to its end on all search folds"

    def _search_of(self, trial_id: str) -> ArmSearch | None:
        """Return the search that a trial belongs to; None for a trial of a confirmation."""
        return next(
            (search for search in self.searches.values() if trial_id in search.candidate_of), None
        )

    def _begin(self) -> None:
        """Begin the confirmation of each arm whose search has ended since the last call.

        An arm without a best configuration has no trials to confirm. Trials that have a record are left out.
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
