"""`cs.plan`: the plan of a study, of either type, what of it can be planned now, and the same with its datasets
staged."""

import functools
from pathlib import Path

from contrasweep import data
from contrasweep.config import Config
from contrasweep.data.manifest import Manifest
from contrasweep.data.resolving import with_folds
from contrasweep.defaults import STORAGE
from contrasweep.errors import NotStagedError
from contrasweep.planning.grid import cells_by_dataset, make_plan
from contrasweep.planning.missing import MissingDataset
from contrasweep.planning.plan import Plan
from contrasweep.planning.power import check_looks
from contrasweep.planning.sweep import check_arms, make_sweep_plan
from contrasweep.study.file import as_study
from contrasweep.study.study import Study
from contrasweep.study.sweep import Sweep


def plan(study: Study | str | Path | Config, *, storage: str = STORAGE) -> Plan:
    """What `study` (also its name or file, or a mapping of its fields) would run. Nothing is written to `storage` and
    no Ray is started."""
    declared = as_study(study)
    check_looks(declared)

    def resolve(name: str) -> Manifest:
        return data.resolve(name, folds=declared.folds, storage=storage)

    return make_sweep_plan(declared, resolve) if isinstance(declared, Sweep) else make_plan(declared, resolve)


def plan_staged(study: Study, *, storage: str = STORAGE) -> tuple[Plan | None, tuple[MissingDataset, ...]]:
    """The plan of what `study` can run with the datasets that are staged or come with the package (None: nothing), and
    the datasets that are missing. All settings are checked, those of the cells that are left out too.

    A missing dataset whose rows and shapes are published is planned for by these, and its cells are not left out; what
    `run` will plan for them once it is staged has other trial ids."""
    check_looks(study)
    find = functools.cache(functools.partial(data.resolve, folds=study.folds, storage=storage))
    cells = {study.data: len(study.arms)} if isinstance(study, Sweep) else cells_by_dataset(study)
    missing, manifests = {}, {}
    for name, count in cells.items():
        try:
            find(name)
        except NotStagedError as error:
            if (manifest := _described(name, study.folds)) is not None:
                manifests[name] = manifest
            missing[name] = MissingDataset.of(study, name, count, error, manifest is not None)
    without = missing.keys() - manifests.keys()

    def resolve(name: str) -> Manifest:
        return manifests[name] if name in manifests else find(name)

    if isinstance(study, Sweep):
        check_arms(study)
        planned: Plan | None = None if without else make_sweep_plan(study, resolve)
    else:
        grid = make_plan(study, resolve, without=without)
        planned = grid if grid.cells else None
    return planned, tuple(missing.values())


def _described(name: str, folds: int | None) -> Manifest | None:
    """A missing dataset by what its paper says; None where that is too little for a study with these folds."""
    from contrasweep.data.published import described  # imports the importers

    manifest = described(name)
    if manifest is None or (folds is None and not manifest.rows("test")):
        return None
    return with_folds(manifest, folds)


def staged(plan: Plan, storage: str) -> Plan:
    """The same plan with every dataset in `storage`; those that are bundled and not there yet are staged."""
    return plan.relocated(lambda name: data.resolve(name, folds=plan.study.folds, storage=storage, write=True))
