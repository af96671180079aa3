"""A folder of images, one folder a class: `train/CLASS/...` and `test/CLASS/...` (or `val`), or just `CLASS/...`."""

from pathlib import Path

from contrasweep.data.content import Content, Importer
from contrasweep.data.importers import encoded_images
from contrasweep.data.importers.encoded_images import Encoded, Side
from contrasweep.errors import DataError
from contrasweep.schema import checked

SPLITS = {"train": ("train",), "test": ("test", "val", "valid", "validation")}
SUFFIXES = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff"}


@checked
class Settings:
    """How large images are. Without settings they keep their bytes, each in its own size.

    `size`: every image is scaled to cover a square of this side and cut about its centre, once per node.
    `longest_side`: larger images are scaled down to it when they are staged.
    """

    size: Side | None = None
    longest_side: Side | None = None


def read(source: Path, settings: Settings) -> Content:
    """Return the image files of each class folder, still encoded; `DataError` if `source` has no class folders."""
    if not source.is_dir():
        raise DataError(f"{source} is not a folder of class folders")
    present = split_folders(source)
    classes = sorted({child.name for folder in present.values() for child in folder.iterdir() if child.is_dir()})
    if not classes:
        raise DataError(
            f"{source} has no class folders (looked in {', '.join(str(folder) for folder in present.values())})"
        )
    splits = {split: _files(folder, classes) for split, folder in present.items()}
    return encoded_images.content(splits, classes, settings.size, settings.longest_side)


def split_folders(source: Path) -> dict[str, Path]:
    """Return the folder of each split; without one that is called `train`, all of `source` is for training."""
    folders = {
        split: next((source / name for name in names if (source / name).is_dir()), None)
        for split, names in SPLITS.items()
    }
    return {split: folder for split, folder in folders.items() if folder} if folders["train"] else {"train": source}


def _files(folder: Path, classes: list[str]) -> list[Encoded]:
    return [
        Encoded(path, path.relative_to(folder).as_posix(), label)
        for label, name in enumerate(classes)
        for path in sorted((folder / name).rglob("*"))
        if path.suffix.lower() in SUFFIXES
    ]


def read_unlabelled(source: Path, settings: Settings) -> Content:
    """Return all image files below `source`, without labels."""
    if not source.is_dir():
        raise DataError(f"{source} is not a folder of images")
    files = sorted(path for path in source.rglob("*") if path.suffix.lower() in SUFFIXES)
    named = (Encoded(path, path.relative_to(source).as_posix(), None) for path in files)
    return encoded_images.content({"train": named}, (), settings.size, settings.longest_side)


IMAGES = Importer(
    read_unlabelled,
    "any folder of images without labels, for pretraining",
    "that of its owner",
    "a folder with image files, at any depth",
    Settings,
    own=True,
)
IMAGE_FOLDER = Importer(
    read,
    "any folder of images with one folder a class",
    "that of its owner",
    "a folder with train/CLASS/*.jpg and test/CLASS/*.jpg, or CLASS/*.jpg",
    Settings,
    own=True,
)
