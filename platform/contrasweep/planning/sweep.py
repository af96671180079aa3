"""The plan of a `Sweep`: a search per arm under one budget, then the confirmation."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from contrasweep import canonical
from contrasweep.data.manifest import NO_DATA, Manifest
from contrasweep.errors import SpecError, plural
from contrasweep.planning.grid import too_many_folds
from contrasweep.planning.plan import Cell, PlanBase, PlanRow, Resolve
from contrasweep.planning.stages import stage
from contrasweep.storage.interim_log import (
    Confirmation,
    is_another,
    read_looks,
    write_confirmation,
    write_looks,
)
from contrasweep.storage.planned import is_whole, write_planned
from contrasweep.storage.record import Phase, Record, RecordsById
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import DeclaredSearch
from contrasweep.study.arm_budget import of_search, search_costs
from contrasweep.study.file import to_plain
from contrasweep.study.sweep import Sweep
from contrasweep.study.trainables import SettingsOfArms, can_search
from contrasweep.trial import Trial
from contrasweep.tuning import pruners
from contrasweep.tuning.design import DEV_SPLITS, SweepDesign, point
from contrasweep.tuning.pruners.halving import FoldHalving
from contrasweep.tuning.sweep_source import SweepSource

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class SweepPlan(PlanBase, SweepDesign):
    """The plan of a Sweep: the budget of its search and, for each arm in `best`, the trials of its confirmation."""

    @property
    def search_total_an_arm(self) -> int | None:
        """The largest number of trials that one arm's search may have; None where the budget does not count trials."""
        configurations = self.study.arm_budget.trials
        return None if configurations is None else configurations * len(self.search_folds)

    @property
    def search_total(self) -> int | None:
        """The largest number of trials that the searches of all arms may have; None where the budget counts none."""
        an_arm = self.search_total_an_arm
        return None if an_arm is None else len(self.study.arms) * an_arm

    @property
    def confirmation_total(self) -> int:
        """Trials of the confirmation, of all arms."""
        return len(self.study.arms) * len(self.replicates)

    @property
    def total(self) -> int | None:
        """Trials of search and confirmation; None where the budget does not count trials."""
        return None if self.search_total is None else self.search_total + self.confirmation_total

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Return one cell for each arm, with the trials of its confirmation once its best configuration is known."""
        return tuple(
            Cell(arm, {}, tuple(trial for trial in self.trials if trial.arm == arm))
            for arm in self.study.arms
        )

    @cached_property
    def example_trials(self) -> list[Trial]:
        """Trials of some configurations of each arm's space, from end to end; their needs say which hosts fit."""
        return [trial for arm in self.study.arms for trial in self.examples(arm)]

    @cached_property
    def digest(self) -> str:
        """Return a digest, 16 hexadecimal digits, of the fields that all arms share, each arm's search, data and folds.

        The digest stays the same when a search has found something.
        """
        searches = {arm: self.search_digest(arm) for arm in self.study.arms}
        return canonical.digest(
            [self.shared_fields, searches, self.data.digest, self.study.confirm_folds], length=16
        )

    @property
    def datasets(self) -> dict[str, Manifest]:
        """The dataset of the confirmation and that of the search, by digest."""
        return {data.digest: data for data in (self.data, self.search_data)}

    @property
    def table_datasets(self) -> list[Manifest]:
        """The dataset of the confirmation alone."""
        return [self.data]

    @property
    def table_folds(self) -> int | None:
        """Number of folds of the study; None where it confirms on the test split."""
        return None if self.study.confirm_on == "test" else self.study.folds

    @property
    def varied(self) -> list[str]:
        """The searched keys of all arms."""
        return list(dict.fromkeys(key for arm in self.study.arms.values() for key in arm.space))

    @property
    def stops_early(self) -> bool:
        """Whether the study has a pruner."""
        return self.study.pruner is not None

    def summary(self) -> dict[str, object]:
        """Return what a reader of the table must know, as label -> value.

        The labels are `data`, `folds`, `searcher` and `confirmed on seeds`; `replicates` where the study declares it.
        """
        study = self.study
        replicates = {"replicates": str(study.replicates)} if study.replicates else {}
        return {
            "data": self.data.name,
            "folds": study.folds,
            "searcher": study.searcher,
            "confirmed on seeds": study.confirm_seeds,
            **replicates,
        }

    @property
    def declared_search(self) -> DeclaredSearch:
        """The search as study.json has it: the searcher, the number of search folds, and one arm's budget."""
        return DeclaredSearch(
            self.study.searcher, len(self.search_folds), to_plain(self.study.arm_budget)
        )

    def complete(self, records: StudyRecords, finished: Collection[str]) -> bool:
        """Return whether each trial of the stored plan is in `finished`, and no look (interim analysis) is left.

        False until a run of this declaration has found the best configuration of every arm. The stored plan has no
        trials of an arm before that.
        """
        return stage(self, records).over and is_whole(records, self.digest, finished)

    def stored_frame(self, records: StudyRecords, complete: bool) -> "pd.DataFrame | None":
        """Return the table of the confirmation's trials to store as the study's plan; None: the stored one stays.

        In a study with looks it has the trials up to the first look. The stored table stays where the study is
        `complete`, because it has the ids of the trials, in whose place this plan has `unknown-...`.
        """
        first = self.study.replicates.first if self.study.replicates else None
        return None if complete else _frame(replace(self, seeds=first))

    def searches_of(self, arms: Collection[str]) -> dict[str, str]:
        """Return arm -> digest of its search, for each of `arms`."""
        return {arm: self.search_digest(arm) for arm in self.study.arms if arm in arms}

    def trials_among(self, finished: Collection[str]) -> set[str]:
        """Return all of `finished`, because it is not known beforehand which trials a search runs."""
        return set(finished)

    def source(self, records: StudyRecords, finished: Collection[str]) -> SweepSource:
        """Return a source of the trials of the arms' searches, and then of the confirmation.

        In a study with looks (interim analyses), the confirmation goes up to the first look. The source stores the plan
        each time that an arm's best configuration becomes known. A trial with a record whose id is not in `finished`
        runs again.
        """
        # How many of the confirmation's seeds may run; None: all.
        first = self.study.replicates.first if self.study.replicates else None

        def store_best(design: SweepDesign) -> None:
            """Store the plan with the best configurations known so far, and a note that their confirmation begins."""
            write_planned(records, _frame(design), self.digest)
            confirmation = Confirmation.of(
                design.best, self.study.confirm_seeds, self.study.confirm_folds
            )
            # The looks that were taken count only for the configurations that they looked at.
            log = read_looks(records)
            if log is not None and is_another(records, confirmation):
                write_looks(records, log.begun_anew())
            write_confirmation(records, confirmation)

        return SweepSource(
            replace(self, seeds=first),
            records,
            store_best,
            infeasible=records.finished() - set(finished),
        )

    def relocated(self, resolve: Resolve) -> "SweepPlan":
        """Return the same sweep with the manifest that `resolve` gives for its dataset."""
        return replace(self, data=resolve(self.study.data))

    def to_frame(self) -> "pd.DataFrame":
        """Return a table with one row for each trial of the confirmation; an id not known yet is `unknown-...`."""
        return _frame(self)

    def rows(self, known: RecordsById) -> tuple[PlanRow, ...]:
        """Return one row for each arm. `known` is trial id -> record of the finished trials, which each row counts."""
        return tuple(self._row(arm, known) for arm in self.study.arms)

    def _row(self, arm: str, known: RecordsById) -> PlanRow:
        """Return the row of an arm in a forecast, with what its search has spent.

        `known` is trial id -> record of the finished trials.
        """
        study = self.study
        space = list(study.arms[arm].space)
        cost = search_costs(self._searched(known), study.arms)[arm]
        ended = self._ended(known)
        search_ended = ended[arm, Phase.SEARCH]
        confirmation_ended = ended[arm, Phase.CONFIRM]
        facts = {
            "arm": arm,
            "searched": space,
            "configurations": study.arm_budget.trials,
            "search_trials": self.search_total_an_arm,
            "epochs": cost.epochs,
            "gpu_hours": cost.gpu_hours,
            "search_ended": search_ended,
            "confirmation_trials": len(self.replicates),
            "confirmation_ended": confirmation_ended,
        }
        # The same facts for people, as (header, text) of each column.
        columns = (
            ("arm", arm),
            ("search", str(self.search_total_an_arm or "-")),
            ("ended", str(search_ended)),
            ("confirmation", str(len(self.replicates))),
            ("ended", str(confirmation_ended)),
        )
        # Which trials a search runs is not known, so `trials` is empty: finished trials of the arm say how long one
        # takes.
        return PlanRow(
            arm=arm,
            trials=(),
            examples=tuple(self.examples(arm)),
            facts=facts,
            columns=columns,
            last=(("searched", ", ".join(space)),),
        )

    def rows_of_trials_to_run(self, known: RecordsById) -> list[int] | None:
        """Return, for each trial to run, the index of its arm's row; None where the budget does not count trials."""
        an_arm = self.search_total_an_arm
        if an_arm is None:
            return None
        ended = self._ended(known)
        # The arms take turns, first in their searches and then in their confirmations. Trials that have ended count as
        # the first of their arm.
        rows = []
        for phase, trials in ((Phase.SEARCH, an_arm), (Phase.CONFIRM, len(self.replicates))):
            for turn in range(trials):
                for index, arm in enumerate(self.study.arms):
                    if turn >= ended[arm, phase]:
                        rows.append(index)
        return rows

    def _ended(self, known: RecordsById) -> Counter[tuple[str, Phase]]:
        """Count the trials that have ended by arm and phase: search or confirmation.

        Trials of earlier confirmations may be known too. Those of the same fold and seed count once, and those of folds
        or seeds that are no longer declared do not count.
        """
        confirmed = {
            (record.arm, record.fold, record.seed)
            for record in known.values()
            if record.notes.phase is Phase.CONFIRM
        }
        return Counter(
            [(record.arm, Phase.SEARCH) for record in self._searched(known)]
            + [
                (arm, Phase.CONFIRM)
                for arm, fold, seed in confirmed
                if (fold, seed) in self.replicates
            ]
        )

    def _searched(self, known: RecordsById) -> list[Record]:
        """Return the records of the search, without those of earlier searches with another seed or folds."""
        return of_search(known.values(), self.study.search_seed, self.search_folds)

    def totals(self, known: RecordsById) -> dict[str, int | None]:
        """Return numbers of trials by name: `trials`, `search_trials` and `ended`.

        The first two are None where the budget does not count trials.
        """
        return {
            "trials": self.total,
            "search_trials": self.search_total,
            "ended": self._ended(known).total(),
        }

    def lines(self, known: RecordsById) -> list[str]:
        """Return lines on the study, its search, its budget and what each arm spent, the confirmation, the trials."""
        study = self.study
        trials_an_arm = ""
        trials = f"{self.confirmation_total} of the confirmation and as many of the search as the budget pays for"
        if self.search_total_an_arm is not None:
            trials_an_arm = f", {plural(self.search_total_an_arm, 'trial')} an arm"
            trials = f"{self.total}: {self.search_total} of the search, {self.confirmation_total} of the confirmation"
        data = self._search_data()
        confirmed_on = self._confirmation_data() + plural(len(study.all_seeds), "fresh seed")
        costs = search_costs(self._searched(known), study.arms)
        looks = [f"looks     {study.replicates}"] if study.replicates else []
        return [
            f"study     {study.name}: {study.metric} ({study.mode}) on {self.data.title}",
            f"search    {study.searcher}, {study.pruner or 'no'} early stopping, seed {study.search_seed}, {data}",
            f"budget    equal: {study.arm_budget} an arm{trials_an_arm}",
            *(
                f"spent     {arm}: {cost.spent_of(study.arm_budget)}"
                for arm, cost in costs.items()
                if cost.trials
            ),
            f"confirm   each arm's best on {confirmed_on}; the table has these",
            *looks,
            f"trials    {trials}, {self._ended(known).total()} ended",
        ]

    def _search_data(self) -> str:
        """Return in words the data on which the search scores configurations: `folds 0, 1 of 5`, or `the dev split`."""
        folds = self.search_folds
        if self.study.folds is not None:
            noun = "folds" if len(folds) > 1 else "fold"
            return f"{noun} {', '.join(map(str, folds))} of {self.study.folds}"
        return "the program's own data" if self.data.kind == NO_DATA else "the dev split"

    def _confirmation_data(self) -> str:
        """Return in words the data on which the confirmation scores: `the test split, `, or `all 5 folds, ... x `.

        Behind these words the caller puts the seeds.
        """
        study = self.study
        if study.folds is None:
            return "the same data, " if self.data.kind == NO_DATA else "the test split, "
        if study.confirm_on == "test":
            return "the test split, "
        if study.confirm_on == "all":
            return f"all {plural(study.folds, 'fold')}, searched ones too, x "
        return f"the {plural(len(study.confirm_folds), 'unsearched fold')} x "


def _frame(design: SweepDesign) -> "pd.DataFrame":
    """Return a table with one row for each trial of the confirmation.

    The trial id is `unknown-...` while the best configuration of the arm is not known.
    """
    import pandas as pd

    known_ids = {(trial.arm, trial.fold, trial.seed): trial.id for trial in design.trials}
    rows = [
        {
            "trial_id": known_ids.get((arm, fold, seed), f"unknown-{arm}-{fold}-{seed}"),
            "arm": arm,
            "fold": fold,
            "seed": seed,
        }
        for arm in design.study.arms
        for fold, seed in design.replicates
    ]
    return pd.DataFrame(rows, columns=["trial_id", "arm", "fold", "seed"])


def make_sweep_plan(study: Sweep, resolve: Resolve) -> SweepPlan:
    """Return the plan of a sweep, once everything that it declares has been checked. Nothing is written.

    `resolve` gives a dataset's manifest by its name. The settings of each arm are built at both ends and in the middle
    of its space. Raises `SpecError` where a setting, a space, the data, the pruner or the searcher cannot be used, and
    `DataError` where the dataset is not staged.
    """
    settings = check_arms(study)
    data = resolve(study.data)
    _check_data(study, data)
    planned = SweepPlan(study, data, settings)
    # A shipped pruner has checked its options as it was built; one of the user's may fail later.
    pruner = planned.pruner()
    if isinstance(pruner, pruners.OwnPruner):
        pruner.try_out()
    # With slots the next configuration waits for earlier ones, and these wait at a rung for the whole of their bracket:
    # with fewer slots than a bracket has configurations, both would wait for ever.
    if study.slots and isinstance(pruner, FoldHalving):
        bracket = min(pruner.bracket_size, pruner.total)
        if study.slots < bracket:
            raise SpecError(
                "a bracket of halving trains side by side",
                place="slots",
                value=study.slots,
                hint=f"{bracket} or more, or a smaller pruner_options.bracket",
            )
    if can_search():
        for name, arm in study.arms.items():
            # Some samplers find out only when they are asked that they cannot search the space. Most options are read
            # after some random configurations.
            searcher = planned.searcher(name, arm.config)
            for _ in range(12 if study.searcher_options else 1):
                if (config := searcher.ask()) is not None:
                    searcher.tell(config, 0.5)
    return planned


def check_arms(study: Sweep) -> SettingsOfArms:
    """Return the settings of the arms, once each was built at both ends and in the middle of its space.

    Raises `SpecError` where they cannot be built there, or an arm searches nothing.
    """
    # Every point is computed before the first is built, so that an error in a space comes first. Three points an arm
    # are enough: a setting that fails in all of a range fails there too.
    points = [(arm, point(study, arm, u)) for arm in study.arms for u in (0.0, 0.5, 1.0)]
    settings = SettingsOfArms(study.arms)
    for name, config in points:
        settings.build(name, canonical.Config(config, f"arms.{name}.config"))
    for name, arm in study.arms.items():
        if not arm.space:
            raise SpecError(
                "every arm of a Sweep searches something",
                place=f"arms.{name}.space",
                value={},
                hint="give it a space, or declare an AblationGrid",
            )
    return settings


def _check_data(study: Sweep, data: Manifest) -> None:
    """Raise `SpecError` where the data lack the split or the folds that the search or the confirmation needs."""
    # Data that a program brings cannot be looked into: only what the study says of them is checked.
    if data.kind == NO_DATA:
        if study.folds is None and study.confirm_on != "all":
            raise SpecError(
                "a program that brings its own data is confirmed on what the search has seen, which the study says",
                place="confirm_on",
                value=study.confirm_on,
                hint="confirm_on: all (the table then says so); or folds, which the command takes as {fold}",
            )
        return
    # Which staged data the search needs, then the confirmation.
    if study.folds is None and not any(data.rows(split) for split in DEV_SPLITS):
        raise SpecError(
            "a search must not look at the test split: without folds, it needs a dev split",
            place="folds",
            value=None,
            hint=f"declare folds; {data.name} has no split {' or '.join(DEV_SPLITS)}",
        )
    if study.folds is not None and study.folds > data.rows("train"):
        raise too_many_folds(study.folds, data)
    if (study.folds is None or study.confirm_on == "test") and not data.rows("test"):
        raise SpecError(
            "there is no test split to confirm on",
            place="confirm_on",
            value="test",
            hint=f"{data.name} has {', '.join(data.splits)}; declare folds and confirm on them",
        )
