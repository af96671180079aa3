"""Columns of a split as files of the node's cache, which are read and written a few rows at a time.

Pages that a process maps count as its memory while it uses them; rows that it reads do not. What is read often is in
the kernel's page cache, once for all processes of a node. The images of a dataset that is too large to keep decoded
stay encoded, as their PNG or JPEG bytes one after the other. They are decoded by threads as they are read.
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

Array = NDArray[Any]
Ints = NDArray[np.int64]
BLOCK_BYTES = 2**23
"""The most bytes of a block of rows, decoded."""


class ColumnFile(ABC):
    """A column of a split that is read from open files. It stays readable when the files are deleted meanwhile."""

    shape: tuple[int, ...]  # [n, *shape of a row]
    dtype: np.dtype[Any]

    @abstractmethod
    def read(self, rows: Ints, out: Array | None = None) -> Array:
        """Return the rows with these indices, [len(rows) ...], in this order; threads may call it at the same time.

        If `out` is given, an array of this shape and of the column's dtype, the rows are written to it.
        """

    def item(self, row: int) -> Array:
        """Return one row. An image in a column of images of different sizes is returned in its own size [h w c]."""
        item: Array = self.read(np.array([row]))[0]
        return item

    def blocks(self, rows: Ints) -> Iterator[Ints]:
        """Yield the indices `rows` cut into blocks, so that the rows of a block take at most `BLOCK_BYTES`.

        A row that is larger by itself is a block of its own.
        """
        row_bytes = self.dtype.itemsize * math.prod(self.shape[1:])
        step = max(1, BLOCK_BYTES // max(1, row_bytes))
        for start in range(0, len(rows), step):
            yield rows[start : start + step]


class ArrayFile(ColumnFile):
    """An array of n rows in a .npy file that `ArrayWriter` has written."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        # The header follows some bytes that mark an .npy file. Its second part is the order of the axes, which is
        # always the same here.
        np.lib.format.read_magic(self._file)  # type: ignore[no-untyped-call]
        header = np.lib.format.read_array_header_1_0(self._file)  # type: ignore[no-untyped-call]
        self.shape, _, self.dtype = header
        self._start = self._file.tell()
        self._row_bytes = self.dtype.itemsize * math.prod(self.shape[1:])

    def read(self, rows: Ints, out: Array | None = None) -> Array:
        """Return the rows with these indices, [len(rows) ...], in this order; threads may call it at the same time.

        If `out` is given, the rows are written to it, and it is returned. `EOFError` where the file ends before one of
        the rows.
        """
        out = np.empty((len(rows), *self.shape[1:]), self.dtype) if out is None else out
        target = memoryview(out.reshape(-1).view(np.uint8).data)  # the bytes of `out`
        # Rows that follow each other in the file are read at once.
        for first, last in _runs(rows):
            offset = self._start + int(rows[first]) * self._row_bytes
            self._fill(target[first * self._row_bytes : last * self._row_bytes], offset)
        return out

    def _fill(self, buffer: memoryview, offset: int) -> None:
        """Fill the buffer with the file's bytes from `offset` on; `EOFError` where the file ends before."""
        done = 0
        # A call may read fewer bytes than it is asked for.
        while done < len(buffer):
            count = os.preadv(self._file.fileno(), [buffer[done:]], offset + done)
            if not count:
                raise EOFError(f"{self._file.name} ends before its last row")
            done += count


class ArrayWriter:
    """Writes the rows of an array to a .npy file, some rows at a time. Their number need not be known before.

    `shape` is the shape of one row.
    """

    def __init__(self, path: Path, dtype: Any, shape: Sequence[int]) -> None:
        self._file = path.open("wb")
        self._dtype = np.dtype(dtype)
        self._shape = tuple(shape)
        self._rows = 0
        self._write_header()

    def write(self, rows: Array) -> None:
        """Write the next rows."""
        self._file.write(np.ascontiguousarray(rows).data)
        self._rows += len(rows)

    def close(self) -> None:
        """Write into the header how many rows there are, and finish the file."""
        self._file.seek(0)
        self._write_header()
        self._file.close()

    def _write_header(self) -> None:
        """Write the .npy header with the number of rows written so far.

        NumPy pads the header, so that it has the same length for any number of rows and can be overwritten.
        """
        description = np.lib.format.dtype_to_descr(self._dtype)  # type: ignore[no-untyped-call]
        shape = (self._rows, *self._shape)
        header = {"descr": description, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)  # type: ignore[no-untyped-call]


def _runs(rows: Ints) -> list[tuple[int, int]]:
    """Return the runs of consecutive indices in `rows`, as pairs (first, last) of positions in `rows`.

    Each run is `rows[first:last]`. For example, [4, 5, 6, 9] gives (0, 3) for 4, 5, 6 and (3, 4) for 9.
    """
    if not len(rows):
        return []
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    return list(pairwise([0, *breaks.tolist(), len(rows)]))


REMEDY = "train on views of them (view_size: N), or stage them with --set size=N, where N is near their own size"
"""What a user can do about images of different sizes."""
BYTES_SUFFIX = ".encoded"
"""Suffix of the file with the bytes of all images, one after the other."""
OFFSETS_SUFFIX = ".offsets"
"""Suffix of the file with the offset at which each image ends, as int64."""


class EncodedFile(ColumnFile):
    """The encoded images of a split, which are decoded and scaled to the staged shape when they are read.

    Images of different sizes can only be read one at a time, by `item`.
    """

    dtype = np.dtype(np.uint8)

    def __init__(self, folder: Path, name: str, spec: ColumnSpec) -> None:
        self._file = (folder / f"{name}{BYTES_SUFFIX}").open("rb")
        self._name = f"{folder / name}{BYTES_SUFFIX}"
        self._ends = np.fromfile(folder / f"{name}{OFFSETS_SUFFIX}", np.int64)
        self.shape = (len(self._ends), *spec["shape"])

    def read(self, rows: Ints, out: Array | None = None) -> Array:
        """Return the images with these indices, decoded, [len(rows) h w c] uint8, in this order.

        If `out` is given, the pixels are written to it, and it is returned. `DataError` where an image cannot be
        decoded, with the index of the image, and where the images of the column differ in size.
        """
        if self.shape[1] == ANY_SIDE:
            raise DataError(
                f"{self._name}: these images differ in size, so they are no array: {REMEDY}"
            )
        pixels = np.empty((len(rows), *self.shape[1:]), np.uint8) if out is None else out

        def decode(place: int) -> None:
            pixels[place] = self.item(int(rows[place]))

        # Pillow decodes without the interpreter's lock, so that threads help. `list` waits for them and raises their
        # errors.
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
        """Threads that decode, one for each processor that this process may use; they start with the first read."""
        return ThreadPoolExecutor(len(os.sched_getaffinity(0)), "decode")


class EncodedWriter:
    """Writes encoded images, row by row, to the two files that `EncodedFile` reads.

    Both have the name of `path` with a suffix of their own: one has the bytes of all images, one where each image ends.
    """

    def __init__(self, path: Path) -> None:
        self.seen = 0  # rows that were written
        self._end = 0  # bytes that were written
        self._path = path
        self._ends = list[int]()  # `_end` after each row
        self._out = path.with_suffix(BYTES_SUFFIX).open("wb")

    def add(self, column: pa.Array, where: str) -> None:
        """Write the encoded images of the next rows. A null is written as zero bytes; only reading it raises an error.

        `where` is not used: it is there because `decoding.ArrayColumnWriter` takes it.
        """
        for value in column:
            self._end += self._out.write(value.as_buffer() or b"")
            self._ends.append(self._end)
        self.seen += len(column)

    def close(self) -> None:
        """Finish the file; all rows must have been written."""
        self._out.close()
        np.array(self._ends, np.int64).tofile(self._path.with_suffix(OFFSETS_SUFFIX))
