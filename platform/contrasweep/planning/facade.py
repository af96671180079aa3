"""`cs.plan`: the plan of a study, of either type, and the same with its datasets staged."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contrasweep import data
from contrasweep.data.manifest import Manifest
from contrasweep.defaults import STORAGE
from contrasweep.planning.grid import make_plan
from contrasweep.planning.plan import Plan
from contrasweep.planning.power import check_looks
from contrasweep.planning.sweep import make_sweep_plan
from contrasweep.study.file import as_study
from contrasweep.study.study import Study
from contrasweep.study.sweep import Sweep


def plan(study: Study | str | Path | Mapping[str, Any], *, storage: str = STORAGE) -> Plan:
    """What `study` (also its name or file, or a mapping of its fields) would run. Nothing is written to `storage` and
    no Ray is started."""
    declared = as_study(study)
    check_looks(declared)

    def resolve(name: str) -> Manifest:
        return data.resolve(name, folds=declared.folds, storage=storage)

    return make_sweep_plan(declared, resolve) if isinstance(declared, Sweep) else make_plan(declared, resolve)


def staged(plan: Plan, storage: str) -> Plan:
    """The same plan with every dataset in `storage`; those that are bundled and not there yet are staged."""
    return plan.relocated(lambda name: data.resolve(name, folds=plan.study.folds, storage=storage, write=True))
