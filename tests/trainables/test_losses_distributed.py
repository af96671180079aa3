"""A batch spread over processes has the loss and the gradients that it has in one process."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import joined_losses
import pytest
import torch
from places import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("distributed"),
]  # one group of processes for all of them
SIZE = 2
JOBS: list[tuple[str, str | None, str | None, dict[str, Any]]] = [
    ("supcon", "cosine", "valid_anchors", {"temperature": 0.1}),
    ("supcon", "cosine", "valid_anchors", {"temperature": 0.1, "epsilon": 0.25}),
    ("sincere", "dot", "all_anchors", {"temperature": 0.5}),
    ("sincere", "neg_arc_length", "positive_pairs", {"temperature": 0.2}),
    ("ocl", "cosine", "valid_anchors", {"temperature": 0.3}),
    ("infonce", "cosine", "valid_anchors", {"temperature": 0.2}),
    ("sincere", "cosine", "mean_nonzero", {}),
    ("triplet", "cosine", "mean", {"margin": 0.2}),
    ("lifted_structured", "neg_euclidean", "mean", {}),
    ("barlow_twins", None, None, {}),
    ("vicreg", None, None, {}),
    ("joined_losses:alike", "own", None, {}),
]


def job(loss, similarity, reduction, params):
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(23, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(4, (23,), generator=generator)
    return {
        "loss": loss,
        "similarity": similarity,
        "reduction": reduction,
        "params": params,
        "inputs": inputs,
        "labels": labels,
        "ids": torch.arange(23) // 2,
        "ends": [9, 23],
    }


@pytest.fixture(scope="module")
def joined(tmp_path_factory):
    """What each process found, process by process and job by job."""
    folder = tmp_path_factory.mktemp("group")
    torch.save([job(*j) for j in JOBS], folder / "jobs.pt")
    paths = os.pathsep.join(str(p) for p in (ROOT, ROOT / "platform", ROOT / "tests/support"))
    script = str(Path(joined_losses.__file__))
    started = [
        subprocess.Popen(
            [
                sys.executable,
                script,
                str(rank),
                str(SIZE),
                str(folder / "meet"),
                str(folder / "jobs.pt"),
                str(folder / f"{rank}.pt"),
            ],
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(SIZE)
    ]
    errors = [process.communicate()[1] for process in started]
    assert all(process.returncode == 0 for process in started), "\n".join(e[-2000:] for e in errors)
    return [torch.load(folder / f"{rank}.pt") for rank in range(SIZE)]


@pytest.mark.parametrize("index", range(len(JOBS)), ids=[f"{j[0]}-{j[1]}-{j[2]}" for j in JOBS])
def test_the_group_equals_one_process(joined, index):
    one = job(*JOBS[index])
    value, gradients, counts = joined_losses.value_and_gradients(
        joined_losses.encoder(5), one, slice(None)
    )
    assert any(g.abs().max() > 1e-4 for g in gradients)
    for rank in range(SIZE):
        theirs, their_gradients, their_counts = joined[rank][index]
        assert (counts is None) == (their_counts is None)
        assert counts is None or torch.equal(counts, their_counts)
        torch.testing.assert_close(theirs, value, rtol=1e-12, atol=1e-12)
        for ours, other in zip(gradients, their_gradients, strict=True):
            torch.testing.assert_close(other, ours, rtol=1e-9, atol=1e-12)
