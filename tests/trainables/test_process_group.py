"""A trial of several processes: the numbers of one process, one checkpoint, and an end together."""

import os
import pickle
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from typing import Any

import joined_trial
import psutil
import pytest
import torch
import torch.distributed as dist
from refusals import refused
from to_the_bit import numbers
from torch.testing import assert_close

from contrasweep import AblationGrid, Arm
from contrasweep.cluster.inventory import Gpu, Inventory, Node
from contrasweep.errors import ProcessLostError, SpecError
from contrasweep.planning.footprints import Footprints
from contrasweep.planning.learned import Learned
from contrasweep.running.worker.execution import Execution
from contrasweep.storage.records import StudyRecords
from contrasweep.trainables import joined_batch
from contrasweep.trainables.contrastive import memory, train
from contrasweep.trial import Trial

pytestmark = pytest.mark.xdist_group("distributed")
QUICK: dict[str, Any] = {
    "encoder": {"name": "mlp", "width": 16},
    "epochs": 2,
    "batch_size": 64,
    "checkpoint_every": 1,
}
TWO = {"resources": {"processes": 2}}
FIRST_STEPS: list[dict[str, Any]] = [
    {"loss": "supcon"},
    {"loss": "infonce", "encoder": {"name": "cnn", "width": 4}, "learnable_temperature": True},
    {"loss": {"name": "sincere", "similarity": "neg_arc_length", "reduction": "positive_pairs"}},
    {"loss": {"name": "sincere", "reduction": "mean_nonzero"}},
    {"loss": {"name": "ocl", "similarity": "dot", "reduction": "all_anchors"}},
    {"loss": {"name": "supcon", "epsilon": 0.25}},
    {"loss": "triplet"},
    {"loss": {"name": "lifted_structured", "similarity": "neg_euclidean"}},
    {"loss": "barlow_twins"},
    {"loss": "vicreg"},
    {"loss": "proxy_anchor"},
    {"loss": "supcon", "targets": "moco"},
    {"loss": "triplet", "targets": "xbm"},
    {"loss": "infonce", "targets": "nnclr"},
    {"targets": "byol"},
    {"targets": {"name": "dino", "prototypes": 32}, "n_views": 3},
    {"targets": {"name": "swav", "prototypes": 32}},
    {"loss": "sincere", "chunk_rows": 64, "projection": "none", "batch_size": 64},
]


def trial(data, **config):
    return Trial(
        "study", "arm", "contrasweep.trainables.contrastive:train", QUICK | config, data, 0, 0
    )


def children():
    return [p for p in psutil.Process().children() if "process_group" in " ".join(p.cmdline())]


@pytest.fixture(scope="module")
def joined(digits, tmp_path_factory):
    """What each of two ranks has of the first steps."""
    folder = tmp_path_factory.mktemp("group")
    (folder / "trials").write_bytes(
        pickle.dumps([trial(digits, **config) for config in FIRST_STEPS])
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "OMP_NUM_THREADS": "1",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, str(joined_trial.__file__), str(rank), "2", str(folder)],
            env=environment,
        )
        for rank in range(2)
    ]
    assert [rank.wait() for rank in ranks] == [0, 0]
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.mark.slow
@pytest.mark.parametrize("index", range(len(FIRST_STEPS) - 1))
def test_two_ranks_have_the_loss_and_the_gradient_of_one_process(digits, joined, index):
    value, gradients, state = joined_trial.first_step(trial(digits, **FIRST_STEPS[index]))
    assert max(float(g.abs().max()) for g in gradients) > 1e-4
    for loss, theirs, their_state in (rank[index] for rank in joined):
        assert_close(loss, value, rtol=1e-12, atol=1e-12)
        for one, other in zip(gradients, theirs, strict=True):
            assert_close(other, one, rtol=1e-9, atol=1e-12)
        for name, tensor in state.items():
            assert_close(their_state[name], tensor, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_chunks_are_encoded_on_every_rank(joined):
    """Each chunk is normalised over the ranks, so this is no number of one process; the ranks agree to the bit."""
    (loss, gradients, _), (same, theirs, _) = (rank[-1] for rank in joined)
    assert loss == same and all(torch.equal(a, b) for a, b in zip(gradients, theirs, strict=True))


@pytest.mark.slow
def test_a_trial_of_two_processes_is_that_of_one_and_resumes_to_the_bit(digits, tmp_path):
    (alone,) = list(train(trial(digits)))[-1:]
    running = train(trial(digits, **TWO))
    first = next(running)
    assert first.checkpoint is not None and len(children()) == 1
    shutil.copytree(first.checkpoint, tmp_path / "1")
    last = next(running)
    assert list(running) == [] and children() == [] and not dist.is_initialized()
    for name in ("loss", "grad_norm", "alignment", "valid_anchors", "collapse_distance"):
        assert last.metrics[name] == pytest.approx(alone.metrics[name], rel=1e-3), name
    assert last.metrics["knn1"] == pytest.approx(alone.metrics["knn1"], abs=0.05)
    (resumed,) = train(trial(digits, **TWO), resume=tmp_path / "1")
    assert numbers([resumed]) == numbers([last])


def test_an_evaluation_of_rank_0_waits_for_no_other_rank():
    """A batch normalisation without running statistics waited for the other ranks, which do not evaluate."""
    norm = torch.nn.BatchNorm1d(3, track_running_stats=False)
    rows = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(joined_batch.convert(norm).eval()(rows), norm(rows))


@pytest.mark.long
def test_a_killed_rank_ends_the_trial_as_a_whole_and_leaves_it_resumable(digits, storage):
    one = trial(digits, **TWO)
    whole = list(train(one))[-1]
    records = StudyRecords(storage, "study")

    def execution():
        return Execution(one, train, records, metric="knn1")

    started = execution()
    assert len(started.advance().reports) == 1
    (rank,) = children()
    rank.send_signal(signal.SIGKILL)
    with refused(ProcessLostError, match=r"lost in epoch 2: rank 1 ended with exit code -9"):
        started.advance()
    assert children() == [] and not dist.is_initialized() and records.read_one(one.id) is None
    with closing(execution()) as resumed:
        again = resumed.advance()
    assert [row["step"] for row in again.reports] == [2]
    assert again.reports[0]["knn1"] == whole.metrics["knn1"]
    assert again.reports[0]["loss"] == whole.metrics["loss"]


@pytest.mark.slow
def test_the_error_of_a_rank_is_the_trials_and_no_lost_process(digits):
    loss = "misbehaving:a_loss_that_fails_on_rank_1"
    with pytest.raises(RuntimeError, match=r"epoch 1: rank 1: ValueError: no such label \(misbe"):
        next(train(trial(digits, loss=loss, **TWO)))
    assert children() == [] and not dist.is_initialized()


@pytest.mark.long
def test_ranks_end_with_the_process_that_started_them(digits, tmp_path):
    (tmp_path / "trial").write_bytes(pickle.dumps(trial(digits, **TWO)))
    script = f"""
import pathlib, pickle, psutil, time
from contrasweep.trainables.contrastive import train
running = train(pickle.loads(pathlib.Path({str(tmp_path / "trial")!r}).read_bytes()))
next(running)
print(psutil.Process().children()[0].pid, flush=True)
time.sleep(100)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    started = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert started.stdout is not None
    rank = psutil.Process(int(started.stdout.readline()))
    started.kill()
    started.wait()
    rank.wait()


def test_a_group_leaves_no_thread_behind(tmp_path):
    """Such a thread runs while the process ends, which aborts it now and then."""
    script = f"""
import psutil, torch, torch.distributed as dist
from contrasweep.trainables import process_group
process_group._join("cpu", {str(tmp_path / "meet")!r}, 0, 1)
import torch.distributed.nn.functional  # as torch.compile and DistributedDataParallel do
dist.all_reduce(torch.ones(3))
threads = lambda: sum("gloo" in open(f"/proc/self/task/{{t.id}}/comm").read() for t in psutil.Process().threads())
before = threads()
process_group._end(process_group.Group())
print(before > 0, threads())
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.stdout.split() == ["True", "0"], ended.stderr


def test_gpus_that_are_not_there_are_named(digits, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with refused(
        SpecError,
        match=r"resources: a trial needs a GPU for each .* got 4; this process sees 1 GPU$",
    ):
        next(train(trial(digits, resources={"gpus": 4})))


def test_the_plan_places_a_trial_on_as_many_gpus_as_it_says(digits):
    config = QUICK | {"resources": {"gpus": 4}}
    study = AblationGrid(
        "g",
        {"arm": Arm("contrasweep.trainables.contrastive:train", config=config)},
        digits.uri,
        metric="knn1",
    )
    inventory = Inventory((Node(32.0, 256.0, 8, Gpu("H100", 80.0)),))
    (placement,) = Footprints(study, inventory, Learned()).options(trial(digits, **config))
    assert placement.share == 4 and placement.resources()["GPU"] == 4
    one, four = (memory(QUICK | more, digits).count() for more in ({}, {"resources": {"gpus": 4}}))
    assert four.parameters == 4 * one.parameters and one.saved <= four.saved * 1.01
