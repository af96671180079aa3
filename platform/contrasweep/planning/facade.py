"""`cs.plan`: the plan of a study, of either type, and the same with its datasets staged."""

from contrasweep import data
from contrasweep.data.manifest import Manifest
from contrasweep.defaults import STORAGE
from contrasweep.planning.grid import make_plan
from contrasweep.planning.plan import Plan
from contrasweep.planning.sweep import make_sweep_plan
from contrasweep.study.study import Study, Sweep


def plan(study: Study, *, storage: str = STORAGE) -> Plan:
    """What `study` would run. Nothing is written to `storage` and no Ray is started."""

    def resolve(name: str) -> Manifest:
        return data.resolve(name, folds=study.folds, storage=storage)

    return make_sweep_plan(study, resolve) if isinstance(study, Sweep) else make_plan(study, resolve)


def staged(plan: Plan, storage: str) -> Plan:
    """The same plan with every dataset in `storage`; those that are bundled and not there yet are staged."""
    return plan.relocated(lambda name: data.resolve(name, folds=plan.study.folds, storage=storage, write=True))
