"""Inventory, shares and placement."""

from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import pytest
from command_line import python
from hypothesis import given, settings
from hypothesis import strategies as st
from places import ROOT
from refusals import refused

from contrasweep.cluster import inventory as inventories
from contrasweep.cluster.errors import FootprintError, InventoryError
from contrasweep.cluster.inventory import (
    GPU_MODELS,
    Gpu,
    Inventory,
    Node,
    ray_inventory,
    read_inventory,
    short_name,
    this_machine,
)
from contrasweep.cluster.packing import (
    MAX_TRIALS_PER_GPU,
    Footprint,
    LearnedFootprint,
    OnType,
    Placement,
    options,
    place,
    share,
    slots_on,
    summary,
)

T4 = Gpu("T4", 15.0)
A100 = Gpu("A100", 40.0)
H100 = Gpu("H100", 80.0)
CLUSTER = Inventory(
    (
        Node(cpus=16, memory_gib=64, gpus=2, gpu=T4, count=2, cost_per_hour=1.0),
        Node(cpus=64, memory_gib=512, gpus=4, gpu=H100, cost_per_hour=16.0),
    )
)

FILE = """
nodes:
  - {name: small, count: 2, cpus: 16, memory_gib: 64, gpus: 2, gpu: T4, gpu_memory_gib: 15, cost_per_hour: 1.0}
  - {name: big, cpus: 64, memory_gib: 512, gpus: 4, gpu: H100, gpu_memory_gib: 80, cost_per_hour: 16}
"""


# ---------------------------------------------------------------------------------------------- inventory


def test_inventory_from_yaml(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(FILE)
    read = read_inventory(path)
    assert tuple(replace(node, name="") for node in read.nodes) == CLUSTER.nodes
    assert (read.gpus, read.cpus, read.cost_per_hour) == (8, 96, 18.0)
    assert [gpu.type for gpu in read.gpu_types] == ["T4", "H100"] and read.count("T4") == 4


def ray_node(cpus=4.0, gpus=0, alive=True, labels=None, **resources):
    return {
        "Alive": alive,
        "Labels": {"ray.io/node-id": "abc", **(labels or {})},
        "Resources": {
            "CPU": cpus,
            "memory": 8 * 2**30,
            "node:10.0.0.1": 1.0,
            **({"GPU": gpus} if gpus else {}),
            **resources,
        },
    }


def test_inventory_from_ray_nodes():
    inventory = ray_inventory(
        [
            ray_node(),
            ray_node(alive=False, gpus=8),
            ray_node(gpus=2.0, labels={"ray.io/accelerator-type": "H100"}),
            ray_node(gpus=2.0, **{"accelerator_type:H100": 1.0}),
            ray_node(gpus=1.0, labels={"ray.io/accelerator-type": "A100", "gpu-memory-gib": "80"}),
            ray_node(gpus=1.0),
        ]
    )
    assert [
        (n.gpus, n.gpu and n.gpu.type, n.gpu and n.gpu.memory_gib, n.count) for n in inventory.nodes
    ] == [
        (0, None, None, 1),
        (2, "H100", GPU_MODELS["H100"].memory_gib, 2),
        (1, "A100", 80.0, 1),
        (1, "unknown", 0.0, 1),
    ]
    assert inventory.nodes[0].cpus == 4 and inventory.nodes[0].memory_gib == 8


def test_of_one_type_with_two_memories_the_smaller_counts():
    labels = {"ray.io/accelerator-type": "A100"}
    nodes = [
        ray_node(gpus=1, labels=labels | {"gpu-memory-gib": "80"}),
        ray_node(gpus=1, labels=labels),
    ]
    assert {n.gpu for n in ray_inventory(nodes).nodes} == {
        Gpu("A100", GPU_MODELS["A100"].memory_gib)
    }


def test_prices_come_from_labels_and_are_shared_out_by_what_a_trial_holds():
    labels = {"ray.io/accelerator-type": "H100", "cost-per-hour": "8"}
    inventory = ray_inventory(
        [ray_node(gpus=4.0, labels=labels), ray_node(labels={"cost-per-hour": "2"})]
    )
    assert inventory.cost_per_hour == 10
    assert inventory.share_cost_per_hour("H100", 0.5, 1) == 1.0
    assert inventory.share_cost_per_hour(None, 0, 1) == pytest.approx((8 / 4 + 2 / 4) / 2), (
        "a core of either host"
    )
    assert inventory.share_cost_per_hour("T4", 1.0, 1) == 0
    small = Inventory((*inventory.nodes, Node(2, 8, 1, inventory.gpu("H100"), cost_per_hour=90)))
    for held in (("H100", 2.0, 4), (None, 0, 4)):
        assert small.share_cost_per_hour(*held) == inventory.share_cost_per_hour(*held), held
    with refused(InventoryError, "node label cost-per-hour: must be a number, got 'cheap'"):
        ray_inventory([ray_node(labels={"cost-per-hour": "cheap"})])


def test_what_a_type_of_gpu_takes_is_placed_by_type():
    known = (OnType("T4", 6.0, 1.0), OnType("H100", 3.0, 1.25, gpu_busy=0.4))
    ways = options(LearnedFootprint(gpu_memory_gib=6.0, types=known), CLUSTER)
    assert {way.gpu: str(way.share) for way in ways} == {"T4": "1/2", "H100": "1/2"}
    assert Footprint(gpu_memory_gib=1).on("T4") == Footprint(gpu_memory_gib=1)


def test_detect_finds_this_machine(monkeypatch):
    node = this_machine().nodes[0]
    assert node.cpus >= 1 and node.memory_gib > 0.5
    monkeypatch.setattr(inventories, "_nvml_gpus", lambda: [H100, A100])
    assert this_machine().nodes[0].gpus == 2
    assert this_machine().nodes[0].gpu == A100


def test_cuda_visible_devices_hides_gpus(monkeypatch):
    names = ["NVIDIA H100 80GB HBM3", "Tesla T4", "NVIDIA H100 MIG 1g.10gb"]
    ids = ["GPU-1a2b", "GPU-3c4d", "MIG-5e6f"]
    nvml = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda i: i,
        nvmlDeviceGetName=lambda i: names[i],
        nvmlDeviceGetMemoryInfo=lambda i: SimpleNamespace(total=(i + 1) * 2**30),
        nvmlDeviceGetUUID=lambda i: ids[i],
        nvmlDeviceGetHandleByUUID=ids.index,
        NVMLError=ValueError,
    )
    monkeypatch.setitem(__import__("sys").modules, "pynvml", nvml)
    for visible, types in (
        (None, ["H100 1", "T4 2"]),
        ("1", ["T4 2"]),
        ("", []),
        ("-1", []),
        ("1,7,0", ["T4 2"]),  # CUDA takes none of those behind one that is not there
        ("GPU-3c,0", ["T4 2", "H100 1"]),
        ("MIG-5e6f", ["H100 3"]),  # the memory of the part, not of the GPU
        ("MIG-0,0", []),
    ):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        found = [f"{gpu.type} {gpu.memory_gib:g}" for gpu in inventories._nvml_gpus()]
        assert found == types, visible


@pytest.mark.parametrize(
    ("nvml", "ray"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("Tesla T4", "T4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA RTX A6000", "RTX-A6000"),
        ("NVIDIA GeForce RTX 4090", "GeForce-RTX-4090"),
        ("NVIDIA GeForce RTX 3080 Ti", "GeForce-RTX-3080-Ti"),
        ("Quadro RTX 8000", "RTX-8000"),
    ],
)
def test_names_of_gpus_are_rays(nvml, ray):
    from ray._private.accelerators.nvidia_gpu import NvidiaGPUAcceleratorManager

    assert (
        short_name(nvml) == ray == NvidiaGPUAcceleratorManager._gpu_name_to_accelerator_type(nvml)
    )


# ---------------------------------------------------------------------------------------------- footprint


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"cpus": float("nan")}, "cpus must be 0 or more"),
        ({"gpu_busy": 1.2}, "fraction of the time"),
        ({"margin": 0.9}, "1 or more"),
    ],
)
def test_impossible_footprints_are_refused(fields, says):
    with refused(FootprintError, match=says):
        Footprint(**fields)


# -------------------------------------------------------------------------------------------------- share


@pytest.mark.parametrize(
    ("footprint", "n"),
    [
        (Footprint(gpu_memory_gib=80 / 1.1), 1),
        (Footprint(gpu_memory_gib=40 / 1.1), 2),
        (Footprint(gpu_memory_gib=40 / 1.1 + 0.1), 1),
        (Footprint(gpu_memory_gib=8, margin=1.0), 10),
        (Footprint(gpu_memory_gib=8, margin=1.25), 8),
        (Footprint(gpu_memory_gib=8, gpu_busy=0.4), 2),
        (Footprint(gpu_memory_gib=8, gpus=0.5), 2),
        (Footprint(gpu_memory_gib=8, gpus=1), 1),
        (Footprint(gpu_memory_gib=0.1), MAX_TRIALS_PER_GPU),
        (Footprint(gpu_memory_gib=79, margin=1.25), 1),
    ],
)
def test_share_by_hand(footprint, n):
    assert share(footprint, H100) == Fraction(1, n)


def test_share_covers_the_cores_beside_a_gpu():
    assert share(Footprint(gpu_memory_gib=1, cpus=2), H100, cpus_per_gpu=8) == Fraction(1, 4)
    assert share(Footprint(gpu_memory_gib=1, cpus=16), H100, cpus_per_gpu=8) == 1


def test_too_large_several_and_unknown():
    assert share(Footprint(gpu_memory_gib=81), H100) is None
    assert share(Footprint(gpu_memory_gib=150, gpus=2), H100) == 2
    assert share(Footprint(gpu_memory_gib=170, gpus=2), H100) is None
    assert share(Footprint(gpu_memory_gib=60, gpus=0.5), H100) == 1, (
        "half of one needs no twice of it"
    )
    assert share(Footprint(gpu_memory_gib=1), Gpu("unknown")) == 1
    assert share(Footprint(gpus=0.25), Gpu("unknown")) == Fraction(1, 4)


footprints = st.builds(
    Footprint,
    gpu_memory_gib=st.floats(0, 90),
    gpus=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    gpu_busy=st.floats(0, 1),
    cpus=st.floats(0.1, 20),
    margin=st.floats(1, 1.5),
    host_memory_gib=st.floats(0, 40),
)


@given(footprints, st.sampled_from([T4, A100, H100]), st.floats(1, 32))
@settings(max_examples=200)
def test_n_trials_on_a_gpu_never_exceed_its_memory_or_its_time(footprint, gpu, cpus_per_gpu):
    part = share(footprint, gpu, cpus_per_gpu=cpus_per_gpu)
    if part is None:
        assert footprint.gpu_memory_gib > gpu.memory_gib
        return
    n = part.denominator
    assert part == Fraction(1, n) and n <= MAX_TRIALS_PER_GPU
    if n > 1:
        assert n * footprint.gpu_memory_gib * footprint.margin <= gpu.memory_gib * (1 + 1e-6)
        assert n * footprint.gpu_busy <= 1 + 1e-6 and n * footprint.gpus <= 1 + 1e-6
        assert n * footprint.cpus <= cpus_per_gpu * (1 + 1e-6)


# -------------------------------------------------------------------------------------------------- place


def test_the_smallest_type_that_fits():
    small = Footprint(gpu_memory_gib=3)
    large = Footprint(gpu_memory_gib=30)
    assert [p and p.gpu for p in place([small, large], CLUSTER)] == ["T4", "H100"]
    assert [p.gpu for p in options(small, CLUSTER)] == ["T4", "H100"]


def test_many_small_trials_move_up_when_that_ends_the_whole_sooner():
    """1000 trials of 3 GiB: 4 T4 hold 4 each, 4 H100 16 each (by cores), so about a fifth stays on the T4."""
    packing = place([Footprint(gpu_memory_gib=3)] * 1000, CLUSTER)
    on_t4 = sum(p.gpu == "T4" for p in packing)
    assert on_t4 == pytest.approx(1000 * 16 / (16 + 64), abs=5)


def test_a_faster_type_takes_more():
    fast = Inventory((CLUSTER.nodes[0], replace(CLUSTER.nodes[1], gpu=replace(H100, speed=4.0))))
    work = [Footprint(gpu_memory_gib=3)] * 1000
    slow_on_t4, fast_on_t4 = (
        sum(p.gpu == "T4" for p in place(work, inv)) for inv in (CLUSTER, fast)
    )
    assert fast_on_t4 < slow_on_t4 / 2


def test_trials_that_fit_one_type_only_push_the_others_off_it():
    mixed = [Footprint(gpu_memory_gib=30, gpus=1)] * 40 + [Footprint(gpu_memory_gib=3)] * 40
    packing = place(mixed, CLUSTER)
    assert {p.gpu for p in packing[:40]} == {"H100"}
    assert {p.gpu for p in packing[40:]} == {"T4"}


def test_what_ray_is_asked_for():
    placement = place([Footprint(gpu_memory_gib=3, cpus=1, host_memory_gib=4)], CLUSTER)[0]
    assert placement.resources() == {"CPU": 1, "GPU": 0.25, "memory": 4 * 2**30}
    assert placement.label_selector() == {"ray.io/accelerator-type": "T4"}
    unknown = Inventory((Node(4, 8, gpus=1, gpu=Gpu("unknown")),))
    assert place([Footprint(gpu_memory_gib=3)], unknown)[0].label_selector() == {}


def test_slots_are_limited_by_the_scarcest_of_the_host():
    node = CLUSTER.nodes[0]
    assert slots_on(Placement("T4", Fraction(1, 4), 1, 1), node) == 8
    assert slots_on(Placement("T4", Fraction(1, 4), 4, 1), node) == 4
    assert slots_on(Placement("T4", Fraction(1, 4), 1, 30), node) == 2
    assert slots_on(Placement("T4", Fraction(2), 1, 1), node) == 1
    assert slots_on(Placement("H100", Fraction(1, 4), 1, 1), node) == 0


def test_summary_has_a_row_for_each_kind():
    trials = [Footprint(gpu_memory_gib=3)] * 3 + [Footprint(gpu_memory_gib=60)]
    rows = summary(place(trials, CLUSTER), CLUSTER)
    assert [(r["gpu"], r["share"], r["per_gpu"], r["trials"], r["slots"]) for r in rows] == [
        ("T4", "1/4", 4, 3, 16),
        ("H100", "1", 1, 1, 4),
    ]


def test_equal_hosts_that_are_counted_are_as_good_as_listed_one_by_one():
    prices = [
        replace(node, count=n + 1, cost_per_hour=n + 0.5)
        for n, node in enumerate((*CLUSTER.nodes, Node(8, 32)))
    ]
    counted = Inventory((*prices, replace(prices[0], cost_per_hour=9.0, count=1)))
    listed = Inventory(
        tuple(replace(node, count=1) for node in counted.nodes for _ in range(node.count))
    )
    asked = [Footprint(gpu_memory_gib=gib, gpus=n) for gib, n in ((3, 0), (60, 0), (9, 1))] + [
        Footprint(cpus=2)
    ]

    def told(hosts):
        prices = [
            round(hosts.share_cost_per_hour(gpu, 0.25, 3), 9)
            for gpu in (None, *(gpu.type for gpu in hosts.gpu_types))
        ]
        return (
            hosts.cpus,
            hosts.gpus,
            hosts.cost_per_hour,
            prices,
            summary(place(asked * 9, hosts), hosts),
        )

    assert told(counted) == told(listed)


def test_planning_loads_neither_torch_nor_ray_nor_the_platform():
    """`contrasweep plan` imports all of these; each of those would cost it seconds."""
    code = (
        "import sys\n"
        "from contrasweep.cluster import guard, memory, out_of_memory, packing, simulate, submission\n"
        "print(sorted({'torch', 'ray', 'numpy', 'contrasweep.study', 'contrasweep.trainables'} & set(sys.modules)))"
    )
    assert python("-c", code, check=True, cwd=ROOT).stdout.strip() == "[]"


@given(st.lists(footprints, max_size=20))
@settings(max_examples=60)
def test_every_trial_is_placed_where_it_fits_or_fits_nowhere(trials):
    packing = place(trials, CLUSTER)
    assert len(packing) == len(trials)
    for footprint, placement in zip(trials, packing, strict=True):
        assert (
            (placement in options(footprint, CLUSTER))
            if placement
            else (options(footprint, CLUSTER) == [])
        )


# ---------------------------------------------------------------------------------------------- on real Ray


@pytest.mark.slow
@pytest.mark.xdist_group("gpu")
def test_ray_grants_what_a_placement_asks_for_where_the_label_is(ray_gpu):
    """One node with a logical T4: its inventory, four trials of a quarter each at once, and none on an H100."""
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group

    inventory = ray_inventory(ray.nodes())
    assert inventory.gpu_types == [Gpu("T4", GPU_MODELS["T4"].memory_gib)] and inventory.gpus == 1
    assert inventory.cpus == 4
    placements = place([Footprint(gpu_memory_gib=3.2, host_memory_gib=0.1)] * 5, inventory)
    assert {p.share for p in placements} == {Fraction(1, 4)}
    elsewhere = replace(placements[0], gpu="H100")
    other = placement_group(
        [elsewhere.resources()], bundle_label_selector=[elsewhere.label_selector()]
    )
    assert not other.wait(2), "there is no H100, though the resources are free"
    groups = [
        placement_group([p.resources()], bundle_label_selector=[p.label_selector()])
        for p in placements
    ]
    assert all(group.wait(300) for group in groups[:4])
    assert not groups[4].wait(2), "a fifth quarter"
    for group in [other, *groups]:
        remove_placement_group(group)
