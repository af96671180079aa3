"""The two parts of a trial's dataset as files that any program reads.

Each part has `train.image.npy`, `train.label.npy` and `train.columns.parquet`, or the same for `test`. Images are also
given as pictures in folders of classes, `train/CLASS/0.png`.
"""

import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from contrasweep import canonical
from contrasweep.data import cache
from contrasweep.data.manifest import Manifest
from contrasweep.data.reading import open_dataset
from contrasweep.errors import SpecError

Writer = Callable[[Manifest, int | None, Path], None]
"""Writes both parts of a dataset, with a fold held out as the test part (None: the test split), into a folder."""


def export(manifest: Manifest, fold: int | None, folder: Path) -> Path:
    """Write the training and the test part of a dataset into `folder` as files, and return `folder`.

    There is a file for each column that is an array, one for the labels, and one with all other columns. The files are
    written once for each node and fold, into the node's cache; those in `folder` are hard links to them. `fold` is the
    fold that is the test part; None: the test part is the dataset's own test split.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _written("files", _write, manifest, fold) as entry:
        for file in entry.iterdir():
            if file.suffix in (".npy", ".parquet"):
                _link(file, folder / file.name)
    return folder


def export_images(manifest: Manifest, fold: int | None, folder: Path) -> Path:
    """Write the images of both parts into folders of their classes, `test/CLASS/12.png`, and return `folder`.

    The number in the name is the image's row in its split. The files are hard links to the node's cache, as in
    `export`. `SpecError` where the dataset has no labelled images.
    """
    if "image" not in manifest.columns or not manifest.classes:
        hint = "{data} gives its columns as files"
        raise SpecError(
            "{data:images} is for labelled images", place="command", value=manifest.name, hint=hint
        )
    # A class is a folder, also one without images in a part.
    names = [name.replace("/", "_") for name in manifest.classes]
    for part in ("train", "test"):
        for name in names:
            (folder / part / name).mkdir(parents=True)
    with _written("pictures", _write_images, manifest, fold) as entry:
        for file in entry.glob("*.png"):
            # As `_write_images` names them: test.3.12.png
            part, label, row, _ = file.name.split(".")
            _link(file, folder / part / names[int(label)] / f"{row}.png")
    return folder


def _written(
    form: str, write: Writer, manifest: Manifest, fold: int | None
) -> AbstractContextManager[Path]:
    """Return a context manager that gives the folder of the node's cache with both parts of a dataset.

    Where the cache lacks the folder, `write` fills it as the context is entered. `form` names the kind of files that
    `write` writes (`files` or `pictures`), and is a part of the folder's key.
    """
    key = canonical.digest({"form": form, "data": manifest.digest, "fold": fold}, 32)
    held_out = "" if fold is None else f"fold {fold}, "
    return cache.entry(
        key, f"{manifest.name} ({held_out}as {form})", lambda place: write(manifest, fold, place)
    )


def _write_images(manifest: Manifest, fold: int | None, folder: Path) -> None:
    """Write each image of both parts into one folder, as a PNG named by its part, label and row: `train.3.12.png`."""
    from contrasweep.data.images import picture

    for name, part in zip(("train", "test"), open_dataset(manifest).parts(fold), strict=True):
        file = part.file("image")
        labels = part.labels
        for i, row in enumerate(part.rows):
            image = picture(file.item(int(row)))
            image.save(folder / f"{name}.{labels[i]}.{row}.png", compress_level=1)


def _write(manifest: Manifest, fold: int | None, folder: Path) -> None:
    """Write the training and the test part of a dataset as files into `folder`; the fold `fold` is the test part.

    Array columns and labels are written as .npy, and all other columns as Parquet. None for `fold`: the test part is
    the test split. A column of lists, whose rows differ in length, is no array and is left out.
    """
    for name, part in zip(("train", "test"), open_dataset(manifest).parts(fold), strict=True):
        for column, spec in manifest.columns.items():
            if not spec.get("list"):
                np.save(folder / f"{name}.{column}.npy", part.array(column), allow_pickle=False)
        if "label" in part.split.names:
            np.save(folder / f"{name}.label.npy", part.labels, allow_pickle=False)
        others = {
            other: part.column(other) for other in part.split.names if other not in manifest.columns
        }
        pq.write_table(pa.table(others), folder / f"{name}.columns.parquet")


def _link(file: Path, to: Path) -> None:
    """Make the path `to` a hard link to a file of the cache, or a copy where the file system knows no such links."""
    try:  # a second name keeps the content when the cache drops its own
        os.link(file, to)
    except OSError:
        shutil.copyfile(file, to)
