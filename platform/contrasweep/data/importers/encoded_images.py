"""Image files kept as they were published: the bytes of each PNG or JPEG, checked by decoding it once."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import cast

import pyarrow as pa

from contrasweep.data import columns, images
from contrasweep.data.content import Rejected
from contrasweep.data.manifest import ColumnSpec
from contrasweep.errors import DataError

BATCH = 256
CHANNELS = 3


@dataclass(frozen=True)
class File:
    """An image file: where it is, what it is called in the dataset, its class (None: it has none)."""

    path: Path
    name: str
    label: int | None

    @property
    def where(self) -> str:
        """What messages call it."""
        return str(self.path)

    def read(self) -> bytes:
        """Its bytes; `OSError` where they cannot be read."""
        return self.path.read_bytes()


@dataclass(frozen=True)
class Member:
    """An image that was read out of a larger file: its bytes, what it is called in the dataset, its class."""

    data: bytes
    name: str
    label: int | None

    @property
    def where(self) -> str:
        """What messages call it."""
        return self.name

    def read(self) -> bytes:
        """Its bytes."""
        return self.data


def spec(size: int | None) -> dict[str, ColumnSpec]:
    """The column's spec; without a `size` the first image's, which `tables` then fills in."""
    shape = {} if size is None else {"shape": [size, size, CHANNELS]}
    return {"image": cast(ColumnSpec, {"dtype": "uint8", "encoding": "image", **shape})}


Encoded = File | Member


def tables(
    files: Iterable[Encoded], specs: dict[str, ColumnSpec], size: int | None, rejected: Rejected
) -> Iterator[pa.Table]:
    """Columns `image` (encoded), `label` (where files have one), `path`. Missing, broken and oversized files are left
    out and counted by name. `DataError` if images differ in size and no `size` to bring them to was set."""
    waiting = iter(files)
    with ThreadPoolExecutor() as pool:
        while batch := list(islice(waiting, BATCH)):
            kept = []
            for file, (data, shape, problem) in zip(batch, pool.map(_load, batch), strict=True):
                if problem:
                    rejected.add(problem, file.name)
                    continue
                _check_size(file, list(shape), specs["image"], size)
                kept.append((data, file))
            if kept:
                yield _table(kept, specs)


def _table(kept: list[tuple[bytes, Encoded]], specs: dict[str, ColumnSpec]) -> pa.Table:
    labels = [file.label for _, file in kept]
    return columns.table(
        {
            "image": pa.array([data for data, _ in kept], pa.binary()),
            **({} if None in labels else {"label": pa.array(labels, pa.int32())}),
            "path": pa.array([file.name for _, file in kept], pa.string()),
        },
        specs,
    )


def _check_size(file: Encoded, shape: list[int], spec: ColumnSpec, size: int | None) -> None:
    if size is None and spec.setdefault("shape", shape) != shape:
        raise DataError(
            f"{file.where} is {shape[0]} x {shape[1]}, those before it {spec['shape'][0]} x {spec['shape'][1]}: "
            "set the size to bring all of them to, for example --set size=224"
        )


def _load(file: Encoded) -> tuple[bytes, tuple[int, ...], str]:
    try:
        data = file.read()
    except OSError:
        return b"", (), "missing image"
    try:
        pixels = images.decode(data)
    except images.BrokenImage as error:
        return b"", (), error.reason
    return data, (*pixels.shape[:2], CHANNELS), ""
