"""The sweep of the losses: its plan holds together, and small it is."""

from contrasweep.planning.planner import plan
from contrasweep.search_spaces.tuned_losses import STUDY


def test_the_sweep_plans_with_one_budget_for_every_loss(storage):
    planned = plan(STUDY, storage=storage)
    assert planned.search_total == 36 and planned.total == 60
    assert (
        {arm.config["loss"] for arm in STUDY.arms.values()}
        == set(STUDY.arms)
        == {"supcon", "sincere", "ocl"}
    )
    assert len({str(arm.space) for arm in STUDY.arms.values()}) == 1
