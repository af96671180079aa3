"""A folder of images with captions: in a table `captions.csv` or `captions.jsonl`, or in a `.txt` beside each image.

With folders `train` and `test` (or `val`), each is a split with a table of its own; otherwise all images are for
training. A table has the columns `file` (its path below the table's folder; `file_name`, `image` and `filepath` do too)
and `caption`; a file of several rows has several captions, and so has a `.txt` of several lines.
"""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

from contrasweep.data.content import Content, Importer
from contrasweep.data.importers import encoded_images
from contrasweep.data.importers.encoded_images import Encoded, Settings
from contrasweep.data.importers.image_folder import SUFFIXES, split_folders
from contrasweep.data.safety import check_member
from contrasweep.errors import DataError

TABLES = ("captions.csv", "captions.jsonl", "metadata.csv", "metadata.jsonl")
"""The last two are what Hugging Face's image folders have."""
FILES = ("file", "file_name", "image", "filepath")
"""Columns that may hold an image's path: the first one with a value counts."""
CAPTIONS = ("caption", "captions", "text")
"""Columns that may hold captions, likewise."""


def read(source: Path, settings: Settings) -> Content:
    """Return the images that have captions, still encoded; `DataError` if a split of `source` has none.

    Images without captions are passed over.
    """
    if not source.is_dir():
        raise DataError(f"{source} is not a folder of images and captions")
    captions = {split: _captions(folder) for split, folder in split_folders(source).items()}
    if empty := [split for split, texts in captions.items() if not texts]:
        raise DataError(
            f"{source} has no captions of {empty[0]}: neither {', '.join(TABLES)} nor a .txt beside an image"
        )
    splits = {
        split: (Encoded(file, file.name, None, tuple(lines)) for file, lines in texts.items())
        for split, texts in captions.items()
    }
    return encoded_images.content(splits, (), settings, "image-text")


def _captions(folder: Path) -> dict[Path, list[str]]:
    """Return file -> captions of each image below `folder`, in the order of the table, or of the files' names.

    Without a table, an image without a text file is passed over. {} where there is neither; `DataError` where an image
    has empty captions alone, or the table names a file outside `folder`.
    """
    table = next((folder / name for name in TABLES if (folder / name).is_file()), None)
    by_file: dict[Path, list[str]] = {}
    # Without a table of captions each image has a text file of its own name.
    if table is None:
        for file in sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES):
            if (text := file.with_suffix(".txt")).is_file():
                by_file[file] = text.read_text(encoding="utf-8").splitlines()
    else:
        for row, name, captions in _rows(table):
            check_member(name, f"{table}, row {row}")
            by_file.setdefault(folder / name, []).extend(captions)
    stripped = {
        file: [line.strip() for line in lines if line.strip()] for file, lines in by_file.items()
    }
    if bare := next((file for file, lines in stripped.items() if not lines), None):
        raise DataError(f"{table or folder}: {bare.name} has an empty caption")
    return stripped


def _rows(table: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Yield number (from 1), file and captions of each row of a .csv or .jsonl; `DataError` where a row lacks them."""
    with table.open(newline="", encoding="utf-8-sig") as opened:
        rows = (
            csv.DictReader(opened)
            if table.suffix == ".csv"
            else (_record(line, table) for line in opened if line.strip())
        )
        # Of each, the first known column with a value; in JSON several captions may be a list.
        for number, row in enumerate(rows, start=1):
            name, value = (
                next((row[key] for key in keys if row.get(key)), None) for keys in (FILES, CAPTIONS)
            )
            texts = [value] if isinstance(value, str) else value
            if (
                not isinstance(name, str)
                or not isinstance(texts, list)
                or not all(isinstance(t, str) for t in texts)
            ):
                raise DataError(
                    f"{table}, row {number}: needs {FILES[0]!r} and {CAPTIONS[0]!r}; it has {', '.join(map(str, row))}"
                )
            yield number, name, texts


def _record(line: str, table: Path) -> dict[str, object]:
    """Return a line of JSON as a mapping; `DataError`, with its `table`, where it is none."""
    try:
        record = json.loads(line)
    except ValueError as error:
        raise DataError(f"{table} has a line that is not JSON ({error})") from None
    if not isinstance(record, dict):
        raise DataError(f"{table} has a line that is no JSON object: {line[:50]!r}")
    return record


IMAGE_CAPTIONS = Importer(
    read,
    "any folder of images with captions",
    "that of its owner",
    "a folder with captions.csv or .jsonl (file, caption) or a .txt beside each image; perhaps train/ and test/",
    Settings,
    own=True,
)
