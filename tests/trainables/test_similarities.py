"""What every similarity promises."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from contrasweep.trainables.similarities import SIMILARITIES, neg_arc_length, neg_euclidean, unit


def points(n, d, seed, dtype=torch.float64):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(
        dtype
    )


@pytest.mark.parametrize("name", SIMILARITIES)
@settings(max_examples=10)
@given(seed=st.integers(0, 999), n=st.integers(1, 6), m=st.integers(1, 6))
def test_scores_are_in_range_and_turn_with_their_arguments(name, seed, n, m):
    similarity = SIMILARITIES[name]
    a = points(n, 4, seed)
    b = points(m, 4, seed + 1)
    scores = similarity(a, b)
    assert scores.shape == (n, m) and scores.dtype == a.dtype
    assert (scores >= similarity.low - 1e-12).all() and (scores <= similarity.high + 1e-12).all()
    assert_close(similarity(b, a), scores.T, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in SIMILARITIES if name != "dot"])
def test_nothing_is_more_alike_than_a_duplicate(name):
    similarity = SIMILARITIES[name]
    z = points(6, 4, 0)
    scores = similarity(z, z)
    assert_close(
        scores.diagonal(),
        torch.full((6,), float(similarity.high), dtype=z.dtype),
        rtol=0,
        atol=1e-7,
    )
    assert (scores - torch.eye(6) < similarity.high).all()


@pytest.mark.parametrize("name", [n for n, s in SIMILARITIES.items() if s.project])
def test_inner_products_are_those_of_projected_rows(name):
    similarity = SIMILARITIES[name]
    z = points(6, 4, 0)
    assert similarity.project is not None
    u = similarity.project(z)
    assert_close(similarity(z, z), u @ u.T)


def test_values_by_hand():
    # orthogonal, of length 5
    a = torch.tensor([[3.0, 4.0]])
    b = torch.tensor([[4.0, -3.0]])
    expected = {
        "cosine": 0,
        "dot": 0,
        "neg_arc_length": 0.5,
        "neg_euclidean": -math.sqrt(50),
        "neg_euclidean_unit": -math.sqrt(2),
        "neg_sq_euclidean_unit": -2,
    }
    assert set(expected) == set(SIMILARITIES)
    for name, value in expected.items():
        assert SIMILARITIES[name](a, b).item() == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("angle", [1e-5, 1e-4, 1e-3, math.pi - 1e-4])
def test_arc_lengths_of_near_duplicates_and_antipodes_hold_in_float32(angle):
    """A float32 cosine clamped at 1 - 1e-7, as public codes have it, is off by up to 1.6e-4."""
    a = torch.tensor([[1.0, 0.0]])
    b = torch.tensor([[math.cos(angle), math.sin(angle)]])
    exact = 1 - math.atan2(float(b[0, 1]), float(b[0, 0])) / math.pi
    assert neg_arc_length(a, b).item() == pytest.approx(exact, abs=1e-7)


def test_distances_of_near_duplicates_hold_in_float32():
    """Through matrix products they are off by a third (more than 25 rows make torch.cdist use them by default)."""
    z = 10 + points(40, 16, 0, torch.float32) * 1e-3
    exact = torch.cdist(z.double(), z.double(), compute_mode="donot_use_mm_for_euclid_dist")
    assert_close(-neg_euclidean(z, z).double(), exact, rtol=1e-5, atol=1e-9)


def test_a_zero_vector_stays_zero_with_zero_gradient():
    z = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    u = unit(z)
    (gradient,) = torch.autograd.grad(u.sum(), z)
    assert u[0].tolist() == [0, 0] and gradient[0].tolist() == [0, 0]
    assert u[1].tolist() == pytest.approx([0.6, 0.8])
