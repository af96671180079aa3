"""Who copies whom in a population: Ray Tune's own PBT, given members instead of running trials."""

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from ray.tune.experiment import Trial as TuneTrial
from ray.tune.schedulers import PopulationBasedTraining

from contrasweep.config import Config, MutableConfig
from contrasweep.study.space import Choice, Space, nearest
from contrasweep.tuning.pruners.population import Population


@dataclass(frozen=True)
class Member:
    """One schedule of the population: [[step after which they hold, settings], ...], and the trials, one a fold, that
    trained it last; `value` is their mean, -inf if one failed."""

    number: int
    schedule: tuple[tuple[int, Config], ...]
    trials: tuple[str, ...] = ()
    value: float = -math.inf

    @property
    def settings(self) -> MutableConfig:
        """The settings that hold at the end of its schedule."""
        return dict(self.schedule[-1][1])


def exploited(
    members: list[Member], space: Space, population: Population, mode: str, seed: list[int]
) -> dict[int, tuple[int, MutableConfig]]:
    """By the number of each member that Tune replaces: the one it is copied from, and the settings it goes on with."""
    with _seeded(seed):
        decisions = _Decisions(space, population, mode)
        trials = [FakeTuneTrial(member) for member in members]
        here = SimpleNamespace(search_alg=None, get_trials=lambda: trials, get_live_trials=lambda: trials)
        for trial in trials:
            decisions.on_trial_add(here, trial)
        for trial, member in zip(trials, members, strict=True):
            decisions.on_trial_result(here, trial, {"step": population.interval, "value": member.value})
    alive = {member.number for member in members if math.isfinite(member.value)}
    return {number: copy for number, copy in decisions.copies.items() if copy[0] in alive}


class FakeTuneTrial(TuneTrial):  # type: ignore[misc]
    """A member as Tune's scheduler sees it: paused, with a checkpoint."""

    def __init__(self, member: Member) -> None:
        super().__init__("member", config=member.settings, trial_id=str(member.number), stub=True)
        self.set_status(TuneTrial.PAUSED)

    @property
    def checkpoint(self) -> str:
        """Its number; Tune only needs one that is not None."""
        return str(self.trial_id)


class _Decisions(PopulationBasedTraining):  # type: ignore[misc]
    """Ray Tune's PBT, whose copies are noted instead of made."""

    def __init__(self, space: Space, population: Population, mode: str) -> None:
        def within(config: MutableConfig) -> MutableConfig:
            return {name: nearest(space[name], value) for name, value in config.items()}

        draws = {
            name: list(p.options) if isinstance(p, Choice) else lambda p=p: p.at(random.random())
            for name, p in space.items()
        }
        super().__init__(
            time_attr="step",
            metric="value",
            mode=mode,
            perturbation_interval=population.interval,
            hyperparam_mutations=draws,
            quantile_fraction=population.quantile,
            resample_probability=population.resample,
            custom_explore_fn=within,
            log_config=False,
            synch=True,
        )
        self.copies: dict[int, tuple[int, MutableConfig]] = {}

    def _exploit(self, tune_controller: Any, trial: Any, trial_to_clone: Any) -> None:
        config, _ = self._get_new_config(trial, trial_to_clone)
        self.copies[int(trial.trial_id)] = int(trial_to_clone.trial_id), config


@contextmanager
def _seeded(seed: list[int]) -> Iterator[None]:
    """Tune draws from Python's one generator: seeded inside, as it was outside."""
    before = random.getstate()
    random.seed(repr(seed))
    try:
        yield
    finally:
        random.setstate(before)
