"""Encoders, heads, augmentations and optimizers of somebody else's package: by dotted path, from a folder outside of
the repository; torchvision's, timm's and torch's by name. What does not fit is refused when the plan is made."""

import contextlib

import numpy as np
import pytest
import torch
from folders import importable
from loss_batches import seeded
from refusals import refused
from to_the_bit import trained_and_resumed
from torch.testing import assert_close

from contrasweep import SpecError, Trial, data
from contrasweep.canonical import Config
from contrasweep.study.trainables import resolved
from contrasweep.trainables import losses
from contrasweep.trainables.augmentations import AUGMENTATIONS, apply, draw, policy_of
from contrasweep.trainables.contrastive import load_model, train
from contrasweep.trainables.contrastive.settings import Settings
from contrasweep.trainables.encoders import ENCODERS
from contrasweep.trainables.optimisation import OPTIMIZERS, SGD, AdamW

OWN = '''
import torch
from torch import nn

class Body(nn.Module):
    """Average colour and a linear layer."""
    def __init__(self, shape, width=8, *, dropout: float = 0.0):
        super().__init__()
        self.layer, self.dim, self.dropout = nn.Linear(shape[0] * 4, width), width, nn.Dropout(dropout)
    def forward(self, images):
        return self.dropout(self.layer(nn.functional.adaptive_avg_pool2d(images, 2).flatten(1)))

def head(features, *, dim: int = 4):
    return nn.Linear(features, dim)

def darker(image, *, factor: float = 0.5):
    """The image, a little darker, with noise."""
    return (image * factor + 0.1 * torch.rand_like(image)).clamp(0, 1)

def erased(image):
    """A corner is written into the image that was given."""
    image[:, : image.shape[1] // 2, : torch.randint(1, image.shape[2], ())] = 0
    return image

class Uncalled:
    pass

class Sized(nn.Module):
    """A loss without weights that knows the sizes and keeps a running mean."""
    def __init__(self, dim, classes):
        super().__init__()
        self.classes = classes
        self.register_buffer("mean", torch.zeros(dim))
    def forward(self, embeddings, labels):
        with torch.no_grad():
            self.mean.lerp_(embeddings.mean(0), 0.5)
        return nn.functional.cross_entropy((embeddings - self.mean)[:, : self.classes], labels)

def pulled(scores, positives, negatives, *, weight: float = 1.0):
    return (negatives * scores.exp()).sum(1) - weight * (positives * scores).sum(1)

class Signs(torch.optim.Optimizer):
    """Steps of one size, along the sign."""
    def __init__(self, params, lr=0.1, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p -= group["lr"] * (p.grad + group["weight_decay"] * p).sign()
'''


@pytest.fixture(scope="module", autouse=True)
def own(tmp_path_factory):
    package = importable(tmp_path_factory.mktemp("package"), own_components=OWN)
    with package as folder, contextlib.chdir(folder):
        yield


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return data.resolve("digits", folds=3, storage=str(tmp_path_factory.mktemp("runs")))


def trial(digits, **config) -> Trial:
    """A trial as the plan resolves it."""
    whole = resolved(train, Config({"epochs": 1, "retrieval": False, **config}), digits)
    return Trial("s", "a", "contrasweep.trainables.contrastive:train", whole, digits, fold=0)


@pytest.mark.long
def test_a_trial_of_own_parts_trains_resumes_and_is_exported(digits, tmp_path):
    own = trial(
        digits,
        epochs=2,
        checkpoint_every=1,
        loss={"name": "own_components:pulled", "weight": 2},
        encoder={"name": "own_components:Body", "width": 12},
        projection={"name": "own_components:head", "dim": 6},
        augmentation={"name": "own_components:darker", "factor": 0.9},
        optimizer="own_components:Signs",
        learning_rate=0.01,
        ema=0.5,
        clip=1.0,
    )
    assert own.config["encoder"] == {"name": "own_components:Body", "width": 12, "dropout": 0}
    assert own.config["optimizer"] == {"name": "own_components:Signs", "weight_decay": 0.0001}
    reports = train(own)
    first = next(reports)
    [last] = list(reports)
    reports = train(own)
    kept = next(reports).checkpoint
    [resumed] = list(train(own, resume=kept))
    assert resumed.metrics == last.metrics and last.metrics["accuracy"] > 0.3 and first.step == 1
    assert load_model(kept, own)(torch.zeros(3, 1, 8, 8, dtype=torch.uint8)).shape == (3, 12)


@pytest.mark.slow
def test_an_own_loss_has_the_sizes_of_the_trial_and_keeps_its_buffers(digits, tmp_path):
    """The loss of sizes that were tried by the plan would be another one; one without its buffers, too."""
    sized = trial(digits, epochs=2, checkpoint_every=1, loss="own_components:Sized", n_views=1)
    last = trained_and_resumed(train, sized, tmp_path)[-1]
    assert np.isfinite(last.metrics["loss"])
    with refused(SpecError, "dim: its weights have the dimension of the embeddings, got 0"):
        losses.build("own_components:Sized")


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"optimizer": "Muon"}, "optimizer: Muon cannot be built"),
        ({"loss": "own_components:Uncalled"}, "loss: own_components:Uncalled cannot be built"),
    ],
)
def test_what_does_not_fit_is_said_by_the_plan_in_one_line(config, says, digits, unchecked_shapes):
    with refused(SpecError, says):
        trial(digits, **config)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["vit_b_16", "mobilenet_v3_small", "googlenet", "timm:test_resnet", "timm:lcnet_035"]
)
def test_torchvisions_and_timms_models_go_by_name(name):
    pytest.importorskip("timm")
    shape = (1, 32, 32)
    encoder = ENCODERS.choose(name).build(shape).eval()
    with torch.no_grad():
        assert encoder(torch.zeros(2, *shape)).shape == (2, encoder.dim)


@pytest.mark.slow
def test_weights_are_part_of_a_trial_by_their_digest(digits, tmp_path):
    file = tmp_path / "weights.pt"
    net = ENCODERS.choose("resnet18").build((1, 8, 8))
    torch.save({"state_dict": {**net.body.state_dict(), "fc.weight": torch.zeros(10, 512)}}, file)
    encoder = {"name": "resnet18", "weights": str(file)}
    before = trial(digits, encoder=encoder)
    assert len(before.config["encoder"]["sha256"]) == 64
    loaded = Settings(**before.config).encoder.build((1, 8, 8))
    assert_close(loaded.state_dict(), net.state_dict(), rtol=0, atol=0)
    torch.save(ENCODERS.choose("resnet18").build((1, 8, 8)).body.state_dict(), file)
    assert trial(digits, encoder=encoder).id != before.id
    with refused(SpecError, "the weights have another digest"):
        next(train(before))
    with refused(SpecError, "weights: there is no such file of weights, got 'none.pt'"):
        trial(digits, encoder={"name": "resnet18", "weights": "none.pt"})
    with refused(SpecError, match=r"lacks \d+ of the 120 tensors of this network"):
        ENCODERS.choose({"name": "resnet18", "weights": str(file)}).build((3, 224, 224))
    assert trial(digits, encoder="resnet18").config["encoder"] == {"name": "resnet18"}, (
        "the id stays without weights"
    )


def test_a_torchvision_transform_draws_each_image_anew_and_the_same_for_any_batch_size():
    chosen = AUGMENTATIONS.choose(
        {"name": "torchvision.transforms.v2:ColorJitter", "brightness": 0.5}
    )
    images = torch.rand(6, 3, 16, 16, generator=seeded(0))
    draws = draw(policy_of(chosen), 6, 3, seeded(1))
    torch.manual_seed(5)
    whole = apply(images, draws)
    after = torch.rand(1)
    parts = torch.cat(
        [apply(images[:4], draws[slice(0, 4)]), apply(images[4:], draws[slice(4, 6)])]
    )
    assert torch.equal(whole, parts)
    same = torch.cat([apply(images[:1].repeat(6, 1, 1, 1), draws)])
    assert len({tuple(view.flatten().tolist()) for view in same}) == 6
    torch.manual_seed(5)
    assert torch.equal(torch.rand(1), after), "the trial's own random numbers go on as they would"


def test_a_transform_that_works_in_place_leaves_the_image_to_the_other_views():
    chosen = policy_of(AUGMENTATIONS.choose("own_components:erased"))
    images = torch.rand(6, 3, 16, 16, generator=seeded(0))
    kept = images.clone()
    views = apply(images, draw(chosen, 6, 3, seeded(1)))
    assert torch.equal(images, kept) and not torch.equal(views, kept)


def parameters():
    generator = seeded(3)
    return [
        torch.randn(shape, generator=generator).requires_grad_() for shape in ((4, 3), (4,), (2, 4))
    ]


@pytest.mark.parametrize(("ours", "torchs"), [(SGD, "SGD"), (AdamW, "AdamW")])
@pytest.mark.parametrize("decay_on", ["all", "weights"])
def test_torchs_optimizers_by_name_take_the_steps_of_ours(ours, torchs, decay_on):
    mine = parameters()
    theirs = parameters()
    options = {"weight_decay": 0.1, "decay_on": decay_on} | (
        {"momentum": 0.9} if ours is SGD else {}
    )
    left = ours(mine, 0.1, **options)
    right = OPTIMIZERS.choose({"name": torchs, **options}).build(theirs, 0.1)
    for step in range(3):
        left.lr = right.lr = 0.1 / (step + 1)
        # Without a gradient, a bias moves by its decay alone.
        gradients = [torch.zeros_like(p) if p.ndim == 1 else torch.ones_like(p) for p in mine]
        left.step([g.clone() for g in gradients])
        right.step([g.clone() for g in gradients])
    assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    assert torch.equal(mine[1], parameters()[1]) == (decay_on == "weights")


def test_lars_scales_a_layers_step_by_its_trust_and_leaves_biases_alone():
    weight, bias = parameters()[:2]
    before = weight.detach().clone(), bias.detach().clone()
    slopes = torch.randn(4, 3), torch.randn(4)
    lars = OPTIMIZERS.choose({"name": "lars", "weight_decay": 0.1, "trust": 0.02}).build(
        [weight, bias], 0.5
    )
    lars.step([slopes[0].clone(), slopes[1].clone()])
    full = slopes[0] + 0.1 * before[0]
    assert torch.allclose(
        weight, before[0] - 0.5 * 0.02 * before[0].norm() / full.norm() * full, atol=1e-6
    )
    assert torch.allclose(bias, before[1] - 0.5 * slopes[1], atol=1e-6)
