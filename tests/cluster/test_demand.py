"""What is asked of an autoscaler for a trial that fits no host: enough, and no type of GPU that would not do."""

from hypothesis import assume, given
from hypothesis import strategies as st

from contrasweep.cluster.footprint import Footprint
from contrasweep.cluster.hosts import bundle
from contrasweep.cluster.inventory import ACCELERATOR_LABEL, GPU_MODELS, Gpu, Inventory, Node
from contrasweep.cluster.packing import options

footprints = st.builds(
    Footprint,
    gpu_memory_gib=st.sampled_from([0.0, 0.3, 7.0, 15.0, 30.0, 60.0, 130.0]),
    host_memory_gib=st.sampled_from([0.5, 8.0]),
    cpus=st.sampled_from([0.5, 1.0, 4.0]),
    gpus=st.sampled_from([0.0, 0.25, 1.0, 2.0]),
    gpu_types=st.lists(st.sampled_from(sorted(GPU_MODELS)), max_size=3, unique=True).map(tuple),
)


def allowed(labels: dict[str, str], kind: str) -> bool:
    """What Ray makes of a selector `in(A,B)`."""
    return not labels or kind in labels[ACCELERATOR_LABEL].removeprefix("in(").removesuffix(")").split(",")


@given(footprint=footprints, kind=st.sampled_from(sorted(GPU_MODELS)))
def test_a_host_that_the_demand_allows_holds_the_trial_and_no_other_would(footprint, kind):
    needs, labels = bundle(footprint)

    def fits(kind: str) -> bool:
        gpu = Gpu(kind, GPU_MODELS[kind].memory_gib) if footprint.wants_gpu else None
        host = Node(needs["CPU"], needs["memory"] / 2**30, gpus=int(needs.get("GPU", 0)), gpu=gpu)
        return bool(options(footprint, Inventory((host,))))

    assume(any(map(fits, GPU_MODELS)))  # some footprints are too large for all
    assert fits(kind) == allowed(labels, kind)


def test_small_trials_are_asked_for_without_a_type():
    assert bundle(Footprint(gpus=0.25, gpu_memory_gib=2)) == ({"CPU": 1.0, "memory": 2.0**30, "GPU": 1.0}, {})
    assert bundle(Footprint(cpus=2)) == ({"CPU": 2.0, "memory": 2.0**30}, {})
    assert bundle(Footprint(gpu_memory_gib=100))[1] == {ACCELERATOR_LABEL: "in(H200,B200)"}
