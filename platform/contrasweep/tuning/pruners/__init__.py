"""When to stop a trial early. Pure rules: they are told what trials report, and answer whether to go on.

scheduler = build("asha", mode="max", budget=40)
scheduler.add(trial, config=0, fold=0)
scheduler.decide(trial, step=1, value=0.3)     # True: keep going
"""

from collections.abc import Callable
from typing import Any

from contrasweep.errors import SpecError, choose_from
from contrasweep.tuning.pruners.direct import Asha, Median
from contrasweep.tuning.pruners.halving import Brackets, FoldHalving, HyperBand
from contrasweep.tuning.pruners.population import Population, population_of
from contrasweep.tuning.pruners.scheduler import Scheduler

__all__ = ["RULES", "SCHEDULERS", "Population", "Scheduler", "build", "population_of"]

RULES: dict[str, Callable[..., Scheduler]] = {
    "asha": Asha,
    "median": Median,
    "halving": FoldHalving,
    "hyperband": HyperBand,
}
"""Early stopping rules by name."""
SCHEDULERS: dict[str, Callable[..., Any]] = {**RULES, "pbt": Population}
"""All that `scheduler` may name: PBT stops nothing early, it is a search of its own kind."""


def build(scheduler: str, *, mode: str, budget: int | None, folds: int = 1, **options: Any) -> Scheduler:
    """The rule of this name for an arm with `budget` configurations (None: not known) on `folds` folds."""
    if scheduler not in RULES:
        raise SpecError(
            "there is no such scheduler",
            place="scheduler",
            value=scheduler,
            hint=choose_from("schedulers", list(SCHEDULERS), scheduler),
        )
    kind = RULES[scheduler]
    if isinstance(kind, type) and issubclass(kind, Brackets):
        options = {**options, "folds": folds}
    try:
        return kind(mode, budget, **options)
    except TypeError as error:
        raise SpecError(
            "the scheduler does not take these options", place="scheduler_options", value=options, hint=str(error)
        ) from None
