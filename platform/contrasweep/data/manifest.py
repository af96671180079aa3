"""The description of a staged dataset: its shards and their digests, its classes, its folds."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, NotRequired, TypedDict

import pydantic

from contrasweep import canonical
from contrasweep.config import MutableConfig
from contrasweep.errors import BrokenFileError, DataError
from contrasweep.storage.json_file import read_plain, stored
from contrasweep.storage.names import FileName, Label, Name
from contrasweep.storage.record import Count, Seed

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
NO_DATA = "none"
"""Name and kind of a study's dataset where its programs bring their own data."""
REMEDY = "stage the dataset again"
MAX_ITEM = 2**40
"""The most values in an item of an array column."""

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
"""Dtypes that an array column may have."""


@stored
class Shard:
    """One Parquet file of a split."""

    file: FileName  # relative to the dataset's folder
    rows: Count
    bytes: Count  # size of the file
    sha256: Label  # of the file
    # SHA-256 of the decoded rows (`data.columns.content_digest`), which stays the same when another version of the
    # Parquet writer writes another file. "": not known, and `sha256` is used in its place.
    content: Label = ""

    def check(self, file: Path, name: str) -> None:
        """Raise `DataError` if `file` differs by a byte from the one that the manifest describes.

        `name` is the shard's address, for the error. `FileNotFoundError` where there is no file.
        """
        # The size is checked first, because that is quick and finds a truncated file.
        size = file.stat().st_size
        if size != self.bytes:
            raise DataError(
                f"{name} has {size:,} bytes, its manifest says {self.bytes:,}: it is truncated or was replaced; "
                + REMEDY
            )
        digest = canonical.file_digest(file)
        if digest != self.sha256:
            raise DataError(
                f"{name} has SHA-256 {digest[:12]}, its manifest says {self.sha256[:12]}: it is damaged; {REMEDY}"
            )


@stored
class Folds:
    """How rows of the training split are assigned to `count` folds: a part of the manifest and of its digest.

    The rule `stratified` gives each fold the same share of every class. `grouped` does so as far as whole groups allow.
    `given` takes the folds from the column `fold` of the data. `none` is for a program that partitions its own data.
    The fold of each row follows from the data and these fields alone (`data.folds`).
    """

    count: Count
    rule: Label = "stratified"
    seed: Seed = 0


ANY_SIDE = 0
"""Height and width in the shape of a column whose images differ in size."""


class ColumnSpec(TypedDict):
    """How an array column is stored."""

    dtype: str
    shape: list[int]  # of an item
    list: NotRequired[bool]  # true: a row has several items
    encoding: NotRequired[str]  # `image`: an item is a PNG or JPEG file, which decodes to `shape`


class SplitCounts(TypedDict, total=False):
    """The numbers of rows and groups of a split whose rows have labels."""

    classes: list[int]  # rows of each class, in the manifest's order
    groups: int  # number of groups


@dataclass(frozen=True)
class Manifest:
    """A staged dataset. Its digest does not depend on `name`, `uri`, `source` and `counts`."""

    name: str
    uri: str  # the dataset's folder or address
    kind: str  # of its rows: `image`, `image-pair`, `text-pair`, or another name that its importer gives
    splits: Mapping[str, tuple[Shard, ...]]
    classes: tuple[str, ...] = ()  # names, by label
    columns: Mapping[str, ColumnSpec] = field(default_factory=dict)  # array columns
    folds: Folds | None = None
    # Where it came from: importer, parameters, licence, and `synthetic: true` where any of it was generated.
    source: Mapping[str, object] = field(default_factory=dict)
    counts: Mapping[str, SplitCounts] = field(default_factory=dict)  # by split
    schema_version: int = SCHEMA_VERSION

    @cached_property
    def digest(self) -> str:
        """The SHA-256, 64 hexadecimal digits, of all that a trial can see: schema, shards in order, classes, folds."""
        # The digest of the rows where it is known, else that of the file.
        shards = {
            split: [[shard.rows, shard.content or shard.sha256] for shard in shards]
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
    def title(self) -> str:
        """The dataset's name with the start of its digest, `digits-lt (30dfb750)`.

        It is `the programs' own data` where programs bring their own data, which have no name.
        """
        if self.kind == NO_DATA:
            return "the programs' own data"
        return f"{self.name} ({self.digest[:8]})"

    @property
    def shards(self) -> list[Shard]:
        """The shards of all splits."""
        return [shard for shards in self.splits.values() for shard in shards]

    def rows(self, *splits: str) -> int:
        """Return the number of rows of `splits`, by default of "train"; a split that does not exist has 0."""
        return sum(
            shard.rows for split in splits or ("train",) for shard in self.splits.get(split, ())
        )

    @property
    def labelled(self) -> bool:
        """Whether its rows have labels, as they do in every kind but `image`.

        A dataset without labels serves pretraining only, and cannot be tested on.
        """
        return self.kind != "image" or bool(self.classes)

    @property
    def synthetic(self) -> bool:
        """Whether any of the data was generated and not observed, which is shown beside every result."""
        return bool(self.source.get("synthetic", False))

    def with_folds(self, folds: Folds | None) -> "Manifest":
        """Return the manifest of the same data with other folds.

        It has another digest, so that trials on it have other ids.
        """
        return replace(self, folds=folds)

    def to_json(self) -> str:
        """Return the text of manifest.json. It lacks `uri`, because the file may be copied elsewhere."""
        fields = asdict(self) | {"digest": self.digest}
        del fields["uri"]
        return json.dumps(fields, indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, data: str | bytes, uri: str, remedy: str = REMEDY) -> "Manifest":
        """Return the manifest in the text of a manifest.json that was read at `uri`, the dataset's folder or address.

        `DataError`, with the `remedy`, where it is not valid, or does not have the digest that it states.
        """
        data = data.encode() if isinstance(data, str) else data
        file = f"{uri}/{MANIFEST}"
        try:
            stored = read_plain(_STORED, data, SCHEMA_VERSION, file, remedy)
        except BrokenFileError as error:
            raise DataError(
                f"{file} is not a dataset manifest ({error.problem}); {remedy}"
            ) from None
        # A manifest computes its digest itself, which is compared with the stated one.
        fields = {name: value for name, value in vars(stored).items() if name != "digest"}
        manifest = cls(uri=uri, **fields)
        if manifest.digest != stored.digest:
            raise DataError(
                f"{file} states digest {stored.digest[:12]} but its content has {manifest.digest[:12]}: "
                f"it was edited; {REMEDY}"
            )
        return manifest


def _checked_column(column: MutableConfig) -> MutableConfig:
    """Return the entry of an array column unchanged; `ValueError` where its shape or dtype is missing or wrong."""
    shape = column.get("shape")
    if not isinstance(column.get("dtype"), str) or not isinstance(shape, list):
        raise ValueError("an array column has a dtype and a shape")
    if column["dtype"] not in DTYPES:  # `object` would be unpickled, and others have no fixed size
        raise ValueError(
            f"its dtype must be one of {', '.join(DTYPES)}, got {column['dtype'][:40]!r}"
        )
    if not all(type(size) is int and size >= 0 for size in shape) or math.prod(shape) > MAX_ITEM:
        raise ValueError(f"a shape is of sizes whose product is at most {MAX_ITEM:,}")
    return column


@stored
class _Stored:
    """The content of manifest.json."""

    name: Label
    kind: Label
    splits: Mapping[Name, tuple[Shard, ...]]
    classes: tuple[str, ...]
    folds: Folds | None
    digest: Label
    columns: Mapping[Name, Annotated[MutableConfig, pydantic.AfterValidator(_checked_column)]] = (
        field(default_factory=dict)
    )
    """Array columns, whose names become names of files in the node's cache."""
    source: Mapping[str, object] = field(default_factory=dict)
    counts: Mapping[Name, MutableConfig] = field(default_factory=dict)
    schema_version: Count = SCHEMA_VERSION

    def __post_init__(self) -> None:
        for counted in self.counts.values():
            # A split without labels has no counts of classes, which passes.
            rows = counted.get("classes", [0] * len(self.classes))
            if not isinstance(rows, list) or list(map(type, rows)) != [int] * len(self.classes):
                raise ValueError("counts: classes has a number of rows for each class")


_STORED = pydantic.TypeAdapter(_Stored)
