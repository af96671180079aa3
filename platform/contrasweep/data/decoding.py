"""Decodes shards into an entry of the node's cache: arrays as .npy files, all other columns as one Arrow file.

Images of large splits stay encoded. Another entry, for trials on folds, has the same arrays in the order of the folds.
"""

import logging
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from contrasweep.data import columns, images
from contrasweep.data.column_files import ArrayWriter, ColumnFile, EncodedWriter
from contrasweep.data.manifest import ANY_SIDE, ColumnSpec, Manifest, Shard
from contrasweep.errors import DataError
from contrasweep.storage.store import LocalStore, open_store

log = logging.getLogger(__name__)
ENTRY_VERSION = 2  # of the content of an entry; part of its key
ROWS_FILE = "rows.arrow"
BATCH_ROWS = 4096
"""The most rows of a shard in memory at once."""
BATCH_BYTES = 8 * 2**20
"""About the most bytes of a shard in memory at once, and of decoded rows."""
Ints = NDArray[np.int64]


def stays_encoded(manifest: Manifest, split: str, limit: int) -> list[str]:
    """Return the image columns of `split` that would take more than `limit` bytes if they were decoded.

    Images of different sizes stay encoded, whatever the limit.
    """
    encoded = []
    for name, spec in manifest.columns.items():
        if spec.get("encoding") == "image":
            size = manifest.rows(split) * int(np.prod(spec["shape"]))  # a byte for each value
            if spec["shape"][0] == ANY_SIDE or size > limit:
                encoded.append(name)
    return encoded


def decode_split(
    manifest: Manifest, split: str, folder: Path, encoded: Collection[str] = ()
) -> None:
    """Read every shard of `split` and write its columns to `folder`; images of the columns `encoded` stay encoded.

    Each array column becomes a file of its own; all other columns become `rows.arrow`. For an array column with several
    items per row, `rows.arrow` has a column `<name>.start`, the index of each row's first item. `DataError` where a
    shard is missing, damaged, or differs from the manifest.
    """
    writers: dict[str, Writer] = {}
    for name, spec in manifest.columns.items():
        path = folder / f"{name}.npy"
        writers[name] = EncodedWriter(path) if name in encoded else ArrayColumnWriter(path, spec)

    tables: list[pa.Table] = []  # the other columns of each shard
    for shard, file in _verified(manifest, split, folder):
        where = f"{manifest.uri}/{shard.file}"
        try:
            tables.append(_decode_shard(shard, file, where, manifest.columns, writers))
        except (pa.ArrowException, OSError) as error:
            # An `OSError` with a number (errno) is of the disk. Any other error is of the file, which was staged
            # broken, because its digest is right.
            if isinstance(error, OSError) and error.errno is not None:
                raise
            problem = " ".join(str(error).split())[:200]
            raise DataError(
                f"{where} is no Parquet file of rows ({problem}); stage the dataset again"
            ) from None
        pa.default_memory_pool().release_unused()  # else the pool keeps what the shard took
    table = pa.concat_tables(tables)
    for name, writer in writers.items():
        # The file of a column that no shard has was never begun.
        starts = writer.close() if writer.seen else None
        if starts is not None:
            table = table.append_column(f"{name}.start", pa.array(starts))
    table = table.combine_chunks()
    with (
        pa.OSFile(str(folder / ROWS_FILE), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as out,
    ):
        out.write_table(table)


def _decode_shard(
    shard: Shard,
    file: Path,
    where: str,
    specs: Mapping[str, ColumnSpec],
    writers: Mapping[str, "Writer"],
) -> pa.Table:
    """Write the rows of each array column of a shard with its writer; return the other columns.

    `file` is the shard on this machine, `where` its name in errors. `DataError` where the number of its rows differs
    from the manifest, or a column differs from its spec.
    """
    with pq.ParquetFile(file, memory_map=False, pre_buffer=False) as opened:
        if opened.metadata.num_rows != shard.rows:
            raise DataError(
                f"{where} has {opened.metadata.num_rows:,} rows, its manifest says {shard.rows:,}; "
                "stage the dataset again"
            )
        arrays = [name for name in writers if name in opened.schema_arrow.names]
        others = opened.read(columns=[n for n in opened.schema_arrow.names if n not in arrays])
        # A table without columns would lose the number of rows.
        if not others.num_columns:
            others = pa.table({"row": np.arange(shard.rows)})
        # So many rows take about `BATCH_BYTES` in the shard.
        step = max(1, min(BATCH_ROWS, BATCH_BYTES * shard.rows // max(1, shard.bytes)))
        if arrays:
            for batch in opened.iter_batches(step, columns=arrays):
                for name in arrays:
                    columns.check_stored(
                        batch.column(name), specs[name], f"{where}, column {name!r}"
                    )
                    writers[name].add(batch.column(name), where)
    return others.replace_schema_metadata(None)


def _verified(manifest: Manifest, split: str, scratch: Path) -> Iterator[tuple[Shard, Path]]:
    """Yield each shard with a local file whose digest is right: its own file in a folder, else a copy in `scratch`.

    The copy is deleted before the next shard is yielded. `DataError` names a shard that is missing or damaged.
    """
    store = open_store(manifest.uri)
    for shard in manifest.splits[split]:
        name = f"{store.uri}/{shard.file}"
        is_local = isinstance(store, LocalStore)
        file = store.root / shard.file if isinstance(store, LocalStore) else scratch / ".shard"
        # A copy may have been damaged on the way, so it is fetched a second time. A folder's own file would not change.
        for attempt in (1, 2):
            try:
                if not is_local:
                    store.get_file(shard.file, file)
                shard.check(file, name)
                break
            except FileNotFoundError:
                raise DataError(
                    f"{name} is missing, though its manifest lists it: stage the dataset again"
                ) from None
            except DataError as error:
                if is_local or attempt == 2:
                    raise
                log.warning("%s; fetching it once more", error)
        yield shard, file
        if not is_local:
            file.unlink()


class ArrayColumnWriter:
    """Writes an array column to a .npy file: the items of all rows, one after another.

    The file is made when the first rows come. `seen` is the number of rows written so far.
    """

    def __init__(self, path: Path, spec: ColumnSpec) -> None:
        self.path = path
        self.spec = spec
        self.seen = 0
        self.lengths: list[Ints] = []  # items of each row, where rows have several
        self.out: Any = None

    def add(self, column: pa.Array, where: str) -> None:
        """Write the items of the next rows; images are decoded. `where` names the shard in errors."""
        rows = len(column)
        if self.out is None:
            self.out = ArrayWriter(self.path, self.spec["dtype"], self.spec["shape"])
        if self.spec.get("list"):
            lengths = column.value_lengths().to_numpy(zero_copy_only=False)
            self.lengths.append(lengths.astype(np.int64))
            column = column.flatten()
        if self.spec.get("encoding") == "image":
            self._decode(column, where)
        else:
            self.out.write(columns.to_array(column, self.spec["dtype"], self.spec["shape"]))
        self.seen += rows

    def _decode(self, column: pa.Array, where: str) -> None:
        """Decode the images of a batch of rows in parallel, and write them in order; `DataError` names a broken one.

        `where` names the shard.
        """

        def decoded(row: int) -> NDArray[np.uint8]:
            """Return the pixels [h w c] of the image in this row of the batch; `DataError` where it is broken."""
            try:
                return images.decode(column[row].as_py(), self.spec["shape"])
            except images.BrokenImage as error:
                raise DataError(
                    f"{where}: image {self.seen + row} {error}; stage the dataset again"
                ) from None

        # So many images at a time take about `BATCH_BYTES` decoded, a byte for each value.
        step = max(1, BATCH_BYTES // int(np.prod(self.spec["shape"])))
        with ThreadPoolExecutor() as pool:  # Pillow decodes without the interpreter's lock
            for start in range(0, len(column), step):
                for pixels in pool.map(decoded, range(start, min(start + step, len(column)))):
                    self.out.write(pixels[None])

    def close(self) -> Ints | None:
        """Finish the file; return the index of each row's first item [rows], or None where each row has one item."""
        self.out.close()
        if not self.lengths:
            return None
        # A row begins where the items of all earlier rows end.
        lengths = np.concatenate(self.lengths)
        return np.cumsum(lengths) - lengths


def fold_order(folds: Ints, count: int) -> tuple[Ints, Ints]:
    """Return an order of rows in which each fold's test rows, and its training rows, are one slice; and the starts.

    The order has indices of rows. `folds` [n] is the fold of each row, 0 to `count` - 1. In the order come the rows of
    fold 0, of fold 1 and so on, and then once more those of all folds but the last. With three folds this is 0 1 2 0 1.
    So fold 1 is tested on the slice 1, and trained on the slice 2 0 behind it; no trial needs a copy of the rows.

    The starts [count + 1] are the positions in the order at which each fold begins, and at last n.
    """
    order = np.argsort(folds, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(folds, minlength=count))])
    return np.concatenate([order, order[: starts[count - 1]]]), starts


def write_in_order(base: Mapping[str, ColumnFile], order: Ints, folder: Path) -> None:
    """Write the rows with the indices `order` of each column in `base` to <column>.npy in `folder`.

    An index may come more than once.
    """
    for name, array in base.items():
        out = ArrayWriter(folder / f"{name}.npy", array.dtype, array.shape[1:])
        for rows in array.blocks(order):
            out.write(array.read(rows))
        out.close()


Writer = ArrayColumnWriter | EncodedWriter
"""Takes a column batch by batch. `close` returns the index of each row's first item, or None with one item per row."""
