"""Losses with weights of their own: the papers' equations in loops, and what is learned."""

import math

import pytest
import torch
from loss_batches import batch
from torch.testing import assert_close

from contrasweep.schema import resolved_config
from contrasweep.trainables.contrastive import memory
from contrasweep.trainables.contrastive.settings import Settings
from contrasweep.trainables.losses import LOSSES, ComposedLoss, ComposedProxyLoss, ProxyLoss, build
from contrasweep.trainables.losses.weights import LearnedNumbers
from contrasweep.trainables.optimisation import SGD, AdamW, WithOwnRates

CLASSES = 4
PROXY_LOSSES = [loss.name for loss in LOSSES.values() if isinstance(loss, ProxyLoss)]


def cosines(z, proxies):
    return [[float(a @ b / (a.norm() * b.norm())) for b in proxies] for a in z]


def proxy_anchor_by_loops(s, labels, m, a):
    """Kim et al. 2020, equation 4: alpha = 32, delta = .1."""
    pull = []
    push = []
    for p in range(CLASSES):
        own = [s[i][p] for i, label in enumerate(labels) if label == p]
        others = [s[i][p] for i, label in enumerate(labels) if label != p]
        if own:
            pull.append(math.log(1 + sum(math.exp(-a * (x - m)) for x in own)))
        push.append(math.log(1 + sum(math.exp(a * (x + m)) for x in others)))
    return sum(pull) / len(pull) + sum(push) / CLASSES


def softmax_by_loops(s, labels, own, scale):
    """Deng et al. 2019, equation 3, with `own` in the place of cos(a_y + m)."""
    total = 0.0
    for row, y in zip(s, labels, strict=True):
        mine = math.exp(scale * own(row[y]))
        total -= math.log(
            mine / (mine + sum(math.exp(scale * x) for j, x in enumerate(row) if j != y))
        )
    return total / len(labels)


@pytest.mark.parametrize("name", PROXY_LOSSES)
def test_losses_of_classes_are_the_papers(name):
    z, labels = batch(7, 5, 3, seed=2)  # a fourth class is not in the batch
    loss = build(name, dim=5, classes=CLASSES, margin=0.2, scale=6.0)
    assert isinstance(loss, ComposedProxyLoss) and loss.weights is not None
    proxies = loss.weights.double().rows
    s = cosines(z, proxies.detach())
    y = labels.tolist()
    expected = {
        "proxy_anchor": lambda: proxy_anchor_by_loops(s, y, 0.2, 6.0),
        "arcface": lambda: softmax_by_loops(s, y, lambda x: math.cos(math.acos(x) + 0.2), 6.0),
        "cosface": lambda: softmax_by_loops(s, y, lambda x: x - 0.2, 6.0),
    }[name]()
    assert loss(z, labels).item() == pytest.approx(expected, rel=1e-9)
    assert torch.autograd.gradcheck(
        lambda a, b: loss.definition.function(a, labels, b, **loss.params),
        (z.requires_grad_(), proxies),
    )


@pytest.mark.parametrize(
    ("degrees", "paper", "code"),
    [
        (150, 31.9822, 31.9822),
        (155, 36.8228, 46.2977),
        (170, 49.5266, 67.2558),
        (179, 55.5753, 78.2149),
    ],
)
def test_arcface_beyond_pi_less_its_margin_is_the_papers_or_the_authors(degrees, paper, code):
    """Two classes at right angles; `code` are values of pytorch-metric-learning 2.9, whose rule is insightface's."""
    angle = math.radians(degrees)
    embedding = torch.tensor([[math.cos(angle), -math.sin(angle)]], dtype=torch.float64)
    for form, expected in (("paper", paper), ("code", code)):
        loss = LOSSES.choose({"name": "arcface", "form": form})
        value = loss.entry.function(
            embedding, torch.tensor([0]), torch.eye(2, dtype=torch.float64), **loss.parameters
        )
        assert value.item() == pytest.approx(expected, abs=1e-4)
    default, chosen = (
        resolved_config(Settings(loss=loss))["loss"] for loss in ("arcface", loss.to_plain())
    )
    assert chosen == {**default, "form": "code"} and "form" not in default, (
        "no trial's id changes by the setting"
    )


def test_siglip_is_the_papers():
    """Zhai et al. 2023, algorithm 1: -1/B sum_ij log sigmoid(z_ij (t x_i.y_j + b)), two matrices and one batch."""
    loss = build("siglip", temperature=0.2, bias=-3.0, dim=4, classes=2)
    assert isinstance(loss, ComposedLoss) and isinstance(loss.weights, LearnedNumbers)
    with torch.no_grad():
        loss.weights.offsets["temperature"] += math.log(2)  # 0.4
        loss.weights.offsets["bias"] += 1.0
    x = batch(5, 4, 2, seed=3)[0]
    y = batch(5, 4, 2, seed=4)[0]
    total = sum(
        -math.log(1 / (1 + math.exp(-(1 if i == j else -1) * (cosine / 0.4 - 2))))
        for i, row in enumerate(cosines(x, y))
        for j, cosine in enumerate(row)
    )
    own = torch.eye(5, dtype=torch.bool)
    assert loss.between(x, y, own, ~own).item() == pytest.approx(total / 5, rel=1e-6)
    ids = torch.arange(5).repeat(2)
    both = torch.cat([x, y])
    assert loss.weights.metrics() == pytest.approx({"loss_temperature": 0.4, "loss_bias": -2.0})
    slopes = torch.autograd.grad(loss(both, ids, ids), list(loss.weights.parameters()))
    assert all(slope != 0 for slope in slopes)


@pytest.mark.parametrize("kind", [SGD, AdamW])
def test_a_rate_of_its_own_is_an_optimizer_of_its_own(kind):
    def weights():
        return [torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)]

    together = weights()
    alone = weights()
    joined = WithOwnRates([kind(together[:1], 0.1), kind(together[1:], 0.5)], [1.0, 5.0])
    apart = [kind(alone[:1], 0.1), kind(alone[1:], 0.5)]
    for step in (1, 2, 3):
        joined.lr = 0.1 / step
        apart[0].lr, apart[1].lr = 0.1 / step, 0.1 / step * 5.0
        joined.step([torch.ones(2), torch.ones(3)])
        apart[0].step([torch.ones(2)])
        apart[1].step([torch.ones(3)])
    assert_close(together, alone, rtol=0, atol=0)
    assert len(joined.state_dict()["each"]) == 2 and [len(p) for p in joined.parameters] == [2, 3]


def test_the_memory_of_a_loss_is_counted(digits):
    config = {"loss": "arcface", "projection": {"name": "linear", "dim": 16}, "optimizer": "adamw"}
    pixels = digits.rows("train", "test") * 64
    # uint8 and three float32 of each pixel; each weight with its gradient and two moments
    assert memory(config, digits).resident_bytes == pixels * (1 + 3 * 4) + 16 * 10 * 4 * 4
    shape = (1, 8, 8)
    assert (
        Settings(loss="arcface", projection={"name": "linear", "dim": 16}).loss_weights(shape, 1000)
        == 16_000
    )
    assert (
        Settings(loss="arcface", projection="none", encoder="cnn").loss_weights(shape, 10) % 10 == 0
    )
    assert Settings(loss="siglip").loss_weights(shape, 10) == 2
    assert Settings().loss_weights(shape, 10) == 0
