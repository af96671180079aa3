"""ImageNet-LT (Liu et al. 2019, OLTR) and iNaturalist 2018 by their published lists, lines of `relative/path label`."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from contrasweep.data import safety
from contrasweep.data.content import Content, Importer, Published
from contrasweep.data.importers import encoded_images
from contrasweep.data.importers.encoded_images import Encoded, Side
from contrasweep.data.manifest import ANY_SIDE
from contrasweep.errors import DataError
from contrasweep.schema import checked
from contrasweep.storage.names import local_path

IMAGENET = {
    "train": "ImageNet_LT_train.txt",
    "dev": "ImageNet_LT_val.txt",
    "test": "ImageNet_LT_test.txt",
}
INATURALIST = {"train": "iNaturalist18_train.txt", "test": "iNaturalist18_val.txt"}


@checked
class Settings(encoded_images.Settings):
    """Settings of a dataset by lists."""

    size: Side | None = 224
    """Side of the square to which images are decoded; null: they keep their sizes."""
    lists: str | None = None
    """Folder of the lists, if it is not that of the images."""


def _read(names: dict[str, str], classes: int, source: Path, settings: Settings) -> Content:
    """Return the images that the lists name, encoded, to be decoded to squares of the settings' size.

    `names` is split -> file of its list, `classes` the number of classes, `source` the folder that the lists' paths
    start from. `DataError` where a list is missing.
    """
    lists = local_path(settings.lists, "lists") if settings.lists else source
    missing = [name for name in names.values() if not (lists / name).is_file()]
    if missing:
        raise DataError(
            f"{lists} has no {', '.join(missing)}; pass the folder of the lists with --set lists=PATH"
        )
    splits = {split: _files(source, lists / name, classes) for split, name in names.items()}
    return encoded_images.content(splits, map(str, range(classes)), settings)


def _files(root: Path, listing: Path, classes: int) -> Iterator[Encoded]:
    """Yield the images below `root` that a list names; each of its lines is a path and a class.

    Empty lines are ignored; `DataError` for any other line. An image that is missing is only found when it is read.
    """
    for number, line in enumerate(listing.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        name, _, label = line.rpartition(" ")  # a path may have blanks too
        if not (name and label.isdecimal() and int(label) < classes):
            raise DataError(
                f"{listing}:{number}: must be a path and a class from 0 to {classes - 1}, got {line!r}"
            )
        yield Encoded(root / safety.check_member(name, str(listing)), name, int(label))


def _published(rows: dict[str, int], classes: int, settings: Settings) -> Published:
    """Return the description of a dataset by lists, with these `rows` by split."""
    columns = encoded_images.spec(settings.size or ANY_SIDE)
    return Published("image", rows, tuple(map(str, range(classes))), columns)


def _importer(
    names: dict[str, str], rows: dict[str, int], classes: int, about: str, licence: str
) -> Importer:
    """Return the importer of a dataset by lists; `about` is a line on it.

    `names` is split -> file of its list, `rows` is split -> number of rows as published.
    """
    return Importer(
        partial(_read, names, classes),
        about,
        licence,
        f"the folder that the lists' paths start from, with {' and '.join(names.values())}",
        Settings,
        published=partial(_published, rows, classes),
    )


IMAGENET_LT = _importer(
    IMAGENET,
    {"train": 115_846, "test": 50_000},
    1000,
    "ImageNet, long-tailed: 115,846 training, 20,000 dev, 50,000 test images",
    "ImageNet's terms: research only, no redistribution",
)
INATURALIST_LT = _importer(
    INATURALIST,
    {"train": 437_513, "test": 24_426},
    8142,
    "iNaturalist 2018: 437,513 training, 24,426 test images of 8,142 species",
    "iNaturalist's terms: research only",
)
