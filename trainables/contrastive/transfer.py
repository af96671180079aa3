"""Other datasets than the one that a trial trains on, for the scores of its frozen network there."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from contrasweep.data import open_dataset
from contrasweep.data.manifest import ANY_SIDE, Manifest
from contrasweep.data.names import parse
from contrasweep.data.reading import Dataset, Part
from contrasweep.data.resolving import find, resolve, storage_of, with_folds
from contrasweep.errors import DataError, SpecError
from contrasweep.trainables.files import DIGEST_DIGITS, require_digest
from contrasweep.trainables.images import IMAGE
from contrasweep.trainables.pytorch import Float, Int, StoredImages, Tensor, UInt8, torch

Embed = Callable[[Iterator[StoredImages]], Float[Tensor, "m d"]]
"""Images in blocks of n -> the frozen network's features of all m images."""


class OtherDataset(NamedTuple):
    """Another dataset to score on: `name` is its name in metrics, `train` and `test` are its parts for the trial."""

    name: str
    train: Part
    test: Part
    dataset: Dataset


def with_digests(names: tuple[str, ...], data: Manifest) -> tuple[str, ...]:
    """Return each dataset's name as `name#digest`, since the content of the datasets is part of a trial's identity.

    A name that has a digest already stays as it is. `DataError` where a dataset is not staged in the storage of `data`,
    has no labels, holds no images, or images whose number of channels does not fit (see `_check_channels`). `SpecError`
    where a dataset cannot be cut into the folds of `data`, or where two datasets would have the same name in metrics.
    """
    metric_names = [_metric_name(name.partition("#")[0]) for name in names]
    repeated = [name for i, name in enumerate(names) if metric_names[i] in metric_names[:i]]
    if repeated:
        rule = "two datasets of one name give scores of one name"
        raise SpecError(rule, place="transfer", value=repeated[0])
    return tuple(
        name if "#" in name else f"{name}#{_fitting(name, data).digest[:DIGEST_DIGITS]}"
        for name in names
    )


def _fitting(name: str, data: Manifest) -> Manifest:
    """Return the manifest of the dataset `name`, after checking that a network trained on `data` can be scored on it.

    For the errors that the check raises see `with_digests`.
    """
    manifest = _manifest(name, data)
    # This raises where the dataset cannot be split as `data` is.
    with_folds(manifest, data.folds.count if data.folds else None)
    if IMAGE in data.columns:
        _check_channels(*(m.columns[IMAGE]["shape"][2] for m in (manifest, data)))
    return manifest


def open_others(names: tuple[str, ...], data: Manifest, fold: int | None) -> list[OtherDataset]:
    """Open each dataset of `names`, which `with_digests` has returned as `name#digest`.

    Each is divided into a training and a test part, as `data` is for a trial of this `fold` (None: its own test split).
    `DataError` where the content of a dataset has changed since the study was planned.
    """
    datasets = []
    for name_and_digest in names:
        name, _, digest = name_and_digest.partition("#")
        staged = _manifest(name, data)
        require_digest(staged, name, digest, "transfer")
        # Cut into as many folds as the training data, so that the same fold can be held out.
        count = data.folds.count if fold is not None and data.folds else None
        manifest = resolve(name, folds=count, storage=storage_of(data))
        dataset = open_dataset(manifest)
        train, test = dataset.parts(fold)
        datasets.append(OtherDataset(_metric_name(name), train, test, dataset))
    return datasets


def _metric_name(name: str) -> str:
    """Return the name that a dataset has in metrics: the name of its folder.

    In a study a dataset may be named by a whole path, `/data/staged/digits-lt`; in metrics it is `digits-lt`.
    """
    return parse(name.rstrip("/").rpartition("/")[2]).folder


def embedded(
    other: OtherDataset, embed: Embed, shape: tuple[int, int, int]
) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    """Return (training features, their labels, test features, their labels, number of classes) of another dataset.

    `evaluation.evaluate` takes them in this order. `embed` gives the features of stored images. `shape` is that of the
    images (channels, height, width) on which the network was trained.
    """
    parts = (other.train, other.test)
    train, test = (embed(pixels(part, shape)) for part in parts)
    train_labels, test_labels = (torch.as_tensor(part.labels).to(train.device) for part in parts)
    return train, train_labels, test, test_labels, len(other.dataset.classes)


def scores(other: OtherDataset, embed: Embed, shape: tuple[int, int, int]) -> dict[str, float]:
    """Return the accuracies `knn1_on_NAME`, `knn5_on_NAME` and `probe_on_NAME` of frozen features.

    Nearest neighbours (1 and 5) and a linear probe are fitted to the other dataset's training part.
    """
    from contrasweep.trainables import evaluation

    scored = evaluation.evaluate(*embedded(other, embed, shape), retrieval=False)
    return {f"{name}_on_{other.name}": scored.metrics[name] for name in ("knn1", "knn5", "probe")}


def pixels(part: Part, shape: tuple[int, int, int]) -> Iterator[StoredImages]:
    """Yield the images of a part in blocks, with the channels, height and width (`shape`) that the network takes.

    For the `DataError` where the channels do not fit see `_check_channels`.
    """
    from contrasweep.trainables.exporting import resized
    from contrasweep.trainables.images import CroppedImages

    channels, *sides = shape
    _check_channels(part.file(IMAGE).shape[3], channels)
    # Images of any size are read as their central squares; others as they are stored, with channels brought first.
    if part.file(IMAGE).shape[1] == ANY_SIDE:
        blocks = CroppedImages(part, torch.device("cpu"), sides[0]).blocks()
    else:
        blocks = (torch.from_numpy(block).permute(0, 3, 1, 2) for block in part.blocks(IMAGE))
    for values in blocks:
        # Three channels become one as the luma; one channel becomes three as three copies.
        if values.shape[1] != channels:
            values = _gray(values) if channels == 1 else values.expand(-1, channels, -1, -1)
        yield resized(values, (sides[0], sides[1]))


def _check_channels(stored: int, wanted: int) -> None:
    """Raise `DataError` where images with `stored` channels cannot become images with `wanted` channels.

    They can where both numbers are the same, from 1 to any number (copies of the one channel), and from 3 to 1 (the
    luma).
    """
    if stored not in (1, wanted) and (stored, wanted) != (3, 1):
        raise DataError(
            f"transfer: images with {stored} channels cannot become those with {wanted} of the network; take a dataset "
            f"with 1 or {wanted if wanted > 1 else 3}"
        )


def _gray(pixels: UInt8[Tensor, "n 3 h w"]) -> UInt8[Tensor, "n 1 h w"]:
    """Return the luma (ITU-R BT.601), in whole numbers, which come out the same on every device."""
    weights = torch.tensor([299, 587, 114])[:, None, None]
    luma: Int[Tensor, "n h w"] = (pixels.int() * weights).sum(1) // 1000
    return luma[:, None].to(torch.uint8)


def _manifest(name: str, data: Manifest) -> Manifest:
    """Return the manifest of the dataset `name` in the storage of `data`.

    `DataError` where the dataset has no images with labels.
    """
    manifest = find(name, storage=storage_of(data))
    if manifest.kind != "image" or not manifest.classes:
        raise DataError(
            f"transfer: dataset {name!r} is of kind {manifest.kind!r}; it must hold images with labels"
        )
    return manifest
