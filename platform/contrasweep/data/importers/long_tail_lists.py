"""ImageNet-LT (Liu et al. 2019, OLTR) and iNaturalist 2018 by their published lists: `relative/path label` a line."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from contrasweep.data import safety
from contrasweep.data.content import Content, Importer
from contrasweep.data.importers import encoded_images
from contrasweep.data.importers.encoded_images import Encoded, Side
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
class Settings:
    """Settings; `size`: side of the decoded square; `lists`: folder of the lists, if it is not that of the images."""

    size: Side = 224
    lists: str | None = None


def _read(names: dict[str, str], classes: int, source: Path, settings: Settings) -> Content:
    """Return the images that the lists name, still encoded and in squares of the settings' size.

    `names` is split -> name of its list, `classes` their number, `source` the folder that the lists' paths start from.
    `DataError` where a list is missing.
    """
    lists = local_path(settings.lists, "lists") if settings.lists else source
    if missing := [name for name in names.values() if not (lists / name).is_file()]:
        raise DataError(
            f"{lists} has no {', '.join(missing)}; pass the folder of the lists with --set lists=PATH"
        )
    splits = {split: _files(source, lists / name, classes) for split, name in names.items()}
    size = encoded_images.Settings(size=settings.size)
    return encoded_images.content(splits, map(str, range(classes)), size)


def _files(root: Path, listing: Path, classes: int) -> Iterator[Encoded]:
    """Yield the images below `root` that a list names, a path and a class a line; `DataError` for a line that is none.

    Whether the image is there is seen when it is read. Empty lines are passed over.
    """
    for number, line in enumerate(listing.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        name, _, label = line.rpartition(" ")  # the path may have blanks
        if not (name and label.isdecimal() and int(label) < classes):
            raise DataError(
                f"{listing}:{number}: must be a path and a class from 0 to {classes - 1}, got {line!r}"
            )
        yield Encoded(root / safety.check_member(name, str(listing)), name, int(label))


def _importer(names: dict[str, str], classes: int, about: str, licence: str) -> Importer:
    """Return the importer of a dataset by its lists, `names` by split, with a line on it and its licence."""
    source = f"the folder that the lists' paths start from, with {' and '.join(names.values())}"
    return Importer(partial(_read, names, classes), about, licence, source, Settings)


IMAGENET_LT = _importer(
    IMAGENET,
    1000,
    "ImageNet, long-tailed: 115,846 training, 20,000 dev, 50,000 test images",
    "ImageNet's terms: research only, no redistribution",
)
INATURALIST_LT = _importer(
    INATURALIST,
    8142,
    "iNaturalist 2018: 437,513 training, 24,426 test images of 8,142 species",
    "iNaturalist's terms: research only",
)
