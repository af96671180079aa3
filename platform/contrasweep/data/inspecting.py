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
"""Field -> plain value of a dataset, as `contrasweep data list` and `show` print it."""


@dataclass(frozen=True)
class Finding:
    """A difference between a staged dataset and its manifest."""

    object: str  # address of the shard
    problem: str  # the difference, in words


def known() -> list[DatasetRow]:
    """Return a row for every dataset that can be staged by its name.

    A row has `name`, `about` (a line on the dataset), `needs` (what --source must be; "": nothing) and `licence`.
    """
    from contrasweep.data.importers import DATASETS

    return [
        {"name": name, "about": entry.about, "needs": entry.source, "licence": entry.licence}
        for name, entry in DATASETS.items()
    ]


def summary(manifest: Manifest) -> DatasetRow:
    """Return the row of a staged dataset in `contrasweep data list`, as a dict for JSON.

    `classes` is the number of classes, `rows` is split -> number of rows, `mib` the size of all shards in MiB.
    `synthetic` is true where any of the data was generated.
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
    """Return what `contrasweep data show` shows of a dataset: the fields of `summary`, and more.

    These are its folds, the specs of its columns, the number of rows of each class by split, and the source of the
    data.
    """
    # Where the data do not come with folds, a study says how many it wants, and the rule alone is shown.
    folds = None
    if manifest.folds:
        given = manifest.folds.rule == "given"
        folds = f"{manifest.folds.count} (given)" if given else manifest.folds.rule
    return {
        **summary(manifest),
        "folds": folds,
        "columns": dict(manifest.columns),
        "class_counts": {
            split: dict(zip(manifest.classes, counts["classes"], strict=True))
            for split, counts in manifest.counts.items()
            if "classes" in counts
        },
        "source": dict(manifest.source),
    }


def verify(manifest: Manifest) -> list[Finding]:
    """Return how the shards of a staged dataset differ from its manifest, one finding per shard; [] if none does.

    Each shard is fetched, and its bytes, its number of rows and its content are compared.
    """
    store = open_store(manifest.uri)
    findings = []
    with tempfile.TemporaryDirectory(prefix="contrasweep-verify-") as scratch:
        for shard in manifest.shards:
            name = f"{store.uri}/{shard.file}"
            problem = _problem(store, shard, name, Path(scratch) / "shard")
            if problem:
                findings.append(Finding(name, problem))
    return findings


def _problem(store: Store, shard: Shard, name: str, file: Path) -> str:
    """Fetch a shard to `file` and return in words how it differs from its manifest; "" where it does not differ.

    `name` is the shard's address, which is not repeated in these words.
    """
    try:
        store.get_file(shard.file, file)
        shard.check(file, name)
        rows = pq.read_table(file)
        if rows.num_rows != shard.rows or (shard.content and content_digest(rows) != shard.content):
            return "holds other rows than its manifest says: stage the dataset again"
    except FileNotFoundError:
        return "is missing: stage the dataset again"
    except (DataError, StorageError) as error:
        return str(error).removeprefix(name).strip()
    return ""
