"""The demo's study is small enough for a newcomer, and is looked at as it grows."""

from contrasweep.planning.planner import plan
from contrasweep.planning.power import study_power
from contrasweep.search_spaces.demo import STUDY


def test_the_demo_is_small_and_can_decide_something(storage):
    planned = plan(STUDY, storage=storage)
    power = study_power(STUDY)
    assert planned.total == 60 and planned.totals({})["cells"] == 3
    assert power is not None and power.family.size == 2 and power.least < 2
    assert STUDY.smallest_difference is not None and STUDY.replicates is not None
