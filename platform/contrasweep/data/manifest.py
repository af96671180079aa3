"""The description of a staged dataset: its shards and their digests, its classes, its folds."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar, NotRequired, TypedDict

import pydantic

from contrasweep import canonical
from contrasweep.config import MutableConfig
from contrasweep.errors import BrokenFileError, DataError
from contrasweep.storage.json_file import SCHEMA, read_plain
from contrasweep.storage.names import FileName, Label, Name
from contrasweep.storage.record import Count, Seed

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
NO_DATA = "none"
"""The name and kind of the data of a study whose programs bring their own."""
REMEDY = "stage the dataset again"
MAX_ITEM = 2**40
"""An item of an array column has at most so many numbers."""

DTYPES = (
    "bool",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float16",
    "float32",
    "float64",
)
"""What an array column may hold."""


@dataclass(frozen=True)
class Shard:
    """One Parquet file of a split: its name below the dataset's folder, rows, size in bytes and SHA-256.

    `content` is the SHA-256 of the decoded rows (`data.columns.content_digest`): another version of the
    Parquet writer changes `sha256`, not `content`, and so not which dataset this is. Where `content` is "" the SHA-256
    stands for it.
    """

    __pydantic_config__: ClassVar[pydantic.ConfigDict] = SCHEMA

    file: FileName
    rows: Count
    bytes: Count
    sha256: Label
    content: Label = ""

    def check(self, file: Path, name: str) -> None:
        """Raise `DataError` if `file` differs by a byte from what the manifest records.

        `name` is the shard's address, for the error. `FileNotFoundError` where there is no file.
        """
        # The size first: it costs nothing, and tells a truncated file.
        if (size := file.stat().st_size) != self.bytes:
            raise DataError(
                f"{name} has {size:,} bytes, its manifest says {self.bytes:,}: it is truncated or was replaced; "
                + REMEDY
            )
        if (digest := canonical.file_digest(file)) != self.sha256:
            raise DataError(
                f"{name} has SHA-256 {digest[:12]}, its manifest says {self.sha256[:12]}: it is damaged; {REMEDY}"
            )


@dataclass(frozen=True)
class Folds:
    """How rows of the training split are assigned to `count` folds: part of the manifest and its digest.

    `rule`: `stratified` (by label), `grouped` (stratified, and a group never crosses), `given` (a column
    `fold` of the data); `none` where a program partitions its own data. The assignment itself is a pure function of the
    data and this rule (`data.folds`).
    """

    __pydantic_config__: ClassVar[pydantic.ConfigDict] = SCHEMA

    count: Count
    rule: Label = "stratified"
    seed: Seed = 0


ANY_SIDE = 0
"""As height and width of a shape: each image has its own."""


class ColumnSpec(TypedDict):
    """How an array column is stored.

    `dtype` and `shape` of one item; `list: true` when a row holds several items; `encoding: image` when the bytes are a
    PNG or JPEG file that decodes to `shape`, whose height and width are `ANY_SIDE` where images differ in size.
    """

    dtype: str
    shape: list[int]
    list: NotRequired[bool]
    encoding: NotRequired[str]


class SplitCounts(TypedDict, total=False):
    """Counts of a labelled split: rows of each class, in the manifest's order, and the number of groups."""

    classes: list[int]
    groups: int


@dataclass(frozen=True)
class Manifest:
    """A staged dataset.

    `uri`, `name` and `source` say where it is and are no part of its digest. `counts`, by split, follow from its rows
    and are none either.

    `kind` names the schema of its rows (`image`, `image-pair`, `text-pair`, or what its importer calls it);
    `columns` says how each array column is stored, e.g. {"image": {"dtype": "uint8", "shape": [8, 8, 1]}}; `source`
    says where it came from: importer, parameters, licence, and `synthetic: true` where any of it was generated.
    """

    name: str
    uri: str
    kind: str
    splits: Mapping[str, tuple[Shard, ...]]
    classes: tuple[str, ...] = ()
    columns: Mapping[str, ColumnSpec] = field(default_factory=dict)
    folds: Folds | None = None
    source: Mapping[str, object] = field(default_factory=dict)
    counts: Mapping[str, SplitCounts] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of what a trial could see, 64 hexadecimal digits: schema, shards in order, classes, folds.

        Of a shard it is the content, or where that is not recorded the bytes.
        """
        shards = {
            split: [[s.rows, s.content or s.sha256] for s in shards]
            for split, shards in self.splits.items()
        }
        return canonical.digest(
            {
                "schema": self.schema_version,
                "kind": self.kind,
                "splits": shards,
                "classes": list(self.classes),
                "columns": self.columns,
                "folds": self.folds and asdict(self.folds),
            }
        )

    @property
    def shards(self) -> list[Shard]:
        """The shards of all splits."""
        return [shard for shards in self.splits.values() for shard in shards]

    def rows(self, split: str = "train") -> int:
        """Return the number of rows of `split`; 0 if there is no such split."""
        return sum(shard.rows for shard in self.splits.get(split, ()))

    @property
    def labelled(self) -> bool:
        """Whether its rows have labels. Without them a dataset serves pretraining alone, and cannot be tested on."""
        return self.kind != "image" or bool(self.classes)

    @property
    def synthetic(self) -> bool:
        """Whether any of the data was generated rather than observed; shown wherever a result is."""
        return bool(self.source.get("synthetic", False))

    def with_folds(self, folds: Folds | None) -> "Manifest":
        """Return the same data with other folds: another digest, so other trials."""
        return replace(self, folds=folds)

    def to_json(self) -> str:
        """Return the text of `manifest.json`, without `uri`, since the file may be copied elsewhere."""
        fields = asdict(self) | {"digest": self.digest}
        del fields["uri"]
        return json.dumps(fields, indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, data: str | bytes, uri: str) -> "Manifest":
        """Return the manifest in the text of a `manifest.json` as found at `uri`, the dataset's folder or address.

        `DataError` when it is not one, or its digest is not its own.
        """
        data = data.encode() if isinstance(data, str) else data
        file = f"{uri}/{MANIFEST}"
        try:
            stored = read_plain(_STORED, data, SCHEMA_VERSION, file, REMEDY)
        except BrokenFileError as error:
            raise DataError(
                f"{file} is not a dataset manifest ({error.problem}); {REMEDY}"
            ) from None
        # The digest is worked out from the content, and only compared with the one that is stated.
        manifest = cls(
            uri=uri, **{name: value for name, value in vars(stored).items() if name != "digest"}
        )
        if manifest.digest != stored.digest:
            raise DataError(
                f"{file} states digest {stored.digest[:12]} but its content has {manifest.digest[:12]}: "
                f"it was edited; {REMEDY}"
            )
        return manifest


def _checked_column(column: MutableConfig) -> MutableConfig:
    """Return the entry of an array column unchanged; `ValueError` where it lacks a shape or a dtype of numbers."""
    shape = column.get("shape")
    if not isinstance(column.get("dtype"), str) or not isinstance(shape, list):
        raise ValueError("an array column has a dtype and a shape")
    if column["dtype"] not in DTYPES:  # `object` would be unpickled, others have no width
        raise ValueError(
            f"its dtype must be one of {', '.join(DTYPES)}, got {column['dtype'][:40]!r}"
        )
    if not all(type(size) is int and size >= 0 for size in shape) or math.prod(shape) > MAX_ITEM:
        raise ValueError(f"a shape is of sizes whose product is at most {MAX_ITEM:,}")
    return column


@dataclass
class _Stored:
    """The content of manifest.json."""

    __pydantic_config__ = SCHEMA

    name: Label
    kind: Label
    splits: Mapping[Name, tuple[Shard, ...]]
    classes: tuple[str, ...]
    folds: Folds | None
    digest: Label
    columns: Mapping[Name, Annotated[MutableConfig, pydantic.AfterValidator(_checked_column)]] = (
        field(default_factory=dict)
    )
    """Their names are those of files in the node's cache."""
    source: Mapping[str, object] = field(default_factory=dict)
    counts: Mapping[Name, MutableConfig] = field(default_factory=dict)
    schema_version: Count = SCHEMA_VERSION

    def __post_init__(self) -> None:
        # A split without labels has no counts of classes.
        for counted in self.counts.values():
            rows = counted.get("classes", [0] * len(self.classes))
            if not isinstance(rows, list) or list(map(type, rows)) != [int] * len(self.classes):
                raise ValueError("counts: classes has a number of rows for each class")


_STORED = pydantic.TypeAdapter(_Stored)
