"""A folder of images with a folder for each class: `train/CLASS/...`, `test/CLASS/...` (or `val`), or `CLASS/...`."""

import os
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from contrasweep.data.content import Content, Importer, Rejected
from contrasweep.data.importers import encoded_images
from contrasweep.data.importers.encoded_images import SPLIT_OF_WORD, Encoded, Settings
from contrasweep.errors import DataError

IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".jfif", ".jpe", ".webp", ".bmp", ".tif", ".tiff"}
UNCOUNTED_SUFFIXES = {
    ".txt",
    ".csv",
    ".json",
    ".jsonl",
    ".xml",
    ".yaml",
    ".yml",
    ".md",
    ".html",
    ".ini",
    ".db",
}
"""Suffixes of files that nobody expects to be images; files with other suffixes are counted as left out."""
SYSTEM_FOLDERS = {"__MACOSX", "@eaDir", "lost+found", "$RECYCLE.BIN", "System Volume Information"}
"""Folders that programs leave behind. They are left out, like hidden folders (`.ipynb_checkpoints`, `.git`)."""


def read(source: Path, settings: Settings) -> Content:
    """Return the encoded images in the class folders of each split; `DataError` if there are no class folders.

    The classes of all splits are joined and sorted by name, so that a class may have no images in one split.
    """
    if not source.is_dir():
        raise DataError(f"{source} is not a folder of class folders")
    # A split has class folders. A folder `test` that has no folders is a class with this name.
    present = split_folders(_root(source), lambda folder: bool(_folders(folder)))
    # A class has several folders where names differ only in how an accent is encoded, as on a Mac.
    class_folders: dict[str, dict[str, list[Path]]] = {}
    for split, folder in present.items():
        of_split = class_folders.setdefault(split, {})
        for child in _folders(folder):
            of_split.setdefault(unicodedata.normalize("NFC", child.name), []).append(child)
    classes = sorted({name for folders in class_folders.values() for name in folders})
    # Class folders with names such as train and test are splits on another level than was looked at.
    if not classes or all(name.lower() in SPLIT_OF_WORD for name in classes):
        looked = ", ".join(str(folder) for folder in present.values())
        raise DataError(
            f"{source} has no class folders (looked in {looked}); `images` stages images without labels"
        )
    _check_classes(class_folders)
    rejected = Rejected()
    splits = {
        split: _files(present[split], class_folders[split], classes, rejected) for split in present
    }
    return encoded_images.content(splits, classes, settings, rejected=rejected)


def split_folders(source: Path, is_split: Callable[[Path], bool] = Path.is_dir) -> dict[str, Path]:
    """Return split -> folder: `train` and, if there is one, `test`. Without a folder for training, `train` is `source`.

    The name of a folder says its split, in any case and by other words too: `Training`, `TEST`. As a class may be
    called `test` as well, `is_split` says of such a folder whether it is a split. Where there is no test split, the
    validation split takes its place. Other folders are left out, with a warning.

    `DataError` where all folders are splits and none is for training, or where two folders are the same split.
    """
    by_split: dict[str, list[Path]] = {}
    children = _folders(source)
    for folder in children:
        split = SPLIT_OF_WORD.get(folder.name.lower())
        if split is not None and is_split(folder):
            of_split = by_split.setdefault(split, [])
            of_split.append(folder)
            if len(of_split) > 1:
                raise DataError(
                    f"{source} has two folders of {split}: {' and '.join(folder.name for folder in of_split)}"
                )
    if "train" not in by_split:
        if by_split and len(by_split) == len(children):
            raise DataError(
                f"{source} has folders of {' and '.join(sorted(by_split))} and none of train"
            )
        return {"train": source}
    chosen = encoded_images.train_and_test(source, by_split, children)
    # Each split has one folder, as was checked above.
    return {split: folder for split, (folder,) in chosen.items()}


def files_by_split(source: Path, suffix: str, rejected: Rejected) -> dict[str, list[Path]]:
    """Return the files of each split, `train` and perhaps `test`, below `source`, sorted by path.

    `train-0.tar`, `data/Training-0.tar` and `train/0.tar` are training files. Where no file names a split, all are for
    training. A validation split is used as the test split where there is no test split. Other files are left out, with
    a warning; what `files_below` leaves out is counted in `rejected`. `DataError` where there is no file, or none for
    training.
    """
    is_file = source.is_file()
    files = [source] if is_file else list(files_below(source, source, rejected, {suffix}))
    if not files:
        raise DataError(f"{source} has no {suffix} files")
    by_split: dict[str, list[Path]] = {}  # "": files that name no split
    for file in files:
        path = Path(file.name) if is_file else file.relative_to(source)
        # The file's name is searched first, then the names of the folders around it.
        words = [word for part in path.parts[::-1] for word in re.split(r"[^a-z]+", part.lower())]
        split = next((SPLIT_OF_WORD[word] for word in words if word in SPLIT_OF_WORD), "")
        by_split.setdefault(split, []).append(file)
    if set(by_split) == {""}:
        return {"train": files}
    if "train" not in by_split:
        raise DataError(
            f"{source} has {suffix} files of {', '.join(sorted(filter(None, by_split)))} and none of train"
        )
    return encoded_images.train_and_test(source, by_split, files)


def _root(source: Path) -> Path:
    """Return the folder that has the folders of splits or classes: `source`, or a folder below it.

    An archive often unpacks to a folder that has only another folder in it. Such folders are entered, but neither the
    folder of a split nor one that has images or no folders.
    """
    while True:
        children = _folders(source)
        if len(children) != 1 or _images(source):
            return source
        (child,) = children
        is_split = child.name.lower() in SPLIT_OF_WORD
        if is_split or _images(child) or not _folders(child):
            return source
        source = child


def _visible(folder: Path) -> list[Path]:
    """Return the files and folders in a folder, sorted, without hidden ones and those of the system."""
    return sorted(
        path
        for path in folder.iterdir()
        if not path.name.startswith(".") and path.name not in SYSTEM_FOLDERS
    )


def _folders(folder: Path) -> list[Path]:
    """Return the visible folders in a folder, sorted by name."""
    return [path for path in _visible(folder) if path.is_dir()]


def _images(folder: Path) -> list[Path]:
    """Return the visible image files directly in a folder, sorted by name."""
    return [
        path
        for path in _visible(folder)
        if path.suffix.lower() in IMAGE_SUFFIXES and not path.is_dir()
    ]


def _check_classes(found: Mapping[str, Mapping[str, list[Path]]]) -> None:
    """Raise `DataError` where class folders are probably not what their owner meant.

    `found` is split -> class -> its folders. There are three cases. All training folders hold folders of the same
    names, which may be the classes. The test split has one folder alone, which is no class of `train`. Or the names of
    a class in `train` and in `test` differ in upper and lower case only.
    """
    train = found["train"]
    # If all "classes" have folders with the same names, as in camera1/cat, camera1/dog, camera2/cat, camera2/dog, these
    # folders are the classes.
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
    test = found.get("test", {})
    if len(test) == 1 and not test.keys() & train.keys():
        raise DataError(
            f"test has the folder {next(iter(test))!r} alone, which is no class of train: sort its images into class "
            "folders, or move it away"
        )
    # `Cat` beside `cat` would be two classes.
    train_names = {name.casefold(): name for name in train}
    for name in test:
        train_name = train_names.get(name.casefold(), name)
        if name not in train and train_name != name:
            raise DataError(
                f"train has a class {train_name!r} and test {name!r}: give them one name"
            )


def _files(
    split: Path, folders: Mapping[str, list[Path]], classes: list[str], rejected: Rejected
) -> list[Encoded]:
    """Return the images in the class folders of a split, class by class; images beside these folders are rejected.

    `split` is the split's folder, `folders` is class -> its folders. The index of a class in `classes` is its label.
    """
    for path in _images(split):
        rejected.add("image beside the class folders", path.name)
    return [
        Encoded(path, path.relative_to(split).as_posix(), label)
        for label, name in enumerate(classes)
        for folder in folders.get(name, ())
        for path in files_below(folder, split, rejected)
    ]


def files_below(
    folder: Path, within: Path, rejected: Rejected, suffixes: Collection[str] = IMAGE_SUFFIXES
) -> Iterator[Path]:
    """Yield the files below a folder with one of the suffixes, sorted by path; links are followed.

    Hidden folders, hidden files and files with unexpected suffixes are counted in `rejected`, with their path below
    `within`. `OSError` for a folder that cannot be read.
    """

    def failed(error: OSError) -> None:
        """Raise the error of a folder that cannot be read, whose files would be left out silently."""
        raise error

    seen: set[str] = set()
    below: list[Path] = []
    for place, folders, files in os.walk(folder, onerror=failed, followlinks=True):
        hidden = [name for name in folders if name.startswith(".") or name in SYSTEM_FOLDERS]
        for name in hidden:
            rejected.add("hidden folder", Path(place, name).relative_to(within))
        # os.walk enters the folders that are left in this list. A link may lead back to a folder that was read.
        folders[:] = [name for name in folders if name not in hidden]
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        for path in map(Path(place).joinpath, files):
            suffix = path.suffix.lower()
            is_hidden = path.name.startswith(".")
            # Hidden files with other suffixes, and files of text, are left out without being counted.
            if suffix in suffixes and is_hidden:
                rejected.add("hidden file", path.relative_to(within))
            elif suffix in suffixes:
                below.append(path)
            elif suffix not in UNCOUNTED_SUFFIXES and not is_hidden:
                rejected.add(f"file {suffix or 'without suffix'}", path.relative_to(within))
    yield from sorted(below)


def read_unlabelled(source: Path, settings: Settings) -> Content:
    """Return all image files below `source` as a training split without labels; `DataError` if it is no folder."""
    if not source.is_dir():
        raise DataError(f"{source} is not a folder of images")
    rejected = Rejected()
    images = [
        Encoded(path, path.relative_to(source).as_posix(), None)
        for path in files_below(source, source, rejected)
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
    "any folder of images with one folder per class",
    "that of its owner",
    "a folder with train/CLASS/*.jpg and test/CLASS/*.jpg, or CLASS/*.jpg",
    Settings,
    own=True,
)
