"""What `contrasweep data list|show|verify` tell, as plain data."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import pyarrow.parquet as pq

from contrasweep.data.columns import content_digest
from contrasweep.data.integrity import check_shard
from contrasweep.data.manifest import ColumnSpec, Manifest, Shard
from contrasweep.data.resolving import staged_in
from contrasweep.errors import DataError, StorageError
from contrasweep.storage.store import Store, open_store


@dataclass(frozen=True)
class Finding:
    """One object that is not what its manifest says, and why."""

    object: str
    problem: str


class KnownDataset(TypedDict):
    """A dataset that can be staged; `needs`: what --source must be ("" for none)."""

    name: str
    about: str
    needs: str
    licence: str


class DatasetSummary(TypedDict):
    """A staged dataset; `classes` is their number, `rows` those of each split, `mib` the size of its shards."""

    name: str
    uri: str
    kind: str
    classes: int
    rows: dict[str, int]
    mib: float
    digest: str
    synthetic: bool


class DatasetDetails(DatasetSummary):
    """The same with its folds ("5 (stratified)"), how its columns are stored, rows of each class by split, and where
    it came from."""

    folds: str | None
    columns: dict[str, ColumnSpec]
    class_counts: dict[str, dict[str, int]]
    source: dict[str, object]


def known() -> list[KnownDataset]:
    """Every dataset that can be staged: `name`, `about`, `needs` (what --source must be; "" for none), `licence`."""
    from contrasweep.data.importers import DATASETS

    return [
        {"name": name, "about": entry.about, "needs": entry.source, "licence": entry.licence}
        for name, entry in DATASETS.items()
    ]


def staged(storage: str) -> list[DatasetSummary]:
    """Every dataset staged in `storage`: `name`, `uri`, `rows` per split, `classes`, `mib`, `digest`, `synthetic`."""
    return [summary(manifest) for manifest in staged_in(storage)]


def summary(manifest: Manifest) -> DatasetSummary:
    """One row of `contrasweep data list`: name, kind, numbers of classes and rows, size in MiB, digest."""
    size = sum(shard.bytes for shards in manifest.splits.values() for shard in shards)
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


def show(manifest: Manifest) -> DatasetDetails:
    """The summary, and where it came from, its columns, folds and class counts."""
    counts = {
        split: dict(zip(manifest.classes, counts["classes"], strict=True))
        for split, counts in manifest.counts.items()
        if "classes" in counts
    }
    folds = None if manifest.folds is None else f"{manifest.folds.count} ({manifest.folds.rule})"
    return {
        **summary(manifest),
        "folds": folds,
        "columns": dict(manifest.columns),
        "class_counts": counts,
        "source": dict(manifest.source),
    }


def verify(manifest: Manifest, progress: Callable[[Shard], None] | None = None) -> list[Finding]:
    """Fetch every shard and compare bytes, rows and content with the manifest; empty if all is as it should be."""
    store = open_store(manifest.uri)
    findings = []
    with tempfile.TemporaryDirectory(prefix="contrasweep-verify-") as scratch:
        for shard in (s for shards in manifest.splits.values() for s in shards):
            name = f"{store.uri}/{shard.file}"
            if problem := _problem(store, shard, name, Path(scratch) / "shard"):
                findings.append(Finding(name, problem))
            if progress:
                progress(shard)
    return findings


def _problem(store: Store, shard: Shard, name: str, file: Path) -> str:
    try:
        store.get_file(shard.file, file)
        check_shard(file, shard, name)
    except FileNotFoundError:
        return "is missing: stage the dataset again"
    except (DataError, StorageError) as error:
        return str(error).removeprefix(name).strip()
    rows = pq.read_table(file)
    if rows.num_rows != shard.rows or (shard.content and content_digest(rows) != shard.content):
        return "holds other rows than its manifest says: stage the dataset again"
    return ""
