"""A folder of images with captions: in a table `captions.csv` or `captions.jsonl`, or in a `.txt` beside each image.

Folders `train` and `test` (or `val`) are splits with a table each; otherwise all images are for training. A table has
the column `file` (or `file_name`, `image`, `filepath`), which is the image's path below the table's folder, and the
column `caption`. An image with several rows in the table, or several lines in its `.txt`, has several captions.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from contrasweep.data.content import Content, Importer, Rejected
from contrasweep.data.csv_text import read_csv, warn_of_unused
from contrasweep.data.importers import encoded_images
from contrasweep.data.importers.encoded_images import Encoded, Settings
from contrasweep.data.importers.image_folder import files_below, split_folders
from contrasweep.data.safety import check_member
from contrasweep.errors import DataError

TABLE_NAMES = ("captions.csv", "captions.jsonl", "metadata.csv", "metadata.jsonl")
"""Names of tables; the last two are those of Hugging Face's image folders."""
FILE_COLUMNS = ("file", "file_name", "image", "filepath")
"""Columns that may have an image's path; the first one with a value is taken."""
CAPTION_COLUMNS = ("caption", "captions", "text")
"""Columns that may have captions; the first one with a value is taken."""
Cells = Mapping[str, Any]
"""Column -> value of a row; of a CSV each value is a text."""


def read(source: Path, settings: Settings) -> Content:
    """Return the encoded images that have captions; `DataError` if a split of `source` has none.

    Images without captions are left out and counted.
    """
    if not source.is_dir():
        raise DataError(f"{source} is not a folder of images and captions")
    splits = {}
    rejected = Rejected()
    for split, folder in split_folders(source).items():
        captions = _captions(folder, rejected)
        if not captions:
            raise DataError(
                f"{source} has no captions of {split}: neither {', '.join(TABLE_NAMES)} nor a .txt beside an image"
            )
        splits[split] = [
            Encoded(file, file.relative_to(folder).as_posix(), None, tuple(texts))
            for file, texts in captions.items()
        ]
    return encoded_images.content(splits, (), settings, "image-text", rejected)


def _captions(folder: Path, rejected: Rejected) -> dict[Path, list[str]]:
    """Return image file -> its captions, for each image below `folder` that has captions in a table or text file.

    The files are in the order of the table, or sorted by name; images without captions are counted in `rejected`.
    `DataError` where all captions of an image are empty, or the table names a file outside `folder`.
    """
    table = next((folder / name for name in TABLE_NAMES if (folder / name).is_file()), None)
    captions: dict[Path, list[str]] = {}
    for line, name, texts in _rows(table) if table else ():
        file = folder / check_member(name, f"{table}, line {line}")
        captions.setdefault(file, []).extend(texts)
    for file in files_below(folder, folder, rejected):
        text_file = file.with_suffix(".txt")
        if table is None and text_file.is_file():
            captions[file] = text_file.read_text("utf-8-sig").split("\n")
        elif file not in captions:
            rejected.add("without caption", file.relative_to(folder))
    for file, texts in captions.items():
        captions[file] = [text.strip() for text in texts if text.strip()]
        if not captions[file]:
            raise DataError(f"{table or folder}: {file.name} has an empty caption")
    return captions


def _rows(table: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Yield (number of the line, path of the image, captions) of each row of a .csv or .jsonl table.

    `DataError` where a row has no path or no caption.
    """
    text = table.read_text("utf-8-sig")
    rows: Iterable[tuple[int, Cells]]
    if table.suffix == ".csv":
        _, rows = read_csv(text, table)
    else:
        lines = enumerate(text.split("\n"), start=1)
        rows = ((number, _record(line, table)) for number, line in lines if line.strip())
    names: set[str] = set()
    for number, row in rows:
        names |= row.keys()
        name = next((row[key] for key in FILE_COLUMNS if row.get(key)), None)
        texts = next((row[key] for key in CAPTION_COLUMNS if row.get(key)), None)
        # JSON may have a list of captions.
        if isinstance(texts, str):
            texts = [texts]
        if (
            not isinstance(name, str)
            or not isinstance(texts, list)
            or not all(isinstance(text, str) for text in texts)
        ):
            raise DataError(
                f"{table}, line {number}: needs {FILE_COLUMNS[0]!r} and {CAPTION_COLUMNS[0]!r}; it has {', '.join(row)}"
            )
        yield number, name, texts
    warn_of_unused(names, FILE_COLUMNS + CAPTION_COLUMNS, table)


def _record(line: str, table: Path) -> dict[str, object]:
    """Return the JSON object in a line of the file `table`; `DataError` where there is none."""
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
