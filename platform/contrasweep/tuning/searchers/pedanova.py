"""The importance of settings by PED-ANOVA, beside the importance that a setting without any effect reaches."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from contrasweep.config import Config
from contrasweep.study.space import Space
from contrasweep.tuning.searchers.optuna_searcher import coordinate, distribution

MIN_CONFIGURATIONS = 4
"""Fewer configurations give no importance."""
SHUFFLES = 39
"""How often scores are shuffled. With the real order these are 40 orders. By chance 2 of the 40 (5 %) reach the second
largest of the shuffled shares."""
NOISE_RANK = 2
"""The noise of a setting is the second largest of its shares under shuffled scores."""


@dataclass(frozen=True)
class Importance:
    """The importance of each setting of an arm; both mappings are empty where there are too few results.

    Attributes:
        configurations: How many configurations were used.
        shares: Setting -> its share of the difference between the best tenth and all configurations, largest first.
        noise: Setting -> the share that it reaches by noise alone. If the scores were shuffled, its share would be
            larger in 5 % of the orders.
    """

    configurations: int
    shares: Mapping[str, float] = field(default_factory=dict)
    noise: Mapping[str, float] = field(default_factory=dict)


def importance(
    configs: Sequence[tuple[Config, float]], space: Space, *, mode: str = "max"
) -> Importance:
    """Return the importance of each searched setting, from (config, value) pairs.

    PED-ANOVA (Watanabe et al. 2023) measures how far a setting's values in the best tenth of the configurations diverge
    from its values in all. The shares are these divergences, divided by their sum.

    The noise of a setting is its divergence under shuffled scores, divided by the same sum (at most 1). So a setting is
    compared with itself. This is a permutation test if the configurations were drawn independently of the scores; for
    an adaptive searcher it is approximate.

    Args:
        configs: Pairs of a config and its value of the metric. Only finite values are used, and only configs whose
            settings lie in `space`. A conditional setting may be missing.
        space: The searched settings.
        mode: Whether a larger (`max`) or a smaller (`min`) value is better.

    Returns:
        The importance. Its shares are empty with fewer than four usable configurations or two different values, and
        where no setting diverges.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # The searched settings and the value of each usable configuration.
    usable = []
    for config, value in configs:
        searched = {name: config[name] for name in space if name in config}
        in_space = all(space[name].holds(setting) for name, setting in searched.items())
        if math.isfinite(value) and in_space:
            usable.append((searched, value))
    if len(usable) < MIN_CONFIGURATIONS or len({value for _, value in usable}) < 2:
        return Importance(len(usable))
    study = optuna.create_study()
    for config, value in usable:
        study.add_trial(
            optuna.trial.create_trial(
                value=value,
                params={name: coordinate(space[name], setting) for name, setting in config.items()},
                distributions={name: distribution(space[name]) for name in config},
            )
        )
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    # The evaluator takes the smallest values for the best.
    losses = np.array([value for _, value in usable]) * (-1 if mode == "max" else 1)

    def divergences(order: Any) -> dict[str, float]:
        """Return setting -> divergence, if trial i had the loss of trial `order[i]`.

        The order 0, 1, 2 and so on leaves each trial its own loss; any other order shuffles the losses.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            # Optuna warns that a target is given, and is minimised.
            warnings.simplefilter("ignore", UserWarning)
            return dict(
                evaluator.evaluate(study, target=lambda trial: float(losses[order[trial.number]]))
            )

    measured = divergences(np.arange(len(losses)))
    total = sum(measured.values())
    if not total > 0:
        return Importance(len(usable))
    rng = np.random.default_rng(0)
    shuffled = [divergences(rng.permutation(len(losses))) for _ in range(SHUFFLES)]
    names = sorted(measured, key=lambda name: -measured[name])
    shares = {name: float(measured[name] / total) for name in names}
    # The 5 % level: what one order in twenty reaches by chance (see `SHUFFLES`).
    noise = {}
    for name in names:
        by_chance = sorted(divergence[name] for divergence in shuffled)
        noise[name] = min(1.0, by_chance[-NOISE_RANK] / total)
    return Importance(len(usable), shares, noise)
