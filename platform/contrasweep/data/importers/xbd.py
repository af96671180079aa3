"""xBD (Gupta et al. 2019): satellite tiles before and after disasters, cut into one pair of crops per building.

    {train,test,hold,tier3}/{images,labels}/<disaster>_<8 digits>_{pre,post}_disaster.{png,json}

The crop is the bounding box of the building's polygon after the disaster, made square about its centre, widened by
`context` of its side on each side, clipped at the tile and scaled to `size`; both images are cut by the same box.
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
from contrasweep.data.content import Content, Importer, Rejected
from contrasweep.data.importers.encoded_images import Side
from contrasweep.data.importers.image_pairs import Image, pair_tables
from contrasweep.data.manifest import Folds
from contrasweep.errors import DataError
from contrasweep.schema import checked

CLASSES = ("no-damage", "minor-damage", "major-damage", "destroyed")
PAPER_COUNTS = (47_305, 7_456, 8_791, 4_230)
"""LOCAL's number of training crops of each class."""
MOMENTS = ("pre", "post")
SPLITS = ("train", "tier3", "test", "hold")
_NUMBER = r"(-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)"
POINT = re.compile(rf"{_NUMBER}\s+{_NUMBER}")


@checked
class Settings:
    """Settings of xBD.

    `size` of the crops, `context` around the building, `min_side_px` of its box below which it is left out; `tier3`
    adds that folder to the training split; `group` keeps the buildings of a tile, or of a whole disaster, in one fold;
    `match_paper_counts` draws LOCAL's number of training crops per class by `seed` from the buildings whose images are
    there, all of a class that has fewer, and counts the others as left out.
    """

    size: Side = 128
    context: Annotated[float, pydantic.Field(ge=0)] = 0.4
    min_side_px: Annotated[float, pydantic.Field(ge=0)] = 8.0
    tier3: bool = False
    group: Literal["tile", "disaster"] = "tile"
    match_paper_counts: bool = False
    seed: Annotated[int, pydantic.Field(ge=0, lt=2**32)] = 0


@dataclass(frozen=True)
class Building:
    """One labelled building: its split's folder, its tile and identifier, the index of its damage class, and its box.

    The box bounds it after the disaster.
    """

    folder: Path
    tile: str
    uid: str
    label: int
    box: tuple[float, float, float, float]  # left, top, right, bottom, pixels


def read(source: Path, settings: Settings) -> Content:
    """Return one pair of crops for each labelled building, cut while tables are read, in folds that keep groups whole.

    Raises `DataError` if `source` has no folder train/labels.
    """
    rejected = Rejected()
    folders = {name: source / name for name in SPLITS if (source / name / "labels").is_dir()}
    if "train" not in folders:
        raise DataError(
            f"{source} has no train/labels; it must be xBD's folder of train, test, hold and tier3"
        )
    # `tier3` has further training tiles, which are asked for or left out.
    if not settings.tier3:
        folders.pop("tier3", None)
    listed: dict[str, list[Building]] = {}
    for name, folder in folders.items():
        listed.setdefault("train" if name == "tier3" else name, []).extend(
            _buildings(folder, settings, rejected)
        )
    if settings.match_paper_counts:
        listed["train"] = _subsample(listed["train"], settings.seed, rejected)
    shape = settings.size, settings.size, 3
    specs = {"pre": columns.spec("uint8", shape), "post": columns.spec("uint8", shape)}
    columns_of = partial(_columns, settings.group)
    splits = {
        name: pair_tables(_crops(buildings, settings, rejected), specs, columns_of)
        for name, buildings in listed.items()
    }
    return Content("image-pair", splits, CLASSES, specs, Folds(5, "grouped"), rejected=rejected)


def _buildings(folder: Path, settings: Settings, rejected: Rejected) -> Iterator[Building]:
    """Yield the labelled buildings of a split's folder, tile by tile; those left out are counted with the reason.

    Other features than buildings are passed over. `DataError` where a label file is none.
    """
    for path in sorted((folder / "labels").glob("*_post_disaster.json")):
        tile = path.name.removesuffix("_post_disaster.json")
        # Identifiers of the buildings that the image before shows.
        before = {
            feature["properties"].get("uid")
            for feature in _features(path.with_name(f"{tile}_pre_disaster.json"))
        }
        for feature in _features(path):
            properties = feature["properties"]
            uid = properties.get("uid")
            name = f"{tile} {uid}"
            box = bounds(str(feature.get("wkt")))
            if properties.get("feature_type") != "building":
                continue
            if properties.get("subtype") not in CLASSES:
                rejected.add(f"subtype {properties.get('subtype')}", name)
            elif not isinstance(uid, str) or not uid:  # nothing says which building before it is
                rejected.add("without uid", name)
            elif uid not in before:
                rejected.add("not in the image before", name)
            elif box is None or min(box[2] - box[0], box[3] - box[1]) < settings.min_side_px:
                rejected.add(f"box smaller than {settings.min_side_px:g} px", name)
            else:
                yield Building(folder, tile, uid, CLASSES.index(properties["subtype"]), box)


Feature = dict[str, Any]
"""A building in a label file, as xView2 publishes it."""


def _features(path: Path) -> list[Feature]:
    """Return the labelled features of a tile, with places in pixels; `DataError` where it is no label file of xBD."""
    try:
        features = json.loads(path.read_text(encoding="utf-8"))["features"]["xy"]
        if not all(isinstance(feature["properties"], dict) for feature in features):
            raise TypeError("a feature without properties")
        return list(features)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is not an xBD label file ({error!r})") from None


def bounds(wkt: str) -> tuple[float, float, float, float] | None:
    """Return left, top, right and bottom of a polygon in pixels; None if it has fewer than three points.

    `wkt` is its text, `POLYGON ((x y, x y, ...))`.
    """
    points = [(float(x), float(y)) for x, y in POINT.findall(wkt)]
    if len(points) < 3:
        return None
    xs, ys = zip(*points, strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def crop_box(
    box: tuple[float, float, float, float], context: float, width: int, height: int
) -> tuple[int, int, int, int]:
    """Return left, top, right, bottom of the square about `box`, clipped to the tile, in whole pixels.

    It has the box's centre and longer side, widened by `context` of that side on each side. `width` and `height` are
    those of the tile. A box outside the tile gives a square without area.
    """
    # Rounded outwards, so that no part of the square is lost.
    half = max(box[2] - box[0], box[3] - box[1]) * (0.5 + context)
    x = (box[0] + box[2]) / 2
    y = (box[1] + box[3]) / 2
    left = max(0, int(np.floor(x - half)))
    top = max(0, int(np.floor(y - half)))
    return left, top, min(width, int(np.ceil(x + half))), min(height, int(np.ceil(y + half)))


def _subsample(buildings: list[Building], seed: int, rejected: Rejected) -> list[Building]:
    """Return at most the paper's number of buildings of each class, drawn by `seed`, in their order.

    A building without its images is not drawn, since it would be missing from that number. Those beyond the number are
    counted in `rejected`.
    """
    random = np.random.RandomState(seed)
    tiles = dict.fromkeys((building.folder, building.tile) for building in buildings)
    present = {tile for tile in tiles if all(_image(*tile, moment).is_file() for moment in MOMENTS)}
    has_images = [(building.folder, building.tile) in present for building in buildings]
    # Buildings without both images stay, so that reading the images counts them as left out.
    kept = [i for i, both in enumerate(has_images) if not both]
    for label, count in enumerate(PAPER_COUNTS):
        members = [i for i, b in enumerate(buildings) if has_images[i] and b.label == label]
        drawn = random.permutation(len(members))
        kept += [members[i] for i in drawn[:count]]
        for building in (buildings[members[i]] for i in sorted(drawn[count:])):
            rejected.add(
                f"beyond the paper's {count:,} of {CLASSES[label]}",
                f"{building.tile} {building.uid}",
            )
    return [buildings[i] for i in sorted(kept)]


def _image(folder: Path, tile: str, moment: str) -> Path:
    """Return the file of a tile's image at a moment, `pre` or `post`."""
    return folder / "images" / f"{tile}_{moment}_disaster.png"


def _crops(
    buildings: list[Building], settings: Settings, rejected: Rejected
) -> Iterator[tuple[Building, Image, Image]]:
    """Yield the buildings whose images can be read, with the crops before and after; the others are counted."""
    open_tile = lru_cache(4)(images.read)  # a tile's buildings follow one another
    for building in buildings:
        try:
            pre, post = (
                _cut(
                    open_tile(_image(building.folder, building.tile, moment)),
                    moment,
                    building,
                    settings,
                )
                for moment in MOMENTS
            )
        except images.BrokenImage as error:
            rejected.add(str(error), f"{building.tile} {building.uid}")
        else:
            yield building, pre, post


def _cut(image: Image | str, moment: str, building: Building, settings: Settings) -> Image:
    """Return the building's crop of the image of this `moment`, [size size 3].

    `BrokenImage` where its box lies outside the tile, or where `image` is the reason why there is none.
    """
    if isinstance(image, str):
        raise images.BrokenImage(f"{image} ({moment})")
    box_left, top, right, bottom = crop_box(
        building.box, settings.context, image.shape[1], image.shape[0]
    )
    if right <= box_left or bottom <= top:
        raise images.BrokenImage("box outside the tile")
    return images.resize(image[top:bottom, box_left:right], settings.size, settings.size)


def _columns(group: str, buildings: list[Building]) -> dict[str, pa.Array]:
    """Return the columns beside the images; `group`, `tile` or `disaster`, says which of these stays in one fold."""
    # A tile is called <disaster>_<8 digits>.
    disasters = [building.tile.rsplit("_", 1)[0] for building in buildings]
    tiles = [building.tile for building in buildings]
    return {
        "label": pa.array([building.label for building in buildings], pa.int32()),
        "group": pa.array(tiles if group == "tile" else disasters, pa.string()),
        "disaster": pa.array(disasters, pa.string()),
        "tile": pa.array(tiles, pa.string()),
        "uid": pa.array([building.uid for building in buildings], pa.string()),
    }


XBD = Importer(
    read,
    "building crops before and after disasters, 4 damage classes, grouped by tile or disaster",
    "CC BY-NC-SA 4.0",
    "xBD's folder with train/{images,labels} and perhaps test, hold, tier3",
    Settings,
)
