"""Image files kept as they were published: the bytes of each PNG or JPEG, checked by decoding it once."""

import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, cast

import pyarrow as pa
import pydantic

from contrasweep.data import columns, images
from contrasweep.data.content import Content, Rejected
from contrasweep.data.manifest import ANY_SIDE, ColumnSpec
from contrasweep.errors import DataError

BATCH = 256
CHANNELS = 3
SPLITS = {"train": "train", "test": "test", "val": "test", "valid": "test", "validation": "test"}
Side = Annotated[int, pydantic.Field(ge=1)]
"""In pixels."""


@dataclass(frozen=True)
class Encoded:
    """An encoded image: its bytes or its file, its name in the dataset, and its class (None: it has none).

    `captions` are texts that describe it; of a dataset, either all images have some or none has.
    """

    data: bytes | Path
    name: str
    label: int | None
    captions: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """The name of the image in messages."""
        return self.name if isinstance(self.data, bytes) else str(self.data)


def spec(size: int | None) -> dict[str, ColumnSpec]:
    """Return the column's spec; without a `size` that of the images, which `content` then fills in."""
    shape = {} if size is None else {"shape": [size, size, CHANNELS]}
    return {"image": cast(ColumnSpec, {"dtype": "uint8", "encoding": "image", **shape})}


def content(
    splits: Mapping[str, Iterable[Encoded]],
    classes: Iterable[str],
    size: int | None,
    longest_side: int | None = None,
    kind: str = "image",
) -> Content:
    """Return the columns `image` (encoded), `label` (where images have one), `path`, and `captions` of `image-text`.

    Missing, broken and oversized files are left out and counted by name. Without a `size`, images keep their bytes and
    their own sizes, but that those with a longer side than `longest_side` are scaled down to it.
    """
    specs, rejected = spec(size), Rejected()
    tables = {split: _tables(files, specs, size, longest_side, rejected) for split, files in splits.items()}
    return Content(kind, tables, tuple(classes), specs, rejected=rejected)


def _tables(
    files: Iterable[Encoded], specs: dict[str, ColumnSpec], size: int | None, longest: int | None, rejected: Rejected
) -> Iterator[pa.Table]:
    waiting, load = iter(files), partial(_load, longest=longest)
    with ThreadPoolExecutor() as pool:
        while batch := list(islice(waiting, BATCH)):
            kept = []
            for file, (data, shape, problem) in zip(batch, pool.map(load, batch), strict=True):
                if problem:
                    rejected.add(problem, file.name)
                    continue
                if size is None and specs["image"].setdefault("shape", shape) != shape:
                    specs["image"]["shape"] = [ANY_SIDE, ANY_SIDE, CHANNELS]
                kept.append((data, file))
            if kept:
                labels, captions = [file.label for _, file in kept], [file.captions for _, file in kept]
                yield columns.table(
                    {
                        "image": pa.array([data for data, _ in kept], pa.binary()),
                        **({} if None in labels else {"label": pa.array(labels, pa.int32())}),
                        "path": pa.array([file.name for _, file in kept], pa.string()),
                        **({"captions": pa.array(captions, pa.list_(pa.string()))} if all(captions) else {}),
                    },
                    specs,
                )


def _load(file: Encoded, longest: int | None) -> tuple[bytes, list[int], str]:
    """Return the bytes and the shape of the image, or why it is left out."""
    try:
        data = file.data if isinstance(file.data, bytes) else file.data.read_bytes()
        pixels = images.decode(data)
        if longest is not None and max(pixels.shape[:2]) > longest:
            data, pixels = images.scaled_down(pixels, longest, data)
        return data, [*pixels.shape[:2], CHANNELS], ""
    except OSError:
        return b"", [], "missing image"
    except images.BrokenImage as error:
        return b"", [], error.reason


def files_by_split(source: Path, suffix: str) -> dict[str, list[Path]]:
    """Return the files of each split below `source` in the order of their names.

    `train-0.tar`, `data/train-0.tar` and `train/0.tar` are training files; where no name says so, all are. A validation
    split is the test split unless there is one of that name. `DataError` where there is no file, or none for training.
    """
    files = [source] if source.is_file() else sorted(source.rglob(f"*{suffix}"))
    if not files:
        raise DataError(f"{source} has no {suffix} files")
    named: dict[str, list[Path]] = {}
    for file in files:
        words = re.split(r"[^a-z]+", file.relative_to(source.parent if source.is_file() else source).as_posix().lower())
        named.setdefault(next((word for word in words if word in SPLITS), ""), []).append(file)
    if set(named) == {""}:
        return {"train": files}
    if "train" not in named:
        raise DataError(f"{source} has {suffix} files of {', '.join(sorted(filter(None, named)))} and none of train")
    test = next((named[name] for name in list(SPLITS)[1:] if name in named), None)
    return {"train": named["train"], **({} if test is None else {"test": test})}
