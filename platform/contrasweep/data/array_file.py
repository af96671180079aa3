"""Arrays in .npy files that are read and written a few rows at a time.

Pages that a process maps count as its memory for as long as it looks at them; rows that it reads do not. The kernel's
page cache holds what is read often once for all processes of a node.
"""

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class ArrayFile:
    """An array of n rows in a .npy file, open until it is collected: a file that is removed stays readable."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        version = np.lib.format.read_magic(self._file)  # type: ignore[no-untyped-call]
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        self.shape, fortran, self.dtype = read_header(self._file)  # type: ignore[no-untyped-call]
        if fortran or self.dtype.hasobject:
            raise ValueError(f"{path} is no plain array in row order")
        self._start = self._file.tell()
        self._row_bytes = self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))

    def __len__(self) -> int:
        return int(self.shape[0])

    def read(self, rows: Ints, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """These rows in this order, into `out` where it is given; safe in several threads at once."""
        out = np.empty((len(rows), *self.shape[1:]), self.dtype) if out is None else out
        flat = memoryview(out.reshape(-1).view(np.uint8).data)
        for first, last in _runs(rows):
            place, size = first * self._row_bytes, (last - first) * self._row_bytes
            self._fill(flat[place : place + size], self._start + int(rows[first]) * self._row_bytes)
        return out

    def blocks(self, rows: Ints, most: int = 2**23) -> Iterator[Ints]:
        """`rows` in stretches of at most so many bytes."""
        step = max(1, most // max(1, self._row_bytes))
        for start in range(0, len(rows), step):
            yield rows[start : start + step]

    def _fill(self, buffer: memoryview, offset: int) -> None:
        done = 0
        while done < len(buffer):
            got = os.preadv(self._file.fileno(), [buffer[done:]], offset + done)
            if not got:
                raise EOFError(f"{self._file.name} ends before its last row")
            done += got


class ArrayWriter:
    """Writes a .npy file of a known shape from its first row to its last."""

    def __init__(self, path: Path, dtype: Any, shape: Sequence[int]) -> None:
        self._file = path.open("wb")
        description = np.lib.format.dtype_to_descr(np.dtype(dtype))  # type: ignore[no-untyped-call]
        header = {"descr": description, "fortran_order": False, "shape": tuple(shape)}
        np.lib.format.write_array_header_1_0(self._file, header)  # type: ignore[no-untyped-call]

    def write(self, rows: NDArray[Any]) -> None:
        """The next rows."""
        self._file.write(np.ascontiguousarray(rows).data)

    def close(self) -> None:
        """All rows were written."""
        self._file.close()


def _runs(rows: Ints) -> list[tuple[int, int]]:
    """Places [first, last) in `rows` at which they follow each other, so that each is one read."""
    if not len(rows):
        return []
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    edges = [0, *breaks.tolist(), len(rows)]
    return list(pairwise(edges))
