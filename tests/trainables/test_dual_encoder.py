"""Losses of two sides against loops over their papers' equations, and what is learned of them."""

import math

import pytest
import torch

from contrasweep.trainables.dual_encoder.losses import LOSSES, clip, multiple_negatives, siglip
from contrasweep.trainables.dual_encoder.method import clamp
from contrasweep.trainables.losses.weights import LearnedNumbers


def scores(n, m):
    return (
        torch.rand(n, m, generator=torch.Generator().manual_seed(100 * n + m), dtype=torch.float64)
        * 2
        - 1
    )


def log_softmax(row, at):
    return row[at] - math.log(sum(math.exp(x) for x in row))


@pytest.mark.parametrize("temperature", [0.05, 0.5])
@pytest.mark.parametrize("more", [0, 3])
def test_infonce_over_rows_and_in_both_directions_are_the_papers(temperature, more):
    s = scores(5, 5 + more)
    rows = [[float(x) / temperature for x in row] for row in s]
    over_rows = [-log_softmax(rows[i], i) for i in range(5)]
    over_columns = [-log_softmax([rows[j][i] for j in range(5)], i) for i in range(5)]
    assert float(multiple_negatives(s, temperature=temperature)) == pytest.approx(
        sum(over_rows) / 5, abs=1e-12
    )
    expected = (sum(over_rows) / 5 + sum(over_columns) / 5) / 2
    assert float(clip(s, temperature=temperature)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("temperature", "bias"), [(0.1, -10.0), (0.5, 2.0)])
def test_siglip_is_the_papers(temperature, bias):
    s = scores(6, 6)
    total = 0.0
    for i in range(6):
        for j in range(6):
            logit = (1 if i == j else -1) * (float(s[i, j]) / temperature + bias)
            total += math.log1p(math.exp(-logit))
    assert float(siglip(s, temperature=temperature, bias=bias)) == pytest.approx(
        total / 6, abs=1e-12
    )


@pytest.mark.parametrize("name", LOSSES)
def test_what_is_learned_starts_at_the_given_numbers_and_is_clamped_as_in_clip(name):
    given = LOSSES.choose(name).parameters
    learned = LearnedNumbers(given, ("temperature",))
    assert learned.metrics() == pytest.approx(
        {f"loss_{key}": value for key, value in given.items()}
    )
    s = scores(4, 4).float()
    value = LOSSES[name](s, **learned.values())
    slopes = torch.autograd.grad(value, list(learned.parameters()))
    assert all(float(slope.abs()) > 0 for slope in slopes) and len(slopes) == len(given)
    with torch.no_grad():
        learned.offsets["temperature"].fill_(-50.0)
    clamp(learned)
    assert learned.metrics()["loss_temperature"] == pytest.approx(0.01)
