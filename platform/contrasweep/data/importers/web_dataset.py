"""WebDataset tars, such as `train-000.tar`, with `KEY.jpg` and `KEY.cls` (or a field of `KEY.json`) for each image."""

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import pydantic

from contrasweep.data.content import Content, Importer, Rejected
from contrasweep.data.importers import encoded_images
from contrasweep.data.importers.encoded_images import Encoded, numbered
from contrasweep.data.importers.image_folder import IMAGE_SUFFIXES, files_by_split
from contrasweep.data.safety import check_member
from contrasweep.errors import DataError
from contrasweep.schema import checked

IMAGE_EXTENSIONS = {suffix[1:] for suffix in IMAGE_SUFFIXES}
CLASSES_FILE = "classes.txt"
MOST_BYTES = 2**26
"""The most bytes of a member that is read: a larger image would not be decoded."""


@checked
class Settings(encoded_images.Settings):
    """Settings of WebDataset tars."""

    label: Annotated[str, pydantic.Field(pattern=r"^(none|\w+|json:\w+)$")] = "cls"
    """Where a sample's class number is: a member (`cls`) or a field of its JSON (`json:label`); `none`: no labels."""


def read(source: Path, settings: Settings) -> Content:
    """Return the encoded images of all samples, with their labels. Samples without an image are counted.

    `source` is a folder of tars by split, or one tar. `DataError` where a tar is broken or a sample has no label.
    """
    rejected = Rejected()
    tars = files_by_split(source, ".tar", rejected)
    # Extensions are compared in small letters, and fields of JSON as they are written.
    member, colon, field = settings.label.partition(":")
    label = member.lower() + colon + field
    classes: tuple[str, ...] = ()
    if label != "none":
        # The tars are read a first time for the largest label, which says how many classes there are.
        largest_label = -1
        samples = 0
        for files in tars.values():
            for file in files:
                for key, members in _samples(file, {member.lower()}):
                    if members:
                        number = _label(members, label, f"{file}: {key}")
                        largest_label = max(largest_label, number)
                        samples += 1
        if largest_label < 0:
            raise DataError(
                f"{source} has no sample with a label; --set label=none stages images without labels"
            )
        classes = _classes(source, largest_label, samples)
    splits = {split: _members(files, label, rejected) for split, files in tars.items()}
    return encoded_images.content(splits, classes, settings, rejected=rejected)


def _classes(source: Path, largest_label: int, samples: int) -> tuple[str, ...]:
    """Return the names of the classes: the lines of the folder's classes.txt, or "0", "1" and so on without that file.

    `largest_label` is the largest label of all `samples` (their number). `DataError` where the file has too few names,
    or where the label is too large to be a class number.
    """
    file = source / CLASSES_FILE
    names = file.read_text("utf-8-sig").split("\n") if source.is_dir() and file.is_file() else []
    names = [name.strip() for name in names if name.strip()]
    if names and len(names) <= largest_label:
        raise DataError(f"{file} names {len(names)} classes; labels go up to {largest_label}")
    return tuple(names) or numbered(
        largest_label, samples, source, "name the classes in classes.txt, or --set label=none"
    )


def _samples(file: Path, wanted: set[str]) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yield each sample of a tar as (key, extension -> bytes): `a.jpg` and `a.cls` are the sample `a`.

    The members of a sample follow each other in the tar. Of its members only those with the extensions `wanted` (in
    lower case) and at most `MOST_BYTES` are read, so that the dict may be empty. `DataError` where the tar is broken or
    cut.
    """
    # The sample that is being read: its key, None before the first, and its members so far.
    key: str | None = None
    members: dict[str, bytes] = {}
    try:
        with tarfile.open(file, "r:") as archive:
            for info in archive:
                name = check_member(info.name, str(file))
                folder, _, base = name.rpartition("/")
                # A Mac puts `._x` before each file `x`.
                if base.startswith(".") or not info.isreg():
                    continue
                stem, _, extension = base.partition(".")
                key_of_member = f"{folder}/{stem}" if folder else stem
                # A sample ends where another one begins; the last one ends with the tar.
                if key_of_member != key:
                    if key is not None:
                        yield key, members
                    key = key_of_member
                    members = {}
                if extension.lower() in wanted and info.size <= MOST_BYTES:
                    opened = archive.extractfile(info)
                    members[extension.lower()] = b"" if opened is None else opened.read()
            _check_end(archive, file)
    except tarfile.TarError as error:
        raise DataError(f"{file} is not a readable tar ({error})") from None
    if key is not None:
        yield key, members


def _check_end(archive: tarfile.TarFile, file: Path) -> None:
    """Raise `DataError` where a tar is cut, or another tar follows it, neither of which Python's reader finds.

    After its last member a tar has two blocks of zeros, and then nothing but zeros.
    """
    assert archive.fileobj is not None
    archive.fileobj.seek(archive.offset)
    end = archive.fileobj.read(2 * tarfile.BLOCKSIZE)
    if len(end) < 2 * tarfile.BLOCKSIZE or end.strip(b"\0"):
        raise DataError(
            f"{file} is cut: it lacks the two empty blocks at the end of a tar; fetch it again"
        )
    while tail := archive.fileobj.read(2**20):
        if tail.strip(b"\0"):
            raise DataError(
                f"{file} goes on behind its end, as tars that were joined by cat do; name each by itself"
            )


def _members(files: list[Path], label: str, rejected: Rejected) -> Iterator[Encoded]:
    """Yield the image of each sample in the tars, with its class number unless `label` is `none`.

    A sample without an image is left out and counted in `rejected`.
    """
    for file in files:
        for key, members in _samples(file, IMAGE_EXTENSIONS | {label.partition(":")[0]}):
            image = next(
                (data for extension, data in members.items() if extension in IMAGE_EXTENSIONS), None
            )
            if image is None:
                reason = f"no image of at most {MOST_BYTES // 2**20} MiB"
                rejected.add(reason, f"{file.name}/{key}")
                continue
            number = None if label == "none" else _label(members, label, f"{file}: {key}")
            yield Encoded(image, f"{file.name}/{key}", number)


def _label(members: dict[str, bytes], label: str, where: str) -> int:
    """Return the class number of a sample, in its member `label`, or for `json:FIELD` in a field of its JSON.

    `DataError`, with the sample's name `where`, if there is none, or it is no whole number from 0.
    """
    kind, _, field = label.partition(":")
    try:
        value = json.loads(members[kind])[field] if field else members[kind]
        # `int` would make 1 of true and of 1.7.
        if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
            raise ValueError(f"{value} is no whole number")
        number = int(value)
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(
            f"{where} has no label {label!r} ({type(error).__name__}: {error})"
        ) from None
    if number < 0:
        raise DataError(f"{where} has label {number}; labels are class numbers from 0")
    return number


WEB_DATASET = Importer(
    read,
    "any WebDataset of images in tar files",
    "that of its owner",
    "a folder with train-*.tar and test-*.tar (or val-*.tar), or tars of any name, or one tar; perhaps classes.txt",
    Settings,
    own=True,
)
