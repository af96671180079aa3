"""Tiles give what the matrix of all scores gives."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_batches import batch, largest_tensor
from torch.testing import assert_close

from contrasweep.trainables.losses import LOSSES, Loss, build, tiled
from contrasweep.trainables.losses.composed import ComposedLoss

TILED = [
    (loss.name, similarity)
    for loss in LOSSES.values()
    if isinstance(loss, Loss) and loss.tile_function
    for similarity in loss.similarities
]
REDUCTIONS = ("valid_anchors", "all_anchors", "positive_pairs", "mean")


def made(loss, similarity, reduction=None, **params):
    built = build(loss, similarity, reduction=reduction, **params)
    assert isinstance(built, ComposedLoss)
    return built


def value_and_gradient(function, z, *args, **kwargs):
    z = z.clone().requires_grad_()
    value = function(z, *args, **kwargs)
    return value.detach(), torch.autograd.grad(value, z)[0]


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "similarity"), TILED)
@settings(max_examples=8)
@given(
    n=st.integers(1, 40),
    classes=st.integers(1, 12),
    tile=st.integers(1, 400),
    seed=st.integers(0, 99),
    reduction=st.sampled_from(REDUCTIONS),
    temperature=st.sampled_from([0.01, 0.1, 1.0]),
    epsilon=st.sampled_from([0.0, 0.1, 3.0]),
)
def test_tiles_are_exact(loss, similarity, n, classes, tile, seed, reduction, temperature, epsilon):
    options = {"epsilon": epsilon} if "epsilon" in LOSSES[loss].fields else {}
    composed = made(loss, similarity, reduction, temperature=temperature, **options)
    z, ids = batch(n, 5, classes, seed)
    expected, wanted = value_and_gradient(composed.dense, z, ids)
    value, gradient = value_and_gradient(composed.in_tiles, z, ids, max_scores=tile)
    assert_close(value, expected, rtol=1e-12, atol=1e-12)
    assert_close(gradient, wanted, rtol=1e-12, atol=1e-12 * max(1, wanted.abs().max().item()))


@pytest.mark.parametrize("loss", ["supcon", "sincere", "ocl"])
def test_large_batches_are_tiled(loss, monkeypatch):
    z, ids = batch(tiled.DENSE_ROWS["cpu"] + 1, 8, 4, seed=0)
    composed = made(loss, "cosine")
    expected = composed.dense(z, ids)
    monkeypatch.setattr(
        ComposedLoss, "dense", lambda *_: pytest.fail("the matrix of all scores was made")
    )
    assert_close(composed(z, ids), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("reduction", [*REDUCTIONS, "mean_nonzero"])
def test_a_mean_of_values_above_zero_needs_the_whole_matrix(reduction):
    assert made("sincere", "cosine", reduction).can_tile == (reduction != "mean_nonzero")


def test_a_base_temperature_scales_tiles_too():
    z, ids = batch(30, 4, 3, seed=1)
    composed = made("supcon", "cosine", temperature=0.1, base_temperature=0.07)
    assert_close(composed.in_tiles(z, ids), composed.dense(z, ids), rtol=1e-12, atol=0)


@pytest.mark.slow
def test_tiles_hold_no_matrix_of_all_scores():
    """The largest tensor made in a forward and backward pass has fewer elements than half the score matrix."""
    n = 3000
    z, ids = batch(n, 16, 10, seed=2)
    assert 0 < largest_tensor(made("sincere", "cosine"), z.float(), ids) < n * n / 2
