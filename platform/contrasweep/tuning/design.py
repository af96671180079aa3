"""The design of a Sweep: what each arm's search tries and on which data, and what its confirmation trains."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from contrasweep import canonical
from contrasweep.config import Config, MutableConfig
from contrasweep.data.manifest import NO_DATA, Manifest
from contrasweep.study import dotted
from contrasweep.study.base import NO_RESULT
from contrasweep.study.file import to_plain
from contrasweep.study.space import sample
from contrasweep.study.sweep import Sweep
from contrasweep.study.trainables import SettingsOfArms
from contrasweep.trial import Trial
from contrasweep.tuning import pruners, searchers

DEV_SPLITS = ("dev", "validation")
"""Splits of a dataset on which a search without folds scores its trials; the first one with rows is used."""
SEARCH_FIELDS = (
    "searcher",
    "searcher_options",
    "pruner",
    "pruner_options",
    "search_seed",
    "metric",
    "mode",
)
"""Fields of a study that a search depends on."""


@dataclass(frozen=True)
class SweepDesign:
    """The trials that a Sweep may run, and the searchers and pruners of its arms.

    Args:
        study: The declared sweep.
        data: Its dataset, with its folds.
        best: Arm -> the whole config of its best candidate, for the arms whose search is over.
        seeds: How many seeds of the confirmation may run, from the first on; None: all.
        settings: The settings of the arms, which complete the config of each trial.
    """

    study: Sweep
    data: Manifest
    settings: SettingsOfArms = field(repr=False, compare=False)
    best: Mapping[str, Config] = field(default_factory=dict)
    seeds: int | None = None

    @property
    def search_folds(self) -> list[int | None]:
        """Return the folds on which the search tries configurations: those that the study names, or [0].

        [None] for a study without folds, whose search uses the dataset's own splits.
        """
        return [None] if self.study.folds is None else list(self.study.search_folds or [0])

    @cached_property
    def search_data(self) -> Manifest:
        """Return the dataset of the search, which lacks the test split.

        Without folds, the first of `DEV_SPLITS` with rows takes the place of the test split. The planner has checked
        that there is one.
        """
        splits = {name: shards for name, shards in self.data.splits.items() if name != "test"}
        if self.study.folds is None and self.data.kind != NO_DATA:
            splits["test"] = next(splits[name] for name in DEV_SPLITS if self.data.rows(name))
        return replace(self.data, splits=splits)

    @property
    def replicates(self) -> list[tuple[int | None, int]]:
        """Return (fold, seed) of each confirmation trial of an arm, seed by seed; the list is the same for every arm.

        A fold of None means the dataset's own test split. Only the first `seeds` seeds are used.
        """
        return [
            (fold, seed)
            for seed in self.study.all_seeds[: self.seeds]
            for fold in self.study.confirm_folds
        ]

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """Return the confirmation's trials of all arms that have a best configuration (`best`).

        First comes the first fold and seed of each of these arms, then the second of each, and so on.
        """
        return tuple(
            self.trial(arm, config, self.data, fold, seed)
            for fold, seed in self.replicates
            for arm, config in self.best.items()
        )

    @cached_property
    def shared_fields(self) -> MutableConfig:
        """Return the fields of the study on which results depend, except its arms, as plain values."""
        plain: MutableConfig = to_plain(self.study)
        return {
            key: value for key, value in plain.items() if key != "arms" and key not in NO_RESULT
        }

    def search_digest(self, arm: str) -> str:
        """Return the digest of one arm's search, 12 hexadecimal digits, by which its candidates are stored.

        It is made of the arm's name and of all that decides which candidates are tried and what they score. The budget
        is not part of it, so that a larger budget continues the same search.
        """
        declared = self.study.arms[arm]
        # Slots and start points are a part only where they are declared, so that digests of earlier versions stay the
        # same.
        fields = {name: self.shared_fields.get(name) for name in SEARCH_FIELDS}
        if self.study.slots:
            fields["slots"] = self.study.slots
        parts = [
            arm,
            declared.path,
            to_plain(declared.space),
            [trial.config for trial in self.examples(arm)],
            fields,
            self.search_folds,
            self.search_data.digest,
        ]
        if declared.start_points:
            parts.append(declared.start_points)
        return canonical.digest(parts, length=12)

    def search_trials(self, arm: str, config: Config) -> list[Trial]:
        """Return the trials of one configuration of the search, one for each search fold, all with the search's seed.

        `config` is nested, and has both the fixed and the searched settings.
        """
        return [
            self.trial(arm, config, self.search_data, fold, self.study.search_seed)
            for fold in self.search_folds
        ]

    def examples(self, arm: str) -> list[Trial]:
        """Return three example trials of an arm's search, on its first fold.

        Their settings are at the lower ends, the middles and the upper ends of all ranges of the arm's space.
        """
        points = (point(self.study, arm, u) for u in (0.0, 0.5, 1.0))
        return [
            self.trial(arm, config, self.search_data, self.search_folds[0], 0) for config in points
        ]

    def searcher(self, arm: str, fixed: Config) -> searchers.Searcher:
        """Return a new searcher for `arm`, which was asked and told nothing yet.

        `fixed` is the nested config of the settings that are not searched. Raises `SpecError` where the study's
        searcher or its options are wrong.
        """
        study = self.study
        budget = study.arm_budget.trials
        if budget is not None:
            # Start points are tried before the searcher is asked.
            budget = max(1, budget - len(study.arms[arm].start_points or []))
        return searchers.build(
            study.searcher,
            study.arms[arm].space,
            fixed=fixed,
            seed=study.search_seed,
            mode=study.mode,
            budget=budget,
            **study.searcher_options,
        )

    def pruner(self) -> pruners.Pruner:
        """Return a new rule for early stopping, as the study declares it, which knows no trial yet.

        Without a declared pruner it stops nothing. Raises `SpecError` where the study's pruner or its options are
        wrong.
        """
        study = self.study
        if study.pruner is None:
            return pruners.NoPruner()
        return pruners.build(
            study.pruner,
            mode=study.mode,
            budget=study.arm_budget.trials,
            **study.pruner_options,
        )

    def trial(self, arm: str, config: Config, data: Manifest, fold: int | None, seed: int) -> Trial:
        """Return the trial of `arm` with the nested `config`, completed by the trainable's defaults for `data`."""
        whole = self.settings.resolve(arm, canonical.Config(config), data)
        return Trial(self.study.name, arm, self.study.arms[arm].path, whole, data, fold, seed)


def point(study: Sweep, name: str, u: float) -> MutableConfig:
    """Return the nested config of the arm `name`, with its fixed and its searched settings.

    Every searched setting has the value at the relative position `u` in its range, from 0 (the lower end) to 1 (the
    upper end).
    """
    arm = study.arms[name]
    fixed = dotted.merge(arm.config)
    # The point of the unit cube of which all coordinates are `u`.
    return dotted.merge(fixed, dotted.expand(sample(arm.space, [u] * len(arm.space), fixed)))
