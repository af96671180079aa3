"""What decides LOCAL's claims is apart from what its settings were chosen on; arms differ in what is asked alone."""

import pytest

from contrasweep.planning.planner import plan
from contrasweep.search_spaces import local, orthonormal
from contrasweep.study import dotted
from contrasweep.study.grid import AblationGrid

STUDIES = {
    name: study for name, study in vars(orthonormal).items() if isinstance(study, AblationGrid)
} | {name: getattr(local, name) for name in ("TABLE_6_SMALL", "TABLE_7_SMALL")}
ASKED = {
    "SMALL_BATCHES": {"loss"},
    "OVER_SMALL_BATCHES": {"loss", "alpha"},
    "FEW_EPOCHS": {"loss"},
    "LONG_TAILS": {"loss", "alpha"},
    "CENTRES": {"loss", "alpha"},
    "ALPHA": {"alpha", "alpha_schedule"},
    "CLASS_WEIGHTS": {"wce.class_weights", "alpha"},
    "TABLE_6_SMALL": {"loss", "alpha"},
    "TABLE_7_SMALL": {"loss"},
}


def leaves(config):
    flat = dotted.flatten(dotted.expand(config))
    return {key.removesuffix(".name"): value for key, value in flat.items()}


@pytest.mark.parametrize("name", ASKED)
def test_it_decides_on_the_test_part_with_seeds_of_its_own(name):
    study = STUDIES[name]
    assert study.folds is None and min(study.all_seeds) >= 100, (
        "chosen on folds of the training part with seed 0"
    )
    assert study.smallest_difference and study.replicates and study.reference in study.arms


@pytest.mark.parametrize("name", ASKED)
def test_arms_differ_in_what_is_asked_alone(name):
    arms = [arm.config for arm in STUDIES[name].arms.values() if arm.trainable == local.PAIRS]
    flat = [leaves(dict(config)) for config in arms]
    differ = {
        key for one in flat for key in one if any(other.get(key) != one[key] for other in flat)
    }
    assert differ == ASKED[name]
    assert all(one["loss.temperature"] == 0.5 for one in flat), (
        "where cosines of negatives fall below 0"
    )


def test_a_baseline_is_nowhere_without_its_floor(storage):
    for name in (
        "SMALL_BATCHES",
        "OVER_SMALL_BATCHES",
        "FEW_EPOCHS",
        "LONG_TAILS",
        "TABLE_6_SMALL",
        "TABLE_7_SMALL",
    ):
        cells = plan(STUDIES[name], storage=storage).cells
        floor = [cell for cell in cells if cell.arm == "raw-pixels"]
        datasets = {trial.data.digest for cell in cells for trial in cell.trials}
        assert {trial.data.digest for cell in floor for trial in cell.trials} == datasets
