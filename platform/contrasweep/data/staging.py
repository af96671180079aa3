"""Staging: a dataset's published format becomes Parquet shards and, written last, `manifest.json`.

Shards are named by the digest of their bytes, so two stagers of one dataset write the same objects and two of
different ones never overwrite each other; whoever writes the manifest first has staged it. A stage that was
killed leaves shards without a manifest, which no reader looks at and the next stage of the same data reuses.
"""

import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from contrasweep.canonical import file_digest
from contrasweep.config import Config
from contrasweep.data.columns import content_digest
from contrasweep.data.folds import NAMELESS, USUAL, class_notes
from contrasweep.data.manifest import MANIFEST, Manifest, Shard, SplitCounts
from contrasweep.data.names import Name, importer, parse
from contrasweep.errors import ContrasweepError, DataError
from contrasweep.imports import in_one_line
from contrasweep.storage.json_file import MAX_BYTES
from contrasweep.storage.names import local_path
from contrasweep.storage.store import Store, open_store

log = logging.getLogger(__name__)
SHARD_BYTES = 128 * 2**20
"""About what the rows of a shard have in memory."""
ROW_GROUP_BYTES = 24 * 2**20
"""The same of a row group, which is the least that is read of a shard."""
Progress = Callable[[str, int], None]
"""Called with a split and the rows of it staged so far."""


def stage(
    name: str,
    to: str,
    *,
    source: str | Path | None = None,
    settings: Config | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Turn a dataset's published format into Parquet shards and a manifest. To stage it again is harmless.

    Args:
        name: a dataset, with parameters as in `digits-lt?imbalance_factor=50`.
        to: a folder or an s3:// address.
        source: the published files, where the dataset is not bundled.
        settings: parameters by name, beside those in `name`.
        progress: called with a split and the rows of it staged so far.

    Returns:
        The manifest. The same input gives the same digest.

    Raises:
        DataError: there is no such dataset, another one lies at `to`, or `source` is missing or broken.
        SpecError: a parameter is wrong.
    """
    dataset = parse(name, settings)
    chosen = importer(dataset)
    store = open_store(to)
    store.check_writable()
    with tempfile.TemporaryDirectory(prefix="contrasweep-stage-") as scratch:
        place = _source(dataset, source, Path(scratch))
        splits = {}
        counts = {}
        try:
            content = chosen.read(place, dataset.checked())
            # Tables are read one by one, so that a dataset larger than memory passes through.
            for split, tables in content.splits.items():
                writer = _Split(store, split, Path(scratch), len(content.classes), progress)
                splits[split] = tuple(writer.write(rows) for rows in _in_shards(tables))
                counts[split] = writer.counts()
        except ContrasweepError:
            raise
        except Exception as error:  # of damaged or forged files libraries raise whatever they do
            raise DataError(
                f"{name} cannot be staged from {place} ({in_one_line(error)})"
            ) from None
    origin = {
        "dataset": dataset.name,
        "settings": dataset.settings,
        "licence": chosen.licence,
        **content.source,
    }
    if content.rejected.counts:
        origin["rejected"] = content.rejected.to_dict()
        log.warning("%s: left out %s", name, content.rejected)
    if content.copies:
        origin["copies"] = dict(content.copies)
    folder = store.uri.rstrip("/").rsplit("/", 1)[-1]
    # A dataset of the user's own importer has the name of the folder that the user has chosen for it.
    called = folder if chosen.own and folder != dataset.folder else dataset.text
    manifest = Manifest(
        called,
        store.uri,
        content.kind,
        splits,
        content.classes,
        content.columns,
        content.folds,
        origin,
        counts,
    )
    if not any(shard.rows for shard in manifest.shards):
        left_out = f"; left out: {content.rejected}" if content.rejected.counts else ""
        raise DataError(f"{name}: {source} gave no rows{left_out}")
    for note in class_notes(manifest, USUAL):
        log.warning("%s", note)
    return publish(manifest, store)


def publish(manifest: Manifest, store: Store) -> Manifest:
    """Write `manifest.json` unless one is there; return the one there. `DataError`: it is another dataset's."""
    if not store.write(MANIFEST, manifest.to_json().encode(), if_absent=True):
        present = Manifest.from_json(store.read(MANIFEST, MAX_BYTES), store.uri)
        if present.digest != manifest.digest:
            raise DataError(
                f"{store.uri} already holds dataset {present.name!r} with digest {present.digest[:12]}, "
                f"not {manifest.digest[:12]}: stage to another place, or delete that one first"
            )
        return present
    return manifest


def copy(manifest: Manifest, to: str) -> Manifest:
    """Copy the staged dataset `manifest` to `to`, a folder or address; return its manifest there.

    Nothing is written where it lies already; `DataError` where another dataset does, or a shard is damaged.
    """
    source = open_store(manifest.uri)
    store = open_store(to)
    # Where a dataset lies, `publish` says whether it is this one.
    if store.exists(MANIFEST):
        return publish(Manifest.from_json(manifest.to_json(), store.uri), store)
    with tempfile.TemporaryDirectory(prefix="contrasweep-copy-") as scratch:
        for shard in manifest.shards:
            if not store.exists(shard.file):
                source.get_file(shard.file, file := Path(scratch) / "shard")
                shard.check(file, f"{source.uri}/{shard.file}")
                store.put_file(shard.file, file)
    return publish(Manifest.from_json(manifest.to_json(), store.uri), store)


def _source(wanted: Name, source: str | Path | None, scratch: Path) -> Path:
    """Return where the published files lie: `source`, or a download into `scratch`; of a bundled dataset `scratch`.

    `DataError` where `source` does not exist, or without it the dataset cannot be downloaded.
    """
    chosen = importer(wanted)
    if source is not None:
        if not (place := local_path(source, "--source")).exists():
            raise DataError(
                f"--source {place} does not exist; {wanted.name} needs {chosen.source or 'no source'}"
            )
        return place
    if not chosen.source:
        return scratch
    if chosen.fetch is None:
        raise DataError(
            f"{wanted.name} cannot be downloaded: pass --source PATH, where PATH is {chosen.source}"
        )
    try:
        return chosen.fetch(scratch)
    except Exception as error:  # torchvision raises whatever urllib and its checksum test raise
        raise DataError(
            f"{wanted.name} could not be downloaded ({error}): fetch it where there is a network and pass "
            f"--source PATH, where PATH is {chosen.source}"
        ) from None


def _in_shards(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the same rows in tables of equally many, the last one shorter: a shard each.

    Their number follows from the data alone, `SHARD_BYTES` at the row size of the first table, because where the
    importer's tables end must not show in the digest. Without any row it yields nothing.
    """
    waiting: list[pa.Table] = []
    rows = step = 0
    for table in tables:
        if table.num_rows == 0:
            continue
        # Rows of a shard, by the bytes of a row of the first table.
        step = step or max(1, SHARD_BYTES // max(1, table.nbytes // table.num_rows))
        waiting.append(table)
        rows += table.num_rows
        while rows >= step:
            joined = pa.concat_tables(waiting)
            yield joined.slice(0, step)
            rows -= step
            waiting = [joined.slice(step)]
    if rows:
        yield pa.concat_tables(waiting)


class _Split:
    """Writes the shards of one split to `store` and counts its classes and groups on the way.

    Each is written to the folder `scratch` first. `classes` is the number of classes, 0 without labels.
    """

    def __init__(
        self, store: Store, split: str, scratch: Path, classes: int, progress: Progress | None
    ) -> None:
        self.store = store
        self.split = split
        self.scratch = scratch
        self.progress = progress
        self.classes = np.zeros(classes, np.int64)  # rows of each class
        self.groups: set[Any] | None = None  # names of groups; None: rows have none
        self.nameless = 0  # rows that are groups of their own
        self.written = self.rows = 0  # shards, and rows in them

    def write(self, rows: pa.Table) -> Shard:
        """Write the rows as the next shard, unless the storage has it already; return its entry of the manifest."""
        file = self.scratch / "shard.parquet"
        write_parquet(rows, file)
        digest = file_digest(file)
        # <split>-<number>-<digest>.parquet: whoever stages the same rows writes the same object.
        shard = Shard(
            f"{self.split}-{self.written:05d}-{digest[:12]}.parquet",
            rows.num_rows,
            file.stat().st_size,
            digest,
            content_digest(rows),
        )
        if not self.store.exists(shard.file):
            self.store.put_file(shard.file, file)
        self._count(rows)
        if self.progress:
            self.progress(self.split, self.rows)
        return shard

    def _count(self, rows: pa.Table) -> None:
        """Add a shard's rows to the numbers of rows, classes and groups; a row without a group is one of its own."""
        self.written += 1
        self.rows += rows.num_rows
        if len(self.classes) and "label" in rows.column_names:
            labels = rows["label"].to_numpy()
            self.classes += np.bincount(labels, minlength=len(self.classes))
        if "group" in rows.column_names:
            names = rows["group"].to_pylist()
            self.groups = (self.groups or set()) | set(names) - NAMELESS
            self.nameless += sum(name in NAMELESS for name in names)

    def counts(self) -> SplitCounts:
        """Return the rows of each class, if any has a label, and the number of groups, if there is such a column."""
        counts: SplitCounts = {"classes": self.classes.tolist()} if self.classes.any() else {}
        if self.groups is not None:
            counts["groups"] = len(self.groups) + self.nameless
        return counts


def write_parquet(rows: pa.Table, file: Path) -> None:
    """Write one shard, all other columns compressed by zstd but lists of features.

    These do not shrink, and are read several times faster as they are. Statistics and dictionaries are written of plain
    columns alone: of images and features they would be large and tell nothing.
    """
    # Lists of arrays, as the region features of an image.
    features = [
        f
        for f in rows.schema
        if pa.types.is_list(f.type) and pa.types.is_fixed_size_binary(f.type.value_type)
    ]
    compression = {_leaf(f): "none" if f in features else "zstd" for f in rows.schema}
    plain = [
        f
        for f in rows.schema
        if not (
            pa.types.is_binary(f.type) or pa.types.is_fixed_size_binary(f.type) or f in features
        )
    ]
    # Rows of a row group, by the mean bytes of a row.
    group = max(1, ROW_GROUP_BYTES // max(1, rows.nbytes // max(1, rows.num_rows)))
    pq.write_table(
        rows,
        file,
        row_group_size=group,
        compression=compression,
        write_statistics=[_leaf(f) for f in plain],
        use_dictionary=[f.name for f in plain if pa.types.is_string(f.type)],
    )


def _leaf(field: pa.Field) -> str:
    """Return Parquet's own path of a column: a list's values lie two levels down."""
    return f"{field.name}.list.element" if pa.types.is_list(field.type) else str(field.name)
