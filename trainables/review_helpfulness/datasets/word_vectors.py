"""Word vectors as GloVe and fastText publish them: a line a word, `word x1 ... xd`; fastText's first is `count dim`.

Staged, they reach every host by the storage, as other datasets do: columns `word` and `vector` (float32 [dim]).
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from contrasweep.data import columns
from contrasweep.data.content import Content, Importer
from contrasweep.data.manifest import ColumnSpec
from contrasweep.errors import DataError
from contrasweep.schema import checked
from contrasweep.trainables.fields import Count

KIND = "word-vectors"
"""The kind of staged datasets of word vectors."""
BATCH = 10_000
"""Rows of a table."""


@checked
class Settings:
    """What can be set as word vectors are staged. `dim`: how many numbers a vector has."""

    dim: Count = 300


def read(source: Path, settings: Settings) -> Content:
    """Return words and vectors in the file's order; `DataError` where a line has other than `dim` numbers."""
    specs = {"vector": columns.spec("float32", [settings.dim])}
    return Content(
        KIND, {"train": _tables(read_vectors(source, settings.dim), specs)}, columns=specs
    )


def _tables(
    vectors: Iterable[tuple[str, NDArray[np.float32]]], specs: dict[str, ColumnSpec]
) -> Iterator[pa.Table]:
    """Yield words and vectors in tables of BATCH rows."""
    waiting = iter(vectors)
    while batch := list(islice(waiting, BATCH)):
        words, values = zip(*batch, strict=True)
        yield columns.table(
            {"word": pa.array(words), "vector": columns.from_array(np.stack(values))}, specs
        )


def read_vectors(path: Path, dim: int) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield word and vector of each line; `DataError` where there is no file, or not `dim` numbers in a line."""
    if not path.is_file():
        raise DataError(f"{path}: there is no file of word vectors here")
    with path.open(encoding="utf-8", newline="\n") as lines:
        for number, line in enumerate(lines, start=1):
            parts = line.rstrip().split(" ")
            # fastText's first line: how many words, and how many numbers each.
            if number == 1 and len(parts) == 2:
                continue
            # All before the last `dim` numbers, since a few words of GloVe's larger files hold blanks.
            word = " ".join(parts[:-dim])
            if len(parts) <= dim or not word:
                raise DataError(
                    f"{path}, line {number}: {len(parts) - 1} numbers, the vectors' dimension is {dim}"
                )
            yield word, np.array(parts[-dim:], dtype=np.float32)


WORD_VECTORS = Importer(
    read,
    "word vectors, for the setting word_vectors of review_helpfulness",
    "that of its owner (GloVe: PDDL; fastText: CC BY-SA 3.0)",
    "a text file of GloVe's or fastText's (.txt, .vec), unpacked",
    Settings,
)
