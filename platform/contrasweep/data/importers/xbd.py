"""xBD (Gupta et al. 2019): satellite tiles before and after disasters, cut into one pair of crops per building.

    {train,test,hold,tier3}/{images,labels}/<disaster>_<8 digits>_{pre,post}_disaster.{png,json}

The crop of a building is the same in both images. It begins as the bounding box of the building's polygon after the
disaster. The box is made square about its centre, widened on each side by `context` of its side, clipped at the tile,
and scaled to `size`.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pydantic

from contrasweep.data import columns, images
from contrasweep.data.content import Content, Importer, Published, Rejected, published_images
from contrasweep.data.importers.encoded_images import Side
from contrasweep.data.importers.image_pairs import Image, pair_tables
from contrasweep.data.manifest import Folds
from contrasweep.errors import DataError
from contrasweep.schema import checked

CLASSES = ("no-damage", "minor-damage", "major-damage", "destroyed")
PAPER_COUNTS = (47_305, 7_456, 8_791, 4_230)
"""LOCAL's number of training crops of each class, in the order of `CLASSES`."""
MOMENTS = ("pre", "post")
SPLITS = ("train", "tier3", "test", "hold")
_NUMBER = r"(-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)"
POINT = re.compile(rf"{_NUMBER}\s+{_NUMBER}")
Box = tuple[float, float, float, float]
"""Left, top, right and bottom, in pixels."""


@checked
class Settings:
    """Settings of xBD."""

    size: Side = 128
    """Side of a crop in pixels."""
    context: Annotated[float, pydantic.Field(ge=0)] = 0.4
    """Width around a building's box, as a fraction of the box's side."""
    min_side_px: Annotated[float, pydantic.Field(ge=0)] = 8.0
    """Buildings with a smaller box are left out."""
    tier3: bool = False
    """Whether the folder tier3 is added to the training split."""
    group: Literal["tile", "disaster"] = "tile"
    """The buildings of a tile, or of a whole disaster, are in the same fold."""
    match_paper_counts: bool = False
    """Whether LOCAL's number of training crops of each class is drawn from the buildings whose images are there. All of
    a class that has fewer are taken; others are counted as left out."""
    seed: Annotated[int, pydantic.Field(ge=0, lt=2**32)] = 0
    """Seed of that draw."""


@dataclass(frozen=True)
class Building:
    """A labelled building."""

    folder: Path  # of its split
    tile: str
    uid: str
    label: int  # index of its damage class
    # after the disaster: left, top, right, bottom, in pixels
    box: Box


def read(source: Path, settings: Settings) -> Content:
    """Return a pair of crops for each labelled building, with folds that keep groups whole.

    The crops are cut when the tables are read. Raises `DataError` if `source` has no folder train/labels.
    """
    rejected = Rejected()
    folders = {name: source / name for name in SPLITS if (source / name / "labels").is_dir()}
    if "train" not in folders:
        raise DataError(
            f"{source} has no train/labels; it must be xBD's folder of train, test, hold and tier3"
        )
    buildings: dict[str, list[Building]] = {}  # by split
    for name, folder in folders.items():
        if name == "tier3":
            if settings.tier3:
                buildings["train"] += _buildings(folder, settings, rejected)
        else:
            buildings[name] = list(_buildings(folder, settings, rejected))
    if settings.match_paper_counts:
        buildings["train"] = _subsample(buildings["train"], settings.seed, rejected)
    shape = settings.size, settings.size, 3
    specs = {"pre": columns.spec("uint8", shape), "post": columns.spec("uint8", shape)}
    columns_of = partial(_columns, settings.group)
    splits = {
        split: pair_tables(_crops(of_split, settings, rejected), specs, columns_of)
        for split, of_split in buildings.items()
    }
    return Content("image-pair", splits, CLASSES, specs, Folds(5, "grouped"), rejected=rejected)


def _buildings(folder: Path, settings: Settings, rejected: Rejected) -> Iterator[Building]:
    """Yield the labelled buildings in a split's folder, tile by tile; those that are left out are counted by reason.

    Features that are no buildings are ignored. `DataError` where a label file is not valid.
    """
    for path in sorted((folder / "labels").glob("*_post_disaster.json")):
        tile = path.name.removesuffix("_post_disaster.json")
        # Identifiers of the buildings before the disaster.
        before = {
            feature["properties"].get("uid")
            for feature in _features(path.with_name(f"{tile}_pre_disaster.json"))
        }
        missing = [moment for moment in MOMENTS if not _image(folder, tile, moment).is_file()]
        for feature in _features(path):
            properties = feature["properties"]
            if properties.get("feature_type") != "building":
                continue
            uid = properties.get("uid")
            name = f"{tile} {uid}"
            box = bounds(str(feature.get("wkt")))
            if properties.get("subtype") not in CLASSES:
                rejected.add(f"subtype {properties.get('subtype')}", name)
            elif not isinstance(uid, str) or not uid:  # it cannot be found in the image before
                rejected.add("without uid", name)
            elif uid not in before:
                rejected.add("not in the image before", name)
            elif box is None or min(box[2] - box[0], box[3] - box[1]) < settings.min_side_px:
                rejected.add(f"box smaller than {settings.min_side_px:g} px", name)
            elif missing:
                rejected.add(f"missing image ({missing[0]})", name)
            else:
                yield Building(folder, tile, uid, CLASSES.index(properties["subtype"]), box)


Feature = dict[str, Any]
"""A labelled object, such as a building, in a label file as xView2 publishes it."""


def _features(path: Path) -> list[Feature]:
    """Return the features in a label file, with coordinates in pixels; `DataError` where it is no label file of xBD."""
    try:
        features = json.loads(path.read_text(encoding="utf-8"))["features"]["xy"]
        if not all(isinstance(feature["properties"], dict) for feature in features):
            raise TypeError("a feature without properties")
        return list(features)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is not an xBD label file ({error!r})") from None


def bounds(wkt: str) -> Box | None:
    """Return left, top, right and bottom, in pixels, of the polygon `POLYGON ((x y, x y, ...))`.

    None if it has fewer than three points.
    """
    points = [(float(x), float(y)) for x, y in POINT.findall(wkt)]
    if len(points) < 3:
        return None
    xs, ys = zip(*points, strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def crop_box(box: Box, context: float, width: int, height: int) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom of the crop around `box`, in whole pixels of the tile.

    The crop is a square with the centre of the box. Its side is the longer side of the box, plus `context` times that
    side at both ends. What lies outside the tile, which has this `width` and `height`, is cut off. For a box outside
    the tile the result has no area.
    """
    left, top, right, bottom = box
    half = max(right - left, bottom - top) * (0.5 + context)
    x = (left + right) / 2
    y = (top + bottom) / 2
    # Rounded outwards, so that no part of the square is lost.
    return (
        max(0, int(np.floor(x - half))),
        max(0, int(np.floor(y - half))),
        min(width, int(np.ceil(x + half))),
        min(height, int(np.ceil(y + half))),
    )


def _subsample(buildings: list[Building], seed: int, rejected: Rejected) -> list[Building]:
    """Return at most `PAPER_COUNTS` buildings of each class, drawn at random with `seed`, in the order of `buildings`.

    The buildings that are not drawn are counted in `rejected`.
    """
    random = np.random.RandomState(seed)
    chosen = set[int]()  # indices of buildings
    for label, count in enumerate(PAPER_COUNTS):
        members = [i for i, building in enumerate(buildings) if building.label == label]
        order = random.permutation(len(members))
        chosen |= {members[i] for i in order[:count]}
        for i in sorted(order[count:]):
            building = buildings[members[i]]
            rejected.add(
                f"beyond the paper's {count:,} of {CLASSES[label]}",
                f"{building.tile} {building.uid}",
            )
    return [buildings[i] for i in sorted(chosen)]


def _image(folder: Path, tile: str, moment: str) -> Path:
    """Return the file of a tile's image at a moment, `pre` or `post`."""
    return folder / "images" / f"{tile}_{moment}_disaster.png"


def _crops(
    buildings: list[Building], settings: Settings, rejected: Rejected
) -> Iterator[tuple[Building, Image, Image]]:
    """Yield (building, crop before, crop after); the crops are [size size 3].

    A building whose crops cannot be cut is counted in `rejected`.
    """
    open_tile = lru_cache(4)(images.read)  # the buildings of a tile follow each other
    for building in buildings:
        crops = []
        try:
            for moment in MOMENTS:
                tile = open_tile(_image(building.folder, building.tile, moment))
                if isinstance(tile, str):  # why it cannot be read
                    raise images.BrokenImage(f"{tile} ({moment})")
                height, width = tile.shape[:2]
                left, top, right, bottom = crop_box(building.box, settings.context, width, height)
                if right <= left or bottom <= top:
                    raise images.BrokenImage("box outside the tile")
                crop = tile[top:bottom, left:right]
                crops.append(images.resize(crop, settings.size, settings.size))
        except images.BrokenImage as error:
            rejected.add(str(error), f"{building.tile} {building.uid}")
        else:
            pre, post = crops
            yield building, pre, post


def _columns(group: str, buildings: list[Building]) -> dict[str, pa.Array]:
    """Return name -> values of all columns but the images: `label`, `group`, `disaster`, `tile` and `uid`.

    `group` is `tile` or `disaster`: all buildings with the same one have the same group, which folds do not divide.
    """
    # The name of a tile is <disaster>_<8 digits>.
    disasters = [building.tile.rsplit("_", 1)[0] for building in buildings]
    tiles = [building.tile for building in buildings]
    return {
        "label": pa.array([building.label for building in buildings], pa.int32()),
        "group": pa.array(tiles if group == "tile" else disasters, pa.string()),
        "disaster": pa.array(disasters, pa.string()),
        "tile": pa.array(tiles, pa.string()),
        "uid": pa.array([building.uid for building in buildings], pa.string()),
    }


def _published(settings: Settings) -> Published:
    """Return the description of xBD with as many training crops as the paper LOCAL uses (its section 4, Datasets)."""
    shape = settings.size, settings.size, 3
    return published_images({"train": sum(PAPER_COUNTS)}, len(CLASSES), shape, MOMENTS)


XBD = Importer(
    read,
    "building crops before and after disasters, 4 damage classes, grouped by tile or disaster",
    "CC BY-NC-SA 4.0",
    "xBD's folder with train/{images,labels} and perhaps test, hold, tier3",
    Settings,
    published=_published,
)
