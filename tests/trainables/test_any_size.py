"""Views of a chosen size from photographs of any size: crops as torchvision's, the same however images are kept."""

import numpy as np
import pytest
import torch
from made_up import nowhere
from PIL import Image
from refusals import refused
from scipy.stats import ks_2samp
from torchvision.transforms import CenterCrop, Resize, v2

from contrasweep.cluster.errors import ClusterError
from contrasweep.data import open_dataset
from contrasweep.data.staging import stage
from contrasweep.errors import DataError
from contrasweep.trainables import contrastive, images, raw_pixels, two_tower
from contrasweep.trainables.augmentations import AUGMENTATIONS, policy_of
from contrasweep.trainables.contrastive import transfer
from contrasweep.trainables.contrastive.settings import Settings
from contrasweep.trainables.exporting import squares
from contrasweep.trial import Trial

SMALL = {
    "view_size": 32,
    "encoder": {"name": "cnn", "width": 4},
    "batch_size": 8,
    "epochs": 1,
    "device": "cpu",
}
AREA = (0.08, 1.0)
ASPECT = (3 / 4, 4 / 3)


def photographs(folder, sizes):
    rng = np.random.default_rng(0)
    for i, (height, width) in enumerate(sizes):
        file = folder / ("train", "test")[i % 4 == 3] / f"class{i % 2}/{i:03d}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        noise = Image.fromarray(rng.integers(0, 256, (9, 9, 3)).astype(np.uint8))
        noise.resize((width, height), Image.Resampling.BICUBIC).save(file, quality=90)
    return folder


@pytest.fixture(scope="module")
def ragged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photographs")
    sizes = [(60 + 7 * i % 50, 40 + 11 * i % 90) for i in range(32)]
    return stage("image-folder", str(folder / "staged"), source=photographs(folder / "from", sizes))


@pytest.mark.slow
@pytest.mark.parametrize("size", [(300, 400), (1200, 300), (100, 1200)])
def test_areas_ratios_and_positions_of_crops_are_torchvisions(size):
    ours = np.array(
        [images.crop_box(*size, seed=seed, area=AREA, aspect=ASPECT) for seed in range(4000)]
    )
    torch.manual_seed(0)
    blank = torch.empty(3, *size)
    drawn = v2.RandomResizedCrop(8, scale=AREA, ratio=ASPECT)
    params = [drawn.make_params([blank]) for _ in range(4000)]
    theirs = np.array([[p["top"], p["left"], p["height"], p["width"]] for p in params])
    measured = [[*b.T, b[:, 2] * b[:, 3], b[:, 3] / b[:, 2]] for b in (ours, theirs)]
    assert min(ks_2samp(one, other).pvalue for one, other in zip(*measured, strict=True)) > 0.001
    assert ks_2samp(measured[0][4], 1.2 * measured[0][4]).pvalue < 0.001, (
        "other areas are told apart"
    )


def test_an_evaluation_sees_the_centre_of_the_shorter_side(ragged):
    part = open_dataset(ragged).split("train")
    pixels = part.file("image").item(5)
    expected = CenterCrop(28)(Resize(32, antialias=True)(Image.fromarray(pixels)))
    (seen,) = images.open_images(part, torch.device("cpu"), 8.0, 28).take(torch.tensor([5]))
    assert (
        seen.permute(1, 2, 0).float() - torch.tensor(np.asarray(expected)).float()
    ).abs().mean() < 6


def test_the_memory_planned_is_that_of_the_views_and_not_of_the_images(ragged):
    work = [contrastive.memory(SMALL | {"view_size": side}, ragged) for side in (32, 64)]
    assert [w.inputs for w in work] == [(16, 3, 32, 32), (16, 3, 64, 64)]
    parts = contrastive.memory(SMALL | {"chunk_rows": 6}, ragged)
    assert parts.inputs == (6, 3, 32, 32) and parts.steps == 3 * work[0].steps
    with pytest.raises(ClusterError, match="d does not say how large its images are"):
        contrastive.memory(SMALL | {"view_size": 0}, nowhere())
    for settings in (Settings(), raw_pixels.Settings()):
        with refused(DataError, match=r"the images of .* differ in size: train on views of them"):
            settings.resolve(ragged)
    assert Settings(view_size=32).resolve(ragged).augmentation.parameters["area"] == AREA


@pytest.mark.slow
def test_a_transform_of_ones_own_sees_the_centre_of_an_image(ragged):
    """It may crop by itself."""
    own = {"name": "torchvision.transforms.v2:ColorJitter", "brightness": 0.5}
    config = {**SMALL, "augmentation": own, "retrieval": False}
    trial = Trial("s", "a", "contrasweep.trainables.contrastive:train", config, ragged, None, 0)
    (report,) = contrastive.train(trial)
    assert np.isfinite(report.metrics["loss"])
    crops = images.Crops([1], policy_of(AUGMENTATIONS.choose(own)))
    assert crops.box(60, 40, 0) == images.centre_box(60, 40)


def views(manifest, gib=8.0, size=8):
    opened = images.open_images(open_dataset(manifest).split("train"), torch.device("cpu"), gib, 32)
    policy = AUGMENTATIONS.choose("imagenet").settings
    normalise = images.Normalise(opened)
    order = torch.arange(16)
    return [
        batch for batch, _ in images.batches(opened, normalise, [policy] * 2, order, size, 0, 0, 1)
    ]


def test_views_are_equal_to_the_bit_streamed_decoded_or_not(tmp_path, monkeypatch, ragged):
    alike = stage(
        "image-folder", str(tmp_path / "to"), source=photographs(tmp_path / "from", [(60, 80)] * 32)
    )
    monkeypatch.setenv("CONTRASWEEP_CACHE", str(tmp_path / "cache"))
    decoded = views(alike)
    monkeypatch.setenv("CONTRASWEEP_DECODED_GIB", "0")
    assert all(map(torch.equal, decoded, views(alike, gib=0.0)))
    whole = views(ragged, size=16)
    halves = views(ragged, size=8)
    first = [torch.cat([half[:8] for half in halves]), torch.cat([half[8:] for half in halves])]
    assert torch.equal(whole[0], torch.cat(first)) and not torch.equal(*first)
    monkeypatch.setattr(images, "VALUES_AT_ONCE", {"cpu": 3 * whole[0][0].numel()})
    assert all(map(torch.equal, whole, views(ragged, size=16))), (
        "a batch that is augmented three images at a time"
    )


@pytest.mark.slow
def test_two_towers_take_photographs_of_any_size(ragged):
    with refused(DataError, r"differ in size: train on views of them"):
        two_tower.Settings(batch_size=8).resolve(ragged)
    small = SMALL | {"text_encoder": {"width": 8}, "dim": 8, "max_words": 8}
    assert two_tower.memory(small, ragged).resident_bytes == 0, (
        "they are read from the node's cache"
    )
    trial = Trial("study", "arm", "contrasweep.trainables.two_tower:train", small, ragged, None, 0)
    one, other = (list(two_tower.train(trial))[-1].metrics for _ in range(2))
    assert one == other and 0 <= one["zero_shot"] <= 1


def test_features_transfer_to_photographs_of_any_size(ragged):
    part = open_dataset(ragged).split("test")
    seen = torch.cat(list(transfer.pixels(part, (3, 32, 32))))
    assert torch.equal(
        seen, images.CroppedImages(part, torch.device("cpu"), 32).take(torch.arange(len(part)))
    )
    assert next(transfer.pixels(part, (3, 32, 24))).shape[2:] == (32, 24)
    (gray,) = torch.cat(list(transfer.pixels(part, (1, 32, 32)))).double().unbind(1)
    red, green, blue = seen.double().unbind(1)
    assert gray.shape == red.shape == (len(part), 32, 32) and (red - blue).abs().max() > 50
    # The luma of ITU-R BT.601; scaling and luma round in either order.
    assert (gray - (0.299 * red + 0.587 * green + 0.114 * blue)).abs().max() < 3


def test_resized_pixels_are_rounded_and_not_cut_off():
    pixels = torch.tensor([100, 101, 101, 101], dtype=torch.uint8).repeat(1, 1, 32, 8)
    assert (squares(pixels, 8) == 101).all()
