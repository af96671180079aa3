"""Which settings matter."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from contrasweep.study.space import Space
from contrasweep.tuning.searchers.forms import coordinate, distribution


def importance(
    configs: Sequence[tuple[Mapping[str, Any], float]], space: Space, *, mode: str = "max"
) -> dict[str, float]:
    """The share of each searched setting in what tells the best tenth apart, most important first.

    PED-ANOVA (Watanabe et al. 2023), from (config, value) pairs; {} where fewer than four configurations or no two
    different values are there. A conditional setting counts where it exists.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    usable = [({n: c[n] for n in space if n in c}, v) for c, v in configs if math.isfinite(v)]
    usable = [(c, v) for c, v in usable if all(space[n].holds(value) for n, value in c.items())]
    if len(usable) < 4 or len({v for _, v in usable}) < 2:
        return {}
    study = optuna.create_study(direction="maximize" if mode == "max" else "minimize")
    for config, value in usable:
        trial = optuna.trial.create_trial(
            value=value,
            params={n: coordinate(space[n], v) for n, v in config.items()},
            distributions={n: distribution(space[n]) for n in config},
        )
        study.add_trial(trial)
    shares = optuna.importance.get_param_importances(study, evaluator=optuna.importance.PedAnovaImportanceEvaluator())
    return {name: float(share) for name, share in shares.items()}
