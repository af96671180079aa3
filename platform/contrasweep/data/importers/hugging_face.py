"""Image datasets of Hugging Face as Parquet: `data/train-00000-of-00001.parquet` with an image and a label column.

Any Parquet files with image bytes can be read. With a column of captions, the dataset is one of images and texts. Names
of files say which split they are.
"""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from contrasweep.data.columns import BYTES_TYPES, TEXT_TYPES
from contrasweep.data.content import Content, Importer, Rejected
from contrasweep.data.importers import encoded_images
from contrasweep.data.importers.encoded_images import Encoded, numbered
from contrasweep.data.importers.image_folder import files_by_split
from contrasweep.errors import DataError, choose_from
from contrasweep.schema import checked

BATCH = 64
"""Rows of a file that are in memory at once."""


@checked
class Settings(encoded_images.Settings):
    """Which columns to read."""

    image: str = ""
    """The column of images; empty: the only one that there is."""
    label: str = ""
    """The column of class numbers; empty: the only one with class names, else `label`; `none`: without labels."""
    caption: str = ""
    """The column of captions, a text or a list of texts for each image; empty: none. With captions, images have labels
    only where `label` is set."""
    split: Literal["", "none"] = ""
    """`none`: a column `split` does not name the split of each row."""


def read(source: Path, settings: Settings) -> Content:
    """Return the encoded images with their labels or captions, and the class names in the files' metadata.

    `source` is a folder of Parquet files by split. `DataError` where a column is missing, or several may be meant.
    """
    rejected = Rejected()
    files = files_by_split(source, ".parquet", rejected)
    schema = pq.read_schema(files["train"][0])
    # Rows for testing would be trained on.
    if not settings.split and "split" in schema.names:
        raise DataError(
            f"{source} has a column 'split': if it names the split of each row, write a file for each, such as "
            "train-0.parquet and test-0.parquet, without the column; --set split=none if the files' names do"
        )
    # Images with captions need no labels, so that labels are read only where the settings ask for them.
    caption = settings.caption
    # Columns of texts, and columns of lists of texts.
    texts = [f.name for f in schema if getattr(f.type, "value_type", f.type) in TEXT_TYPES]
    if caption and caption not in texts:
        raise DataError(f"{source}: {choose_from('columns of captions', texts, caption)}")
    label = _label(schema, settings.label or ("none" if caption else ""), source)
    image = _image(schema, settings.image, source)
    classes = _classes(files, image, label, caption)
    splits = {
        split: _members(parts, image, label, caption, len(classes))
        for split, parts in files.items()
    }
    kind = "image-text" if caption else "image"
    return encoded_images.content(splits, classes, settings, kind, rejected)


def _image(schema: pa.Schema, wanted: str, source: Path) -> str:
    """Return the name of the column of images: `wanted`, or if that is "" the only one.

    `DataError` where `wanted` is no column of images, or where none is wanted and there is not exactly one.
    """
    # The library `datasets` writes a struct with the bytes and the path of an image; other software writes the bytes.
    columns = [
        f.name
        for f in schema
        if f.type in BYTES_TYPES
        or (pa.types.is_struct(f.type) and f.type.get_field_index("bytes") >= 0)
    ]
    is_clear = wanted in columns if wanted else len(columns) == 1
    if not is_clear:
        hint = choose_from("columns of images", columns, wanted) if columns else "it has none"
        raise DataError(f"{source}: set the column of images, --set image=NAME; {hint}")
    return wanted or columns[0]


def _label(schema: pa.Schema, wanted: str, source: Path) -> str:
    """Return the name of the column of class numbers, which is `wanted`; "" if that is `none`.

    If `wanted` is "", it is the only column with class names, else `label`. `DataError` where `wanted` is no column of
    whole numbers, and where there is no such column.
    """
    if wanted == "none":
        return ""
    numbers = [f.name for f in schema if pa.types.is_integer(f.type)]
    if wanted:
        if wanted not in numbers:
            raise DataError(f"{source}: {choose_from('columns of class numbers', numbers, wanted)}")
        return wanted
    with_names = list(_names(schema))
    if len(with_names) == 1:
        return with_names[0]
    if "label" in numbers:
        return "label"
    raise DataError(
        f"{source}: set the column of class numbers, --set label=NAME (or none); "
        + choose_from("columns of whole numbers", numbers, "label")
    )


def _names(schema: pa.Schema) -> dict[str, list[str]]:
    """Return the names of classes that the library `datasets` has written to a file's schema: column -> names by label.

    It is {} where the schema has no such names.
    """
    try:
        written = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        names = {}
        for column, feature in written["info"]["features"].items():
            if isinstance(feature, dict) and feature.get("names"):
                names[column] = feature["names"]
        return names
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _classes(files: dict[str, list[Path]], image: str, label: str, caption: str) -> list[str]:
    """Return the names of the classes, by label; [] without a column of labels.

    Each file has the same names or none. Where no file has names, classes are named by their numbers. `DataError` where
    a file lacks one of the columns, has labels that are no whole numbers, or has other names than another file.
    """
    all_files = [file for parts in files.values() for file in parts]
    names = list[str]()
    first = Path()  # the first file with names
    for file in all_files:
        schema = pq.read_schema(file)
        for column in filter(None, (image, label, caption)):
            if column not in schema.names:
                raise DataError(
                    f"{file} has no column {column!r}, which other files of the dataset have"
                )
        if label and not pa.types.is_integer(schema.field(label).type):
            kind = schema.field(label).type
            raise DataError(f"{file} has {kind} in the column {label!r}, others whole numbers")
        file_names = _names(schema).get(label)
        if not file_names:
            continue
        if not names:
            names = file_names
            first = file
        if file_names != names:
            raise DataError(
                f"{file} has other class names than {first}, {file_names} and {names}; stage them apart"
            )
    if names or not label:
        return names
    # Without names, the largest label says how many classes there are.
    largest_label = -1
    rows = 0
    for file in all_files:
        labels = pq.read_table(file, columns=[label])[label]
        rows += len(labels)
        # A file with rows has at least class 0. Rows with a null or negative label are refused by `_members`, by name.
        if len(labels):
            largest_here = pc.max(labels).as_py()  # None where all are null
            largest_label = max(largest_label, largest_here or 0, 0)
    remedy = "--set label=NAME names another column, or none"
    return list(numbered(largest_label, rows, f"the column {label!r}", remedy))


def _members(
    files: list[Path], image: str, label: str, caption: str, classes: int
) -> Iterator[Encoded]:
    """Yield each row of the files as an encoded image with the name `<file>/<index of the row>`.

    `image`, `label` and `caption` are names of columns, the last two "" where there is none; `classes` is the number of
    classes. `DataError` where a row lacks its label or its captions, or its label is no class.
    """
    columns = list(filter(None, [image, label, caption]))
    for file in files:
        with pq.ParquetFile(file, pre_buffer=False) as opened:
            batches = opened.iter_batches(BATCH, columns=columns)
            rows = itertools.chain.from_iterable(batch.to_pylist() for batch in batches)
            for index, row in enumerate(rows):
                name = f"{file.name}/{index}"
                number: Any = row.get(label)
                if label and (number is None or number < 0):
                    raise DataError(
                        f"{name} has no label ({label!r} is {number}); --set label=none leaves them out"
                    )
                if label and number >= classes:
                    raise DataError(
                        f"{name} has label {number}; there are {classes} class names, from 0"
                    )
                text = row.get(caption)
                texts = [text] if isinstance(text, str) else text or []
                captions = tuple(filter(None, texts))
                if caption and not captions:
                    raise DataError(f"{name} has no caption ({caption!r} is {text!r})")
                # A struct that has only a path has no bytes: such an image is counted as broken.
                value = row[image]
                data = value.get("bytes") if isinstance(value, dict) else value
                yield Encoded(bytes(data or b""), name, number, captions)


HUGGING_FACE = Importer(
    read,
    "any image dataset of Hugging Face, downloaded as Parquet, with classes or captions",
    "that of its owner",
    "a folder with train-*.parquet and test-*.parquet (or validation-*), as in the dataset's data/ folder",
    Settings,
    own=True,
)
