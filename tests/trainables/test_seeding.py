"""Seeds: what a trial draws follows from its own parts."""

import random

import numpy as np
import pytest
import torch

from contrasweep.trainables import seeding


def test_reseeding_gives_the_numbers_of_manual_seed():
    seeding.reseed(3, 1, "weights")
    drawn = torch.rand(5), np.random.rand(), random.random()
    torch.manual_seed(seeding.derive(3, 1, "weights"))
    assert torch.equal(drawn[0], torch.rand(5))
    seeding.reseed(3, 1, "weights")
    assert (np.random.rand(), random.random()) == drawn[1:]
    seeding.reseed(3, 2, "weights")
    assert not torch.equal(drawn[0], torch.rand(5))


@pytest.mark.skipif(torch.accelerator.is_available(), reason="an accelerator has to be seeded too")
def test_without_an_accelerator_nothing_is_kept_for_one():
    seeding.reseed(0)
    kept = len(torch.cuda._queued_calls)
    for epoch in range(3):
        seeding.reseed(0, epoch)
    assert len(torch.cuda._queued_calls) == kept, (
        "a traceback a seed, for the day that CUDA is initialised"
    )
