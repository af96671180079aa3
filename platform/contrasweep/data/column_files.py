"""Columns of a split as files of the node's cache, which are read and written a few rows at a time.

Pages that a process maps count as its memory for as long as it looks at them; rows that it reads do not. The kernel's
page cache holds what is read often once for all processes of a node. Images of datasets that are too large to keep
decoded stay encoded (their PNG or JPEG bytes, one after the other) and are decoded as they are read, by threads.
"""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from contrasweep.data import images
from contrasweep.data.manifest import ANY_SIDE, ColumnSpec
from contrasweep.errors import DataError

Ints = NDArray[np.int64]


class ColumnFile(ABC):
    """A column of a split, of n rows, in open files.

    It stays readable after the files are removed, until it is collected. `shape` is [n, *that of a row].
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def read(self, rows: Ints, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the rows of these indices, [len(rows) ...], in this order; safe in several threads at once.

        They are written to `out`, an array of this shape and of the column's dtype, where it is given.
        """

    def item(self, row: int) -> NDArray[Any]:
        """Return one row, in its own size where rows differ in it."""
        item: NDArray[Any] = self.read(np.array([row]))[0]
        return item

    def blocks(self, rows: Ints, most: int = 2**23) -> Iterator[Ints]:
        """Yield `rows` in stretches whose decoded rows have at most `most` bytes, each of one row at least."""
        step = max(1, most // max(1, self.dtype.itemsize * math.prod(self.shape[1:])))
        for start in range(0, len(rows), step):
            yield rows[start : start + step]


class ArrayFile(ColumnFile):
    """An array of n rows in a .npy file; `ValueError` where the file has none, or not row after row."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        # NumPy has a reader for each version of the header; in Fortran's order, columns would come first.
        version = np.lib.format.read_magic(self._file)  # type: ignore[no-untyped-call]
        read_header = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        self.shape, fortran, self.dtype = read_header(self._file)  # type: ignore[no-untyped-call]
        if fortran or self.dtype.hasobject:
            raise ValueError(f"{path} is no plain array in row order")
        self._start = self._file.tell()
        self._row_bytes = self.dtype.itemsize * math.prod(self.shape[1:])

    def read(self, rows: Ints, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return these rows in this order, in `out` where it is given; safe in several threads at once.

        `EOFError` where the file ends before one of them.
        """
        out = np.empty((len(rows), *self.shape[1:]), self.dtype) if out is None else out
        # Rows that follow each other in the file are read at once, straight into the bytes of `out`.
        flat = memoryview(out.reshape(-1).view(np.uint8).data)
        for first, last in _runs(rows):
            place = first * self._row_bytes
            size = (last - first) * self._row_bytes
            self._fill(flat[place : place + size], self._start + int(rows[first]) * self._row_bytes)
        return out

    def _fill(self, buffer: memoryview, offset: int) -> None:
        """Fill the buffer with the file's bytes from `offset` on; the kernel may give fewer at a time than asked."""
        done = 0
        while done < len(buffer):
            count = os.preadv(self._file.fileno(), [buffer[done:]], offset + done)
            if not count:
                raise EOFError(f"{self._file.name} ends before its last row")
            done += count


class ArrayWriter:
    """Writes a .npy file of a known shape [n ...] from its first row to its last; nothing checks that all come."""

    def __init__(self, path: Path, dtype: Any, shape: Sequence[int]) -> None:
        self.file = path.open("wb")
        description = np.lib.format.dtype_to_descr(np.dtype(dtype))  # type: ignore[no-untyped-call]
        header = {"descr": description, "fortran_order": False, "shape": tuple(shape)}
        np.lib.format.write_array_header_1_0(self.file, header)  # type: ignore[no-untyped-call]

    def write(self, rows: NDArray[Any]) -> None:
        """Write the next rows."""
        self.file.write(np.ascontiguousarray(rows).data)

    def close(self) -> None:
        """Finish the file; all rows must have been written."""
        self.file.close()


def _runs(rows: Ints) -> list[tuple[int, int]]:
    """Return places [first, last) in `rows` at which the numbers follow each other, so that each is one read.

    [4, 5, 6, 9] gives (0, 3) and (3, 4).
    """
    if not len(rows):
        return []
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    return list(pairwise([0, *breaks.tolist(), len(rows)]))


REMEDY = "train on views of them (view_size: 224), or stage them with --set size=224"
"""What to do with images of different sizes."""
BYTES = ".encoded"
"""The ending of the file with all images, one after the other."""
OFFSETS = ".offsets"
"""The ending of the file with the place at which each image ends, as int64."""


class EncodedFile(ColumnFile):
    """The images of a split, encoded. As they are read, they are decoded and scaled to the staged shape.

    Images of different sizes are read by `item` alone.
    """

    dtype = np.dtype(np.uint8)

    def __init__(self, folder: Path, name: str, spec: ColumnSpec) -> None:
        self._file = (folder / f"{name}{BYTES}").open("rb")
        self._name = f"{folder / name}{BYTES}"
        self._ends = np.fromfile(folder / f"{name}{OFFSETS}", np.int64)
        self.shape = (len(self._ends), *spec["shape"])

    def read(self, rows: Ints, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return these rows in this order, [n h w c] uint8, in `out` where it is given.

        `DataError` names an image that cannot be decoded, and says so of images that differ in size.
        """
        if self.shape[1] == ANY_SIDE:
            raise DataError(
                f"{self._name}: these images differ in size, so they are no array: {REMEDY}"
            )
        pixels = np.empty((len(rows), *self.shape[1:]), np.uint8) if out is None else out

        def decode(place: int) -> None:
            pixels[place] = self.item(int(rows[place]))

        # Pillow decodes without the interpreter's lock, so threads help. `list` waits for them and raises their errors.
        list(self._workers.map(decode, range(len(rows))))
        return pixels

    def item(self, row: int) -> NDArray[np.uint8]:
        """Return one image [h w c]; `DataError` where it cannot be decoded."""
        try:
            # An image begins where the one before it ends.
            start = int(self._ends[row - 1]) if row else 0
            encoded = os.pread(self._file.fileno(), int(self._ends[row]) - start, start)
            return images.decode(encoded, self.shape[1:])
        except images.BrokenImage as error:
            raise DataError(f"{self._name}: image {row} {error}; stage the dataset again") from None

    @cached_property
    def _workers(self) -> ThreadPoolExecutor:
        """One thread for each processor that this process may use, started with the first read."""
        return ThreadPoolExecutor(len(os.sched_getaffinity(0)), "decode")


class EncodedWriter:
    """Writes what `EncodedFile` reads, from the first row to the last, beside `path` with other endings."""

    def __init__(self, path: Path) -> None:
        self.seen = 0
        self._end = 0
        self._path = path
        self._ends = list[int]()
        self._out = path.with_suffix(BYTES).open("wb")

    def add(self, column: pa.Array, where: str) -> None:
        """Write the next rows as bytes of encoded images; an image without bytes is broken when it is read.

        `where` is not used: other writers of columns name it in errors.
        """
        for value in column:
            self._end += self._out.write(value.as_buffer() or b"")
            self._ends.append(self._end)
        self.seen += len(column)

    def close(self) -> None:
        """Finish the file; all rows must have been written."""
        self._out.close()
        np.array(self._ends, np.int64).tofile(self._path.with_suffix(OFFSETS))
