"""One suite for every encoder and projection head."""

import pytest
import torch
from torch import nn

from contrasweep.trainables.encoders import ENCODERS, HEADS

torch.set_num_threads(1)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32)])
@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_gives_as_many_features_as_it_says(name, shape):
    torch.manual_seed(0)
    encoder = ENCODERS[name](shape)
    images = torch.randn(3, *shape)
    features = encoder(images)
    assert features.shape == (3, encoder.dim) and features.isfinite().all()
    features.square().sum().backward()
    assert [n for n, p in encoder.named_parameters() if p.grad is None] == []
    encoder.eval()
    with torch.no_grad():
        assert torch.allclose(encoder(images)[:1], encoder(images[:1]), atol=1e-4)


def test_small_images_keep_their_size_through_the_stem_of_a_resnet():
    small, large = (ENCODERS["resnet18"]((3, size, size)).body for size in (32, 96))
    assert small.conv1.stride == (1, 1) and isinstance(small.maxpool, nn.Identity)
    assert large.conv1.stride == (2, 2) and isinstance(large.maxpool, nn.MaxPool2d)


@pytest.mark.parametrize(
    ("kind", "out", "layers"), [("mlp", 32, 2), ("linear", 32, 1), ("none", 16, 0)]
)
def test_projection_heads(kind, out, layers):
    head = HEADS.choose({"name": kind} if kind == "none" else {"name": kind, "dim": 32}).build(16)
    assert head(torch.randn(4, 16)).shape == (4, out)
    assert sum(isinstance(m, nn.Linear) for m in head.modules()) == layers
