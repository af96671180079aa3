"""Declare a table of contrastive-learning runs; get it back with intervals and paired tests.

import contrasweep as cs
grid = cs.AblationGrid(name=..., arms={...: cs.Arm(...)}, axes={...}, data="digits-lt", folds=5)
cs.plan(grid)             # what would run
results = cs.run(grid)    # run or resume
results.table()           # the table; results.compare("ocl", "scl")
"""

from typing import TYPE_CHECKING, Any

from contrasweep.defaults import STORAGE
from contrasweep.errors import ContrasweepError, DataError, SpecError, StorageError
from contrasweep.results.rendering import Renderer, use_renderer
from contrasweep.study.space import Choice, Float, Int
from contrasweep.study.study import AblationGrid, Arm, SubGrid, Sweep

if TYPE_CHECKING:
    from contrasweep.planning.facade import plan
    from contrasweep.planning.plan import Plan
    from contrasweep.results.results import Results
    from contrasweep.running.driver import run
    from contrasweep.running.submit import submit
    from contrasweep.statistics import Comparison
    from contrasweep.trial import Report, Trial

__all__ = [
    "AblationGrid",
    "Arm",
    "Choice",
    "Comparison",
    "ContrasweepError",
    "DataError",
    "Float",
    "Int",
    "Plan",
    "Report",
    "Results",
    "SpecError",
    "StorageError",
    "SubGrid",
    "Sweep",
    "Trial",
    "load",
    "plan",
    "run",
    "submit",
]

_ELSEWHERE = {  # imported when first used: a plan must not wait for Ray, a report not for torch
    "Comparison": "contrasweep.statistics",
    "Plan": "contrasweep.planning.plan",
    "Report": "contrasweep.trial",
    "Trial": "contrasweep.trial",
    "Results": "contrasweep.results.results",
    "submit": "contrasweep.running.submit",
    "plan": "contrasweep.planning.facade",
    "run": "contrasweep.running.driver",
}


def load(name: str, *, storage: str = STORAGE) -> "Results":
    """The results of the study called `name` as they lie in `storage`."""
    from contrasweep.results.results import Results

    return Results.load(name, storage)


def _renderer() -> Renderer:
    from contrasweep.report.formats import render_as

    return render_as


use_renderer(_renderer)


def __getattr__(name: str) -> Any:
    import importlib

    if name in _ELSEWHERE:
        value = getattr(importlib.import_module(_ELSEWHERE[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'contrasweep' has no attribute {name!r}")
