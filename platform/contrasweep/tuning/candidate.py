"""A configuration that a search tries, and its outcome."""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from contrasweep.config import Config, MutableConfig
from contrasweep.storage.record import Record
from contrasweep.study.objectives import value_of, violation
from contrasweep.study.sweep import Sweep
from contrasweep.trial import Trial


@dataclass(frozen=True)
class Outcome:
    """What came of a configuration: means over its folds of each objective, the metric first, and by how much each
    constraint is broken."""

    config: Config  # the searched settings
    values: Mapping[str, float]
    violations: tuple[float, ...] = ()

    @classmethod
    def of(cls, config: Config, records: Iterable[Record], study: Sweep) -> "Outcome":
        """The means over these records, one a fold; NaN where there are none."""
        per_fold = list(records)

        def mean(metric: str) -> float:
            return statistics.fmean(value_of(record, metric) for record in per_fold) if per_fold else math.nan

        broken = tuple(violation(metric, text, mean(metric)) for metric, text in study.constraints.items())
        return cls(config, {metric: mean(metric) for metric in study.goals}, broken)

    @property
    def finite(self) -> bool:
        """Whether all objectives and constraints have finite values."""
        return all(map(math.isfinite, [*self.values.values(), *self.violations]))

    @property
    def feasible(self) -> bool:
        """Whether no constraint is broken."""
        return all(broken <= 0 for broken in self.violations)

    def rank(self, study: Sweep) -> tuple[bool, float]:
        """Larger is better: feasible first, then by the study's metric."""
        return self.feasible, self.values[study.metric] * (1 if study.mode == "max" else -1)


@dataclass
class Candidate:
    """One configuration of a search, its trials (one a fold) and their records."""

    number: int
    config: MutableConfig  # the searched settings
    trials: list[Trial]
    records: dict[str, Record] = field(default_factory=dict)
    learned: bool = False  # whether the searcher has had its outcome

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
