"""What a trial needs: measured before estimated before declared before the default; and LOCAL's Table 1 as a plan's
column."""

import dataclasses
import sys

import pytest
from refusals import refused
from torch import nn

from contrasweep import AblationGrid, Arm
from contrasweep.cluster.errors import ClusterError
from contrasweep.cluster.inventory import Gpu, Inventory, Node
from contrasweep.cluster.memory import GIB, Workload
from contrasweep.cluster.packing import Footprint
from contrasweep.data.manifest import Folds, Manifest, Shard
from contrasweep.errors import SpecError
from contrasweep.planning.footprints import Footprints
from contrasweep.planning.grid import make_plan
from contrasweep.planning.learned import CPU, MARGIN, MARGIN_UNMEASURED, Learned, Peak, cell_key
from contrasweep.storage.record import TrialNotes

PIXELS = {name: {"dtype": "uint8", "shape": [64, 64, 3]} for name in ("pre", "post")}
PAIRS = Manifest(
    "pairs",
    "/nowhere",
    "image-pair",
    {"train": (Shard("a", 40, 1, "aa"),)},
    ("same", "changed"),
    PIXELS,
    Folds(5),
)
GPUS = Inventory((Node(32, 256, 4, Gpu("T4", 14.7), count=2), Node(64, 512, 8, Gpu("H100", 79.2))))
HOSTS = Inventory((Node(8, 32),))
BUILT = []


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    """What is counted here is counted, whatever earlier runs have kept."""
    monkeypatch.setenv("CONTRASWEEP_CACHE", str(tmp_path / "cache"))


def silent(trial, resume=None):
    yield


def telling(trial, resume=None):
    yield


def telling_memory(config, data):
    """A network of no size beside 8 GiB (or config's `gib`) of data."""

    def build():
        BUILT.append(config)
        return nn.Linear(2, 2)

    work = Workload(
        "tiny fp32",
        (),
        build,
        (2, 2),
        resident_bytes=config.get("gib", 8) * GIB,
        device=config.get("device", "auto"),
        cpus=2,
    )
    return dataclasses.replace(work, **dict(config.get("work", ())))


telling.memory = telling_memory


def failing(trial, resume=None):
    yield


def failing_memory(config, data):
    def build():
        if config["how"] == "exits":
            sys.exit("off")  # a short word, which `refused` does not mask
        raise ValueError("no such layer")

    if config.get("how") == "refuses":
        raise ClusterError("this dataset does not say how large its images are")
    if "how" in config:
        return Workload("tiny fp32", (config["how"],), build, (2, 2))
    raise KeyError("depth")


failing.memory = failing_memory


def needs(arm, inventory=GPUS, peaks=(), **config):
    grid = AblationGrid("s", {"a": dataclasses.replace(arm, config=config)}, "d", folds=5)
    trial = make_plan(grid, lambda name: PAIRS).cells[0].trials[0]
    cell = cell_key(trial.trainable, trial.config.text, trial.data.digest)
    footprints = Footprints(
        grid, inventory, Learned(dataclasses.replace(peak, cell=cell) for peak in peaks)
    )
    return footprints.of(trial), footprints.options(trial)


def shares(options):
    return {way.gpu: str(way.share) for way in options}


@pytest.mark.slow
def test_an_estimate_comes_before_what_is_declared_but_keeps_its_cores_and_types():
    declared = Footprint(gpu_memory_gib=1, cpus=7, host_memory_gib=9, gpu_types=("H100",))
    need, options = needs(Arm(telling, resources=declared))
    assert need.source == "estimated" and 8 < need.footprint.gpu_memory_gib < 14
    assert (need.footprint.cpus, need.footprint.host_memory_gib, list(shares(options))) == (
        7,
        9,
        ["H100"],
    )
    assert needs(Arm(telling, resources=Footprint(gpus=1)))[1][0].share == 1, (
        "who asks for a whole GPU gets one"
    )


def test_what_was_measured_comes_first_and_only_on_its_own_type():
    need, options = needs(
        Arm(telling),
        peaks=[Peak("", "T4", "tiny fp32", 8, gpu_memory_gib=3, host_memory_gib=4.1, gpu_busy=0.6)],
    )
    on = need.footprint.on
    assert need.source == "measured" and on("T4").gpu_memory_gib == 3
    assert on("H100").gpu_memory_gib > 3
    assert shares(options)["T4"] == "1", "busy for 0.6 of the time alone: two would be too many"
    assert need.footprint.host_memory_gib == 5.0, "4.1 GiB and a tenth, up to the next half"


def test_without_an_estimate_a_measured_peak_serves_other_types_too():
    _, options = needs(Arm(silent), peaks=[Peak("", "H100", gpu_memory_gib=5)])
    assert shares(options) == {"T4": "1/2", "H100": "1/8"}


def test_the_margin_narrows_with_the_fifth_measurement():
    margins = [
        needs(Arm(silent), peaks=[Peak("", "T4", gpu_memory_gib=5)] * n)[0]
        .footprint.on("T4")
        .margin
        for n in (1, 4, 5)
    ]
    assert margins == [MARGIN_UNMEASURED, MARGIN_UNMEASURED, MARGIN]


def test_what_like_trials_took_moves_the_estimate():
    before = needs(Arm(telling), gib=4)[0].footprint.on("T4").gpu_memory_gib
    trial_of_another_cell = [
        Peak(f"c{i}", "T4", "tiny fp32", 2.0 * i, gpu_memory_gib=0.5 + 2.0 * i) for i in range(1, 6)
    ]
    grid = AblationGrid("s", {"a": Arm(telling, config={"gib": 4})}, "d", folds=5)
    trial = make_plan(grid, lambda name: PAIRS).trials[0]
    footprints = Footprints(grid, GPUS, Learned(trial_of_another_cell))
    after = footprints.of(trial)
    assert before > 6 and after.source == "estimated"
    assert after.footprint.on("T4").gpu_memory_gib == pytest.approx(4.5, rel=0.02)
    assert after.footprint.on("T4").margin == MARGIN
    footprints.overflowed(trial, "T4", 7.0)
    assert footprints.of(trial).footprint.on("T4").gpu_memory_gib > 7
    assert footprints.notes(trial) == TrialNotes(architecture="tiny fp32", counted_gib=4.0)


def test_on_hosts_without_gpus_the_host_is_what_counts():
    need, (only,) = needs(Arm(telling), HOSTS, gib=2)
    assert (need.source, only.gpu, only.cpus) == (
        "estimated",
        None,
        2,
    )
    assert 2.5 <= only.host_memory_gib <= 3.5
    measured, _ = needs(
        Arm(telling), HOSTS, [Peak("", CPU, "tiny fp32", 2, host_memory_gib=5)], gib=2
    )
    assert (measured.source, measured.footprint.host_memory_gib) == ("measured", 5.5)
    assert needs(Arm(silent), HOSTS)[0].source == "default"


def test_the_device_that_a_config_names_is_kept_to():
    assert needs(Arm(telling), device="cpu")[1][0].gpu is None
    assert needs(Arm(telling), HOSTS, device="cuda")[1] == [], (
        "there is no GPU, and this trial will not do without"
    )


def test_a_trainable_that_cannot_say_it_stops_no_plan():
    for config, why in (
        ({}, "cannot say its memory (KeyError: 'depth')"),
        ({"how": "refuses"}, "does not say how large its images are"),
        ({"how": "raises"}, "no such layer"),
    ):
        need, options = needs(Arm(failing), **config)
        assert need.source == "default" and why in need.why
        assert shares(options) == {"T4": "1", "H100": "1"}
    with refused(SpecError, "arms.a: the trial cannot be built", "a part must not call sys.exit"):
        needs(Arm(failing), how="exits")


def test_a_shape_is_counted_once_for_all_cells():
    BUILT.clear()
    work = {
        "architecture": "wide",
        "shape": "large",
        "precision": "bf16",
        "optimizer_states": 1.0,
        "resident_bytes": 9,
        "gpus": 2,
    }
    axes = {"rate": list(range(300)), "work": [[], *([list(one)] for one in work.items())]}
    grid = AblationGrid("s", {"a": Arm(telling)}, "d", folds=5, axes=axes)
    footprints = Footprints(grid, GPUS, Learned())
    for cell in make_plan(grid, lambda name: PAIRS).cells:
        footprints.of(cell.trials[0])
    assert len(BUILT) == 1 + len(work)


TABLE_1_MIB = [((8, 512), 9753), ((16, 512), 17495), ((8, 256), 4303), ((16, 256), 6153)]
"""LOCAL, Table 1: (pairs a batch, pixels) -> GPU memory, ResNet-50."""


@pytest.mark.slow
def test_the_plan_of_local_shows_its_table_1(monkeypatch, tmp_path):
    from contrasweep.planning.forecast import forecast
    from contrasweep.study.file import load_study

    the_plan = make_plan(load_study("contrasweep.search_spaces.local:TABLE_1"), lambda name: PAIRS)
    (tmp_path / "gpus.yaml").write_text(
        "nodes: [{cpus: 16, memory_gib: 128, gpus: 1, gpu: A100-80G}]"
    )
    planned = forecast(the_plan, str(tmp_path), tmp_path / "gpus.yaml").to_dict()["table"]
    assert [(row["axes"]["batch_size"], row["axes"]["image_size"]) for row in planned] == [
        row for row, _ in TABLE_1_MIB
    ]
    for row, (_, mib) in zip(planned, TABLE_1_MIB, strict=True):
        assert row["memory_source"] == "estimated"
        assert 1024 * row["memory_gib"] == pytest.approx(mib, rel=0.05)
