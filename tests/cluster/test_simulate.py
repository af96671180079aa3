"""The simulator against hand-worked schedules, its bounds, and the factor of packing."""

import pytest
from benchmarks.simulate import expected_factor, read_mix, whole_gpus
from hypothesis import given, settings
from hypothesis import strategies as st

from contrasweep.cluster.inventory import Gpu, Inventory, Node
from contrasweep.cluster.packing import Footprint
from contrasweep.cluster.simulate import simulate

GPU = Gpu("A100-80G", 80.0)
ONE_GPU = Inventory((Node(cpus=16, memory_gib=128, gpus=1, gpu=GPU, cost_per_hour=3.0),))
TWO_CORES = Inventory((Node(cpus=2, memory_gib=16, cost_per_hour=0.5),))
CPU = Footprint(host_memory_gib=1)
WHOLE, HALF, QUARTER = (Footprint(gpu_memory_gib=gib, margin=1) for gib in (80, 40, 20))


def test_by_hand_cpu_trials_on_two_slots():
    """3 1 1 2 h on two slots: the first takes 0-3, the others follow on the second, 0-1, 1-2, 2-4."""
    spent = simulate([CPU] * 4, [3 * 3600, 3600, 3600, 2 * 3600], TWO_CORES)
    assert (spent.hours, spent.cost, spent.finished) == (4.0, 2.0, 4)
    assert spent.utilisation == pytest.approx(7 / 8)


def test_by_hand_shares_of_one_gpu():
    """Two of 1/2 fill the GPU; 1/4 and 1/2 leave room for one more 1/4."""
    assert simulate([HALF] * 4, [3600] * 4, ONE_GPU).hours == 2
    assert simulate([QUARTER, HALF, QUARTER], [3600] * 3, ONE_GPU).hours == 1
    assert simulate([HALF, HALF, QUARTER], [3600] * 3, ONE_GPU).utilisation == pytest.approx(
        1.25 / 2
    )


def test_a_small_trial_overtakes_a_large_one_that_waits():
    assert simulate([HALF, WHOLE, HALF], [3600, 3600, 3600], ONE_GPU).hours == 2


def test_trials_of_other_kinds_start_in_their_turn():
    """Half, quarter, half: the quarter starts beside the first half, before the second half, which waits for room."""
    assert simulate([HALF, QUARTER, HALF], [3600, 4 * 3600, 3600], ONE_GPU).hours == 4


def test_cores_and_host_memory_limit_too():
    memory = Inventory((Node(cpus=8, memory_gib=4),))
    assert simulate([Footprint(host_memory_gib=2)] * 4, [3600] * 4, memory).hours == 2
    assert simulate([Footprint(gpus=0.1, cpus=8)] * 4, [3600] * 4, ONE_GPU).hours == 2


def test_start_and_speed():
    assert simulate([CPU] * 4, [3600] * 4, TWO_CORES, start_s=360).hours == pytest.approx(2.2)
    fast = Inventory((Node(16, 128, 1, Gpu("H100", 80.0, speed=2.0)),))
    assert simulate([Footprint(gpus=1)], [3600], fast).hours == 0.5


def test_several_gpus_for_one_trial():
    four = Inventory((Node(16, 128, 4, GPU),))
    assert simulate([Footprint(gpus=2)] * 3, [3600] * 3, four).hours == 2
    assert simulate([Footprint(gpus=8)], [3600], four).infeasible == 1


def test_nothing_to_do_and_nothing_that_fits():
    assert simulate([], [], TWO_CORES).hours == 0
    assert simulate([Footprint(gpus=1)], [60], TWO_CORES).infeasible == 1


works = st.lists(
    st.tuples(st.floats(1, 75), st.floats(60, 7200), st.sampled_from([1.0, 2.0, 4.0])),
    min_size=1,
    max_size=40,
)


@given(works, st.integers(1, 4))
@settings(max_examples=60)
def test_between_the_fluid_bound_and_one_after_the_other(work, gpus):
    inventory = Inventory((Node(cpus=16 * gpus, memory_gib=1024, gpus=gpus, gpu=GPU),))
    footprints = [Footprint(gpu_memory_gib=gib, cpus=cpus) for gib, _, cpus in work]
    seconds = [duration for _, duration, _ in work]
    packed, whole = (
        simulate(trials, seconds, inventory) for trials in (footprints, whole_gpus(footprints))
    )
    for spent in (packed, whole):
        assert spent.finished == len(work) and 0 < spent.utilisation <= 1 + 1e-9
        assert max(seconds) / 3600 - 1e-9 <= spent.hours <= sum(seconds) / 3600 + 1e-9
    assert whole.hours >= sum(seconds) / gpus / 3600 - 1e-9
    # given = utilisation x time x GPUs must be exactly the trials' seconds on whole GPUs
    assert whole.utilisation * whole.hours * gpus == pytest.approx(sum(seconds) / 3600)


def test_packing_gains_the_expected_factor_on_the_recorded_mix():
    """21 cells of the papers' tables; expected are GPU-seconds on whole GPUs over GPU-seconds on shares."""
    cells, seconds = read_mix()
    inventory = Inventory((Node(128, 1000, 8, Gpu("A100-80G", 79.2), count=4),))
    trials = cells * 60
    takes = seconds * 60
    packed, whole = (simulate(placed, takes, inventory) for placed in (trials, whole_gpus(trials)))
    expected = expected_factor(trials, takes, inventory)
    assert packed.finished == whole.finished == len(trials)
    assert expected > 2
    assert whole.hours / packed.hours == pytest.approx(expected, rel=0.1)


def test_many_trials_on_a_thousand_gpus_all_get_their_turn():
    inventory = Inventory(
        (Node(64, 512, 8, GPU, count=75), Node(32, 256, 4, Gpu("A10G", 22.0), count=100))
    )
    mix = [
        Footprint(gpu_memory_gib=gib, cpus=cpus, host_memory_gib=4)
        for gib, cpus in ((1.5, 1), (4, 2), (9.5, 2), (30, 4))
    ]
    trials = [mix[i * 7919 % 4] for i in range(40_000)]
    seconds = [300.0 + i * 104729 % 600 for i in range(40_000)]
    assert inventory.gpus == 1000
    packed = simulate(trials, seconds, inventory)
    assert packed.finished == 40_000 and packed.infeasible == 0
    assert packed.utilisation > 0.9


def test_the_longest_of_the_last_trials_are_not_left_over():
    """Ten of 1 h and ten of 10 h, in turns, on four slots: 110 h of work take 27.5 h or more; in turns it is 36 h."""
    four = Inventory((Node(cpus=4, memory_gib=16),))
    assert simulate([CPU] * 20, [3600, 36000] * 10, four).hours == 30
