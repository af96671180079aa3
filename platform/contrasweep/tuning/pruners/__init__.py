"""Pruners: rules that stop trials early. After each report a rule says whether the trial goes on.

    pruner = build("asha", mode="max", budget=40)
    pruner.add(trial, config=0, fold=0)
    pruner.on_report(trial, step=1, value=0.3)     # True, or False: it stops

A rule that is not in `PRUNERS` is named by its dotted path, `package.module:Class`: a `Pruner` whose constructor takes
the mode, the number of configurations (None: not known) and its options as keywords. `StoppingRule` is a base class
that lacks only `should_continue`.
"""

from collections.abc import Callable
from typing import Any, cast

from contrasweep.errors import check_known
from contrasweep.imports import build_part, import_path
from contrasweep.tuning.pruners.halving import FoldHalving
from contrasweep.tuning.pruners.pruner import OwnPruner, Pruner
from contrasweep.tuning.pruners.stopping_rule import Asha, Median, NoPruner, StoppingRule

__all__ = ["PRUNERS", "NoPruner", "OwnPruner", "Pruner", "StoppingRule", "build"]

PRUNERS: dict[str, Callable[..., Pruner]] = {"asha": Asha, "median": Median, "halving": FoldHalving}
"""Early stopping rules by name."""


def build(pruner: str, *, mode: str, budget: int | None, **options: Any) -> Pruner:
    """Return a new rule for the trials of one arm.

    Args:
        pruner: A name of `PRUNERS`, or `package.module:Class`.
        mode: `max` or `min`: whether a larger or a smaller value is better.
        budget: The number of the arm's configurations; None: not known.
        options: The rule's own options.

    Raises:
        SpecError: There is no such rule, it does not take these options, or it lacks a method.
    """
    if ":" in pruner:
        # The wrapper passes all methods of a pruner on to the user's object.
        users = OwnPruner(
            pruner, import_path(pruner, "pruner", "pruner"), mode, budget, options=options
        )
        return cast(Pruner, users)
    names = [*PRUNERS, "package.module:Class"]
    check_known(pruner, "pruners", names, "there is no such pruner", place="pruner")
    rule: Pruner = build_part("pruner", pruner, PRUNERS[pruner], mode, budget, options=options)
    return rule
