"""Published datasets as their papers describe them: enough to plan for a dataset before it is staged."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from contrasweep.data.columns import spec
from contrasweep.data.content import Published
from contrasweep.data.importers.cifar import LongTailedCifar
from contrasweep.data.importers.encoded_images import spec as encoded
from contrasweep.data.importers.labelled_images import long_tail
from contrasweep.data.importers.long_tail_lists import Settings as Lists
from contrasweep.data.manifest import ANY_SIDE, ColumnSpec, Manifest, Shard
from contrasweep.data.names import importer, parse


class _Images(NamedTuple):
    """An image dataset as its paper describes it."""

    train: int  # number of training images
    test: int  # 0: there is no test split
    classes: int
    side: int = 32  # in pixels
    channels: int = 3
    columns: tuple[str, ...] = ("image",)  # names of the columns with images


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
"""Dataset -> its description. `hra` and `xbd` are as LOCAL describes them (section 4, Datasets; HRA's side is that of
its Table 1)."""


def described(name: str) -> Manifest | None:
    """Return a manifest of a dataset as its paper describes it, without files; None where no paper does.

    It has rows, classes and image sizes, which are enough to plan a study. Its digest, and so the ids of trials, differ
    from those of the staged dataset. `name` may have parameters; `SpecError` where one of them is wrong.
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
    # Each split has one shard without a file. Its digest is words, so that no staged shard has the same.
    splits = {
        split: (Shard(f"{split}-as-published", rows, 0, "as published"),)
        for split, rows in facts.rows.items()
    }
    return Manifest(
        parsed.text, "", facts.kind, splits, facts.classes, facts.columns, source=facts.source
    )


def _of_images(name: str, settings: Any) -> Published:
    """Return the description of the dataset `name` of `_IMAGES` with the image size or long tail of these settings."""
    facts = _IMAGES[name]
    train = facts.train
    side = getattr(settings, "size", None) or facts.side
    columns: Mapping[str, ColumnSpec] = {
        column: spec("uint8", (side, side, facts.channels)) for column in facts.columns
    }
    if isinstance(settings, LongTailedCifar):
        # The training split is drawn from a balanced one.
        largest = facts.train // facts.classes
        train = sum(long_tail(largest, facts.classes, settings.imbalance_factor))
    elif isinstance(settings, Lists):
        columns = encoded(settings.size or ANY_SIDE)
    kind = "image" if len(columns) == 1 else "image-pair"
    rows = {"train": train}
    if facts.test:
        rows["test"] = facts.test
    return Published(kind, rows, tuple(map(str, range(facts.classes))), columns)
