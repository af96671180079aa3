"""What a staged dataset is: its shards and their digests, its classes, its folds. Plain and pure."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from contrasweep import canonical
from contrasweep.errors import DataError

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Shard:
    """One Parquet file of a split: its name below the dataset's folder, rows, size in bytes and SHA-256.

    `content` is the SHA-256 of the decoded rows (`data.columns.content_digest`): another version of the
    Parquet writer changes `sha256`, not `content`, and so not which dataset this is.
    """

    file: str
    rows: int
    bytes: int
    sha256: str
    content: str = ""


@dataclass(frozen=True)
class Folds:
    """How rows of the training split are assigned to `count` folds: part of the manifest and its digest.

    `rule`: `stratified` (by label), `grouped` (stratified, and a group never crosses), `given` (a column
    `fold` of the data). The assignment itself is a pure function of the data and this rule (`data.folds`).
    """

    count: int
    rule: str = "stratified"
    seed: int = 0


@dataclass(frozen=True)
class Manifest:
    """A staged dataset. `uri` is where it lies and no part of what it is; neither are `name` and `source`.

    `kind` names the schema of its rows (`image`, `image-pair`, `text-pair`, `reviews`); `columns` says how
    each array column is stored, e.g. {"image": {"dtype": "uint8", "shape": [8, 8, 1]}}; `source` says where
    it came from: importer, parameters, licence, and `synthetic: true` where any of it was generated.
    """

    name: str
    uri: str
    kind: str
    splits: Mapping[str, tuple[Shard, ...]]
    classes: tuple[str, ...] = ()
    columns: Mapping[str, Any] = field(default_factory=dict)
    folds: Folds | None = None
    source: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, Any] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    @cached_property
    def digest(self) -> str:
        """SHA-256 over what a trial could see: schema, shards in order, classes, folds. 64 hex digits."""
        shards = {split: [[s.rows, s.content or s.sha256] for s in shards] for split, shards in self.splits.items()}
        folds = asdict(self.folds) if self.folds else None
        return canonical.digest(
            {
                "schema": self.schema_version,
                "kind": self.kind,
                "splits": shards,
                "classes": list(self.classes),
                "columns": self.columns,
                "folds": folds,
            }
        )

    def rows(self, split: str = "train") -> int:
        """Number of rows of `split`; 0 if there is no such split."""
        return sum(shard.rows for shard in self.splits.get(split, ()))

    @property
    def synthetic(self) -> bool:
        """Whether any of the data was generated rather than observed; shown wherever a result is."""
        return bool(self.source.get("synthetic", False))

    def with_folds(self, folds: Folds | None) -> "Manifest":
        """The same data with other folds: another digest, so other trials."""
        return replace(self, folds=folds)

    def to_json(self) -> str:
        """The text of `manifest.json`; `uri` is left out, since the file may be copied elsewhere."""
        fields = asdict(self) | {"digest": self.digest}
        del fields["uri"]
        return json.dumps(fields, indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str, uri: str) -> "Manifest":
        """Read `manifest.json` as found at `uri`; `DataError` when it is not one or its digest is not its own."""
        try:
            fields = json.loads(text)
            stated = fields.pop("digest")
            splits = {k: tuple(Shard(**s) for s in v) for k, v in fields.pop("splits").items()}
            folds = Folds(**f) if (f := fields.pop("folds")) else None
            manifest = cls(uri=uri, splits=splits, folds=folds, classes=tuple(fields.pop("classes")), **fields)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{uri}/{MANIFEST} is not a dataset manifest ({error}); stage the dataset again") from None
        if manifest.digest != stated:
            raise DataError(
                f"{uri}/{MANIFEST} states digest {stated[:12]} but its content has {manifest.digest[:12]}: "
                "it was edited; stage the dataset again"
            )
        return manifest
