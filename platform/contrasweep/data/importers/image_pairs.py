"""Pairs of images, before and after, that are listed in a CSV; a pair may be a crop of larger images.

pre, post    paths relative to the CSV
label
x, y, size   optional: a square crop, in pixels from the left and the top; empty: the whole image
group        optional: rows of the same scene
fold         optional: the owner's folds, which are never changed; may be empty outside the training split
split        optional: the split; empty: `train`
id           optional: the owner's name of the pair
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from contrasweep.data import columns, images, safety
from contrasweep.data.content import Content, Importer, Published, Rejected, published_images
from contrasweep.data.csv_text import read_csv, warn_of_unused
from contrasweep.data.importers.encoded_images import SPLIT_OF_WORD, Copies, Side
from contrasweep.data.manifest import ColumnSpec, Folds
from contrasweep.errors import DataError
from contrasweep.schema import checked

T = TypeVar("T")
Image = NDArray[np.uint8]
SIDES = ("pre", "post")
COLUMNS = (*SIDES, "label", "x", "y", "size", "group", "fold", "split", "id")
"""All columns that a list may have; the first three must be there."""
BATCH = 512
"""The most pairs of a table."""
NUMBER_COLUMNS = ("x", "y", "size", "fold")
"""Columns whose cells are whole numbers, or empty."""
NUMBER_LIMIT = 2**31
"""Each number n in these columns is stored with 32 bits: -NUMBER_LIMIT <= n < NUMBER_LIMIT."""


class Row(dict[str, str]):
    """A row of the list: column -> cell, and the `line` on which the row ends."""

    def __init__(self, cells: dict[str, str], line: int) -> None:
        super().__init__(cells)
        self.line = line

    @property
    def split(self) -> str:
        """The split that the row names, `train` where it names none; `SPLIT_OF_WORD` has further words for splits."""
        split = self.get("split") or "train"
        return SPLIT_OF_WORD.get(split.lower(), split)


@checked
class Settings:
    """Settings of a list of pairs."""

    csv: str | None = None
    """The list's name, where `--source` is a folder."""
    size: Side | None = None
    """Side to which every image or crop is scaled."""
    classes: list[str] | None = None
    """Names of the classes, in the order of the labels where these are numbers."""
    folds: Literal["list", "groups"] = "list"
    """`list`: the folds of the list; `groups`: each group is a fold (leave one group out)."""


def read(source: Path, settings: Settings) -> Content:
    """Return the pairs that the CSV lists; their images are cut when the tables are read.

    `source` is the CSV, or with `settings.csv` a folder with it. Pairs whose images cannot be read are left out and
    counted. `DataError` where no row is for training, or a row cannot be used.
    """
    path = source / safety.check_member(settings.csv, str(source)) if settings.csv else source
    return of_rows(path, list_rows(path), settings)


def of_rows(path: Path, rows: list[Row], settings: Settings) -> Content:
    """Return the pairs of these rows of the list at `path`; paths of images are relative to it. See `read`.

    `DataError` as for `read`, and where the settings need groups that rows do not have.
    """
    if settings.folds == "groups":
        # The fold of a training row is the number of its group, in the order of the list.
        fold_of: dict[str, int] = {}
        for row in rows:
            if not row.get("group"):
                raise DataError(
                    f"{path}, line {row.line}: this pair has no group, which folds=groups needs"
                )
            # A fold that the list names does not count; rows for tests have none.
            row["fold"] = ""
            if row.split == "train":
                row["fold"] = str(fold_of.setdefault(row["group"], len(fold_of)))
        if len(fold_of) == 1:
            raise DataError(
                f"{path}: all training rows are of the group {next(iter(fold_of))!r}; folds=groups needs two"
            )
    classes, labels = _classes(path, rows, settings.classes)
    specs: dict[str, ColumnSpec] = {}
    rejected = Rejected()
    copies = Copies()
    names = sorted({row.split for row in rows} - {"train"})
    # Without a test split the validation split takes its place.
    stored_names = {} if "test" in names else {"val": "test"}
    if all(row.split != "train" for row in rows):
        raise DataError(
            f"{path} has no row of the split train, only of {', '.join(names)}: leave the split of training rows empty "
            "or write train"
        )
    splits = {}
    for name in ("train", *names):
        labelled = [
            (row, label) for row, label in zip(rows, labels, strict=True) if row.split == name
        ]
        pairs = _pairs(path, labelled, settings.size, specs, rejected, copies)
        splits[stored_names.get(name, name)] = pair_tables(pairs, specs, _columns)
    return Content(
        "image-pair",
        splits,
        classes,
        specs,
        _folds(path, rows),
        rejected=rejected,
        copies=copies.counts,
    )


def pair_tables(
    pairs: Iterable[tuple[T, Image, Image]],
    specs: Mapping[str, ColumnSpec],
    columns_of: Callable[[list[T]], Mapping[str, object]],
) -> Iterator[pa.Table]:
    """Yield tables with the images of pairs in the columns `pre` and `post`, and with further columns about the pairs.

    Each pair is (row, image before, image after), where the row may have any type. `columns_of(rows)` returns the
    further columns, name -> values, for a list of rows. All images have the same shape [h w c]; `specs` has the spec of
    the columns `pre` and `post`.
    """
    waiting = iter(pairs)
    while batch := list(islice(waiting, BATCH)):
        rows, before, after = zip(*batch, strict=True)
        sides = {
            "pre": columns.from_array(np.stack(before)),
            "post": columns.from_array(np.stack(after)),
        }
        yield columns.table(sides | dict(columns_of(list(rows))), specs)


def list_rows(path: Path) -> list[Row]:
    """Return the rows of the list at `path`; `DataError` names a line that cannot be used.

    Empty lines are ignored. Whether images exist is not checked here.
    """
    # `utf-8-sig`, because Excel writes a byte-order mark.
    header, listed = read_csv(path.read_text("utf-8-sig"), path)
    missing = [name for name in COLUMNS[:3] if name not in header]
    if missing:
        raise DataError(
            f"{path} has no column {', '.join(missing)}; it must list pairs by pre, post and label, and its header is "
            f"{','.join(header)[:100]!r}"
        )
    if not listed:
        raise DataError(f"{path} lists no pairs; below its header there must be a row for each")
    warn_of_unused(header, COLUMNS, path)
    return [_row(path, line, cells) for line, cells in listed]


def _row(path: Path, line: int, cells: dict[str, str]) -> Row:
    """Return the pair that a row of the CSV file at `path` describes.

    `cells` is column -> text; blanks around a text are removed. `line` is the row's last line, which errors name.
    `DataError` where the row lacks its label or fold, a number is not valid, or a crop is not complete.
    """
    place = f"{path}, line {line}"
    row = Row({name: cell.strip() for name, cell in cells.items()}, line)
    if not row["label"]:
        raise DataError(f"{place}: label is empty; every pair needs one")
    for name in NUMBER_COLUMNS:
        if name in row:
            row[name] = _number(place, name, row[name])
    if row.get("fold") == "" and row.split == "train":
        raise DataError(
            f"{place}: fold is empty; every row of the training split needs its fold, numbered from 0, or "
            "the list no column fold"
        )
    # Without a size the whole image is taken, and x and y are not used.
    size = row.get("size")
    if not size:
        return row
    if int(size) < 1:
        raise DataError(
            f"{place}: size must be at least 1, got {size!r}; leave it empty to take the image whole"
        )
    for name in ("x", "y"):
        if not row.get(name):
            raise DataError(
                f"{place}: size is {size!r} without {name}: a crop needs x, y and size; leave size empty to take the "
                "image whole"
            )
    return row


def _number(place: str, name: str, text: str) -> str:
    """Return `text` if it is empty or a whole number of 32 bits; else `DataError`.

    `place` and the column's `name` are for the error.
    """
    with contextlib.suppress(ValueError):
        if not text or -NUMBER_LIMIT <= int(text) < NUMBER_LIMIT:
            return text
    raise DataError(f"{place}: {name} must be a whole number, such as 64, or empty, got {text!r}")


def _classes(
    path: Path, rows: list[Row], names: Sequence[str] | None
) -> tuple[tuple[str, ...], list[int]]:
    """Return the names of the classes, and for each row the index of its class.

    `names` are the names in the settings; None: they have none. Where all labels of the list are whole numbers, these
    are the indices, and the classes have the `names` or are named "0", "1" and so on. Where labels are words, they are
    the names of the classes, in the order of `names`, or sorted.

    `DataError` for a number that is none of the classes, or a word that is not in `names`.
    """
    texts = [row["label"] for row in rows]
    if all(text.isdecimal() for text in texts):
        labels = [int(text) for text in texts]
        count = len(names or set(labels))
        for row, label in zip(rows, labels, strict=True):
            if label >= count:
                raise DataError(
                    f"{path}, line {row.line}: label {label} is none of the {count} classes, whose numbers run from 0 "
                    f"to {count - 1} without a gap: renumber them, or name every class, those without a pair too, with "
                    "--set classes='[NAME, NAME, ...]'"
                )
        return tuple(names or map(str, range(count))), labels
    class_names = tuple(names or sorted(set(texts)))
    unknown = sorted(set(texts) - set(class_names))
    if unknown:
        raise DataError(f"{path}: labels {unknown} are not among `classes` {list(class_names)}")
    return class_names, [class_names.index(text) for text in texts]


def _folds(path: Path, rows: list[Row]) -> Folds | None:
    """Return the folds of the list, or None where rows have neither folds nor groups.

    With a column `fold`, the rule is `given`. With a column `group` only, there are five folds that keep groups whole.
    `DataError` where a group has rows in two folds, or where folds are not numbered from 0 without a gap.
    """
    if "fold" not in rows[0]:
        return Folds(5, "grouped") if "group" in rows[0] else None
    train = [row for row in rows if row.split == "train"]
    first_rows: dict[str, Row] = {}  # by group
    for row in train:
        # The first row of the group. A row without a group is compared with itself, which passes.
        first = first_rows.setdefault(row["group"], row) if row.get("group") else row
        if first["fold"] != row["fold"]:
            raise DataError(
                f"{path}, line {row.line}: group {row['group']!r} is in fold {row['fold']} here and in fold "
                f"{first['fold']} on line {first.line}: a group must not be trained and tested on; give all its "
                "rows one fold, or leave out the column fold"
            )
    names = sorted({row["fold"] for row in train})
    if len(names) < 2 or names != sorted(map(str, range(len(names)))):
        raise DataError(
            f"{path}: there must be two folds or more, numbered from 0 without a gap, got {names}"
        )
    return Folds(len(names), "given")


def _pairs(
    path: Path,
    rows: Iterable[tuple[Row, int]],
    size: int | None,
    specs: dict[str, ColumnSpec],
    rejected: Rejected,
    copies: Copies,
) -> Iterator[tuple[tuple[Row, int], Image, Image]]:
    """Yield ((row, label), image before, image after) for each row whose images can be read.

    Args:
        path: The list's path.
        rows: The rows of one split, with their labels.
        size: Side to which images are scaled; None: they keep their size.
        specs: Gets the specs of the two columns, with the shape of the first image.
        rejected: Counts the rows whose images cannot be read.
        copies: Counts the pairs that are equal in every pixel to an earlier one.

    Raises:
        DataError: Images have different shapes.
    """
    # Neighbouring rows crop the same pair, so that few images are open at a time.
    open_image = lru_cache(8)(
        lambda name: images.read(path.parent / safety.check_member(name, str(path.parent)))
    )
    for row, label in rows:
        try:
            pre, post = (_crop(open_image(row[side]), row, size) for side in SIDES)
        except images.BrokenImage as error:
            # Details in brackets are left out, so that equal reasons are counted together.
            rejected.add(str(error).split(" (")[0], f"{row['pre']} | {row['post']}")
            continue
        # All images must have the shape of the first one.
        if not specs:
            specs |= {side: columns.spec("uint8", pre.shape) for side in SIDES}
        shape = specs["pre"]["shape"]
        if list(pre.shape) != shape or list(post.shape) != shape:
            raise DataError(
                f"{path}, line {row.line}: {row['pre']} gives {list(pre.shape)} and {row['post']} "
                f"{list(post.shape)}, those before {shape}: --set size=64 brings all to one size, and grey ones next "
                "to colour are to be converted first"
            )
        copies.add(pre.tobytes() + post.tobytes(), row.split, label)
        yield (row, label), pre, post


def _columns(rows: list[tuple[Row, int]]) -> dict[str, pa.Array]:
    """Return name -> values of all columns but the images, for some rows with their labels.

    These are `label`, and those of `pre_path`, `post_path`, `x`, `y`, `group`, `fold` and `id` that the list has. An
    empty number becomes null.
    """
    arrays = {"label": pa.array([label for _, label in rows], pa.int32())}
    first, _ = rows[0]
    for name in ("pre", "post", "x", "y", "group", "fold", "id"):
        if name not in first:
            continue
        cells = [row[name] for row, _ in rows]
        if name in NUMBER_COLUMNS:
            arrays[name] = pa.array([int(cell) if cell else None for cell in cells], pa.int32())
        else:
            arrays[f"{name}_path" if name in SIDES else name] = pa.array(cells, pa.string())
    return arrays


def _crop(image: Image | str, row: Row, size: int | None) -> Image:
    """Return the row's crop of the image, or the whole image, scaled to a side of `size` (None: not scaled).

    `BrokenImage` where the crop is not inside the image, or `image` is a text that says why it cannot be read.
    """
    if isinstance(image, str):
        raise images.BrokenImage(image)
    if row.get("size"):
        x = int(row["x"])
        y = int(row["y"])
        side = int(row["size"])
        if x < 0 or y < 0 or x + side > image.shape[1] or y + side > image.shape[0]:
            raise images.BrokenImage("crop outside the image")
        image = image[y : y + side, x : x + side]
    return image if size is None else images.resize(image, size, size)


IMAGE_PAIRS = Importer(
    read,
    "pairs of images listed in a CSV",
    "that of its owner",
    "a CSV with columns pre, post, label and perhaps x, y, size, group, fold, split",
    Settings,
    own=True,
)


def _published_hra(settings: Settings) -> Published:
    """Return the description of the dataset HRA that the paper LOCAL gives.

    Its images have 512 pixels a side, unless the settings have another size.
    """
    side = settings.size or 512
    return published_images({"train": 3_389}, 5, (side, side, 3), SIDES)


HRA = replace(
    IMAGE_PAIRS,
    about="LOCAL's HRA, private: 3,389 pairs before and after disasters, 5 damage classes, listed as image-pairs are",
    published=_published_hra,
)
