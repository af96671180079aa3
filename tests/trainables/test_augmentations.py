"""Augmentations: against torchvision and against what each policy promises."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_batches import seeded
from torch.testing import assert_close

from contrasweep.data.manifest import Manifest
from contrasweep.trainables.augmentations import (
    AUGMENTATIONS,
    Draws,
    Policy,
    apply,
    draw,
    resolve_augmentation,
)

torch.set_num_threads(1)
POLICIES: dict[str, Policy] = {
    name: policy() for name, policy in AUGMENTATIONS.items() if issubclass(policy, Policy)
}
IMAGES = torch.rand(6, 3, 12, 10, generator=seeded(0))


def views(policy, images=IMAGES, seed=0):
    n, channels = images.shape[:2]
    return apply(images, draw(policy, n, channels, seeded(seed)))


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_gives_images_of_the_same_kind(name, channels):
    images = torch.rand(9, channels, 8, 8)
    changed = views(POLICIES[name], images)
    assert changed.shape == images.shape and changed.min() >= 0 and changed.max() <= 1
    assert torch.equal(changed, views(POLICIES[name], images))
    assert name == "none" or not torch.equal(changed, views(POLICIES[name], images, seed=1))


@pytest.mark.parametrize("name", POLICIES)
def test_a_view_does_not_depend_on_its_batch(name):
    draws = draw(POLICIES[name], 6, 3, seeded(4))
    rows = torch.tensor([4, 1, 2])
    assert torch.allclose(apply(IMAGES, draws)[rows], apply(IMAGES[rows], draws[rows]), atol=1e-6)


def test_none_leaves_images_alone():
    assert torch.allclose(views(POLICIES["none"]), IMAGES, atol=1e-5)


def test_a_flip_is_a_mirror_image():
    assert torch.allclose(views(Policy(flip=1.0, aspect=(1, 1))), IMAGES.flip(-1), atol=1e-5)


def test_a_quarter_turn_is_a_transposed_mirror_image():
    square = IMAGES[..., :10, :]
    draws = draw(POLICIES["none"], 6, 3, seeded(0))
    turned = dataclasses.replace(
        draws, affine=torch.tensor([[0.0, -1, 0], [1, 0, 0]]).expand(6, 2, 3)
    )
    assert torch.allclose(apply(square, turned), square.transpose(-1, -2).flip(-2), atol=1e-5)


@pytest.mark.parametrize(("name", "share"), [("glyphs", 0.0), ("photos", 0.5), ("aerial", 0.5)])
def test_digits_are_never_mirrored_and_photos_half_the_time(name, share):
    linear = draw(POLICIES[name], 2000, 1, seeded(0)).affine[:, :, :2]
    mirrored = (torch.linalg.det(linear) < 0).double().mean().item()
    assert mirrored == pytest.approx(share, abs=0.05 if share else 0)


def test_crops_keep_the_area_asked_for_and_stay_inside():
    policy = Policy(area=(0.2, 1.0))
    affine = draw(policy, 2000, 3, seeded(0)).affine
    width = affine[:, 0, 0].abs()
    height = affine[:, 1, 1].abs()
    assert (affine[:, 0, 2].abs() + width <= 1 + 1e-6).all()
    assert (affine[:, 1, 2].abs() + height <= 1 + 1e-6).all()
    area = width * height
    assert (
        0.14 < area.min() < 0.22 and 0.9 < area.max() <= 1
    )  # a side cut to the image's own makes it smaller
    assert area.mean().item() == pytest.approx(0.6, abs=0.04)


@settings(max_examples=20)
@given(st.floats(0.1, 1.9), st.floats(0.1, 1.9), st.floats(0, 1.9))
def test_colours_are_torchvisions(brightness, contrast, saturation):
    from torchvision.transforms import functional as reference

    from contrasweep.trainables.augmentations import _colour

    images = 0.35 + 0.1 * IMAGES  # nothing is clamped half way
    base = draw(POLICIES["none"], 6, 3, torch.Generator())
    one = torch.ones(6)
    colour = _colour(brightness * one, saturation * one, 0 * one, 3)
    changed = apply(images, dataclasses.replace(base, colour=colour, contrast=contrast * one))
    expected = reference.adjust_saturation(
        reference.adjust_brightness(images, brightness), saturation
    )
    expected = reference.adjust_contrast(expected, contrast)
    assert torch.allclose(changed, expected, atol=2e-3)  # torchvision rounds the luma weights


def test_hue_turns_back_to_where_it_was():
    from contrasweep.trainables.augmentations import _colour

    one = torch.ones(3)
    turned = _colour(one, one, torch.tensor([0.0, 0.3, 1.0]), 3)
    assert torch.allclose(turned[0], torch.eye(3), atol=1e-3)
    assert torch.allclose(turned[2], torch.eye(3), atol=1e-3)
    assert (turned[1] - torch.eye(3)).abs().max() > 0.5
    grey = torch.full((3,), 0.4)
    assert torch.allclose(turned[1] @ grey, grey, atol=1e-3)


@pytest.mark.parametrize("field", ["flip", "jitter_share", "grayscale", "blur", "solarize"])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_change_is_made_to_its_share_of_views(field, share):
    policy = Policy(aspect=(1, 1), jitter=(0.5, 0.5, 0.5, 0.1), **{field: share})
    images = torch.rand(500, 3, 8, 8, generator=seeded(1))
    changed = ((views(policy, images) - images).abs() > 1e-4).flatten(1).any(1)
    assert changed.double().mean().item() == pytest.approx(share, abs=0.07 if share else 0)


@pytest.mark.parametrize(
    ("source", "shape", "expected"),
    [
        ({"content": "photos"}, [28, 28, 1], "photos"),
        ({"content": "aerial"}, [32, 32, 3], "aerial"),
        ({}, [32, 32, 3], "photos"),
        ({}, [32, 32, 1], "glyphs"),
        ({}, None, "photos"),
    ],
)
def test_auto_is_decided_by_what_the_manifest_says_of_the_images(source, shape, expected):
    columns = {} if shape is None else {"image": {"shape": shape}}
    data = Manifest("mnist-faces", "", "image", {}, columns=columns, source=source)
    auto, chosen = (AUGMENTATIONS.choose(name) for name in ("auto", expected))
    assert resolve_augmentation(auto, data) == chosen
    chosen = AUGMENTATIONS.choose({"name": "photos", "flip": 0})
    assert resolve_augmentation(chosen, data) is chosen


def test_blur_and_solarization_are_torchvisions():
    images = torch.rand(3, 3, 16, 16, generator=seeded(0))
    identity = torch.eye(2, 3).repeat(3, 1, 1)
    effects = torch.tensor([[1.5, 0.0], [0.0, 1.0], [0.0, 0.0]])
    views = apply(images, Draws(identity, None, None, effects))
    functional = pytest.importorskip("torchvision.transforms.v2.functional")
    assert_close(views[0], functional.gaussian_blur(images[0], 13, 1.5), rtol=1e-4, atol=1e-5)
    assert_close(views[1], functional.solarize(images[1], 0.5), rtol=1e-4, atol=1e-5)
    assert_close(views[2], images[2], rtol=1e-4, atol=1e-5)


def test_a_policy_with_effects_draws_the_rest_as_one_without():
    plain = AUGMENTATIONS.choose("photos")
    blurred = AUGMENTATIONS.choose({"name": "photos", "blur": 0.3, "solarize": 0.5})
    assert "blur" not in plain.to_plain() and blurred.to_plain()["blur"] == 0.3
    drawn = [draw(c.settings, 500, 3, seeded(1)) for c in (plain, blurred)]
    assert torch.equal(drawn[0].affine, drawn[1].affine)
    assert torch.equal(drawn[0].contrast, drawn[1].contrast)
    effects = drawn[1].effects
    assert drawn[0].effects is None and 0.2 < (effects[:, 0] > 0).double().mean() < 0.4
    assert 0.4 < effects[:, 1].mean() < 0.6 and effects[:, 0].max() <= 2
