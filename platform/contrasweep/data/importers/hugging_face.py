"""Image datasets of Hugging Face as Parquet: `data/train-00000-of-00001.parquet` with an image and a label column.

Any Parquet with image bytes will do; with a column of captions the dataset is of images and texts.
"""

import json
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from contrasweep.data.content import Content, Importer
from contrasweep.data.importers import encoded_images
from contrasweep.data.importers.encoded_images import Encoded, files_by_split, numbered
from contrasweep.errors import DataError, choose_from
from contrasweep.schema import checked

BATCH = 64
"""Rows of a file that are held at once."""


@checked
class Settings(encoded_images.Settings):
    """Which columns to read."""

    image: str = ""
    """The column of images; empty: the only one."""
    label: str = ""
    """The column of class numbers; empty: the only one with class names, else `label`; `none`: without labels."""
    caption: str = ""
    """The column of captions, a text or a list of texts an image; empty: none. With captions, labels must be named."""


def read(source: Path, settings: Settings) -> Content:
    """Return the images, still encoded, with labels or captions, and the class names that the files' metadata hold.

    `source` is a folder of Parquet files by split. `DataError` where a column is not there, or several may be meant.
    """
    files = files_by_split(source, ".parquet")
    schema = pq.read_schema(files["train"][0])
    # With captions the dataset is of images and texts, which need no labels, so these must be asked for.
    caption = _caption(schema, settings.caption, source)
    label = _label(schema, settings.label or ("none" if caption else ""), source)
    image = _image(schema, settings.image, source)
    classes = _classes(files, image, label, caption)
    splits = {
        split: _members(parts, image, label, caption, len(classes))
        for split, parts in files.items()
    }
    kind = "image-text" if caption else "image"
    return encoded_images.content(splits, classes, settings, kind)


def _image(schema: pa.Schema, wanted: str, source: Path) -> str:
    """Return the name of the column of images, `wanted`, or where that is "" the only one.

    `DataError` where `wanted` is no such column, and where there is none or several could be meant.
    """
    # `datasets` writes a struct with the bytes and the path of an image; others write the bytes alone.
    columns = [
        f.name
        for f in schema
        if pa.types.is_struct(f.type) and f.type.get_field_index("bytes") >= 0
    ] + [f.name for f in schema if pa.types.is_binary(f.type)]
    if (wanted and wanted not in columns) or (not wanted and len(columns) != 1):
        hint = choose_from("columns of images", columns, wanted) if columns else "it has none"
        raise DataError(f"{source}: set the column of images, --set image=NAME; {hint}")
    return wanted or columns[0]


def _caption(schema: pa.Schema, wanted: str, source: Path) -> str:
    """Return `wanted`, the name of the column of captions ("": none), if it holds texts or lists of texts.

    `DataError` where it does not.
    """
    texts = [
        f.name
        for f in schema
        if pa.types.is_string(f.type)
        or (pa.types.is_list(f.type) and pa.types.is_string(f.type.value_type))
    ]
    if wanted and wanted not in texts:
        raise DataError(f"{source}: {choose_from('columns of captions', texts, wanted)}")
    return wanted


def _label(schema: pa.Schema, wanted: str, source: Path) -> str:
    """Return the name of the column of class numbers, `wanted` if it is given; "" where that is `none`.

    By default it is the only one with class names, else `label`. `DataError` where neither is there, or `wanted` holds
    no whole numbers.
    """
    if wanted == "none":
        return ""
    labels = list(_names(schema))
    numbers = [f.name for f in schema if pa.types.is_integer(f.type)]
    label = wanted or (labels[0] if len(labels) == 1 else "label" if "label" in numbers else "")
    if wanted and wanted not in numbers:
        raise DataError(f"{source}: {choose_from('columns of class numbers', numbers, wanted)}")
    if not label:
        raise DataError(
            f"{source}: set the column of class numbers, --set label=NAME (or none); it has {numbers}"
        )
    return label


def _names(schema: pa.Schema) -> dict[str, list[str]]:
    """Return column -> names of its classes, as `datasets` writes them into the schema; {} where it did not."""
    try:
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"][
            "features"
        ]
        return {
            name: f["names"]
            for name, f in features.items()
            if isinstance(f, dict) and f.get("names")
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _classes(files: dict[str, list[Path]], image: str, label: str, caption: str) -> list[str]:
    """Return the names of the classes, by label: the same in each file that has some, numbers where none has.

    [] without a column of labels. `DataError` where a file lacks one of the columns, or has other names.
    """
    every = [file for parts in files.values() for file in parts]
    names = list[str]()
    first = Path()
    for file in every:
        schema = pq.read_schema(file)
        if lacks := [
            column for column in (image, label, caption) if column and column not in schema.names
        ]:
            raise DataError(
                f"{file} has no column {lacks[0]!r}, which other files of the dataset have"
            )
        class_names = _names(schema).get(label)
        if class_names and names and class_names != names:
            i, a, b = next(
                (i, a, b) for i, (a, b) in enumerate(zip_longest(class_names, names)) if a != b
            )
            raise DataError(
                f"{file} has other class names than {first}: class {i} is {a!r} and {b!r}; stage them apart"
            )
        if class_names and not names:
            names = class_names
            first = file
    # Without names the classes are numbers, as many as the largest label says.
    if names or not label:
        return names
    most = -1
    rows = 0
    for file in every:
        column = pq.read_table(file, columns=[label])[label]
        # A file of nulls has no largest label; a file with rows has at least class 0.
        most = max(most, pc.max(column).as_py() or -1, 0 if len(column) else -1)
        rows = rows + len(column)
    return list(
        numbered(
            most, rows, f"the column {label!r}", "--set label=NAME names another column, or none"
        )
    )


def _members(
    files: list[Path], image: str, label: str, caption: str, classes: int
) -> Iterator[Encoded]:
    """Yield each row of the files as an encoded image, called `<file>/<number of the row>`.

    `image`, `label` and `caption` are names of columns, the last two "" where there is none; `classes` is the number of
    classes. `DataError` where a row lacks its label or its captions, or its label is no class.
    """
    for file in files:
        with pq.ParquetFile(file, pre_buffer=False) as opened:
            row = 0
            for batch in opened.iter_batches(
                BATCH, columns=[image, *filter(None, [label, caption])]
            ):
                # A column that is not asked for has None in each row.
                nothing = [None] * len(batch)
                labels, texts = (
                    batch.column(name).to_pylist() if name else nothing for name in (label, caption)
                )
                for value, number, text in zip(
                    batch.column(image).to_pylist(), labels, texts, strict=True
                ):
                    name = f"{file.name}/{row}"
                    if label and (number is None or number < 0):
                        raise DataError(
                            f"{name} has no label ({label!r} is {number}); --set label=none leaves them out"
                        )
                    if label and number >= classes:
                        raise DataError(
                            f"{name} has label {number}; there are {classes} class names, from 0"
                        )
                    captions = tuple(filter(None, [text] if isinstance(text, str) else text or []))
                    if caption and not captions:
                        raise DataError(f"{name} has no caption ({caption!r} is {text!r})")
                    # A cell that only names a path has no bytes: such an image is counted as broken.
                    cell = value.get("bytes") if isinstance(value, dict) else value
                    yield Encoded(bytes(cell or b""), name, number, captions)
                    row += 1


HUGGING_FACE = Importer(
    read,
    "any image dataset of Hugging Face, downloaded as Parquet, with classes or captions",
    "that of its owner",
    "a folder with train-*.parquet and test-*.parquet (or validation-*), as in the dataset's data/ folder",
    Settings,
    own=True,
)
