"""A step in chunks is the step at once."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from contrasweep.trainables.contrastive import gradcache
from contrasweep.trainables.losses import build

LABELS = torch.arange(20) % 4


def network(*extra):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), *extra, nn.Tanh(), nn.Linear(8, 5)).double()


def inputs():
    return torch.randn(20, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def in_chunks(encoder, of, rows):
    return gradcache.chunked_step(encoder, inputs(), of, list(encoder.parameters()), rows)


def assert_gives(step, value, encoder):
    """Assert that a step has this value and its gradients."""
    assert_close(step.loss, value.detach(), rtol=1e-12, atol=0)
    gradients = torch.autograd.grad(value, list(encoder.parameters()))
    for entry, wanted in zip(step.gradients, gradients, strict=True):
        assert_close(entry, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("rows", [1, 3, 7, 20, 50])
def test_chunks_give_the_gradient_of_the_whole_batch(rows):
    encoder = network()
    loss = build("supcon", "cosine")
    step = in_chunks(encoder, lambda z: loss(z, LABELS), rows)
    assert_gives(step, loss(encoder(inputs()), LABELS), encoder)
    assert step.exact and step.chunks == -(-20 // rows)
    assert step.metrics == {"gradcache_chunks": float(step.chunks), "gradcache_exact": 1.0}


def test_dropout_is_the_same_in_both_passes():
    encoder = network(nn.Dropout(0.5))
    loss = build("sincere", "cosine")
    torch.manual_seed(5)
    step = in_chunks(encoder, lambda z: loss(z, LABELS), 8)
    after = torch.rand(1)
    torch.manual_seed(5)
    value = loss(torch.cat([encoder(part) for part in torch.split(inputs(), 8)]), LABELS)
    assert torch.equal(torch.rand(1), after)
    assert_gives(step, value, encoder)


def test_batch_normalisation_is_recorded_and_its_statistics_move_once():
    encoder = network(nn.BatchNorm1d(8))
    twin = network(nn.BatchNorm1d(8))
    step = in_chunks(encoder, lambda z: z.square().sum(), 10)
    assert not step.exact and step.metrics["gradcache_exact"] == 0
    for part in torch.split(inputs(), 10):
        twin(part)
    for entry, wanted in zip(encoder.buffers(), twin.buffers(), strict=True):
        assert_close(entry, wanted)
    encoder.eval()
    assert in_chunks(encoder, lambda z: z.sum(), 10).exact


def test_no_chunk_of_several_is_a_single_row():
    """A batch normalisation would refuse the row that 19 of 20 leave over."""
    step = in_chunks(network(nn.BatchNorm1d(8)), lambda z: z.square().sum(), 19)
    assert step.chunks == 2 and torch.isfinite(step.loss)
