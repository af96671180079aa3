"""Each layer with a rule: K folded ones give what K plain ones give, forwards, backwards and in their statistics."""

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from folded_members import SHAPE, Member, members, network
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from contrasweep.trainables.fusing.folding import fold

ENGINES = st.sampled_from(["grouped", "products"])
SIDES = st.integers(4, 9)


def assert_same(layer: nn.Module, engine: str, *shape: int, count: int = 2, batches: int = 1) -> None:
    """Folded and plain copies, with weights of their own, on the same inputs [count n *shape]."""
    torch.manual_seed(0)
    plain = [copy.deepcopy(layer).double() for _ in range(count)]
    for module in plain:
        for parameter in module.parameters():
            nn.init.normal_(parameter)
    folded = fold(plain[0], count, engine)
    for slot, module in enumerate(plain):
        folded.put(slot, module.state_dict())
    for _ in range(batches):
        x = torch.randn(count, 3, *shape, dtype=torch.float64, requires_grad=True)
        mine, theirs = folded(x), torch.stack([module(part) for module, part in zip(plain, x, strict=True)])
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)
    slopes = torch.randn_like(mine)
    (of_mine, *weights), (of_theirs, *_) = (
        torch.autograd.grad(y, [x, *parameters], slopes)
        for y, parameters in ((mine, folded.parameters()), (theirs, []))
    )
    torch.testing.assert_close(of_mine, of_theirs, rtol=1e-9, atol=1e-9)
    for k, module in enumerate(plain if weights else []):
        each = torch.autograd.grad(module(x[k].detach()), list(module.parameters()), slopes[k])
        for stacked, one in zip(weights, each, strict=True):
            torch.testing.assert_close(stacked[k], one, rtol=1e-9, atol=1e-9)


@settings(max_examples=12)
@given(
    engine=ENGINES,
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    sides=st.tuples(SIDES, SIDES),
    groups=st.sampled_from([1, 1, 2]),
    mode=st.sampled_from(["zeros", "reflect", "circular"]),
    bias=st.booleans(),
)
def test_convolutions(engine: str, sides: tuple[int, int], **options: Any) -> None:
    mode = options.pop("mode")
    assert_same(nn.Conv2d(2, 4, options.pop("kernel"), padding_mode=mode, **options), engine, 2, *sides)


@settings(max_examples=4)
@given(engine=ENGINES, dilation=st.integers(1, 2), padding=st.sampled_from([0, 2, "same"]))
def test_dilated_convolutions(engine: str, dilation: int, padding: Any) -> None:
    assert_same(nn.Conv2d(2, 3, 3, padding=padding, dilation=dilation), engine, 2, 7, 6)


@settings(max_examples=8)
@given(
    engine=ENGINES,
    momentum=st.sampled_from([0.1, 0.7, None]),
    training=st.booleans(),
    tracked=st.booleans(),
    affine=st.booleans(),
    flat=st.booleans(),
)
def test_batch_normalisation(engine: str, training: bool, flat: bool, tracked: bool, **options: Any) -> None:
    layer = (nn.BatchNorm1d if flat else nn.BatchNorm2d)(4, track_running_stats=tracked, **options)
    torch.manual_seed(0)
    plain = [copy.deepcopy(layer).double() for _ in range(2)]
    folded = fold(plain[0], 2, engine)
    for mode in (True, training, False):
        folded.tree.train(mode)
        x = torch.randn(2, 5, 4, *([] if flat else [3, 2]), dtype=torch.float64) * 3 + 1
        theirs = torch.stack([module.train(mode)(part) for module, part in zip(plain, x, strict=True)])
        torch.testing.assert_close(folded(x), theirs, rtol=1e-10, atol=1e-12)
    for slot, module in enumerate(plain):
        torch.testing.assert_close(folded.take(slot), dict(module.state_dict()), rtol=1e-12, atol=1e-14)


def without_bias(layer):
    """As `bias=False` makes it, which torch 2.11 does not take yet."""
    layer.register_parameter("bias", None)
    return layer


@pytest.mark.parametrize("engine", ["grouped", "products"])
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(5, 3), (4, 5)),
        (nn.GroupNorm(2, 32), (32, 3, 3)),
        (nn.LayerNorm((4, 5)), (3, 4, 5)),
        (without_bias(nn.BatchNorm2d(2)), (2, 3, 3)),
        (nn.MaxPool2d(3, 2, 1), (2, 7, 7)),
        (nn.AvgPool2d(2), (2, 6, 6)),
        (nn.AdaptiveAvgPool2d((2, 3)), (2, 7, 6)),
        (nn.Sequential(nn.Conv1d(2, 3, 3), nn.GELU(), nn.Flatten()), (2, 6)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_other_layers(layer: nn.Module, shape: tuple[int, ...], engine: str) -> None:
    assert_same(layer, engine, *shape)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dropout_draws_from_each_members_generator(dtype: torch.dtype) -> None:
    folded, x = fold(nn.Dropout(0.3), 2), torch.randn(2, 6, 50, dtype=dtype)
    folded.slots.generators = [torch.Generator().manual_seed(seed) for seed in (5, 9)]
    alone = []
    for seed, part in zip((5, 9), x, strict=True):
        torch.manual_seed(seed)
        alone.append(nn.functional.dropout(part, 0.3))
    assert torch.equal(folded(x), torch.stack(alone))


@pytest.mark.parametrize("engine", ["grouped", "products"])
def test_float32_gradients_are_as_good_as_those_alone(engine: str) -> None:
    """The error to float64 is at most 1.5 times that of the trial alone, over networks and batches of eight seeds."""
    alone = fused = 0.0
    exact, plain = (members(network("cnn"), 8, dtype=dtype) for dtype in (torch.float64, torch.float32))
    folded = fold(plain[0].network, 8, engine)
    for slot, (double, single) in enumerate(zip(exact, plain, strict=True)):
        double.network.load_state_dict(single.network.state_dict())
        folded.put(slot, single.network.state_dict())
    batches = [single.batch(0, 16, SHAPE) for single in plain]
    embeddings = folded(torch.stack([images for images, *_ in batches]))
    values = [single.loss(z, *ids) for single, z, (_, *ids) in zip(plain, embeddings, batches, strict=True)]
    together = torch.autograd.grad(torch.stack(values).sum(), folded.parameters())
    for slot, (double, single, (images, *ids)) in enumerate(zip(exact, plain, batches, strict=True)):
        true = gradients(double, images.double(), ids)
        alone += squared(gradients(single, images, ids), true)
        fused += squared([slopes[slot] for slopes in together], true)
    assert 0 < fused**0.5 <= 1.5 * alone**0.5


def gradients(trial: Member, images: torch.Tensor, ids: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Of its loss, for its weights."""
    return torch.autograd.grad(trial.loss(trial.network(images), *ids), list(trial.network.parameters()))


def squared(ours: Sequence[torch.Tensor], true: Sequence[torch.Tensor]) -> float:
    """The squared length of the difference, as a share of that of the true one."""
    lengths = sum(float(t.square().sum()) for t in true)
    return sum(float((g - t).square().sum()) for g, t in zip(ours, true, strict=True)) / lengths
