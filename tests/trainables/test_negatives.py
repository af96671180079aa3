"""The share of negatives at a cosine below 0: counted in every step as loops count it; OCL is SCL where it is 0."""

import logging
from contextlib import closing
from typing import Any

import loss_batches
import numpy as np
import pandas as pd
import pytest
import torch
from torch.testing import assert_close

from contrasweep.data import resolve
from contrasweep.results.notices import notice_lines
from contrasweep.trainables import contrastive, loop, paired_images
from contrasweep.trainables.contrastive import method as contrastive_method
from contrasweep.trainables.loop import OCL_IS_SCL
from contrasweep.trainables.losses import LOSSES, Loss, build
from contrasweep.trainables.losses.composed import ComposedLoss
from contrasweep.trainables.losses.negatives import share_below, with_tally
from contrasweep.trial import Trial

torch.set_num_threads(1)


def batch(rows=24):
    return *loss_batches.batch(rows, 5, 4, seed=4), torch.arange(rows) // 2


def by_loops(z, ids):
    pairs = [(i, j) for i in range(len(z)) for j in range(len(z)) if ids[i] != ids[j]]
    return [sum(float(z[i] @ z[j]) < 0 for i, j in pairs), len(pairs)]


SIGNED = [
    (loss.name, similarity)
    for loss in LOSSES.values()
    if isinstance(loss, Loss)
    for similarity in loss.similarities
    if similarity in ("cosine", "dot")
]


@pytest.mark.parametrize(("name", "similarity"), SIGNED)
def test_it_is_what_loops_count_and_the_loss_is_as_before(name, similarity):
    z, labels, instances = batch()
    loss = build(name, similarity)
    assert isinstance(loss, ComposedLoss)
    ids = loss.ids(labels, instances)
    both = []
    for form in (loss, with_tally(loss)[0]):
        rows = z.clone().requires_grad_()
        value = form(rows, labels, instances)
        both.append((value.detach(), torch.autograd.grad(value, rows)[0]))
    assert_close(*both, rtol=0, atol=0)
    tallied, tally = with_tally(loss)
    tallied(z, labels, instances)
    assert tally.counts is not None
    assert tally.counts.tolist() == by_loops(z, ids)
    if loss.can_tile:
        tiled, tile_tally = with_tally(loss)
        tiled.in_tiles(z, ids, max_scores=50)
        assert tile_tally.counts is not None
        assert tile_tally.counts.tolist() == by_loops(z, ids)


@pytest.mark.parametrize(("name", "similarity"), [("sincere", "neg_arc_length"), ("vicreg", None)])
def test_losses_whose_scores_have_no_sign_are_not_counted(name, similarity):
    loss = build(name, similarity)
    same, tally = with_tally(loss)
    same(*batch())
    assert same is loss and tally.counts is None


def test_steps_without_negatives_count_nothing():
    nothing = torch.tensor([0, 0])
    some = torch.tensor([1, 4])
    assert share_below([]) is None and share_below([nothing]) is None
    assert share_below([nothing, some, nothing]) == 0.25


Q: dict[str, Any] = {
    "encoder": {"name": "cnn", "width": 8},
    "epochs": 2,
    "batch_size": 64,
    "device": "cpu",
}


def reports(digits, loss, **config):
    settings = {**Q, "loss": {"name": loss, "temperature": 0.5}, **config}
    return list(contrastive.train(trial(digits, settings)))


def trial(digits, settings):
    path = "contrasweep.trainables.contrastive:train"
    return Trial("study", "arm", path, settings, digits, 0, 0)


def noticed(made):
    """What a table of this one trial says."""
    return notice_lines(pd.DataFrame([{"arm": "arm", **made[-1].metrics}]))


def scores(made):
    return [
        {name: value for name, value in r.metrics.items() if name != "ocl_equals_scl"} for r in made
    ]


def test_a_trial_that_never_leaves_the_cone_says_that_ocl_is_scl_and_is(digits, caplog):
    with caplog.at_level(logging.WARNING):
        slow = reports(digits, "ocl", learning_rate=1e-5)
        supcon = reports(digits, "supcon", learning_rate=1e-5)
    assert [(r.metrics["negative_cosines"], r.metrics["ocl_equals_scl"]) for r in slow] == [
        (0, 1),
        (0, 1),
    ]
    assert scores(slow) == scores(supcon), "to the bit"
    assert [record.getMessage().endswith(OCL_IS_SCL) for record in caplog.records].count(True) == 1
    assert noticed(slow)[0].startswith(f"{OCL_IS_SCL} (arm: 1 of 1 trials); the embeddings lie")
    assert noticed(supcon) == []
    assert "ocl_equals_scl" not in supcon[-1].metrics
    assert supcon[-1].metrics["negative_cosines"] == 0


def test_a_trial_with_negative_cosines_says_how_many_and_differs(digits, caplog):
    with caplog.at_level(logging.WARNING):
        made, supcon = (reports(digits, loss, learning_rate=0.3) for loss in ("ocl", "supcon"))
    assert made[-1].metrics["negative_cosines"] > 0.01 and made[-1].metrics["ocl_equals_scl"] == 0
    assert scores(made) != scores(supcon) and noticed(made) == []
    assert not any(OCL_IS_SCL in record.getMessage() for record in caplog.records)


@pytest.fixture
def tallies(monkeypatch):
    """What was counted in each step of what is trained."""
    seen = []

    def kept(loss):
        loss, tally = with_tally(loss)
        assert tally is not None
        seen.append(tally)
        return loss, tally

    monkeypatch.setattr(contrastive_method, "with_tally", kept)
    return seen


def numbers(tallies):
    return np.array([tally.counts.tolist() for tally in tallies if tally.counts is not None])


def test_every_step_counts_and_not_the_last_one_alone(digits, tallies):
    (made,) = reports(digits, "ocl", learning_rate=0.3, epochs=1)
    counts = numbers(tallies)
    assert len(counts) > 3 and len(set(counts[:, 0])) > 2
    assert made.metrics["negative_cosines"] == counts[:, 0].sum() / counts[:, 1].sum()


@pytest.mark.parametrize("targets", ["xbm", "moco"])
def test_negatives_of_a_queue_count_too(digits, tallies, targets):
    reports(digits, "supcon", targets={"name": targets, "size": 256}, epochs=1)
    of_steps = numbers(tallies)[:, 1]
    in_batch = 128 * 128 if targets == "xbm" else 64 * 64
    assert of_steps[0] < in_batch < of_steps[-1]


def test_a_resumed_trial_knows_what_was_before(digits):
    settings = {**Q, "loss": "ocl", "checkpoint_every": 1, "learning_rate": 1e-5}
    one = trial(digits, settings)
    method = contrastive_method.build(one)
    for before in (True, False):
        method.guard.below_zero = before
        with closing(loop.run(method, one)) as training:
            saved = next(training).checkpoint
            assert saved is not None
            other = contrastive_method.build(one)
            loop.restore(saved, other)
        assert other.guard.below_zero == before
        assert other.epoch(2)["ocl_equals_scl"] == float(not before)


def test_paired_training_counts_z_and_l(storage):
    settings = {
        "encoder": {"name": "resnet10", "width": 8, "stem": "small"},
        "loss": {"name": "ocl", "temperature": 0.5},
        "beta": 0.5,
        "epochs": 1,
        "batch_size": 8,
        "artifacts": "none",
        "device": "cpu",
    }
    pairs = resolve("synthetic-pairs?pairs=40&size=16", folds=2, storage=storage)
    metrics = list(paired_images.train(Trial("study", "arm", "t", settings, pairs, 0, 0)))[
        -1
    ].metrics
    shares = [metrics["negative_cosines"], metrics["negative_cosines_l"]]
    assert all(0 <= share <= 1 for share in shares)
    assert metrics["ocl_equals_scl"] == float(max(shares) == 0)
