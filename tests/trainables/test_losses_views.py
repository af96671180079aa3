"""Barlow Twins and VICReg: the papers' equations in loops. `test_losses` has the laws of all losses."""

import math

import pytest
import torch
from loss_batches import batch, value_and_gradient

from contrasweep.trainables.losses import LOSSES, ViewsLoss, build
from contrasweep.trainables.losses.views import paired_rows

VIEWS = [loss.name for loss in LOSSES.values() if isinstance(loss, ViewsLoss)]


def two_views(n, d, seed=0):
    z, _ = batch(2 * n, d, 1, seed)
    return z, torch.arange(n).repeat(2)


def barlow_twins_by_loops(a, b, weight):
    """Zbontar et al. 2021, equations 1 and 2: embeddings are centred along the batch, C has no epsilon."""
    n, d = a.shape
    total = 0.0
    for i in range(d):
        for j in range(d):
            x = [float(a[k, i] - a[:, i].mean()) for k in range(n)]
            y = [float(b[k, j] - b[:, j].mean()) for k in range(n)]
            c = sum(p * q for p, q in zip(x, y, strict=True))
            c /= math.sqrt(sum(p * p for p in x)) * math.sqrt(sum(q * q for q in y))
            total += (1 - c) ** 2 if i == j else weight * c**2
    return total


def vicreg_by_loops(a, b, form):
    """Bardes et al. 2022, equations 1 to 6, with lambda = mu = 25, nu = 1, gamma = 1, epsilon = 1e-4."""
    n, d = a.shape
    s = sum(float(((a[i] - b[i]) ** 2).sum()) for i in range(n)) / n
    v = 0.0
    c = 0.0
    for z in (a, b):
        cov = [
            [
                sum(
                    float((z[k, i] - z[:, i].mean()) * (z[k, j] - z[:, j].mean())) for k in range(n)
                )
                / (n - 1)
                for j in range(d)
            ]
            for i in range(d)
        ]
        v += sum(max(0.0, 1 - math.sqrt(cov[i][i] + 1e-4)) for i in range(d)) / d
        c += sum(cov[i][j] ** 2 for i in range(d) for j in range(d) if i != j) / d
    return 25 * (s / d if form == "code" else s) + 25 * (v / 2 if form == "code" else v) + c


def test_barlow_twins_is_the_papers():
    z, ids = two_views(7, 4)
    value = build("barlow_twins", redundancy=0.01, epsilon=0.0)(z, ids, ids)
    assert value.item() == pytest.approx(barlow_twins_by_loops(z[:7], z[7:], 0.01), rel=1e-12)
    with_epsilon = build("barlow_twins", redundancy=0.01)(z, ids, ids)
    assert with_epsilon.item() == pytest.approx(value.item(), rel=1e-3)


@pytest.mark.parametrize("form", ["code", "paper"])
def test_vicreg_is_the_papers(form):
    z, ids = two_views(6, 3)
    z = 0.3 * z  # so that the hinge is open
    value = build("vicreg", form=form)(z, ids, ids)
    assert value.item() == pytest.approx(vicreg_by_loops(z[:6], z[6:], form), rel=1e-12)


@pytest.mark.parametrize("name", VIEWS)
def test_images_may_come_in_any_order_and_leftover_rows_count_nowhere(name):
    z, ids = two_views(6, 3)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(1))
    both = torch.cat([order, order + 6])
    value, gradient = value_and_gradient(build(name), z, ids)
    permuted, its_gradient = value_and_gradient(build(name), z[both], ids[both])
    torch.testing.assert_close(permuted, value, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(its_gradient, gradient[both], rtol=1e-8, atol=1e-10)
    more, more_gradient = value_and_gradient(
        build(name), torch.cat([z, z[:1]]), torch.cat([ids, torch.tensor([9])])
    )
    assert more == value and (more_gradient[-1] == 0).all()


def test_rows_of_an_image_are_paired_in_their_order():
    first, second = paired_rows(torch.tensor([5, 2, 5, 2, 7, 5, 5]))
    assert sorted(zip(first.tolist(), second.tolist(), strict=True)) == [(0, 2), (1, 3), (5, 6)]


def test_they_are_listed_with_their_parameters_and_nothing_else():
    chosen = LOSSES.choose({"name": "vicreg", "variance": 10})
    assert chosen.parameters["variance"] == 10 and "similarity" not in chosen.parameters
    assert LOSSES.choose(chosen.to_plain()) == chosen
    with pytest.raises(ValueError, match="'vicreg' has no such parameter"):
        build("vicreg", "cosine")
    z, ids = two_views(3, 2)
    with pytest.raises(
        ValueError, match="instance_ids: barlow_twins needs the ids of the instances"
    ):
        build("barlow_twins")(z, ids)
