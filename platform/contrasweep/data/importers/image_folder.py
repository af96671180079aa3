"""A folder of images, one folder a class: `train/CLASS/...` and `test/CLASS/...` (or `val`), or just `CLASS/...`."""

import os
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from contrasweep.data.content import Content, Importer, Rejected
from contrasweep.data.importers import encoded_images
from contrasweep.data.importers.encoded_images import Encoded, Settings, readable
from contrasweep.errors import DataError
from contrasweep.schema import checked

SUFFIXES = {".png", ".jpg", ".jpeg", ".jfif", ".jpe", ".webp", ".bmp", ".tif", ".tiff"}
TEXTS = {".txt", ".csv", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".md", ".html", ".ini", ".db"}
"""Files that nobody expects to be images: all others are counted where they are left out."""
SYSTEM = {"__MACOSX", "@eaDir", "lost+found", "$RECYCLE.BIN", "System Volume Information"}
"""Folders that programs leave behind; hidden ones (`.ipynb_checkpoints`, `.git`) are too."""


@checked
class FolderSettings(Settings):
    """Settings of images in class folders."""

    copies: Literal["apart", "together"] = "apart"
    """With `together`, files that are equal byte for byte are in one fold; `apart`: folds may part them."""


def read(source: Path, settings: FolderSettings) -> Content:
    """Return the image files of each class folder, still encoded, by split; `DataError` if there are no class folders.

    Classes are those of all splits, by name; a class may lack images in one of them.
    """
    if not source.is_dir():
        raise DataError(f"{source} is not a folder of class folders")
    # A split has class folders; a folder `test` with images alone is a class of this name.
    present = split_folders(_root(source), lambda folder: bool(_folders(folder)))
    class_folders = {split: _class_folders(folder) for split, folder in present.items()}
    classes = sorted({name for folders in class_folders.values() for name in folders})
    # Class folders called train and test mean that a level was missed.
    if not classes or all(name.lower() in encoded_images.SPLITS for name in classes):
        looked = ", ".join(str(folder) for folder in present.values())
        raise DataError(
            f"{source} has no class folders (looked in {looked}); `images` stages images without labels"
        )
    _check_classes(class_folders)
    rejected = Rejected()
    splits = {
        split: _files(present[split], class_folders[split], classes, rejected) for split in present
    }
    together = settings.copies == "together"
    return encoded_images.content(splits, classes, settings, rejected=rejected, together=together)


def split_folders(source: Path, is_split: Callable[[Path], bool] = Path.is_dir) -> dict[str, Path]:
    """Return split -> folder, of `train` and perhaps `test`; without a folder of train, `source` is for training.

    Only folders of which `is_split` holds count as splits, since a class may be called `test`. `Training` and `TEST`
    are names of splits too. A validation split is the test split unless there is one of that name; folders beside them
    are left out, which is said. `DataError` where there is a test split alone, or two.
    """
    by_name: dict[str, Path] = {}
    children = _folders(source)
    for folder in children:
        split = encoded_images.SPLITS.get(folder.name.lower())
        if split is not None and is_split(folder):
            if split in by_name:
                raise DataError(
                    f"{source} has two folders of {split}: {by_name[split].name} and {folder.name}"
                )
            by_name[split] = folder
    # Folders that name no split are classes, all for training.
    if "train" not in by_name:
        if by_name and len(by_name) == len(children):
            raise DataError(
                f"{source} has folders of {' and '.join(sorted(by_name))} and none of train"
            )
        return {"train": source}
    test = by_name.get("test", by_name.get("val"))
    if left_out := [folder.name for folder in children if folder not in (by_name["train"], test)]:
        encoded_images.say_left_out(source, left_out)
    return {"train": by_name["train"], **({"test": test} if test else {})}


def _root(source: Path) -> Path:
    """Return the folder in which splits or classes stand: of folders with nothing but a folder of folders, the last.

    An archive often unpacks to such a folder. A split, or a folder with images in it, is not gone into.
    """
    while len(children := _folders(source)) == 1 and not _images(source):
        if (
            children[0].name.lower() in encoded_images.SPLITS
            or not _folders(children[0])
            or _images(children[0])
        ):
            break
        source = children[0]
    return source


def _visible(folder: Path) -> list[Path]:
    """Return what is in a folder, without hidden files and folders and those of the system."""
    return sorted(
        path
        for path in folder.iterdir()
        if not path.name.startswith(".") and path.name not in SYSTEM
    )


def _folders(folder: Path) -> list[Path]:
    """Return the visible folders in a folder, by name."""
    return [path for path in _visible(folder) if path.is_dir()]


def _images(folder: Path) -> list[Path]:
    """Return the visible image files in a folder itself, by name."""
    return [p for p in _visible(folder) if p.suffix.lower() in SUFFIXES and not p.is_dir()]


def _class_folders(folder: Path) -> dict[str, list[Path]]:
    """Return class -> its folders: names that differ in the form of an accent alone, as a Mac's do, are one class."""
    folders: dict[str, list[Path]] = {}
    for child in _folders(folder):
        folders.setdefault(unicodedata.normalize("NFC", child.name), []).append(child)
    return folders


def _check_classes(found: Mapping[str, Mapping[str, list[Path]]]) -> None:
    """Raise `DataError` where the folders of a level are no classes, or a class of test is one of train misspelt.

    `found` is split -> class -> its folders.
    """
    train = found["train"]
    # The same folders in each "class" mean that the level below has the classes: cameras/cat, cameras/dog, ...
    inner = [
        [child.name for child in _folders(folder)]
        for folders in train.values()
        for folder in folders
    ]
    if len(inner) > 1 and len(inner[0]) > 1 and all(names == inner[0] for names in inner):
        raise DataError(
            f"{', '.join(train)} hold folders of the same names ({', '.join(inner[0][:5])}): are these the classes? "
            "then put the images of a class into one folder, or pass one of the outer ones as --source"
        )
    # `Cat` beside `cat` would be two classes.
    alike = {name.casefold(): name for name in train}
    for name in found.get("test", ()):
        if name not in train and name.casefold() in alike:
            raise DataError(
                f"train has a class {alike[name.casefold()]!r} and test {name!r}: give them one name"
            )


def _files(
    split: Path, folders: Mapping[str, list[Path]], classes: list[str], rejected: Rejected
) -> list[Encoded]:
    """Return the images of a split's class folders, class by class; those beside the folders are counted as rejected.

    `folders` is class -> its folders in the folder `split`; the index of a class in `classes` is its label.
    """
    for path in _images(split):
        rejected.add("image beside the class folders", readable(path.name))
    return [
        Encoded(path, path.relative_to(split).as_posix(), label)
        for label, name in enumerate(classes)
        for folder in folders.get(name, ())
        for path in _below(folder, split, rejected)
    ]


def _below(folder: Path, within: Path, rejected: Rejected) -> Iterator[Path]:
    """Yield the image files below a folder in the order of their paths, also behind links.

    Hidden images and folders and files of other kinds are counted in `rejected`, by their path below `within`; texts
    and other hidden files are passed over.
    """
    seen: set[str] = set()
    below: list[Path] = []
    for place, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        folder_path = Path(place)
        visible = [name for name in folders if not name.startswith(".") and name not in SYSTEM]
        for name in set(folders) - set(visible):
            rejected.add(
                "hidden folder", readable((folder_path / name).relative_to(within).as_posix())
            )
        # os.walk goes into what is left in `folders`. A folder that links lead back to is not read again.
        folders[:] = [] if real in seen else visible
        for path in [] if real in seen else map(folder_path.joinpath, files):
            suffix = path.suffix.lower()
            name = readable(path.relative_to(within).as_posix())
            if suffix in SUFFIXES and not path.name.startswith("."):
                below.append(path)
            elif suffix in SUFFIXES or (suffix not in TEXTS and not path.name.startswith(".")):
                rejected.add(
                    "hidden file"
                    if path.name.startswith(".")
                    else f"file {suffix or 'without suffix'}",
                    name,
                )
        seen.add(real)
    yield from sorted(below)


def read_unlabelled(source: Path, settings: Settings) -> Content:
    """Return all image files below `source`, without labels, as the training split; `DataError` if it is no folder."""
    if not source.is_dir():
        raise DataError(f"{source} is not a folder of images")
    rejected = Rejected()
    images = [
        Encoded(p, p.relative_to(source).as_posix(), None) for p in _below(source, source, rejected)
    ]
    return encoded_images.content({"train": images}, (), settings, rejected=rejected)


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
    FolderSettings,
    own=True,
)
