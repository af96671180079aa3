"""Diagnostics against values by hand and the collapse constants of the literature."""

import itertools
import math

import pytest
import torch
from loss_batches import seeded

from contrasweep.trainables import diagnostics
from contrasweep.trainables.losses import LOSSES, Loss, build
from contrasweep.trainables.similarities import unit

LABELS = torch.tensor([0, 0, 0, 0, 1, 1, 2])


def diagnosed(built, z):
    return diagnostics.of_batch(built, built(z, LABELS), z, LABELS)


@pytest.mark.parametrize(
    ("loss", "similarity"),
    [(x.name, s) for x in LOSSES.values() if isinstance(x, Loss) for s in x.similarities],
)
def test_the_collapse_value_is_the_loss_of_equal_embeddings(loss, similarity):
    z = torch.tensor([[0.6, -0.8, 1.1]], dtype=torch.float64).repeat(len(LABELS), 1)
    built = build(loss, similarity)
    values = diagnostics.of_batch(built, built(z, LABELS, LABELS), z, LABELS, LABELS)
    assert values["collapse_distance"] == pytest.approx(
        0, abs=1e-5
    )  # the arc's clamp: 1e-7 / temperature
    assert values["collapsed"] == 1 and values["alignment"] == pytest.approx(0, abs=1e-12)


def test_alignment_and_uniformity_are_those_of_loops():
    z = torch.randn(7, 3, generator=seeded(0), dtype=torch.float64)
    u = unit(z)
    pairs = list(itertools.combinations(range(7), 2))
    squares = {(i, j): (u[i] - u[j]).square().sum().item() for i, j in pairs}
    positive = [squares[p] for p in pairs if LABELS[p[0]] == LABELS[p[1]]]
    assert diagnostics.alignment(z, LABELS) == pytest.approx(sum(positive) / len(positive))
    mean = sum(math.exp(-2 * s) for s in squares.values()) / len(pairs)
    assert diagnostics.uniformity(z) == pytest.approx(math.log(mean))


def test_a_healthy_batch_is_not_collapsed():
    z = torch.eye(3)[LABELS]
    values = diagnosed(build("supcon", "cosine"), z)
    assert values["valid_anchors"] == 6 and values["collapsed"] == 0
    assert values["collapse_distance"] < -0.3
    hot = build("supcon", "cosine", temperature=1000.0)  # near log(n - 1) whatever the embeddings
    assert diagnostics.of_batch(hot, hot(z, LABELS), z, LABELS)["collapsed"] == 0


def test_small_batches_have_diagnostics():
    built = build("supcon", "cosine")
    for n in (1, 2):
        z = torch.randn(n, 3, generator=seeded(n))
        labels = torch.arange(n)
        values = diagnostics.of_batch(built, built(z, labels), z, labels)
        assert values["valid_anchors"] == 0 and math.isnan(values["alignment"])


def test_an_outside_loss_has_what_needs_no_formula():
    pytest.importorskip("pytorch_metric_learning")
    z = torch.eye(3)[LABELS]
    built = build("pytorch_metric_learning.losses:CircleLoss")
    assert set(diagnosed(built, z)) == {
        "valid_anchors",
        "alignment",
        "uniformity",
    }
