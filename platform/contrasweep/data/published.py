"""Published datasets as their papers describe them: enough to plan for a dataset before it is staged."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from contrasweep.data.columns import spec
from contrasweep.data.content import Published
from contrasweep.data.importers.cifar import LongTailed
from contrasweep.data.importers.encoded_images import spec as encoded
from contrasweep.data.importers.labelled_images import long_tail
from contrasweep.data.importers.long_tail_lists import Settings as Lists
from contrasweep.data.manifest import ColumnSpec, Manifest, Shard
from contrasweep.data.names import importer, parse


class _Images(NamedTuple):
    """An image dataset as its paper describes it: numbers of images for training and tests and of classes, and storage.

    `side` is in pixels, `columns` the names of the columns with images. 0 for `test`: there is no such split.
    """

    train: int
    test: int
    classes: int
    side: int = 32
    channels: int = 3
    columns: tuple[str, ...] = ("image",)


_IMAGES = {
    "mnist": _Images(60_000, 10_000, 10, 28, 1),
    "fashion-mnist": _Images(60_000, 10_000, 10, 28, 1),
    "cifar10": _Images(50_000, 10_000, 10),
    "cifar100": _Images(50_000, 10_000, 100),
    "cifar10-lt": _Images(50_000, 10_000, 10),
    "cifar100-lt": _Images(50_000, 10_000, 100),
    "imagenet-lt": _Images(115_846, 50_000, 1000),
    "inaturalist-lt": _Images(437_513, 24_426, 8142),
    "hra": _Images(3_389, 0, 5, 512, columns=("pre", "post")),
    "xbd": _Images(67_782, 0, 4, 128, columns=("pre", "post")),
}
"""The last two as LOCAL describes them (section 4, Datasets), HRA at the side of its Table 1."""


def described(name: str) -> Manifest | None:
    """Return a manifest, without files, of a dataset as its paper describes it; None where no paper does.

    It has rows, classes and image sizes, which are enough to plan a study. Its digest, and so the ids of its trials,
    differ from those of the staged dataset. `name` may have parameters; `SpecError` where one of them is wrong.
    """
    parsed = parse(name)
    settings = parsed.checked()
    facts = (
        _of_images(parsed.name, settings)
        if parsed.name in _IMAGES
        else importer(parsed).published(settings)
    )
    if facts is None:
        return None
    # A split is one shard that is not there: its digest is a word, so that it equals no staged one.
    splits = {
        split: (Shard(f"{split}-as-published", rows, 0, "as published"),)
        for split, rows in facts.rows.items()
    }
    return Manifest(
        parsed.text, "", facts.kind, splits, facts.classes, facts.columns, source=facts.source
    )


def _of_images(name: str, settings: Any) -> Published:
    """Return what the paper says of the dataset `name` of `_IMAGES` under these settings: image size, long tail."""
    facts = _IMAGES[name]
    train = facts.train
    side = getattr(settings, "size", None) or facts.side
    columns: Mapping[str, ColumnSpec] = {
        name: spec("uint8", (side, side, facts.channels)) for name in facts.columns
    }
    # A long-tailed CIFAR is drawn from the balanced one; the lists' images stay encoded.
    if isinstance(settings, LongTailed):
        train = sum(
            long_tail(facts.train // facts.classes, facts.classes, settings.imbalance_factor)
        )
    elif isinstance(settings, Lists):
        columns = encoded(side)
    kind = "image" if len(columns) == 1 else "image-pair"
    rows = {split: count for split, count in (("train", train), ("test", facts.test)) if count}
    return Published(kind, rows, tuple(map(str, range(facts.classes))), columns)
