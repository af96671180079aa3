"""Word vectors as GloVe and fastText publish them: a line per word, `word x1 ... xd`; fastText's first is `count dim`.

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

VECTORS_KIND = "word-vectors"
"""The kind of staged datasets of word vectors."""
WordVector = tuple[str, NDArray[np.float32]]
"""A word and its vector [dim]."""
TABLE_ROWS = 10_000
"""Rows of a table."""


@checked
class Settings:
    """What can be set as word vectors are staged. `dim`: how many numbers a vector has."""

    dim: Count = 300


def read(source: Path, settings: Settings) -> Content:
    """Return words and vectors in the file's order; `DataError` where a line has other than `dim` numbers."""
    specs = {"vector": columns.spec("float32", [settings.dim])}
    return Content(
        VECTORS_KIND, {"train": _tables(read_vectors(source, settings.dim), specs)}, columns=specs
    )


def _tables(vectors: Iterable[WordVector], specs: dict[str, ColumnSpec]) -> Iterator[pa.Table]:
    """Yield words and vectors in tables of at most `TABLE_ROWS` rows; `specs` has the shape of `vector`."""
    waiting = iter(vectors)
    while batch := list(islice(waiting, TABLE_ROWS)):
        words, values = zip(*batch, strict=True)
        yield columns.table(
            {"word": pa.array(words), "vector": columns.from_array(np.stack(values))}, specs
        )


def read_vectors(path: Path, dim: int) -> Iterator[WordVector]:
    """Yield (word, vector [dim]) for each line of a file; fastText's first line `count dim` is passed over.

    A line's last `dim` fields are its vector, and all before them is the word: a few words of GloVe's larger files hold
    blanks. The first word of a file never does. If it seems to, the file's vectors have more than `dim` numbers.
    `DataError` in this case, where there is no file, and for a line without a word or with a number that is not finite.
    """
    if not path.is_file():
        raise DataError(f"{path}: there is no file of word vectors here")
    # fastText's own reader passes over bytes that are no UTF-8, too; its files have some.
    with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as lines:
        is_first = True
        for number, line in enumerate(lines, start=1):
            parts = line.rstrip().split(" ")
            # fastText's first line: how many words, and how many numbers each.
            if number == 1 and len(parts) == 2:
                continue
            # All before the last `dim` numbers is the word.
            word = " ".join(parts[:-dim])
            if not word or (is_first and " " in word):
                raise DataError(
                    f"{path}, line {number}: {len(parts) - 1} numbers, the vectors' dimension is {dim}"
                )
            is_first = False
            try:
                vector = np.array(parts[-dim:], dtype=np.float32)
            except ValueError:
                vector = np.array(np.nan)
            if not np.isfinite(vector).all():
                raise DataError(
                    f"{path}, line {number}: one of the last {dim} values is no finite number"
                )
            yield word, vector


WORD_VECTORS = Importer(
    read,
    "word vectors, for the setting word_vectors of review_helpfulness",
    "that of its owner (GloVe: PDDL; fastText: CC BY-SA 3.0)",
    "a text file of GloVe's or fastText's (.txt, .vec), unpacked",
    Settings,
)
