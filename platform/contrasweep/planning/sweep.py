"""The plan of a `Sweep`: a search per arm under one budget, then the confirmation."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from contrasweep import canonical
from contrasweep.data.manifest import NO_DATA, Manifest
from contrasweep.errors import SpecError, plural
from contrasweep.planning.grid import too_many_folds
from contrasweep.planning.plan import Cell, PlanDisplay, PlanRow, Resolve
from contrasweep.planning.stages import stage
from contrasweep.storage.interim_log import (
    Confirmation,
    is_another,
    read_looks,
    write_confirmation,
    write_looks,
)
from contrasweep.storage.planned import is_whole, write_planned
from contrasweep.storage.record import Phase, Record
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import DeclaredSearch
from contrasweep.study.arm_budget import search_costs
from contrasweep.study.file import to_plain
from contrasweep.study.sweep import Sweep
from contrasweep.study.trainables import SettingsOfArms, can_search
from contrasweep.trial import Trial
from contrasweep.tuning import pruners, searchers
from contrasweep.tuning.design import DEV_SPLITS, SweepDesign, point
from contrasweep.tuning.sweep_source import SweepSource

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class SweepPlan(PlanDisplay, SweepDesign):
    """The plan of a Sweep: the budget of its search and, for each arm in `best`, the trials of its confirmation."""

    @property
    def searched(self) -> int | None:
        """Trials of the search, of all arms, at most; None where the budget counts none."""
        configurations = self.study.arm_budget.trials
        if configurations is None:
            return None
        return len(self.study.arms) * configurations * len(self.search_folds)

    @property
    def confirmed(self) -> int:
        """Trials of the confirmation, of all arms."""
        return len(self.study.arms) * len(self.replicates)

    @property
    def total(self) -> int | None:
        """Trials of search and confirmation; None where the budget counts no trials."""
        return None if self.searched is None else self.searched + self.confirmed

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Return one cell for each arm, with the trials of its confirmation once its best configuration is known."""
        trials = {arm: tuple(t for t in self.trials if t.arm == arm) for arm in self.study.arms}
        return tuple(Cell(arm, {}, trials[arm]) for arm in self.study.arms)

    @cached_property
    def sample_trials(self) -> list[Trial]:
        """Trials of configurations spread over each arm's space, by which hosts are chosen."""
        return [trial for arm in self.study.arms for trial in self.samples(arm)]

    @cached_property
    def digest(self) -> str:
        """Return a digest, 16 hexadecimal digits, of the study's question, each arm's search, the data and the folds.

        What a search has found is no part of it.
        """
        searches = {arm: self.search_digest(arm) for arm in self.study.arms}
        return canonical.digest(
            [self.question, searches, self.data.digest, self.study.confirm_folds], length=16
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
        """Return what a reader must know, by what it is called: dataset, folds, searcher, seeds of the confirmation.

        `replicates` is in it where the study declares it.
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
        """Return whether each trial of the stored plan is in `finished`, and the last look was taken.

        False until a run of this very declaration has found the best of every arm: the stored plan has no trials of the
        other arms before that.
        """
        return stage(self, records).over and is_whole(records, self.digest, finished)

    def stored_frame(self, records: StudyRecords, complete: bool) -> "pd.DataFrame | None":
        """Return the confirmation's trials as a frame, in a study with looks those up to the first look.

        None where the study is `complete`: the storage's table has what the searches found, with ids in place of
        `unknown-...`.
        """
        first = self.study.replicates.first if self.study.replicates else None
        return None if complete else _frame(replace(self, seeds=first))

    def searches_of(self, arms: Collection[str]) -> dict[str, str]:
        """Return arm -> digest of its search, of these `arms`."""
        return {arm: self.search_digest(arm) for arm in self.study.arms if arm in arms}

    def belonging(self, finished: Collection[str]) -> set[str]:
        """Return all of `finished` as a set: which trials a search runs is not known beforehand."""
        return set(finished)

    def source(self, records: StudyRecords, finished: Collection[str]) -> SweepSource:
        """Return a source of the arms' searches, then of the confirmation.

        In a study with looks only up to the first look.

        The plan is stored as each arm's best becomes known. Trials that have a record and are not `finished` are
        handed out again.
        """
        # How many of the confirmation's seeds are granted; None: all.
        first = self.study.replicates.first if self.study.replicates else None

        def confirmed(design: SweepDesign) -> None:
            """Store the plan that the best configurations so far make, and enter the confirmation."""
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
            replace(self, seeds=first), records, confirmed, records.finished() - set(finished)
        )

    def relocated(self, resolve: Resolve) -> "SweepPlan":
        """Return the same sweep with its dataset resolved again by its name in the study."""
        return replace(self, data=resolve(self.study.data))

    def to_frame(self) -> "pd.DataFrame":
        """Return a table with one row for each trial of the confirmation; unknown ids are `unknown-...`."""
        return _frame(self)

    def rows(self, known: Mapping[str, Record]) -> tuple[PlanRow, ...]:
        """Return one row for each arm, given the finished records `known` by trial id."""
        return tuple(self._row(arm, known) for arm in self.study.arms)

    def _row(self, arm: str, known: Mapping[str, Record]) -> PlanRow:
        """Return the row of an arm, with what its search has spent by the finished records `known`.

        It says the same twice, for programs (`facts`) and as text for people (`columns`).
        """
        study = self.study
        space = list(self.study.arms[arm].space)
        searched, confirmed = (_ended(known)[arm, phase] for phase in (Phase.SEARCH, Phase.CONFIRM))
        cost = search_costs(known.values(), study.arms)[arm]
        # Of one arm; None where the budget counts no trials.
        trials = self.searched and self.searched // len(study.arms)
        facts = {
            "arm": arm,
            "searched": space,
            "configurations": study.arm_budget.trials,
            "search_trials": trials,
            "epochs": cost.epochs,
            "gpu_hours": cost.gpu_hours,
            "search_ended": searched,
            "confirmation_trials": len(self.replicates),
            "confirmation_ended": confirmed,
        }
        columns = (
            ("arm", arm),
            ("search", str(trials or "-")),
            ("ended", str(searched)),
            ("confirmation", str(len(self.replicates))),
            ("ended", str(confirmed)),
        )
        # No trials of its own say how long one takes, since which ones run is not known: the arm's finished ones do.
        return PlanRow(
            arm=arm,
            trials=(),
            samples=tuple(self.samples(arm)),
            facts=facts,
            columns=columns,
            last=(("searched", ", ".join(space)),),
        )

    def left(self, known: Mapping[str, Record]) -> Iterator[int] | None:
        """Return the number of the arm, from 0, of each trial to run, in order; None: the budget counts no trials."""
        if self.searched is None:
            return None
        return self._left(known, self.searched // len(self.study.arms))

    def _left(self, known: Mapping[str, Record], searched: int) -> Iterator[int]:
        """Yield the number of the arm of each trial to run: the searches in turns, then the confirmations in turns.

        `searched` is how many trials the search of one arm has. Those that have ended count as the first of their arm.
        """
        ended = _ended(known)
        for phase, trials in ((Phase.SEARCH, searched), (Phase.CONFIRM, len(self.replicates))):
            for i in range(trials):
                yield from (
                    number for number, arm in enumerate(self.study.arms) if i >= ended[arm, phase]
                )

    def totals(self, known: Mapping[str, Record]) -> dict[str, int | None]:
        """Return numbers of trials by name: `trials`, `search_trials` and `ended`.

        The first two are None where the budget does not count trials.
        """
        return {"trials": self.total, "search_trials": self.searched, "ended": len(known)}

    def lines(self, known: Mapping[str, Record]) -> list[str]:
        """Return lines on the study, its search, its budget and what each arm spent, the confirmation, the trials."""
        study = self.study
        folds = self.search_folds
        # Where the search scores, then where the confirmation does.
        on = "the program's own data" if self.data.kind == NO_DATA else "the dev split"
        if study.folds is not None:
            on = (
                f"fold{'s' if len(folds) > 1 else ''} {', '.join(map(str, folds))} of {study.folds}"
            )
        where = "the test split, "
        if study.folds and study.confirm_on != "test":
            where = f"the {plural(len(study.confirm_folds), 'unsearched fold')} x "
            if study.confirm_on == "all":
                where = f"all {plural(study.folds, 'fold')}, searched ones too, x "
        elif study.folds is None and self.data.kind == NO_DATA:
            where = "the same data, "
        trials_an_arm = (
            ""
            if self.searched is None
            else f", {plural(self.searched // len(study.arms), 'trial')} an arm"
        )
        trials = (
            f"{self.total}: {self.searched} of the search, {self.confirmed} of the confirmation"
        )
        if self.total is None:
            trials = f"{self.confirmed} of the confirmation and as many of the search as the budget pays for"
        costs = search_costs(known.values(), study.arms)
        return [
            f"study     {study.name}: {study.metric} ({study.mode}) on {self.data.name} ({self.data.digest[:8]})",
            f"search    {study.searcher}, {study.pruner or 'no'} early stopping, seed {study.search_seed}, {on}",
            f"budget    equal: {study.arm_budget} an arm{trials_an_arm}",
            *(
                f"spent     {arm}: {cost.beside(study.arm_budget)}"
                for arm, cost in costs.items()
                if cost.trials
            ),
            f"confirm   each arm's best on {where}{plural(len(study.all_seeds), 'fresh seed')}; the table has these",
            *([f"looks     {study.replicates}"] if study.replicates else []),
            f"trials    {trials}, {len(known)} ended",
        ]


def _ended(known: Mapping[str, Record]) -> Counter[tuple[str, Phase | None]]:
    """Count the finished records by arm and phase: search or confirmation."""
    return Counter((record.arm, record.notes.phase) for record in known.values())


def _frame(design: SweepDesign) -> "pd.DataFrame":
    """Return a table with one row for each confirmation trial.

    Where the best configuration is not known yet, neither is the trial's id, and the row says `unknown-...`.
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
    """Return the plan of `study`; what can be wrong about it is found here. Nothing is written.

    `resolve` gives a dataset's manifest by its name. Raises `SpecError` where a setting, a space, the data, the pruner
    or the searcher cannot be used, `DataError` where the dataset is not staged. A configuration from the middle of each
    space, and those at its ends, are built by the trainable's settings.
    """
    settings = check_arms(study)
    data = resolve(study.data)
    _check_data(study, data)
    planned = SweepPlan(study, data, settings)
    # A shipped pruner has checked its options as it was built; one of the user's may fail later.
    if isinstance(pruner := planned.pruner(), pruners.OwnPruner):
        pruner.try_out()
    if can_search():
        for name, arm in study.arms.items():
            _check_searcher(planned.searcher(name, arm.config), study)
    return planned


def check_arms(study: Sweep) -> SettingsOfArms:
    """Return the settings of the arms, once each was built at both ends and in the middle of its space.

    Raises `SpecError` where they cannot be built there, or an arm searches nothing.
    """
    # Three points of each arm's space: what fails at all of a range mostly fails there.
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


def _check_searcher(searcher: searchers.Searcher, study: Sweep) -> None:
    """Ask once, and raise `SpecError` where the searcher cannot search this: a sampler tells only then.

    The searcher is not used afterwards.
    """
    try:
        searcher.ask()
    except ValueError as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError(
            "the searcher cannot search this",
            place="searcher",
            value=study.searcher,
            hint=str(error).splitlines()[0],
        ) from None


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
    # Of staged data, what the search needs, then what the confirmation needs.
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
