"""The content of `contrasweep data list`, `show` and `verify`, as plain data."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from contrasweep.data.columns import content_digest
from contrasweep.data.manifest import Manifest, Shard
from contrasweep.errors import DataError, StorageError
from contrasweep.storage.store import Store, open_store

DatasetRow = dict[str, Any]
"""A dataset as `contrasweep data list` and `show` print it: field -> plain value."""


@dataclass(frozen=True)
class Finding:
    """An object of a storage, by its address, that differs from its manifest, and the difference in words."""

    object: str
    problem: str


def known() -> list[DatasetRow]:
    """Return a row for every dataset that can be staged by its name.

    `about` is a line on it, `needs` what --source must be ("": nothing), `licence` that of the data.
    """
    from contrasweep.data.importers import DATASETS

    return [
        {"name": name, "about": entry.about, "needs": entry.source, "licence": entry.licence}
        for name, entry in DATASETS.items()
    ]


def summary(manifest: Manifest) -> DatasetRow:
    """Return a row of `contrasweep data list`.

    `classes` is their number, `rows` those of each split, `mib` the size of the shards, `synthetic` whether any of the
    data was generated.
    """
    size = sum(shard.bytes for shard in manifest.shards)
    return {
        "name": manifest.name,
        "uri": manifest.uri,
        "kind": manifest.kind,
        "classes": len(manifest.classes),
        "rows": {split: manifest.rows(split) for split in manifest.splits},
        "mib": round(size / 2**20, 1),
        "digest": manifest.digest,
        "synthetic": manifest.synthetic,
    }


def show(manifest: Manifest) -> DatasetRow:
    """Return the summary with folds, how columns are stored, rows of each class, and where the data came from."""
    return {
        **summary(manifest),
        "folds": manifest.folds and f"{manifest.folds.count} ({manifest.folds.rule})",
        "columns": dict(manifest.columns),
        "class_counts": {
            split: dict(zip(manifest.classes, counts["classes"], strict=True))
            for split, counts in manifest.counts.items()
            if "classes" in counts
        },
        "source": dict(manifest.source),
    }


def verify(manifest: Manifest) -> list[Finding]:
    """Fetch every shard and compare bytes, rows and content with the manifest; [] if all is as it should be."""
    store = open_store(manifest.uri)
    findings = []
    with tempfile.TemporaryDirectory(prefix="contrasweep-verify-") as scratch:
        for shard in manifest.shards:
            name = f"{store.uri}/{shard.file}"
            if problem := _problem(store, shard, name, Path(scratch) / "shard"):
                findings.append(Finding(name, problem))
    return findings


def _problem(store: Store, shard: Shard, name: str, file: Path) -> str:
    """Fetch a shard to `file` and return in words how it differs from its manifest; "" where it does not.

    `name` is its address, which the words leave out.
    """
    try:
        store.get_file(shard.file, file)
        shard.check(file, name)
    except FileNotFoundError:
        return "is missing: stage the dataset again"
    except (DataError, StorageError) as error:
        return str(error).removeprefix(name).strip()
    rows = pq.read_table(file)
    if rows.num_rows != shard.rows or (shard.content and content_digest(rows) != shard.content):
        return "holds other rows than its manifest says: stage the dataset again"
    return ""
