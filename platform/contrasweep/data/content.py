"""The result of an importer: tables of rows for each split, with their description."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contrasweep.data.manifest import ColumnSpec, Folds
from contrasweep.schema import checked

if TYPE_CHECKING:  # names of datasets are read where nothing else needs it
    import pyarrow as pa


def readable(name: str) -> str:
    """Return a file's name as text, with a backslash and two digits for each byte that is not UTF-8."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


@dataclass
class Rejected:
    """The items that an importer left out: their number by reason, and the first `NAMES` names of each reason."""

    NAMES = 20
    counts: Counter[str] = field(default_factory=Counter)
    names: dict[str, list[str]] = field(default_factory=dict)

    def add(self, reason: str, name: str | Path) -> None:
        """Count one item with this name as left out for `reason`."""
        self.counts[reason] += 1
        first_names = self.names.setdefault(reason, [])
        if len(first_names) < self.NAMES:
            first_names.append(readable(str(name)))

    def __str__(self) -> str:
        """Return `3 (file .gif), 1 (hidden folder)`."""
        return ", ".join(f"{n} ({reason})" for reason, n in sorted(self.counts.items()))

    def to_dict(self) -> dict[str, object]:
        """Return what was left out, for the manifest, by reason: the number of items and the names of the first ones.

        For example `{"corrupt": {"count": 3, "first": ["a.jpg", ...]}}`.
        """
        return {
            reason: {"count": n, "first": self.names[reason]}
            for reason, n in sorted(self.counts.items())
        }


@dataclass(frozen=True)
class Content:
    """A dataset as read from its published format.

    Args:
        kind: the schema of its rows: `image`, `image-pair`, `text-pair`, or a name of your own.
        splits: tables of rows by split. They are read once, in order, table by table, so that a dataset may be larger
            than memory. A study trains on the split `train` and tests on `test`.
        classes: names of the classes, by label; empty where rows have no `label`.
        columns: how each array column is stored (`contrasweep.data.columns.spec`).
        folds: the rule and the seed by which rows are assigned when a study asks for folds. The study sets the
            number of folds; `folds.count` is used only where the data come with folds.
        source: facts on the origin for the manifest, beside the importer's name, settings and licence.
        rejected: the items that were left out. They are added while the tables are read.
        copies: how many items are equal to an earlier one: `within` the same split, `across splits`, and how many of
            both are `of another class`. They are counted while the tables are read.
    """

    kind: str
    splits: Mapping[str, Iterable["pa.Table"]]
    classes: tuple[str, ...] = ()
    columns: Mapping[str, ColumnSpec] = field(default_factory=dict)
    folds: Folds | None = None
    source: Mapping[str, object] = field(default_factory=dict)
    rejected: Rejected = field(default_factory=Rejected)
    copies: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Published:
    """A dataset as its paper describes it, which is enough to plan a study.

    `kind`, `classes`, `columns` and `source` are as in `Content`; `rows` is split -> number of rows.
    """

    kind: str
    rows: Mapping[str, int]
    classes: tuple[str, ...]
    columns: Mapping[str, ColumnSpec] = field(default_factory=dict)
    source: Mapping[str, object] = field(default_factory=dict)


def published_images(
    rows: Mapping[str, int], classes: int, shape: Sequence[int], names: Sequence[str] = ("image",)
) -> Published:
    """Return the description of a dataset of images with this `shape` [h w c], or of pairs of them.

    `rows` is split -> number of rows, `classes` the number of classes. `names` are the columns: one, or two for pairs.
    """
    kind = "image" if len(names) == 1 else "image-pair"
    columns: dict[str, ColumnSpec] = {
        name: {"dtype": "uint8", "shape": list(shape)} for name in names
    }
    return Published(kind, rows, tuple(map(str, range(classes))), columns)


@checked
class NoSettings:
    """The settings of a dataset that has none."""


@dataclass(frozen=True)
class Importer:
    """Reads a dataset from its published format.

    Args:
        read: a function `(source, settings)` that returns the `Content`; `source` is a path, `settings` an object of
            the class `settings`. It raises `DataError`, one line, where the source is not what it must be.
        about: one line on the dataset.
        licence: that of the data.
        source: what `--source` must be; empty: the dataset comes with the package.
        settings: the class of the settings, a dataclass with the decorator `contrasweep.schema.checked`.
        fetch: a function `(folder)` that downloads the source there and returns its path; None: it cannot be
            downloaded.
        own: whether it reads users' own data. Such a dataset is named after the folder that it is staged in.
        published: a function `(settings)` that returns the dataset as its paper describes it (None: no paper does), so
            that a study of it can be planned before it is staged.
    """

    read: Callable[[Path, Any], Content]
    about: str
    licence: str
    source: str = ""
    settings: Any = NoSettings
    fetch: Callable[[Path], Path] | None = None
    own: bool = False
    published: Callable[[Any], Published | None] = lambda settings: None
