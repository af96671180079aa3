"""LOCAL's studies: every cell's settings are accepted, the paper's axes are there, arms are what the paper says."""

from importlib import import_module

import pytest

from contrasweep.search_spaces import local
from contrasweep.study import dotted
from contrasweep.study.grid import AblationGrid
from contrasweep.study.space import sample
from contrasweep.study.sweep import Sweep

STUDIES = {
    name: value for name, value in vars(local).items() if isinstance(value, AblationGrid | Sweep)
}
GRIDS = {name: study for name, study in STUDIES.items() if isinstance(study, AblationGrid)}
SWEEPS = {name: study for name, study in STUDIES.items() if isinstance(study, Sweep)}


def settings_of(arm, config):
    module, name = str(arm.trainable).split(":")
    return getattr(import_module(module), name).settings(**config)


@pytest.mark.parametrize("name", GRIDS)
def test_every_cell_has_settings_that_train(name):
    grid = GRIDS[name]
    cells = list(grid.cells())
    assert cells
    for arm, point, extra in cells:
        axes = (dotted.nest(axis, value) for axis, value in point.items() if axis != "data")
        config = dotted.merge(grid.arms[arm].config, extra, *axes)
        settings = settings_of(grid.arms[arm], config)
        if grid.arms[arm].trainable not in (local.COLOUR, local.PIXELS):
            expected = {"scl": "supcon", "l-scl": "supcon", "cross-entropy": "supcon"}.get(
                arm, "ocl"
            )
            assert settings.loss.name == expected
            assert (settings.beta > 0) == (
                arm in ("l-scl", "local", "local-pre", "local-post", "inverse", "constant")
            )


@pytest.mark.parametrize("name", SWEEPS)
@pytest.mark.parametrize("corner", [0.0, 0.5, 1.0])
def test_every_point_of_a_sweep_has_settings_that_train(name, corner):
    for arm in SWEEPS[name].arms.values():
        settings_of(
            arm,
            dotted.merge(arm.config, dotted.expand(sample(arm.space, [corner] * len(arm.space)))),
        )
        assert ("beta" in arm.space) == (arm.config.get("beta") is None)


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


def test_the_papers_axes():
    def column(study, axis):
        return [point[axis] for arm, point, _ in study.cells() if arm == next(iter(study.arms))]

    assert list(
        zip(column(local.TABLE_2, "batch_size"), column(local.TABLE_2, "image_size"), strict=True)
    )[:4] == [
        (8, 512),
        (16, 512),
        (8, 256),
        (16, 256),
    ]
    assert column(local.TABLE_2, "batch_size")[4:] == [8, 16, 64, 8, 16, 64, 128]
    assert set(column(local.TABLE_4, "encoder")) == {"resnet18", "resnet34", "resnet50"}
    assert set(column(local.TABLE_5, "latent.blocks")) == {"1-2-3-4", "2-3-4", "3-4", "4"}
    assert column(local.TABLE_6, "batch_size") == [4, 8, 12, 32, 64, 80, 4, 8, 16]
    assert column(local.TABLE_7, "batch_size") == [4, 8, 16]
    assert local.TABLE_6.folds == 5 and local.TABLE_6_BALANCED.folds is None


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
