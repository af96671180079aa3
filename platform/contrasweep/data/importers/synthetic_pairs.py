"""Synthetic pairs of a place before and after a flood: for tests, plans and first steps, not for claims about images.

Land is textured green, water blue. A share of each place is under water in both images. A further share is under water
in the second image only, and the pair's label says how large that is, so that a prediction needs both images. Each
image has a brightness of its own.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import pydantic
from numpy.typing import NDArray

from contrasweep.data import columns
from contrasweep.data.content import Content, Importer
from contrasweep.data.manifest import ColumnSpec
from contrasweep.schema import checked
from contrasweep.storage.record import Seed

FLOODED = {"none": 0.0, "tenth": 0.1, "fifth": 0.2, "three-tenths": 0.3, "two-fifths": 0.4}
"""Class -> share of the place that is newly flooded."""
LARGEST_LAKE_SHARE = 0.4  # the largest share that is under water before
TEST_SHARE = 0.25  # test pairs for each training pair
LAND = np.array([90.0, 120.0, 70.0])
WATER = np.array([50.0, 70.0, 130.0])
TEXTURE = 12.0  # standard deviation of a pixel, in grey levels

Field = NDArray[np.float64]


@checked
class Planted:
    """Settings of synthetic pairs."""

    pairs: Annotated[int, pydantic.Field(ge=5)] = 500
    """Number of training pairs, the same for each class."""
    size: Annotated[int, pydantic.Field(ge=8)] = 32
    """Side of an image in pixels."""
    seed: Seed = 0
    """Seed of all random numbers."""


def _read(source: Path, settings: Planted) -> Content:
    """Return training and test pairs, drawn from the settings' seed; `source` is not used."""
    random = np.random.default_rng(settings.seed)
    shape = settings.size, settings.size, 3
    specs: dict[str, ColumnSpec] = {side: columns.spec("uint8", shape) for side in ("pre", "post")}
    # The test split has at least one pair of each class.
    counts = {"train": settings.pairs, "test": max(len(FLOODED), int(TEST_SHARE * settings.pairs))}
    tables = {
        split: [_table(random, count, settings.size, specs)] for split, count in counts.items()
    }
    return Content("image-pair", tables, tuple(FLOODED), specs, source={"synthetic": True})


def _table(
    random: np.random.Generator, count: int, size: int, specs: dict[str, ColumnSpec]
) -> pa.Table:
    """Return a table of `count` pairs, with images of side `size`, in random order.

    The numbers of pairs of two classes differ by one at most.
    """
    labels = random.permutation(np.arange(count) % len(FLOODED))
    flooded = list(FLOODED.values())
    pairs = []
    for label in labels:
        # The field of the flood is lowest where lakes are, so that it covers land only.
        lakes = _highest(_smooth(random, size), random.uniform(0, LARGEST_LAKE_SHARE))
        flood = _highest(np.where(lakes, -np.inf, _smooth(random, size)), flooded[label])
        pairs.append((_image(random, lakes), _image(random, lakes | flood)))
    arrays = {
        "pre": columns.from_array(np.stack([pre for pre, _ in pairs])),
        "post": columns.from_array(np.stack([post for _, post in pairs])),
        "label": pa.array(labels, pa.int32()),
    }
    return columns.table(arrays, specs)


def _smooth(random: np.random.Generator, size: int) -> Field:
    """Return smooth noise [size size]: white noise whose waves with f periods an image are damped by exp(-(f/3)^2)."""
    frequency = np.hypot(np.fft.fftfreq(size)[:, None], np.fft.fftfreq(size)) * size
    waves = np.fft.fft2(random.standard_normal((size, size))) * np.exp(-((frequency / 3) ** 2))
    field: Field = np.fft.ifft2(waves).real
    return field


def _highest(field: Field, share: float) -> NDArray[np.bool_]:
    """Return a mask [h w] of the pixels where `field` is highest: the `share` (0 to 1) of all pixels."""
    count = round(share * field.size)
    ascending = np.argsort(field, axis=None)
    mask = np.zeros(field.size, bool)
    mask[ascending[field.size - count :]] = True
    return mask.reshape(field.shape)


def _image(random: np.random.Generator, water: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return an image [h w 3] of water and land, with a texture and a brightness of its own."""
    colours = np.where(water[..., None], WATER, LAND) + random.normal(0, TEXTURE, (*water.shape, 1))
    image: NDArray[np.uint8] = (colours * random.uniform(0.8, 1.2)).clip(0, 255).astype(np.uint8)
    return image


SYNTHETIC_PAIRS = Importer(
    _read,
    "SYNTHETIC places before and after a flood, labelled by the share newly under water, 5 classes",
    "generated; none needed",
    settings=Planted,
)
