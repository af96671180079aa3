"""Laws of the losses beside their reference values."""

import pytest
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
from contrasweep.trainables.review_helpfulness.models import ProposedOptions

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 7)


def features(rows, seed, dim=4):
    generator = seeded(seed)
    return [
        torch.randn(rows, dim, generator=generator, dtype=torch.float64, requires_grad=True)
        for _ in range(4)
    ]


def loops(x, o_pos, o_neg, products):
    """Eq. 33 as it is written, pair by pair."""
    total = 0.0
    for a in range(4):
        for b in range(a + 1, 4):
            for j in range(len(x[0])):
                for k in range(len(x[0])):
                    s = torch.cosine_similarity(x[a][j], x[b][k], dim=0).item()
                    if j == k:
                        total -= (o_pos - s) * s
                    elif products[j] != products[k]:
                        total += (s - o_neg) * s
    return total


@settings(max_examples=25)
@given(sizes, seeds, st.floats(1, 2), st.floats(-0.3, 0.3))
def test_it_is_the_papers_sum(rows, seed, o_pos, o_neg):
    x = features(rows, seed)
    products = [i // 2 for i in range(rows)]
    result = adaptive_contrastive_loss(
        *x, o_pos=o_pos, o_neg=o_neg, reduction="sum", product_ids=products, mask_same_product=True
    )
    assert result.item() == pytest.approx(loops(x, o_pos, o_neg, products), abs=1e-9)


@settings(max_examples=25)
@given(sizes, seeds)
def test_order_of_rows_and_scale_of_vectors_do_not_matter(rows, seed):
    x = features(rows, seed)
    order = torch.randperm(rows, generator=seeded(seed))
    expected = adaptive_contrastive_loss(*x, o_pos=2.0, o_neg=0.0)
    torch.testing.assert_close(
        adaptive_contrastive_loss(*(3 * v[order] for v in x), o_pos=2.0, o_neg=0.0), expected
    )


@settings(max_examples=25)
@given(st.integers(2, 7), seeds, st.floats(1, 2), st.floats(-0.3, 0.3))
def test_the_optimum_lies_where_theorem_1_says(rows, seed, o_pos, o_neg):
    """The gradient with respect to a similarity is 2s - o."""
    s = torch.linspace(-1, 1, 9, dtype=torch.float64, requires_grad=True)
    # Two-dimensional unit vectors: all but v_r point along x; v_r has cosine s with them. One row, three positives.
    for value in s:
        one = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
        v_r = torch.stack([value, (1 - value**2).clamp(min=0).sqrt()])[None]
        if abs(value.item()) < 1:
            loss = adaptive_contrastive_loss(
                one, one, one, v_r, o_pos=o_pos, o_neg=o_neg, reduction="sum"
            )
            (gradient,) = torch.autograd.grad(loss, s, retain_graph=True)
            assert gradient.sum().item() == pytest.approx(3 * (2 * value.item() - o_pos), abs=1e-9)


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


def test_detached_weights_move_the_optimum():
    x = features(3, 5)
    kept, detached = (
        torch.autograd.grad(
            adaptive_contrastive_loss(*x, o_pos=2.0, o_neg=0.0, detach_weights=d), x
        )
        for d in (False, True)
    )
    assert not torch.allclose(kept[0], detached[0])


def test_wrong_options_are_one_line():
    x = features(2, 0)
    with refused(SpecError, match=r"reduction: .*'mean'.*balanced"):
        adaptive_contrastive_loss(*x, o_pos=2.0, o_neg=0.0, reduction="mean")
    with refused(SpecError, "o_pos: the authors' contrastive term does not use it, got 1.5"):
        ProposedOptions(contrastive_form="code", o_pos=1.5)
    for changed in ({"adaptive": False}, {"o_neg": 1.0}, {"mask_same_product": True}):
        with refused(SpecError, match=f"{next(iter(changed))}: the authors' .* not use it"):
            ProposedOptions(contrastive_form="code", **changed)
    with refused(SpecError, "product_ids"):
        adaptive_contrastive_loss(*x, o_pos=2.0, o_neg=0.0, mask_same_product=True)
    with refused(SpecError, "reduction"):
        pairwise_ranking_loss(torch.zeros(2), torch.zeros(2), beta=1.0, reduction="balanced")


@settings(max_examples=25)
@given(st.integers(1, 5), st.integers(1, 4), seeds, st.floats(0.1, 2))
def test_ranking_reductions_agree(groups, negatives, seed, beta):
    generator = seeded(seed)
    p = torch.randn(groups, generator=generator)
    n = torch.randn(groups, negatives, generator=generator)
    each = pairwise_ranking_loss(p, n, beta=beta, reduction="none")
    assert each.shape == n.shape and (each >= 0).all()
    oracle = sum(
        max(0.0, beta - p[i].item() + n[i, j].item())
        for i in range(groups)
        for j in range(negatives)
    )
    assert pairwise_ranking_loss(p, n, beta=beta, reduction="sum").item() == pytest.approx(
        oracle, abs=1e-4
    )
    assert pairwise_ranking_loss(p, n, beta=beta, reduction="mean").item() == pytest.approx(
        oracle / groups, abs=1e-4
    )
    flat = pairwise_ranking_loss(
        p.repeat_interleave(negatives), n.flatten(), beta=beta, reduction="sum"
    )
    assert flat.item() == pytest.approx(oracle, abs=1e-4)


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
