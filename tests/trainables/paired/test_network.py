"""The network: l, the joint forward, z, BatchNorm modes, weights files."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_batches import seeded
from torch.testing import assert_close

from contrasweep.study import dotted
from contrasweep.trainables.paired.network import latent, stages_of
from contrasweep.trainables.paired_images.network import image_model, train_mode
from contrasweep.trainables.paired_images.settings import Settings

SMALL: dict[str, Any] = {
    "encoder": {"name": "resnet10", "width": 8, "stem": "small"},
    "projection": {"dim": 16},
    "classifier": {"hidden": 16},
}


def build(shape=(3, 16, 16), classes=3, **config):
    torch.manual_seed(0)
    settings = Settings(**dotted.merge(SMALL, dotted.expand(config)))
    return image_model(settings.for_images(shape), shape, classes)


def materialised(pre, post, blocks, size, weighting):
    """The paper's wording: resize each difference map, concatenate all channels, average, flatten, normalise."""
    resized = []
    for i in stages_of(blocks):
        d = pre[i] - post[i]
        if d.shape[2] > size[0]:
            d = F.adaptive_avg_pool2d(d, size)
        elif d.shape[2] < size[0]:
            d = F.interpolate(d, size, mode="bilinear", align_corners=False)
        resized.append(d)
    if weighting == "block":
        flat = torch.stack([d.mean(1) for d in resized]).mean(0).flatten(1)
    else:
        flat = torch.cat(resized, dim=1).mean(1).flatten(1)
    return F.normalize(flat, dim=1)


@given(
    blocks=st.sampled_from(("1-2-3-4", "2-3-4", "3-4", "4")),
    weighting=st.sampled_from(["channel", "block"]),
    size=st.sampled_from([4, 8]),
    channels=st.sampled_from([4, 16]),
    seed=st.integers(0, 100),
)
@settings(max_examples=40)
def test_the_shortcut_for_l_is_the_materialised_map(blocks, weighting, size, channels, seed):
    generator = seeded(seed)
    maps = [
        [
            torch.randn(3, channels * 2**i, 32 // 2**i, 32 // 2**i, generator=generator)
            for i in range(4)
        ]
        for _ in range(2)
    ]
    fast = latent(maps[0], maps[1], blocks=blocks, size=(size, size), weighting=weighting)
    assert fast.shape == (3, size * size)
    assert_close(
        fast, materialised(maps[0], maps[1], blocks, (size, size), weighting), atol=1e-5, rtol=1e-4
    )


def test_l_of_the_network_is_that_of_its_stages():
    model = build(beta=0.5).eval()
    pre, post = torch.randn(2, 4, 3, 16, 16, generator=seeded(0)).unbind(0)
    with torch.no_grad():
        maps = [model.encoder(side) for side in (pre, post)]
        out = model(pre, post)
    assert out.latent is not None and out.latent.shape == (4, 16)
    assert_close(
        out.latent,
        materialised(maps[0], maps[1], "1-2-3-4", (4, 4), "channel"),
        atol=1e-5,
        rtol=1e-4,
    )


def test_both_sides_go_through_the_encoder_together():
    """BatchNorm takes its statistics from both sides at once: in two forwards each side would have its own, and a
    shift common to all pairs would be gone after the first BatchNorm."""
    model = build()
    train_mode(model)
    seen = []
    model.encoder.bn1.register_forward_hook(
        lambda module, args, output: seen.append(output.detach())
    )
    pre = torch.randn(8, 3, 16, 16, generator=seeded(0))
    post = 1.5 * pre + 2.0
    model(pre, post)
    assert [len(output) for output in seen] == [16]
    running = model.encoder.bn1.running_mean
    assert_close(running, 0.1 * model.encoder.conv1(torch.cat([pre, post])).mean((0, 2, 3)))
    together = (seen[0][8:] - seen[0][:8]).mean((0, 2, 3)).abs().mean()
    apart = torch.stack(
        [model.encoder.bn1(model.encoder.conv1(side)).mean((0, 2, 3)) for side in (pre, post)]
    )
    assert together > 0.1 and (apart[1] - apart[0]).abs().mean() < 1e-5


def test_z_is_the_normalised_difference_of_unit_embeddings():
    sides = torch.randn(2, 6, 3, 16, 16, generator=seeded(2)).unbind(0)
    unit, raw = (build(z_norm=flag).eval()(*sides) for flag in (True, False))
    assert_close(unit.z.norm(dim=1), torch.ones(6))
    assert_close(raw.z.norm(dim=1), raw.z_raw)
    assert_close(unit.z * unit.z_raw[:, None], raw.z)
    assert_close(raw.e_post.norm(dim=1), torch.ones(6))


def test_a_pair_without_any_change_has_no_nan():
    model = build()
    same = torch.randn(4, 3, 16, 16)
    out = model.eval()(same, same)
    assert not out.z.any() and out.logits.isfinite().all()
    gradients = torch.autograd.grad(
        out.z.sum() + out.latent.sum() + out.logits.sum(), list(model.parameters())
    )
    assert all(g.isfinite().all() for g in gradients)


def test_single_images_have_neither_l_nor_a_difference():
    out = build(input="single", beta=0.0).eval()(torch.randn(5, 3, 16, 16))
    assert out.latent is None and out.z.shape == (5, 16) and out.logits.shape == (5, 3)
    assert out.z is out.e_post


def test_maps_too_small_for_the_classes_are_warned_of():
    settings = Settings(
        encoder={"name": "resnet10", "width": 8, "stem": "imagenet"},
        latent={"size": 4, "blocks": "4"},
        image_size=32,
    )
    with pytest.warns(
        UserWarning, match="l cannot hold 5 orthogonal classes: the maps of blocks 4 at 32 x 32"
    ):
        image_model(settings, (3, 32, 32), 5)


@pytest.mark.parametrize(("bn", "moves"), [("train", True), ("frozen", False)])
def test_frozen_batchnorm_keeps_its_statistics(bn, moves):
    model = build(**{"encoder.bn": bn})
    train_mode(model, bn)
    before = {name: value.clone() for name, value in model.named_buffers()}
    model(*torch.randn(2, 4, 3, 16, 16).unbind(0))
    assert (
        any(not torch.equal(value, before[name]) for name, value in model.named_buffers()) is moves
    )


def test_groupnorm_does_not_see_the_batch():
    model = build(**{"encoder.bn": "groupnorm", "encoder.width": 16})
    train_mode(model, "groupnorm")
    sides = torch.randn(2, 6, 3, 16, 16).unbind(0)
    assert_close(model(*sides).z[:2], model(*(side[:2] for side in sides)).z, atol=1e-5, rtol=1e-4)


def test_frozen_batchnorm_without_weights_is_warned_of():
    with pytest.warns(
        UserWarning, match="bn 'frozen' .* BatchNorm does nothing here; give pretrained weights"
    ):
        build(**{"encoder.bn": "frozen"})


@pytest.mark.slow
@pytest.mark.parametrize("backbone", ["resnet18", "resnet50"])
def test_torchvisions_weights_load_and_give_its_features(backbone, tmp_path):
    import torchvision

    torch.manual_seed(0)
    theirs = getattr(torchvision.models, backbone)(weights=None).eval()
    torch.save(theirs.state_dict(), tmp_path / "weights.pt")
    encoder = {"name": backbone, "stem": "imagenet", "pretrained": str(tmp_path / "weights.pt")}
    ours = Settings(encoder=encoder).encoder.build((3, 64, 64)).eval()
    theirs.fc = torch.nn.Identity()
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        assert_close(ours(x)[-1].mean((2, 3)), theirs(x))
    assert ours.dims == ((256, 512, 1024, 2048) if backbone == "resnet50" else (64, 128, 256, 512))
