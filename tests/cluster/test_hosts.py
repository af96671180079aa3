"""The hosts of a cluster: what is asked of an autoscaler, and hosts that replace lost ones or are more."""

from hypothesis import assume, given
from hypothesis import strategies as st
from joining_hosts import Cluster, host

from contrasweep.cluster.hosts import JOIN_QUIET_S, bundle
from contrasweep.cluster.inventory import (
    ACCELERATOR_LABEL,
    GPU_MODELS,
    MEMORY_LABEL,
    Gpu,
    Inventory,
    Node,
    ray_inventory,
)
from contrasweep.cluster.packing import Footprint, options

footprints = st.builds(
    Footprint,
    gpu_memory_gib=st.sampled_from([0.0, 0.3, 7.0, 15.0, 30.0, 60.0, 130.0]),
    host_memory_gib=st.sampled_from([0.5, 8.0]),
    cpus=st.sampled_from([0.5, 1.0, 4.0]),
    gpus=st.sampled_from([0.0, 0.25, 1.0, 2.0]),
    gpu_types=st.lists(st.sampled_from(sorted(GPU_MODELS)), max_size=3, unique=True).map(tuple),
)


def allowed(labels, kind):
    """What Ray makes of a selector `in(A,B)`."""
    return not labels or kind in labels[ACCELERATOR_LABEL].removeprefix("in(").removesuffix(
        ")"
    ).split(",")


@given(footprint=footprints, kind=st.sampled_from(sorted(GPU_MODELS)))
def test_a_host_that_the_demand_allows_holds_the_trial_and_no_other_would(footprint, kind):
    needs, labels = bundle(footprint)

    def fits(kind):
        gpu = Gpu(kind, GPU_MODELS[kind].memory_gib) if footprint.wants_gpu else None
        host = Node(needs["CPU"], needs["memory"] / 2**30, gpus=int(needs.get("GPU", 0)), gpu=gpu)
        return bool(options(footprint, Inventory((host,))))

    assume(any(map(fits, GPU_MODELS)))  # some footprints are too large for all
    assert fits(kind) == allowed(labels, kind)


def test_small_trials_are_asked_for_without_a_type():
    assert bundle(Footprint(gpus=0.25, gpu_memory_gib=2)) == (
        {"CPU": 1.0, "memory": 2.0**30, "GPU": 1.0},
        {},
    )
    assert bundle(Footprint(cpus=2)) == ({"CPU": 2.0, "memory": 2.0**30}, {})
    assert bundle(Footprint(gpu_memory_gib=100))[1] == {ACCELERATOR_LABEL: "in(H200,B200)"}


def test_only_where_an_autoscaler_starts_hosts_a_wait_says_what_it_starts():
    cluster = Cluster("T4")
    assert cluster.hosts.rule(0.5) == ""
    cluster.listed = [host("T4", "workers")]
    cluster.now = 10.0
    cluster.hosts.poll()
    declares = "; its autoscaler starts only a type of host that declares `memory` of 536870912 bytes or more"
    assert cluster.hosts.rule(0.5) == declares


T4 = Gpu("T4", 14.7)
H100 = Gpu("H100", 79.2)
nodes = st.builds(
    Node,
    cpus=st.sampled_from([2.0, 8.0]),
    memory_gib=st.sampled_from([15.8, 15.9, 16.0, 64.0]),
    gpus=st.just(1),
    gpu=st.sampled_from([T4, H100]),
    count=st.integers(1, 3),
)
inventories = st.lists(nodes, max_size=4, unique_by=lambda n: (n.cpus, n.memory_gib, n.gpu)).map(
    lambda every: Inventory(tuple(every))
)


def test_a_host_replaced_again_and_again_stays_one_host():
    cluster = Cluster("T4", "T4")
    counts = []
    for turn in range(1, 40):
        cluster.now += 20
        cluster.listed = [host("T4"), host("T4", memory_gib=16 - turn / 100)]
        cluster.hosts.poll()
        counts.append(cluster.hosts.inventory.count("T4"))
    assert counts == [2] * 39
    assert cluster.now > JOIN_QUIET_S
    assert not cluster.hosts.may_grow(), (
        "a host that came in another's place is no sign of a larger one"
    )


def test_one_more_at_the_same_time_is_one_more_and_a_larger_one_is_seen():
    cluster = Cluster("T4")
    cluster.now = 20
    cluster.listed = [host("T4", memory_gib=15.5), host("T4", memory_gib=15.9)]
    cluster.hosts.poll()
    assert [(n.memory_gib, n.count) for n in cluster.hosts.inventory.nodes] == [
        (16.0, 1),
        (15.5, 1),
    ]
    cluster.now = 40
    cluster.listed = [host("T4", memory_gib=64)]
    assert cluster.hosts.poll() is not None
    assert [(n.memory_gib, n.count) for n in cluster.hosts.inventory.nodes] == [
        (64.0, 1),
        (15.5, 1),
    ]


def test_a_host_with_a_smaller_gpu_of_the_same_type_is_one_more_and_no_kind_of_its_own():
    """Ray calls all GeForce cards G; a trial for a G may land on any of them."""
    large, small = (
        {**host("G"), "Labels": {ACCELERATOR_LABEL: "G", MEMORY_LABEL: gib}} for gib in ("24", "12")
    )
    before = ray_inventory([large])
    both = before.joined(ray_inventory([large, small]))
    assert str(both) == "2 x (4 cores, 16.0 GiB, 1 G of 12 GiB)"
    assert both.joined(before) is both, "one that is lost may come back"


@given(one=inventories, other=inventories)
def test_both_together_have_no_host_less_and_no_more_than_the_larger(one, other):
    both = one.joined(other)
    assert both.joined(one) is both.joined(other) is both.joined(both) is both
    assert set(both.nodes) == set(other.joined(one).nodes)
    for cpus, gpu in {(n.cpus, n.gpu) for n in both.nodes}:
        counts = [
            sum(n.count for n in every.nodes if (n.cpus, n.gpu) == (cpus, gpu))
            for every in (one, other, both)
        ]
        assert counts[2] == max(counts[:2])
        for least in (15.8, 15.9, 16.0, 64.0):
            fit = [
                sum(
                    n.count
                    for n in every.nodes
                    if (n.cpus, n.gpu) == (cpus, gpu) and n.memory_gib >= least
                )
                for every in (one, other, both)
            ]
            assert fit[2] == max(fit[:2])
