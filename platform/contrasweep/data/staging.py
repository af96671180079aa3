"""Staging: a dataset's published format becomes Parquet shards and, written last, `manifest.json`.

Shards are named by the digest of their bytes. So two processes that stage the same dataset write the same objects, and
two that stage different ones never overwrite each other. The process that writes the manifest first has staged the
dataset. A process that is killed leaves shards without a manifest, at which no reader looks. Staging the same data
again writes the same shards, in place of damaged ones too.
"""

import errno
import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from contrasweep.canonical import file_digest
from contrasweep.config import Config
from contrasweep.data.columns import content_digest, plain
from contrasweep.data.folds import USUAL_FOLDS, class_notes, is_nameless
from contrasweep.data.manifest import MANIFEST, Folds, Manifest, Shard, SplitCounts
from contrasweep.data.names import Name, importer, parse
from contrasweep.errors import ContrasweepError, DataError, PackageMissingError
from contrasweep.imports import in_one_line
from contrasweep.shell import command_line
from contrasweep.storage.json_file import MAX_BYTES
from contrasweep.storage.names import check_name, local_path
from contrasweep.storage.store import Store, open_store

log = logging.getLogger(__name__)
SHARD_BYTES = 128 * 2**20
"""About how many bytes the rows of a shard take in memory."""
ROW_GROUP_BYTES = 24 * 2**20
"""The same for a row group, which is the smallest part of a shard that can be read."""
Progress = Callable[[str, int], None]
"""A function that is called with a split and the number of its rows staged so far."""


def stage(
    name: str,
    to: str,
    *,
    source: str | Path | None = None,
    settings: Config | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Turn a dataset's published format into Parquet shards and a manifest. Staging it again changes nothing.

    Args:
        name: a dataset, with parameters as in `digits-lt?imbalance_factor=50`.
        to: a folder or an s3:// address.
        source: the published files, where the dataset is not bundled.
        settings: parameters by name, beside those in `name`.
        progress: called with a split and the number of its rows staged so far.

    Returns:
        The manifest. The same input gives the same digest.

    Raises:
        DataError: there is no such dataset, another one is at `to`, or `source` is missing or broken.
        PackageMissingError: its importer needs a package that is not installed here.
        SpecError: a parameter is wrong.
    """
    dataset = parse(name, settings)
    chosen = importer(dataset)
    checked = dataset.checked()  # before anything is downloaded
    store = open_store(to)
    store.check_writable()
    with tempfile.TemporaryDirectory(prefix="contrasweep-stage-") as scratch:
        place = _source(dataset, source, Path(scratch))
        splits = {}
        writers: dict[str, _SplitWriter] = {}
        try:
            content = chosen.read(place, checked)
            for split in content.splits:
                check_name(split)
            # Tables are read one by one, so that a dataset may be larger than memory.
            for split, tables in content.splits.items():
                writer = _SplitWriter(store, split, Path(scratch), len(content.classes), progress)
                writers[split] = writer
                splits[split] = tuple(writer.write(rows) for rows in _in_shards(tables))
        except ContrasweepError:
            raise
        except ModuleNotFoundError as error:
            command = command_line("data stage", name, to=store.uri)
            raise PackageMissingError(name, error.name or "", command) from None
        except UnicodeDecodeError as error:
            raise DataError(
                f"{name}: a text of {place} is not in UTF-8 ({error}); save it as UTF-8"
            ) from None
        except Exception as error:  # libraries raise any error for damaged or forged files
            # A full store has an error of its own, so this is the disk of `scratch`.
            if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
                raise DataError(
                    f"no space to stage {name} in {scratch}: free some, or point TMPDIR at a larger disk"
                ) from None
            raise DataError(
                f"{name} cannot be staged from {place} ({in_one_line(error)})"
            ) from None
    # Where the data come from, and what was left out or comes twice.
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
    # Users' own data are named after the folder that the user has chosen for them; the default one was not chosen.
    manifest = Manifest(
        name=folder if chosen.own and folder != dataset.folder else dataset.text,
        uri=store.uri,
        kind=content.kind,
        splits=splits,
        classes=content.classes,
        columns=content.columns,
        folds=content.folds,
        source=origin,
        counts={split: writer.counts() for split, writer in writers.items()},
    )
    # A dataset without rows to train on is not published; the error names what was left out.
    if not manifest.rows():
        left_out = f"; left out: {content.rejected}" if content.rejected.counts else ""
        raise DataError(f"{name}: {source} gave no rows of the split train{left_out}")
    writers["train"].check(content.folds)
    for note in class_notes(manifest, USUAL_FOLDS):
        log.warning("%s", note)
    return publish(manifest, store)


def publish(manifest: Manifest, store: Store) -> Manifest:
    """Write manifest.json to `store` unless it has one, and return the manifest that `store` has then.

    `DataError` where `manifest` is not valid for readers, and where the one in `store` describes other data.
    """
    data = manifest.to_json()
    Manifest.from_json(data, store.uri, "nothing is staged; mend it at its source")
    if store.write(MANIFEST, data.encode(), if_absent=True):
        return manifest
    present = Manifest.from_json(store.read(MANIFEST, MAX_BYTES), store.uri)
    if present.digest != manifest.digest:
        raise DataError(
            f"{store.uri} already holds dataset {present.name!r} with digest {present.digest[:12]}, "
            f"not {manifest.digest[:12]}: stage to another place, or delete its folder first"
        )
    return present


def copy(manifest: Manifest, to: str) -> Manifest:
    """Copy the staged dataset `manifest` to `to`, a folder or address; return its manifest there.

    Nothing is written where `to` has this dataset already. `DataError` where it has another one, or a shard is damaged.
    """
    source = open_store(manifest.uri)
    store = open_store(to)
    copied = replace(manifest, uri=store.uri)
    # Where `to` has a dataset, no shard is copied, and `publish` finds whether it is another one.
    if store.exists(MANIFEST):
        return publish(copied, store)
    with tempfile.TemporaryDirectory(prefix="contrasweep-copy-") as scratch:
        file = Path(scratch) / "shard"
        for shard in manifest.shards:
            source.get_file(shard.file, file)
            shard.check(file, f"{source.uri}/{shard.file}")
            store.put_file(shard.file, file)
    return publish(copied, store)


def _source(wanted: Name, source: str | Path | None, scratch: Path) -> Path:
    """Return the path of the published files of a dataset: `source`, or where this is None a download into `scratch`.

    A dataset that comes with the package has no published files: `scratch` is returned, which its importer does not
    read. `DataError` where `source` does not exist or the dataset needs none, and where it cannot be downloaded.
    """
    chosen = importer(wanted)
    if source is not None:
        if not chosen.source:
            raise DataError(f"{wanted.name} comes with the package: leave out --source {source}")
        place = local_path(source, "--source")
        if not place.exists():
            raise DataError(
                f"--source {source} is no file or folder of this machine; {wanted.name} needs {chosen.source}"
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
    except Exception as error:  # torchvision, urllib and the check of the digest raise many kinds
        raise DataError(
            f"{wanted.name} could not be downloaded ({error}): fetch it where there is a network and pass "
            f"--source PATH, where PATH is {chosen.source}"
        ) from None


def _in_shards(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows of `tables` cut into new tables, each of which becomes a shard; nothing where there are no rows.

    Each shard but the last has the same number of rows: as many as take about `SHARD_BYTES`. The size of a row is its
    mean in the first table. A shard with larger rows is cut at four times `SHARD_BYTES`. So shards do not depend on
    where `tables` end. Columns have the types of `columns.plain`.
    """
    # Tables of the importer may end anywhere. Shards must not depend on that, because the digest depends on shards.
    waiting: list[pa.Table] = []  # tables whose rows are in no shard yet
    rows = 0  # in the tables that wait
    size = 0  # bytes of these rows
    most_bytes = 4 * SHARD_BYTES
    shard_rows = 0  # rows of a full shard; 0: not known before the first table
    for table in map(plain, tables):
        if table.num_rows == 0:
            continue
        if not shard_rows:
            row_bytes = max(1, table.nbytes // table.num_rows)
            shard_rows = max(1, SHARD_BYTES // row_bytes)
        # Row by row near the limit, so that a shard ends with the same row wherever tables end.
        step = table.num_rows if size + table.nbytes < most_bytes else 1
        for start in range(0, table.num_rows, step):
            waiting.append(table.slice(start, step))
            rows += step
            size += waiting[-1].nbytes
            while rows >= shard_rows or size >= most_bytes:
                joined = pa.concat_tables(waiting)
                yield joined.slice(0, shard_rows)
                waiting = [joined.slice(shard_rows)]
                rows = waiting[0].num_rows
                size = waiting[0].nbytes
    if rows:
        yield pa.concat_tables(waiting)


class _SplitWriter:
    """Writes the shards of one split to `store`, each by way of the folder `scratch`, and counts classes and groups.

    `classes` is the number of classes, 0 without labels.
    """

    def __init__(
        self, store: Store, split: str, scratch: Path, classes: int, progress: Progress | None
    ) -> None:
        self.store = store
        self.split = split
        self.scratch = scratch
        self.progress = progress
        self.classes = np.zeros(classes, np.int64)  # rows of each class
        self.groups: set[Any] | None = None  # names of groups; None: there is no column of groups
        self.nameless = 0  # rows without a group, each of which counts as a group
        self.folds = set[Any]()  # those that the data come with
        self.written = 0  # shards
        self.rows = 0  # in these shards

    def write(self, rows: pa.Table) -> Shard:
        """Write the rows as the next shard; return its entry in the manifest."""
        file = self.scratch / "shard.parquet"
        write_parquet(rows, file)
        digest = file_digest(file)
        # The name is <split>-<number>-<digest>.parquet, so that the same rows are always the same object.
        shard = Shard(
            f"{self.split}-{self.written:05d}-{digest[:12]}.parquet",
            rows.num_rows,
            file.stat().st_size,
            digest,
            content_digest(rows),
        )
        # Also in place of one that is there, which may be damaged.
        self.store.put_file(shard.file, file)
        self._count(rows)
        if self.progress:
            self.progress(self.split, self.rows)
        return shard

    def _count(self, rows: pa.Table) -> None:
        """Add the rows of a shard to the counts of shards, rows, classes and groups of the split."""
        self.written += 1
        self.rows += rows.num_rows
        if len(self.classes) and "label" in rows.column_names:
            labels = rows["label"].to_numpy()
            is_class = np.isin(labels, np.arange(len(self.classes)))
            if not is_class.all():
                raise DataError(
                    f"{self.split}: labels must be class numbers from 0 to {len(self.classes) - 1}, got "
                    f"{labels[~is_class][0]}"
                )
            self.classes += np.bincount(labels.astype(np.int64), minlength=len(self.classes))
        if "group" in rows.column_names:
            names = rows["group"].to_pylist()
            self.groups = (self.groups or set()) | {n for n in names if not is_nameless(n)}
            self.nameless += sum(map(is_nameless, names))

        if "fold" in rows.column_names:
            self.folds |= set(rows["fold"].to_pylist())

    def check(self, folds: Folds | None) -> None:
        """Raise `DataError` where the data have folds 0 to `folds.count` - 1, and the rows written are of other folds.

        It is also raised where one of these folds has no row. Nothing is checked where the rule of `folds` is not
        `given`.
        """
        if folds and folds.rule == "given" and self.folds != set(range(folds.count)):
            raise DataError(
                f"the data come with folds 0 to {folds.count - 1}, and the rows that can be read are of the folds "
                f"{', '.join(sorted(map(str, self.folds)))}"
            )

    def counts(self) -> SplitCounts:
        """Return the number of rows of each class, if rows have labels, and of groups, if rows have groups."""
        counts: SplitCounts = {"classes": self.classes.tolist()} if self.classes.any() else {}
        if self.groups is not None:
            counts["groups"] = len(self.groups) + self.nameless
        return counts


def write_parquet(rows: pa.Table, file: Path) -> None:
    """Write one shard: compressed with zstd, except columns of lists of features, which are not compressed.

    Columns of images and features get no statistics, which would be large. Only columns of texts are encoded by a
    dictionary.
    """
    compression = {}  # by path of a column
    statistics = []  # paths of columns
    dictionaries = []  # names of columns
    for field in rows.schema:
        kind = field.type
        # Features, such as those of the regions of an image, do not shrink, and are read several times faster without
        # compression.
        is_features = pa.types.is_list(kind) and pa.types.is_fixed_size_binary(kind.value_type)
        compression[_parquet_path(field)] = "none" if is_features else "zstd"
        # Statistics of images and features would be large and useless.
        if is_features or pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
            continue
        statistics.append(_parquet_path(field))
        if pa.types.is_string(kind):
            dictionaries.append(field.name)
    row_bytes = max(1, rows.nbytes // max(1, rows.num_rows))
    pq.write_table(
        rows,
        file,
        row_group_size=max(1, ROW_GROUP_BYTES // row_bytes),
        compression=compression,
        write_statistics=statistics,
        use_dictionary=dictionaries,
    )


def _parquet_path(field: pa.Field) -> str:
    """Return the path by which Parquet names the values of a column: `label`, or `features.list.element` for lists."""
    return f"{field.name}.list.element" if pa.types.is_list(field.type) else str(field.name)
