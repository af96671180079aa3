"""The engine's source for a Sweep: a search per arm, interleaved, then the confirmation of each arm's best.

Knowledge lies in the storage alone. What was asked is written before it runs, one small file each:

    <study>/search/<digest of the arm's search>/<number>.json      the searched settings

so that an interrupted search goes on with the same configurations, from their checkpoints, and its searcher is
told every finished one again, in order of number.
"""

import json
import math
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from contrasweep import canonical, schedule, search
from contrasweep import records as rec
from contrasweep.records import Record, StudyRecords
from contrasweep.running.source import Finished, Next
from contrasweep.sweep_planning import SweepPlan, fixed_of, order
from contrasweep.trial import Trial

SEARCH, CONFIRM = "search", "confirm"
Prior = tuple[dict[str, Any], float]


@dataclass
class Asked:
    """One configuration of a search, its trials (one a fold) and their records."""

    number: int
    config: dict[str, Any]  # the searched settings
    trials: list[Trial]
    records: dict[str, Record] = field(default_factory=dict)
    told: bool = False

    def value(self, metric: str) -> float | None:
        """Mean over the folds of the last reports; None if a trial failed or reported nothing."""
        found = [r.metrics.get(metric, math.nan) for r in self.records.values() if r.status in (rec.DONE, rec.PRUNED)]
        whole = len(found) == len(self.trials) and all(math.isfinite(v) for v in found)
        return statistics.fmean(found) if whole else None


class ArmSearch:
    """The search of one arm."""

    def __init__(self, plan: SweepPlan, arm: str, base: Mapping[str, Any], records: StudyRecords, priors: Iterable[Prior]) -> None:
        study = plan.study
        self.plan, self.arm, self.records, self.space = plan, arm, records, study.arms[arm].space
        self.fixed = fixed_of(study.arms[arm], base)
        self.budget = study.trials_per_arm
        self.searcher = search.build(study.searcher, self.space, fixed=self.fixed, seed=study.search_seed, mode=study.mode,
                                     budget=self.budget, **study.searcher_options)  # fmt: skip
        self.scheduler: schedule.Scheduler | None = None
        if study.scheduler is not None:
            self.scheduler = schedule.build(study.scheduler, mode=study.mode, budget=self.budget, folds=len(plan.search_folds),
                                            **study.scheduler_options)  # fmt: skip
        self.asked: list[Asked] = []
        self.of: dict[str, Asked] = {}
        self.waiting: deque[Trial] = deque()
        self.first = self._learn(list(priors))
        self._restore()

    def next(self) -> Next | None:
        """A trial to start now, or None: not now, or never again."""
        self._promote()
        while not self.waiting and len(self.asked) < self.budget:
            config = self._ask()
            if config is None:
                self._close()
                return None
            number = len(self.asked)
            self.records.store.write(self._key(number), canonical.dumps(config).encode())
            self._add(number, config)
        if not self.waiting:
            return None
        trial = self.waiting.popleft()
        return Next(trial, {"phase": SEARCH, "number": self.of[trial.id].number})

    def keep_going(self, trial_id: str, reports: list[dict[str, Any]]) -> bool:
        metric = self.plan.study.metric
        if self.scheduler is None:
            return True
        return all(self.scheduler.decide(trial_id, row["step"], row[metric]) for row in reports if metric in row)

    def done(self, record: Record) -> None:
        self._take(record)
        self._tell()

    @property
    def over(self) -> bool:
        """Whether every configuration of the budget has its end."""
        return len(self.asked) == self.budget and all(asked.told for asked in self.asked)

    def best(self) -> Asked | None:
        """The best configuration of those that were trained to their end on all folds; the first of equals."""
        sign = 1 if self.plan.study.mode == "max" else -1
        whole = [a for a in self.asked if len(a.records) == len(a.trials) and all(r.status == rec.DONE for r in a.records.values())]
        return max(whole, key=lambda a: (sign * (a.value(self.plan.study.metric) or 0.0), -a.number), default=None)

    def whole_config(self, asked: Asked) -> dict[str, Any]:
        return {**self.fixed, **asked.config}

    def _ask(self) -> dict[str, Any] | None:
        if self.first is not None and not self.asked:
            self.searcher.replay(self.first)
            return self.first
        return self.searcher.ask()

    def _learn(self, priors: list[Prior]) -> dict[str, Any] | None:
        """Tell the searcher what earlier studies found; the best of that is asked first."""
        learn = getattr(self.searcher, "learn", None)
        for config, value in priors if learn else []:
            learn(config, value)  # type: ignore[misc]
        sign = 1 if self.plan.study.mode == "max" else -1
        return max(priors, key=lambda p: sign * p[1])[0] if priors else None

    def _restore(self) -> None:
        """What was asked and what became of it, from the storage. Trials without a record run again."""
        keys = sorted(self.records.store.list(self._key(None)))[: self.budget]
        for number, key in enumerate(keys):
            config = json.loads(self.records.store.read(key))
            self.searcher.replay(config)
            self._add(number, config)
        known = self.records.read(list(self.of))
        for asked in self.asked:
            for trial in asked.trials:
                if self.scheduler is not None:
                    self.keep_going(trial.id, self.records.metrics(trial.id))
                if trial.id in known:
                    self._take(known[trial.id])
        self.waiting = deque(trial for trial in self.waiting if trial.id not in known)
        self._tell()

    def _add(self, number: int, config: dict[str, Any]) -> None:
        whole = {**self.fixed, **config}
        trials = [self.plan.trial(self.arm, whole, fold, self.plan.study.search_seed) for fold in self.plan.search_folds]
        asked = Asked(number, config, trials)
        self.asked.append(asked)
        for trial in trials:
            self.of[trial.id] = asked
            self.waiting.append(trial)
            if self.scheduler is not None:
                self.scheduler.add(trial.id, number, trial.fold if trial.fold is not None else 0)

    def _take(self, record: Record) -> None:
        self.of[record.trial_id].records[record.trial_id] = record
        if self.scheduler is not None and record.status != rec.PRUNED:
            self.scheduler.end(record.trial_id, failed=record.status != rec.DONE)

    def _promote(self) -> None:
        """Let stopped trials go on from their checkpoints: without its record, a trial is not finished."""
        for trial_id in self.scheduler.promoted() if self.scheduler is not None else []:
            asked = self.of[trial_id]
            if asked.records.pop(trial_id, None) is not None:
                self.records.store.delete(self.records.key(trial_id, "record.json"))
                self.waiting.append(next(t for t in asked.trials if t.id == trial_id))
        self._tell()

    def _tell(self) -> None:
        for asked in self.asked:
            whole = len(asked.records) == len(asked.trials)
            if whole and not asked.told and not any(self._open(trial.id) for trial in asked.trials):
                asked.told = True
                pruned = [r.step for r in asked.records.values() if r.status == rec.PRUNED]
                self.searcher.tell(asked.config, asked.value(self.plan.study.metric), min(pruned) if pruned else None)

    def _open(self, trial_id: str) -> bool:
        """Whether a stopped trial may still be promoted."""
        return self.scheduler is not None and self.scheduler.waiting(trial_id)

    def _close(self) -> None:
        self.budget = len(self.asked)
        if self.scheduler is not None:
            self.scheduler.close(self.budget)

    def _key(self, number: int | None) -> str:
        folder = f"{self.records.study}/search/{self.plan.search_digest(self.arm)}/"
        return folder if number is None else f"{folder}{number:06d}.json"


class SweepSource:
    """All arms' searches in turns; an arm's confirmation starts when its search is over and a place is free.

    `confirmed` is told the plan each time one more arm's best is known.
    """

    def __init__(self, plan: SweepPlan, records: StudyRecords, confirmed: Callable[[SweepPlan], None]) -> None:
        self.plan, self.records, self.confirmed = plan, records, confirmed
        self.searches: dict[str, ArmSearch] = {}
        self.turns = deque(order(plan.study))
        self.confirmation: dict[str, deque[Trial]] = {}
        self._begin()

    def next(self) -> Next | Finished | None:
        self._begin()
        for _ in range(len(self.turns)):
            arm = self.turns[0]
            self.turns.rotate(-1)
            if arm in self.searches and (found := self.searches[arm].next()) is not None:
                return found
        self._begin()  # a search may just have found its space exhausted
        longest = max(self.confirmation.values(), key=len, default=None)  # replicate by replicate, not arm by arm
        if longest:
            return Next(longest.popleft(), {"phase": CONFIRM})
        return Finished() if self.finished else None

    @property
    def finished(self) -> bool:
        """Whether every trial has been handed out."""
        return len(self.confirmation) == len(self.turns) and not any(self.confirmation.values())

    def keep_going(self, trial_id: str, reports: list[dict[str, Any]]) -> bool:
        arm = self._arm(trial_id)
        return arm is None or arm.keep_going(trial_id, reports)

    def done(self, record: Record) -> None:
        if (arm := self._arm(record.trial_id)) is not None:
            arm.done(record)

    @property
    def unconfirmed(self) -> list[str]:
        """Arms of which no configuration was trained to its end."""
        return [name for name, arm in self.searches.items() if arm.over and arm.best() is None]

    def _arm(self, trial_id: str) -> ArmSearch | None:
        return next((arm for arm in self.searches.values() if trial_id in arm.of), None)

    def _begin(self) -> None:
        """Start searches whose base is tuned, and confirmations of arms whose search is over."""
        study = self.plan.study
        for arm in order(study):
            base = study.freeze.get(arm)
            if arm not in self.searches and (base is None or (base in self.searches and self.searches[base].over)):
                tuned = {} if base is None else self._tuned(base)
                self.searches[arm] = ArmSearch(self.plan, arm, tuned, self.records, self._priors(arm, tuned))
        if over := [arm for arm, found in self.searches.items() if found.over and arm not in self.confirmation]:
            found = {arm: self.searches[arm].best() for arm in study.arms if arm in over or arm in self.confirmation}
            best = {arm: self.searches[arm].whole_config(asked) for arm, asked in found.items() if asked is not None}
            self.plan = replace(self.plan, best=best)
            self.confirmed(self.plan)
            finished = self.records.finished()
            for arm in over:
                self.confirmation[arm] = deque(t for t in self.plan.trials if t.arm == arm and t.id not in finished)

    def _tuned(self, arm: str) -> dict[str, Any]:
        """The tuned settings of `arm`, with those it was itself frozen on."""
        found = self.searches[arm].best()
        below = self.plan.study.freeze.get(arm)
        return {**(self._tuned(below) if below else {}), **(found.config if found else {})}

    def _priors(self, arm: str, tuned: Mapping[str, Any]) -> list[Prior]:
        """Values of earlier studies' configurations that this arm could have asked: the same trainable, fixed
        settings and dataset. Trials on a test split are left out."""
        declared, study = self.plan.study.arms[arm], self.plan.study
        fixed = canonical.dumps(fixed_of(declared, tuned))
        values: dict[str, list[float]] = {}
        for name in study.warm_start:
            earlier = StudyRecords(self.records.storage, name)
            for record in earlier.read(sorted(earlier.finished())).values():
                searched = {k: v for k, v in record.config.items() if k in declared.space}
                rest = {k: v for k, v in record.config.items() if k not in declared.space}
                alike = (
                    canonical.dumps(rest) == fixed
                    and record.trainable == self.plan.trial(arm, {}, None, 0).trainable
                    and record.data["name"] == self.plan.data.name
                )
                value = record.metrics.get(study.metric, math.nan)
                usable = record.status == rec.DONE and math.isfinite(value) and (record.fold is None) == (study.folds is None)
                if alike and usable and search.fits(declared.space, searched, record.config):
                    values.setdefault(canonical.dumps(searched), []).append(value)
        return [(json.loads(text), statistics.fmean(found)) for text, found in values.items()]
