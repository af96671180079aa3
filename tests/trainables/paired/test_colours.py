"""Colour statistics as inputs: what they keep, what they ignore, and a network that reads them."""

import pytest
import torch
from loss_batches import seeded

from contrasweep.trainables.paired_images.colours import LEVELS, LIMIT, Colours, count, statistics
from contrasweep.trainables.paired_images.network import image_model
from contrasweep.trainables.paired_images.settings import Settings


def images(n, channels=3, seed=0):
    """Noise about a colour of each image's own."""
    generator = seeded(seed)
    base = torch.randint(60, 190, (n, channels, 1, 1), generator=generator)
    return (base + torch.randint(-50, 50, (n, channels, 12, 12), generator=generator)).to(
        torch.uint8
    )


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_turning_an_image_changes_no_number(channels):
    pre = images(5, channels).float() / 255
    post = images(5, channels, 1).float() / 255
    for plain, turned in zip(
        statistics([pre, post]),
        statistics([pre.flip(2).transpose(2, 3), post.flip(3)]),
        strict=True,
    ):
        assert plain.shape == (5, count(channels)) and plain.isfinite().all()
        torch.testing.assert_close(plain, turned, atol=1e-6, rtol=1e-5)


def test_numbers_are_normal_over_the_training_part_and_keep_the_order_of_values():
    sides = (images(300), images(300, seed=1))
    numbers = torch.cat(Colours.of(sides)(*sides))
    raw = torch.cat(statistics([side.float() / 255 for side in sides]))
    assert float(numbers.mean(0).abs().max()) < 0.05
    assert float((numbers.std(0) - 1).abs().max()) < 0.1
    order = raw[:, 0].argsort()
    assert (numbers[order, 0].diff() >= 0).all() and numbers[:, 0].unique().numel() > LEVELS / 2


def test_what_is_unlike_the_training_part_stays_within_limits():
    colours = Colours.of((images(50), images(50, seed=1)))
    for extreme in (
        torch.zeros(2, 3, 12, 12, dtype=torch.uint8),
        torch.full((2, 3, 12, 12), 255, dtype=torch.uint8),
    ):
        for side in colours(extreme, extreme):
            assert side.isfinite().all() and float(side.abs().max()) <= LIMIT


def test_levels_are_of_the_training_part_alone():
    pre = images(40)
    post = images(40, seed=1)
    colours = Colours.of((images(60, seed=2), images(60, seed=3)))
    alone = torch.cat(
        [torch.cat(colours(a[None], b[None])) for a, b in zip(pre, post, strict=True)]
    ).reshape(40, 2, -1)
    torch.testing.assert_close(torch.stack(colours(pre, post), 1), alone)


def test_a_branch_reaches_z_and_the_classifier_and_learns():
    settings = Settings(
        encoder={"name": "resnet10", "width": 8, "stem": "small"},
        classifier={"hidden": 16},
        colour_units=12,
    )
    model = image_model(settings, (3, 16, 16), 3).eval()
    sides = [torch.randn(4, 3, 16, 16, generator=seeded(i)) for i in range(2)]
    numbers = [torch.randn(4, count(3), generator=seeded(i)) for i in (2, 3)]
    plain = model(*sides, *numbers)
    other = model(*sides, numbers[1], numbers[0])
    assert not torch.allclose(plain.z, other.z) and not torch.allclose(plain.logits, other.logits)
    assert plain.latent is not None and other.latent is not None
    assert torch.equal(plain.latent, other.latent)  # l is of the encoder's maps
    (plain.z.sum() + plain.logits.sum()).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.branch.parameters())
