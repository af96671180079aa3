"""Encoders of paired images that are somebody else's: by dotted path, torchvision's and timm's by name."""

from typing import Any

import pytest
import torch
from folders import importable
from to_the_bit import trained_and_resumed

from contrasweep import Trial
from contrasweep.canonical import Config
from contrasweep.data.manifest import Manifest
from contrasweep.study import dotted
from contrasweep.study.trainables import resolved
from contrasweep.trainables.paired_images import load_model, train
from contrasweep.trainables.paired_images.settings import Settings

OWN = '''
import torch
from torch import nn

class Four(nn.Module):
    """Four stages, each half as large as the one before."""
    def __init__(self, shape, *, width: int = 8):
        super().__init__()
        self.dims = tuple(width * 2**i for i in range(4))
        inputs = (shape[0], *self.dims[:3])
        self.stages = nn.ModuleList(nn.Conv2d(a, b, 3, stride=2 if a != shape[0] else 1, padding=1)
                                    for a, b in zip(inputs, self.dims))
    def forward(self, images):
        maps = [self.stages[0](images).relu()]
        for stage in self.stages[1:]:
            maps.append(stage(maps[-1]).relu())
        return maps

class Row(nn.Module):
    """Features alone."""
    def __init__(self, shape):
        super().__init__()
        self.layer, self.dim = nn.Linear(shape[0] * 4, 12), 12
    def forward(self, images):
        return self.layer(nn.functional.adaptive_avg_pool2d(images, 2).flatten(1))
'''


@pytest.fixture(scope="module", autouse=True)
def own(tmp_path_factory):
    with importable(tmp_path_factory.mktemp("package"), own_pairs=OWN):
        yield


def trial(pairs: Manifest, **config: Any) -> Trial:
    """A trial as the plan resolves it."""
    quick = {
        "epochs": 2,
        "batch_size": 16,
        "learning_rate": 1e-3,
        "image_size": 16,
        "evaluate_every": 1,
        "artifacts": "none",
        "classifier.hidden": 16,
        "projection.dim": 8,
    }
    whole = resolved(train, Config(dotted.expand(quick | config)), pairs)
    return Trial("s", "a", "contrasweep.trainables.paired_images:train", whole, pairs, fold=0)


@pytest.mark.parametrize(
    ("encoder", "beta"),
    [
        ({"name": "own_pairs:Four", "width": 4}, 0.5),
        ("own_pairs:Row", 0),
        ("timm:test_efficientnet", 0.5),
    ],
)
def test_a_pair_is_trained_with_an_own_encoder_and_resumes(encoder, beta, pairs, tmp_path):
    if encoder == "timm:test_efficientnet":
        pytest.importorskip("timm")
    one = trial(pairs, encoder=encoder, beta=beta, **{"latent.size": 4} if beta else {})
    assert len(trained_and_resumed(train, one, tmp_path)) == 2
    outputs = load_model(tmp_path / "1", one)(
        torch.zeros(3, 3, 16, 16, dtype=torch.uint8), torch.zeros(3, 3, 16, 16).byte()
    )
    assert outputs.z.shape == (3, 8) and (outputs.latent is None) == (beta == 0)


def test_torchvisions_models_go_by_name_without_l(pairs):
    encoder = Settings(
        **trial(pairs, encoder="mobilenet_v3_small", beta=0, image_size=32).config
    ).encoder
    maps = encoder.build((3, 32, 32)).eval()(torch.zeros(2, 3, 32, 32))
    assert [list(part.shape) for part in maps] == [[2, 1024, 1, 1]]


def test_weights_are_part_of_a_trial_by_their_digest(pairs, tmp_path):
    file = tmp_path / "weights.pt"
    small = {"name": "resnet10", "width": 8}
    net = Settings(encoder=small | {"stem": "small"}).encoder.build((3, 16, 16))
    torch.save(net.state_dict() | {"fc.weight": torch.zeros(10, 64)}, file)
    encoder = trial(pairs, encoder=small | {"weights": str(file)}).config["encoder"]
    assert len(encoder["sha256"]) == 64
    loaded = Settings(encoder=encoder).encoder.build((3, 16, 16)).state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in net.state_dict().items())
