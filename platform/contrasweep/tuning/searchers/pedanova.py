"""The importance of settings by PED-ANOVA, beside the level that scores without any effect reach."""

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
"""Of fewer, nothing is said."""
SHUFFLES = 39
"""Scores shuffled so often; with the scores as they are 40 orders, of which 2 (5 %) reach the second largest."""
ABOVE = 2
"""The noise of a setting is the second largest of its shares under shuffled scores."""


@dataclass(frozen=True)
class Importance:
    """The importance of each setting of an arm; both mappings are empty where there are too few results.

    `shares` is the share of each setting in what tells the best tenth apart, most important first. `noise` is the share
    that it would reach by noise alone: in 5 % of the orders in which the scores could stand beside the configurations
    it reaches more. `configurations` is how many were usable.
    """

    configurations: int
    shares: Mapping[str, float] = field(default_factory=dict)
    noise: Mapping[str, float] = field(default_factory=dict)


def importance(
    configs: Sequence[tuple[Config, float]], space: Space, *, mode: str = "max", seed: int = 0
) -> Importance:
    """Return the importance of each searched setting, from (config, value) pairs.

    PED-ANOVA (Watanabe et al. 2023) says how far a setting's values among the best tenth differ from those of all;
    the shares are these divergences over their sum. The noise of a setting is the divergence of the same
    configurations under shuffled scores, as a share of the same sum (at most 1), so that a setting is compared with
    itself whatever the others do. This is a permutation test where configurations were drawn independently of the
    scores; for an adaptive searcher it is approximate.

    Configurations count whose value is finite and whose settings lie in `space`; `mode` says whether a larger (`max`)
    or a smaller value is better, `seed` how the scores are shuffled. The shares are empty without four such
    configurations and two different values, and where nothing tells the best apart. A conditional setting counts where
    it exists.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    usable = [({n: c[n] for n in space if n in c}, v) for c, v in configs if math.isfinite(v)]
    usable = [(c, v) for c, v in usable if all(space[n].holds(value) for n, value in c.items())]
    if len(usable) < MIN_CONFIGURATIONS or len({v for _, v in usable}) < 2:
        return Importance(len(usable))
    study = optuna.create_study()
    for config, value in usable:
        trial = optuna.trial.create_trial(
            value=value,
            params={n: coordinate(space[n], v) for n, v in config.items()},
            distributions={n: distribution(space[n]) for n in config},
        )
        study.add_trial(trial)
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    losses = np.array([value for _, value in usable]) * (-1 if mode == "max" else 1)

    def divergences(order: Any) -> dict[str, float]:
        """Return each setting's divergence where trial i has loss number `order[i]`.

        The order 0, 1, ... is the losses as they are; any other one shuffles them.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            warnings.simplefilter("ignore", UserWarning)  # that a target is given, and is minimised
            return dict(
                evaluator.evaluate(study, target=lambda trial: float(losses[order[trial.number]]))
            )

    shares = divergences(np.arange(len(losses)))  # divided by their sum below
    rng = np.random.default_rng(seed)
    total = sum(shares.values())
    if not total > 0:
        return Importance(len(usable))
    shuffled = [divergences(rng.permutation(len(losses))) for _ in range(SHUFFLES)]
    names = sorted(shares, key=lambda name: -shares[name])
    noise = {name: min(1.0, sorted(d[name] for d in shuffled)[-ABOVE] / total) for name in names}
    return Importance(len(usable), {name: float(shares[name] / total) for name in names}, noise)
