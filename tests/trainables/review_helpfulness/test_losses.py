"""Laws of the losses beside their reference values."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_batches import seeded
from refusals import refused

from contrasweep.errors import SpecError
from contrasweep.trainables.review_helpfulness import (
    adaptive_contrastive_loss,
    pairwise_ranking_loss,
)
from contrasweep.trainables.review_helpfulness.losses import bce

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 7)


def features(rows, seed, dim=4):
    generator = seeded(seed)
    return [
        torch.randn(rows, dim, generator=generator, dtype=torch.float64, requires_grad=True)
        for _ in range(4)
    ]


@settings(max_examples=25)
@given(sizes, seeds)
def test_order_of_rows_and_scale_of_vectors_do_not_matter(rows, seed):
    x = features(rows, seed)
    order = torch.randperm(rows, generator=seeded(seed))
    expected = adaptive_contrastive_loss(*x, o_pos=2.0, o_neg=0.0)
    torch.testing.assert_close(
        adaptive_contrastive_loss(*(3 * v[order] for v in x), o_pos=2.0, o_neg=0.0), expected
    )


def test_no_rows_give_zero_that_can_be_differentiated():
    x = features(0, 0)
    loss = adaptive_contrastive_loss(*x, o_pos=2.0, o_neg=0.0)
    loss.backward()
    assert loss.item() == 0 and all(v.grad is not None for v in x)


def test_a_zero_vector_has_a_gradient_of_ordinary_size():
    x = [
        torch.zeros(2, 3, requires_grad=True),
        *(v.detach().float()[:, :3].requires_grad_() for v in features(2, 1)[1:]),
    ]
    adaptive_contrastive_loss(*x, o_pos=2.0, o_neg=0.0, reduction="sum").backward()
    assert 0 < x[0].grad.abs().max() < 100


def test_wrong_options_are_one_line():
    x = features(2, 0)
    with refused(SpecError, match=r"reduction: .*'mean'.*balanced"):
        adaptive_contrastive_loss(*x, o_pos=2.0, o_neg=0.0, reduction="mean")
    with refused(SpecError, "product_ids"):
        adaptive_contrastive_loss(*x, o_pos=2.0, o_neg=0.0, mask_same_product=True)
    with refused(SpecError, "reduction"):
        pairwise_ranking_loss(torch.zeros(2), torch.zeros(2), beta=1.0, reduction="balanced")


def test_no_pairs_give_zero():
    assert (
        pairwise_ranking_loss(torch.zeros(0), torch.zeros(0), beta=1.0, reduction="mean").item()
        == 0
    )


def test_binary_helpfulness():
    scores = torch.tensor([0.0, 2.0])
    labels = torch.tensor([1, 2])
    expected = -(torch.log(torch.sigmoid(torch.tensor([-0.0, 2.0])))).mean()
    torch.testing.assert_close(bce(scores[None], labels[None], 2), expected)
