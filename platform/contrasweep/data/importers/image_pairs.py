"""Image pairs listed in a CSV: before and after, perhaps a crop of larger images.

Columns `pre`, `post` (paths relative to the CSV) and `label`; optional `x`, `y`, `size` (a square crop, pixels from
the left and the top; empty where the image is taken whole), `group` (rows that share a scene), `fold` (the owner's
folds, never changed; may be empty outside the training split), `split`, `id` (the owner's name of the pair).
"""

import contextlib
import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from contrasweep.data import columns, images, safety
from contrasweep.data.content import Content, Importer, Rejected
from contrasweep.data.importers.encoded_images import Side
from contrasweep.data.manifest import ColumnSpec, Folds
from contrasweep.errors import DataError, plural
from contrasweep.schema import checked

T = TypeVar("T")
Image = NDArray[np.uint8]
Colours = dict[tuple[str, str], NDArray[np.float64]]
"""Group and side -> sums [3, c] over its pixels."""
SIDES = ("pre", "post")
BATCH = 512
"""Pairs of a table, at most."""
NUMBERS = ("x", "y", "size", "fold")
"""Columns whose cells are whole numbers, or empty."""
LIMIT = 2**31
"""Such a number fits 32 bits."""
MEAN = 128.0
"""Mean of normalised colours."""
DEVIATION = 42.0
"""Standard deviation of normalised colours: three to either side of the mean fit a byte."""


class Row(dict[str, str]):
    """The cells of one row by column, and the line of the list on which it ends."""

    def __init__(self, cells: dict[str, str], line: int) -> None:
        super().__init__(cells)
        self.line = line

    @property
    def split(self) -> str:
        """The split that the row names; `train` where it names none."""
        return self.get("split") or "train"


@checked
class Settings:
    """Settings of a list of pairs.

    `csv`: the list's name where `--source` is a folder. `size`: side that every image or crop is brought to. `classes`:
    names in the order of the labels, where labels are numbers. `folds`: `list`, those of the list, or `groups`, each
    group a fold of its own (leave one group out). `normalise`: `group` brings the colours of each group to one mean and
    deviation, each side and channel by itself.
    """

    csv: str | None = None
    size: Side | None = None
    classes: list[str] | None = None
    folds: Literal["list", "groups"] = "list"
    normalise: Literal["none", "group"] = "none"


def read(source: Path, settings: Settings) -> Content:
    """Return the pairs that the CSV lists, split by split, with their images cut while tables are read.

    `source` is the CSV, or with `settings.csv` a folder with it. `DataError` if none of its rows is for training, or
    one cannot be used; pairs whose images cannot be read are left out and counted.
    """
    path = source / safety.check_member(settings.csv, str(source)) if settings.csv else source
    return of_rows(path, list_rows(path), settings)


def of_rows(path: Path, rows: list[Row], settings: Settings) -> Content:
    """Return the pairs of these rows of the list at `path`, which folders of images are relative to; see `read`.

    `DataError` as there, and where groups are asked for that rows do not have.
    """
    # What needs every row to have its group.
    by_group = settings.folds == "groups" or settings.normalise == "group"
    if by_group and (row := next((row for row in rows if not row.get("group")), None)) is not None:
        raise DataError(
            f"{path}, line {row.line}: this pair has no group, which folds=groups and normalise=group "
            "need; give every row its group, or leave these two settings out"
        )
    if settings.folds == "groups":
        _hold_out_groups(path, rows)
    classes, labels = _classes(path, rows, settings.classes)
    specs: dict[str, ColumnSpec] = {}
    rejected = Rejected()
    # Training first, then the others by name.
    names = sorted({row.split for row in rows}, key=lambda name: (name != "train", name))
    if names[0] != "train":
        raise DataError(
            f"{path} has no row of the split train, only of {', '.join(names)}: leave the split of training rows empty "
            "or write train"
        )
    colours = _group_colours(path, rows, settings.size) if settings.normalise == "group" else None
    splits = {}
    for name in names:
        chosen = [
            (row, label) for row, label in zip(rows, labels, strict=True) if row.split == name
        ]
        splits[name] = pair_tables(
            _pairs(path, chosen, settings.size, specs, rejected, colours), specs, _columns
        )
    return Content("image-pair", splits, classes, specs, _folds(path, rows), rejected=rejected)


def pair_tables(
    pairs: Iterable[tuple[T, Image, Image]],
    specs: Mapping[str, ColumnSpec],
    columns_of: Callable[[list[T]], Mapping[str, object]],
) -> Iterator[pa.Table]:
    """Yield tables with the columns `pre` and `post`, and those that `columns_of` makes of the pairs' rows.

    A pair is its row, whatever that is, and the images before and after [h w c], all of one shape. `specs` says how the
    image columns are stored.
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
    """Return the rows of the list at `path`, their numbers checked; `DataError` names the line that cannot be used.

    Empty lines are passed over. Images are not looked for.
    """
    # Excel begins UTF-8 with a byte-order mark.
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        listed = [(reader.line_num, cells) for cells in reader if cells]
    if missing := [name for name in ("pre", "post", "label") if name not in header]:
        raise DataError(
            f"{path} has no column {', '.join(missing)}; it must list pairs by pre, post and label"
        )
    if not listed:
        raise DataError(f"{path} lists no pairs; below its header there must be a row for each")
    return [_row(path, line, header, cells) for line, cells in listed]


def _row(path: Path, line: int, names: list[str], cells: list[str]) -> Row:
    """Return the row of the list at `path` that ends on `line`: its `cells` by the columns `names`.

    `DataError` if a row of this split cannot do with them: it lacks its label or fold, a number is none, or a crop is
    not whole.
    """
    place = f"{path}, line {line}"
    # Cells beyond the header are let pass if they are empty: spreadsheets write such.
    if len(cells) < len(names) or any(cells[len(names) :]):
        raise DataError(
            f"{place} has {plural(len(cells), 'cell')}, its header {len(names)} ({', '.join(names)}): write an empty "
            "cell where there is no value, and quotes around one that holds a comma"
        )
    row = Row(dict(zip(names, cells, strict=False)), line)
    if not row["label"]:
        raise DataError(f"{place}: label is empty; every pair needs one")
    for name in NUMBERS:
        if name in row:
            row[name] = _number(place, name, row[name])
    if row.get("fold") == "" and row.split == "train":
        raise DataError(
            f"{place}: fold is empty; every row of the training split needs its fold, numbered from 0, or "
            "the list no column fold"
        )
    # Without a size the image is taken whole, whatever x and y say.
    size = row.get("size")
    if not size:
        return row
    if int(size) < 1:
        raise DataError(
            f"{place}: size must be at least 1, got {size!r}; leave it empty to take the image whole"
        )
    for name in ("x", "y"):
        if not row.get(name):
            lack = f"{name} is empty" if name in row else f"there is no column {name}"
            raise DataError(
                f"{place}: size is {size!r} but {lack}: a crop needs x, y and size; leave size empty to take "
                "the image whole"
            )
    return row


def _number(place: str, name: str, text: str) -> str:
    """Return `text` without the blanks around it, if it is empty or a whole number of 32 bits.

    `DataError` at `place`, with the column's `name`, if it is neither.
    """
    text = text.strip()
    with contextlib.suppress(ValueError):
        if not text or -LIMIT <= int(text) < LIMIT:
            return text
    raise DataError(f"{place}: {name} must be a whole number, such as 64, or empty, got {text!r}")


def _classes(
    path: Path, rows: list[Row], names: Sequence[str] | None
) -> tuple[tuple[str, ...], list[int]]:
    """Return the class names and the index of each row's; `names` are those of the settings, in order (None: none).

    Labels that are all numbers are the indices themselves; `names` name them, else their digits do. Other labels are
    names, in the order of `names`, else sorted. `DataError` for a label without a name, and for numbers with a gap.
    """
    texts = [row["label"] for row in rows]
    if all(text.isdecimal() for text in texts):
        labels = [int(text) for text in texts]
        values = sorted(set(labels))
        # A label from `count` on has no name, or a smaller number has no row.
        count = len(names or values)
        if (at := next((i for i, label in enumerate(labels) if label >= count), None)) is not None:
            place = f"{path}, line {rows[at].line}"
            if names:
                raise DataError(
                    f"{place}: label {labels[at]} has no name among the {count} of `classes`, which name "
                    f"0 to {count - 1}"
                )
            listed = ", ".join(map(str, values[:20])) + (", ..." if count > 20 else "")
            raise DataError(
                f"{place}: labels that are numbers must run from 0 to {count - 1} without a gap, got {labels[at]} "
                f"among {listed}: renumber them, or name every class from 0 to {values[-1]}, those without a "
                "pair too, with --set classes='[NAME, NAME, ...]'"
            )
        return tuple(names or map(str, values)), labels
    class_names = tuple(names or sorted(set(texts)))
    if unknown := sorted(set(texts) - set(class_names)):
        raise DataError(f"{path}: labels {unknown} are not among `classes` {list(class_names)}")
    return class_names, [class_names.index(text) for text in texts]


def _hold_out_groups(path: Path, rows: list[Row]) -> None:
    """Set the column `fold` of all rows: for training the number of their group, in the order of the list; else "".

    `DataError` where there is one group alone.
    """
    number: dict[str, int] = {}  # group -> its fold
    for row in rows:
        row["fold"] = (
            str(number.setdefault(row["group"], len(number))) if row.split == "train" else ""
        )
    if len(number) == 1:
        raise DataError(
            f"{path}: all training rows are of the group {next(iter(number))!r}; folds=groups needs two"
        )


def _folds(path: Path, rows: list[Row]) -> Folds | None:
    """Return the folds of a list: its column `fold`, else five by group, else None.

    `DataError` where a group is in two of them, or their numbers have a gap.
    """
    if "fold" not in rows[0]:
        return Folds(5, "grouped") if "group" in rows[0] else None
    listed = [row for row in rows if row.split == "train"]
    held_in: dict[str, Row] = {}  # group -> its first row
    for row in listed:
        first = held_in.setdefault(row["group"], row) if row.get("group") else row
        if first["fold"] != row["fold"]:
            raise DataError(
                f"{path}, line {row.line}: group {row['group']!r} is in fold {row['fold']} here and in fold "
                f"{first['fold']} on line {first.line}: a group must not be trained and tested on; give all its "
                "rows one fold, or leave out the column fold"
            )
    names = sorted({row["fold"] for row in listed})
    if names != sorted(map(str, range(len(names)))):
        raise DataError(f"{path}: folds must be numbered from 0 without a gap, got {names}")
    return Folds(len(names), "given")


def _pairs(
    path: Path,
    rows: Iterable[tuple[Row, int]],
    size: int | None,
    specs: dict[str, ColumnSpec],
    rejected: Rejected,
    colours: Colours | None,
) -> Iterator[tuple[tuple[Row, int], Image, Image]]:
    """Yield the rows whose images can be read, with their labels, and both images; `specs` gets the first one's shape.

    `rows` are those of one split with their labels, `size` the side to bring images to (None: as they are), and
    `colours` what `_group_colours` gives (None: colours stay). Others are counted in `rejected`. `DataError` where
    images have different shapes.
    """
    # Neighbouring rows crop the same pair, so that few images are open at a time.
    open_image = lru_cache(8)(lambda name: _open(path.parent, name))
    for row, label in rows:
        try:
            pre, post = (_crop(open_image(row[side]), row, size) for side in SIDES)
        except images.BrokenImage as error:
            # The reason without what only this image has, so that equal reasons are counted together.
            rejected.add(str(error).split(" (")[0], f"{row['pre']} | {row['post']}")
            continue
        # The first pair that can be read says which shape all others must have.
        shape = list(specs.setdefault("pre", columns.spec("uint8", pre.shape))["shape"])
        specs.setdefault("post", columns.spec("uint8", pre.shape))
        if list(pre.shape) != shape or list(post.shape) != shape:
            grey_and_colour = not pre.shape[2] == post.shape[2] == shape[2]
            cure = (
                "convert all of them to grey or all to colour first"
                if grey_and_colour
                else "set the size to bring all of them to, for example --set size=64"
            )
            raise DataError(
                f"{path}, line {row.line}: {row['pre']} gives {list(pre.shape)} and {row['post']} "
                f"{list(post.shape)}, those before {shape}: {cure}"
            )
        if colours is not None:
            pre = _normalised(pre, colours[row["group"], "pre"])
            post = _normalised(post, colours[row["group"], "post"])
        yield (row, label), pre, post


def _columns(rows: list[tuple[Row, int]]) -> dict[str, pa.Array]:
    """Return the columns beside the images, from the rows and their labels: those that the list has.

    The paths `pre` and `post` become `pre_path` and `post_path`. An empty number is null.
    """
    arrays = {"label": pa.array([label for _, label in rows], pa.int32())}
    for name in ("pre", "post", "x", "y", "group", "fold", "id"):
        if name in rows[0][0]:
            cells = [row[name] for row, _ in rows]
            if name in NUMBERS:
                arrays[name] = pa.array([int(cell) if cell else None for cell in cells], pa.int32())
            else:
                arrays[f"{name}_path" if name in SIDES else name] = pa.array(cells, pa.string())
    return arrays


def _open(root: Path, name: str) -> Image | str:
    """Return the image `name` below `root`, or why it cannot be read; `DataError` where the path leads outside."""
    return images.read(root / safety.check_member(name, str(root)))


def _crop(image: Image | str, row: Row, size: int | None) -> Image:
    """Return the row's part of the image, or all of it, scaled to a side of `size` (None: as it is).

    `BrokenImage` where the part lies outside, or where `image` is the reason why there is none.
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


def _group_colours(path: Path, rows: list[Row], size: int | None) -> Colours:
    """Return number of pixels, sum and sum of squares of each channel over the crops of each group and side.

    They are the three rows of each array [3 c]. Images are read for it once before they are stored. Broken images count
    nowhere.
    """
    # Neighbouring rows crop the same pair, so that few images are open at a time.
    open_image = lru_cache(8)(lambda name: _open(path.parent, name))
    colours: Colours = {}
    for row in rows:
        try:
            sides = {side: _crop(open_image(row[side]), row, size) for side in SIDES}
        except images.BrokenImage:
            continue  # listed as rejected where the tables are built
        for side, image in sides.items():
            pixels = image.reshape(-1, image.shape[-1]).astype(np.float64)
            sums = np.stack([np.ones_like(pixels), pixels, pixels**2]).sum(axis=1)
            key = row["group"], side
            colours[key] = colours[key] + sums if key in colours else sums
    return colours


def _normalised(image: Image, sums: NDArray[np.float64]) -> Image:
    """Return `image` [h w c] with its group's mean at `MEAN` and its deviation at `DEVIATION`, clipped to a byte.

    Each side and channel is treated by itself. What another scene, season or sensor adds to all images of a group goes;
    what differs within the group stays. No label is read, so a group that is held out may be treated so too, once its
    images are there. A channel that never varies in the group is `MEAN` everywhere.
    """
    # Variance is the mean of squares less the square of the mean; rounding may leave it below 0.
    count, total, squares = sums
    mean = total / count
    deviation = np.sqrt(np.maximum(squares / count - mean**2, 0))
    scale = np.divide(DEVIATION, deviation, out=np.zeros_like(deviation), where=deviation > 1e-6)
    pixels: Image = np.clip(np.rint(MEAN + (image - mean) * scale), 0, 255).astype(np.uint8)
    return pixels


IMAGE_PAIRS = Importer(
    read,
    "pairs of images listed in a CSV",
    "that of its owner",
    "a CSV with columns pre, post, label and perhaps x, y, size, group, fold, split",
    Settings,
    own=True,
)
HRA = Importer(
    read,
    "LOCAL's HRA, private: 3,389 pairs before and after disasters, 5 damage classes, listed as image-pairs are",
    "that of its owner",
    IMAGE_PAIRS.source,
    Settings,
    own=True,
)
