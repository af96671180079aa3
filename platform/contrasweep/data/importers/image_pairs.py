"""Image pairs listed in a CSV: before and after, perhaps a crop of larger images.

Columns `pre`, `post` (paths relative to the CSV) and `label`; optional `x`, `y`, `size` (a square crop, pixels from
the left and the top), `group` (rows that share a scene), `fold` (the owner's folds, never dealt anew), `split`.
OMBRIA (Drakonakis et al., IEEE JSTARS 2022) is staged from such lists.
"""

import csv
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from contrasweep.data import columns, images, safety
from contrasweep.data.content import Content, Importer, Rejected
from contrasweep.data.manifest import Folds
from contrasweep.errors import DataError
from contrasweep.schema import checked

Row = dict[str, str]
BATCH = 512


@checked
class Settings:
    """`csv`: the list's name where `--source` is a folder. `size`: side that every image or crop is brought to.
    `classes`: names in the order of the labels, where labels are numbers."""

    csv: str | None = None
    size: int | None = None
    classes: list[str] | None = None


@checked
class OmbriaSettings:
    """`classes`: 5 or 4, which of the two label sets."""

    classes: int = 5


def read(source: Path, settings: Settings) -> Content:
    path = source / safety.check_member(settings.csv, str(source)) if settings.csv else source
    rows = _rows(path)
    classes, labels = _classes(path, rows, settings.classes)
    specs: dict[str, Any] = {}
    rejected = Rejected()
    names = sorted({row.get("split") or "train" for row in rows}, key=lambda name: (name != "train", name))
    splits = {}
    for name in names:
        chosen = [i for i, row in enumerate(rows) if (row.get("split") or "train") == name]
        splits[name] = _tables(
            path.parent,
            [rows[i] for i in chosen],
            [labels[i] for i in chosen],
            specs,
            settings.size,
            rejected,
        )
    return Content("image-pair", splits, classes, specs, _folds(path, rows), rejected=rejected)


def _rows(path: Path) -> list[Row]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read as a list of pairs ({error})") from None
    if missing := [name for name in ("pre", "post", "label") if not rows or name not in rows[0]]:
        raise DataError(
            f"{path} has no column {', '.join(missing)}; it must list pairs by pre, post and label"
        )
    return rows


def _classes(path: Path, rows: list[Row], names: Sequence[str] | None) -> tuple[tuple[str, ...], list[int]]:
    """Class names and the index of each row's. Labels that are numbers keep them; others are sorted."""
    texts = [row["label"] for row in rows]
    if all(text.isdecimal() for text in texts):
        labels = [int(text) for text in texts]
        known = tuple(names or (str(i) for i in range(max(labels) + 1)))
        if max(labels) >= len(known):
            raise DataError(f"{path}: label {max(labels)} has no name among the {len(known)} of `classes`")
        return known, labels
    known = tuple(names or sorted(set(texts)))
    if unknown := sorted(set(texts) - set(known)):
        raise DataError(f"{path}: labels {unknown} are not among `classes` {list(known)}")
    return known, [known.index(text) for text in texts]


def _folds(path: Path, rows: list[Row]) -> Folds | None:
    if "fold" not in rows[0]:
        return Folds(5, "grouped") if "group" in rows[0] else None
    found = sorted({row["fold"] for row in rows if (row.get("split") or "train") == "train"})
    if found != sorted(str(i) for i in range(len(found))):
        raise DataError(f"{path}: folds must be numbered from 0 without a gap, found {found}")
    return Folds(len(found), "given")


def _tables(root: Path, rows: list[Row], labels: list[int], specs: dict[str, Any], size: int | None,
            rejected: Rejected) -> Iterator[pa.Table]:  # fmt: skip
    open_image = lru_cache(8)(lambda name: _open(root, name))  # neighbouring rows crop the same pair
    kept: list[tuple[Row, int, NDArray[np.uint8], NDArray[np.uint8]]] = []
    for row, label in zip(rows, labels, strict=True):
        try:
            pre, post = (_crop(open_image(row[side]), row, size) for side in ("pre", "post"))
        except images.BrokenImage as error:
            rejected.add(str(error).split(" (")[0], f"{row['pre']} | {row['post']}")
            continue
        shape = list(specs.setdefault("pre", columns.spec("uint8", pre.shape))["shape"])
        specs.setdefault("post", columns.spec("uint8", pre.shape))
        if list(pre.shape) != shape or list(post.shape) != shape:
            raise DataError(f"{root / row['pre']} gives {list(pre.shape)} and {row['post']} {list(post.shape)}, those before "
                            f"{shape}: set the size to bring all of them to, for example --set size=64")  # fmt: skip
        kept.append((row, label, pre, post))
        if len(kept) == BATCH:
            yield _table(kept, specs)
            kept = []
    if kept:
        yield _table(kept, specs)


def _table(
    kept: list[tuple[Row, int, NDArray[np.uint8], NDArray[np.uint8]]], specs: dict[str, Any]
) -> pa.Table:
    first = kept[0][0]
    found = {
        "pre": columns.from_array(np.stack([pre for _, _, pre, _ in kept])),
        "post": columns.from_array(np.stack([post for _, _, _, post in kept])),
        "label": pa.array([label for _, label, _, _ in kept], pa.int32()),
        "pre_path": pa.array([row["pre"] for row, *_ in kept], pa.string()),
        "post_path": pa.array([row["post"] for row, *_ in kept], pa.string()),
    }
    for name, kind in (("x", pa.int32()), ("y", pa.int32()), ("group", pa.string()), ("fold", pa.int32())):
        if name in first:
            found[name] = pa.array(
                [row[name] if kind == pa.string() else int(row[name]) for row, *_ in kept], kind
            )
    return columns.table(found, specs)


def _open(root: Path, name: str) -> NDArray[np.uint8] | str:
    """The decoded image, or why there is none: kept, so that the next rows need not try again."""
    try:
        return images.decode((root / safety.check_member(name, str(root))).read_bytes())
    except images.BrokenImage as error:
        return error.reason
    except OSError:
        return "missing image"


def _crop(image: NDArray[np.uint8] | str, row: Row, size: int | None) -> NDArray[np.uint8]:
    if isinstance(image, str):
        raise images.BrokenImage(image)
    if row.get("size"):
        x, y, side = int(row["x"]), int(row["y"]), int(row["size"])
        if x < 0 or y < 0 or x + side > image.shape[1] or y + side > image.shape[0]:
            raise images.BrokenImage("crop outside the image")
        image = image[y : y + side, x : x + side]
    return image if size is None else images.resize(image, size, size)


def _ombria(source: Path, settings: OmbriaSettings) -> Content:
    if settings.classes not in (4, 5):
        raise DataError(f"OMBRIA's pairs are labelled in 4 or 5 classes, not {settings.classes}")
    return read(source, Settings(csv=f"pairs_{settings.classes}class.csv"))


IMAGE_PAIRS = Importer(read, "pairs of images listed in a CSV", "that of its owner",
                       "a CSV with columns pre, post, label and perhaps x, y, size, group, fold, split", Settings)  # fmt: skip
OMBRIA = Importer(_ombria, "Sentinel-2 crops before and after floods, 5 or 4 classes of flooded share, 5 grouped folds",
                  "no licence file: local use, cite IEEE JSTARS 2022 (9723593), do not redistribute",
                  "the folder of pairs_5class.csv, pairs_4class.csv and S2/", OmbriaSettings)  # fmt: skip
