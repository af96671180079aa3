"""Pruners: rules that stop trials early. Each report of a trial gets a decision, CONTINUE, PAUSE or STOP.

    pruner = build("asha", mode="max", budget=40)
    pruner.add(trial, config=0, fold=0)
    pruner.on_report(trial, step=1, value=0.3)     # CONTINUE, PAUSE or STOP

A rule that is not in `PRUNERS` is named by its dotted path, `package.module:Class`: a `Pruner` whose constructor takes
the mode, the number of configurations (None: not known) and its options as keywords. `StoppingRule` is a base class
that lacks only `should_continue`.
"""

from collections.abc import Callable
from typing import Any, cast

from contrasweep.errors import check_known
from contrasweep.imports import build_part, import_path
from contrasweep.tuning.pruners.halving import FoldHalving
from contrasweep.tuning.pruners.pruner import CONTINUE, PAUSE, STOP, Decision, OwnPruner, Pruner
from contrasweep.tuning.pruners.stopping_rule import Asha, Median, NoPruner, StoppingRule

__all__ = [
    "CONTINUE",
    "PAUSE",
    "PRUNERS",
    "STOP",
    "Decision",
    "NoPruner",
    "OwnPruner",
    "Pruner",
    "StoppingRule",
    "build",
]

PRUNERS: dict[str, Callable[..., Pruner]] = {"asha": Asha, "median": Median, "halving": FoldHalving}
"""Early stopping rules by name."""


def build(pruner: str, *, mode: str, budget: int | None, folds: int = 1, **options: Any) -> Pruner:
    """Return a new rule for the trials of one arm.

    Args:
        pruner: A name of `PRUNERS`, or `package.module:Class`.
        mode: `max` or `min`: whether a larger or a smaller value is better.
        budget: The number of the arm's configurations; None: not known.
        folds: How many trials each configuration has; only `halving` is told.
        options: The rule's own options.

    Raises:
        SpecError: There is no such rule, it does not take these options, or it lacks a method.
    """
    if ":" in pruner:
        # The wrapper passes all methods of a pruner on to the user's object.
        users = OwnPruner(pruner, import_path(pruner, "pruner", "pruner"), mode, budget, options)
        return cast(Pruner, users)
    names = [*PRUNERS, "package.module:Class"]
    check_known(pruner, "pruners", names, "there is no such pruner", place="pruner")
    # Only halving judges a configuration by all of its folds together.
    if pruner == "halving":
        options = {**options, "folds": folds}
    rule: Pruner = build_part("pruner", pruner, PRUNERS[pruner], mode, budget, options=options)
    return rule
