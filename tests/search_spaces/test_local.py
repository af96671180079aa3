"""LOCAL's studies: every cell's settings are accepted, the paper's axes are there, arms are what the paper says."""

from importlib import import_module

from contrasweep.search_spaces import local
from contrasweep.study.grid import AblationGrid
from contrasweep.study.sweep import Sweep

STUDIES = {
    name: value for name, value in vars(local).items() if isinstance(value, AblationGrid | Sweep)
}
GRIDS = {name: study for name, study in STUDIES.items() if isinstance(study, AblationGrid)}


def settings_of(arm, config):
    module, name = str(arm.trainable).split(":")
    return getattr(import_module(module), name).settings(**config)


def test_the_systems_of_a_study_differ_in_loss_and_beta_only():
    for grid in GRIDS.values():
        systems = [arm.config for name, arm in grid.arms.items() if name in {*local.SYSTEMS, "ocl"}]
        bases = [
            {k: v for k, v in config.items() if k not in ("loss", "beta")} for config in systems
        ]
        assert all(base == bases[0] for base in bases)


def test_local_fed_one_side_twice_is_local_otherwise():
    arms = local.SYSTEMS_SMALL.arms
    for side in ("pre", "post"):
        assert {**arms["local"].config, "input": side, "artifacts": "none"} == arms[
            f"local-{side}"
        ].config


def test_tables_at_the_papers_scale_let_alpha_fall_as_it_says_where_ocl_can_differ_from_scl():
    for name in ("TABLE_2", "TABLE_6", "TABLE_6_BALANCED", "TABLE_7"):
        for arm in GRIDS[name].arms.values():
            settings = settings_of(arm, arm.config)
            assert (
                settings.alpha,
                settings.alpha_schedule,
                settings.loss.parameters["temperature"],
            ) == (
                1.0,
                "inverse",
                0.5,
            )
