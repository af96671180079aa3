"""Images that stay encoded in the node's cache (their PNG or JPEG bytes, one after the other) and are decoded as they
are read, by threads: for datasets that are too large to keep decoded."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from contrasweep.data import images
from contrasweep.data.manifest import ColumnSpec
from contrasweep.errors import DataError

BYTES, OFFSETS = ".encoded", ".offsets"
Ints = NDArray[np.int64]


class EncodedFile:
    """The images of a split, read like an `ArrayFile`: decoded, and scaled to the shape that they are staged with. Open
    until it is collected: files that are removed stay readable."""

    dtype = np.dtype(np.uint8)

    def __init__(self, folder: Path, name: str, spec: ColumnSpec) -> None:
        self._file, self._name = (folder / f"{name}{BYTES}").open("rb"), f"{folder / name}{BYTES}"
        self._ends = np.fromfile(folder / f"{name}{OFFSETS}", np.int64)
        self.shape = (len(self._ends), *spec["shape"])

    def __len__(self) -> int:
        return len(self._ends)

    def read(self, rows: Ints, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """These rows in this order, [n h w c] uint8, into `out` where it is given; safe in several threads at once.
        `DataError` names an image that cannot be decoded."""
        pixels = np.empty((len(rows), *self.shape[1:]), np.uint8) if out is None else out

        def decode(place: int) -> None:
            row = int(rows[place])
            try:
                pixels[place] = images.decode(self._encoded(row), self.shape[1:])
            except images.BrokenImage as error:
                raise DataError(f"{self._name}: image {row} {error}; stage the dataset again") from None

        list(self._workers.map(decode, range(len(rows))))  # Pillow decodes without the interpreter's lock
        return pixels

    def blocks(self, rows: Ints, most: int = 2**23) -> Iterator[Ints]:
        """`rows` in stretches of at most so many bytes of decoded images."""
        step = max(1, most // max(1, int(np.prod(self.shape[1:], dtype=np.int64))))
        for start in range(0, len(rows), step):
            yield rows[start : start + step]

    @cached_property
    def _workers(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(len(os.sched_getaffinity(0)), "decode")

    def _encoded(self, row: int) -> bytes:
        start = int(self._ends[row - 1]) if row else 0
        return os.pread(self._file.fileno(), int(self._ends[row]) - start, start)


class EncodedWriter:
    """Writes what `EncodedFile` reads, from the first row to the last."""

    def __init__(self, path: Path) -> None:
        self.seen, self._end = 0, 0
        self._path, self._ends = path, list[int]()
        self._out = path.with_suffix(BYTES).open("wb")

    def add(self, column: pa.Array, where: str) -> None:
        """The next rows, as bytes of encoded images; a missing one has none, and is broken when it is read."""
        for value in column:
            self._end += self._out.write(value.as_buffer() or b"")
            self._ends.append(self._end)
        self.seen += len(column)

    def close(self) -> None:
        """All rows were written."""
        self._out.close()
        np.array(self._ends, np.int64).tofile(self._path.with_suffix(OFFSETS))
