"""Probes of engines, without Ray's processes: when one starts, on what, and what follows from its result."""

import pytest
import ray
import toy_cohort

from contrasweep import AblationGrid, Arm
from contrasweep.cluster.footprint import Footprint
from contrasweep.cluster.inventory import Gpu, Inventory, Node
from contrasweep.data.manifest import Folds, Manifest, Shard
from contrasweep.planning.footprints import Footprints
from contrasweep.planning.grid import make_plan
from contrasweep.planning.learned import Learned
from contrasweep.running.run_context import RunContext
from contrasweep.trainables.fusing import probes as probing
from contrasweep.trainables.fusing.choices import Fused, fusion_of
from contrasweep.trainables.fusing.probes import Probes
from contrasweep.trainables.fusing.protocol import Timing

DATA = Manifest("d", "/nowhere", "image", {"train": (Shard("a", 100, 1, "aa"),)}, folds=Folds(20))
GPUS = Inventory((Node(16, 128, 1, Gpu("H100", 80.0)),))


class Tasks:
    """In place of Ray: keeps what is asked of it; `result` is what a task gives once it is set."""

    def __init__(self):
        self.options_given, self.result = [], None

    def remote(self, *arguments):
        return self

    def options(self, **options):
        self.options_given.append(options)
        return self

    def wait(self, pending, timeout):
        return (pending, []) if self.result is not None else ([], pending)

    def get(self, pending):
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


@pytest.fixture
def tasks(monkeypatch):
    tasks = Tasks()
    for name in ("remote", "wait", "get"):
        monkeypatch.setattr(ray, name, getattr(tasks, name))
    monkeypatch.setattr(probing, "CHECK_S", 0.0)
    monkeypatch.setattr(toy_cohort.ToyCohorts, "probe", lambda self, trial, slots: [], raising=False)
    return tasks


@pytest.fixture
def begun(tasks):
    """Probes, what they say, their fusion and its trials, once a first trial of 100 s has ended and a probe runs."""
    study = AblationGrid(
        "s", {"a": Arm("toy_cohort:train", footprint=Footprint(gpu_memory_gib=8))}, "d", folds=20, cohort="auto"
    )
    trials = make_plan(study, lambda name: DATA).trials
    plan = make_plan(study, lambda name: DATA)
    fusion, said = fusion_of(plan, Footprints(study, GPUS, Learned()), ()), []
    probes = Probes(fusion, RunContext("", "s", "accuracy", {}, {}, 1.0, GPUS), said.append)
    assert not isinstance(fusion.of(trials[0]), Fused)
    probes.check()
    assert not said, "nothing is known of how long a trial takes"
    fusion.ended(trials[0], 100.0)
    probes.check()
    return probes, said, fusion, trials


def test_a_probe_has_the_share_of_a_gpu_that_its_trials_have(begun, tasks):
    """The trial that it times has ended by now, and holds no place any more."""
    assert tasks.options_given == [{"num_cpus": 0, "num_gpus": 1 / 9, "max_retries": 0}]
    assert begun[1][0].endswith("trials alike have about 1900 s to train")


def test_trials_are_fused_as_the_probe_says(begun, tasks):
    probes, said, fusion, trials = begun
    fusion.changed = False
    probes.check()
    assert len(said) == 1, "it is waited for"
    tasks.result = [Timing("unfused", 1, 100.0), Timing("products", 2, 40.0)]
    probes.check()
    assert fusion.changed and fusion.of(trials[1]).slots == 2
    assert said[1].endswith("2 trials as one by engine products, 2.5x trials per hour expected")
    probes.check()
    assert len(said) == 2, "a key is probed once"


def test_trials_of_a_probe_that_fails_run_alone(begun, tasks):
    probes, said, fusion, trials = begun
    tasks.result = ValueError("the driver is too old")
    probes.check()
    assert said[1].endswith("the probe of its engines failed, its trials run alone (the driver is too old)")
    assert fusion.of(trials[1]).reason == "the probe of its engines failed (the driver is too old)"
    probes.check()
    assert len(said) == 2
