"""Synthetic multimodal reviews with a planted signal: for tests of models, never for claims about reviews.

A review's helpfulness is the sum of two independent parts of equal weight. One shows in its words (how many of them
are informative), the other in its image regions (how far these lie along one direction of feature space); noise lies
over both, and regions also show their product's topic. A model that reads only text can know one half, a model that
also sees the images both. Labels are the fifths of helpfulness over all reviews, votes the fewest with that label.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from contrasweep.data import columns
from contrasweep.data.content import Content, Importer
from contrasweep.data.manifest import Folds
from contrasweep.errors import SpecError
from contrasweep.schema import checked

LABELS = ("0", "1", "2", "3", "4")
SHARES = {"train": 0.64, "dev": 0.16, "test": 0.20}
INFORMATIVE = [f"detail{i}" for i in range(15)]
FILLER = [f"word{i}" for i in range(60)]


@checked
class Planted:
    """`products`, each of 6 to 12 reviews with images of 1 to 4 regions of `roi_dim` features; `topics` of products;
    `noise` is the standard deviation of a region's features, in units of the planted direction's length."""

    products: int = 200
    roi_dim: int = 64
    topics: int = 8
    noise: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if self.products < 20:
            raise SpecError("products must be at least 20, to fill three splits", place="products", value=self.products)


def _read(source: Path, settings: Planted) -> Content:
    made = _Generator(settings)
    specs = {"roi": columns.spec("float16", [settings.roi_dim], list=True)}
    order = made.random.permutation(settings.products)
    ends = np.cumsum([round(share * settings.products) for share in SHARES.values()])[:-1]
    dealt = dict(zip(SHARES, np.split(order, ends), strict=True))
    splits: dict[str, Iterator[pa.Table]] = {
        split: iter([columns.table(made.reviews_of(np.sort(products)), specs)]) for split, products in dealt.items()
    }
    splits["products"] = iter([columns.table(made.products(), specs)])
    return Content("reviews", splits, LABELS, specs, Folds(5, "grouped"), source={"synthetic": True})


class _Generator:
    """All of the dataset at once: helpfulness is cut into fifths over all reviews."""

    def __init__(self, settings: Planted) -> None:
        self.settings = settings
        self.random = random = np.random.RandomState(settings.seed)  # its stream is frozen for ever
        self.direction = _unit(random.normal(size=settings.roi_dim))
        self.topics = random.normal(size=(settings.topics, settings.roi_dim)) / np.sqrt(settings.roi_dim)
        self.topic = random.randint(settings.topics, size=settings.products)
        self.owner = np.repeat(np.arange(settings.products), random.randint(6, 13, settings.products))
        in_text, in_images = random.normal(size=(2, len(self.owner)))
        helpfulness = in_text + in_images
        self.label = np.searchsorted(np.quantile(helpfulness, [0.2, 0.4, 0.6, 0.8]), helpfulness)
        self.text = [self._text(strength) for strength in in_text]
        self.roi = [self._regions(owner, strength) for owner, strength in zip(self.owner, in_images, strict=True)]
        self.product_roi = [self._regions(product, 0.0) for product in range(settings.products)]

    def _text(self, strength: float) -> str:
        informative = self.random.rand(self.random.randint(12, 30)) < 1 / (1 + np.exp(1.0 - strength))
        return " ".join(str(self.random.choice(INFORMATIVE if yes else FILLER)) for yes in informative)

    def _regions(self, product: int, strength: float) -> NDArray[np.float16]:
        count, dim = self.random.randint(1, 5), self.settings.roi_dim
        noise = self.settings.noise * self.random.normal(size=(count, dim)) / np.sqrt(dim)
        return (self.topics[self.topic[product]] + strength * self.direction + noise).astype(np.float16)

    def reviews_of(self, products: NDArray[np.int64]) -> Mapping[str, Any]:
        rows = np.flatnonzero(np.isin(self.owner, products))
        first = np.searchsorted(self.owner, self.owner[rows])
        return {
            "review_id": [f"r{row:06d}" for row in rows],
            "product_id": (ids := [_id(product) for product in self.owner[rows]]),
            "group": ids,
            "row_in_product": (rows - first).astype(np.int32),
            "text": [self.text[row] for row in rows],
            "votes": (2 ** self.label[rows]).astype(np.int32),
            "label": self.label[rows].astype(np.int32),
            "roi": columns.from_ragged([self.roi[row] for row in rows], "float16", [self.settings.roi_dim]),
        }

    def products(self) -> Mapping[str, Any]:
        topics = [f"topic{topic}" for topic in self.topic]
        return {
            "product_id": [_id(product) for product in range(self.settings.products)],
            "name": [f"{topic} item" for topic in topics],
            "brand": ["" for _ in topics],
            "category": ["synthetic" for _ in topics],
            "description": [f"synthetic product of {topic}" for topic in topics],
            "roi": columns.from_ragged(self.product_roi, "float16", [self.settings.roi_dim]),
        }


def _unit(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return x / np.linalg.norm(x)


def _id(product: int) -> str:
    return f"p{product:05d}"


SYNTHETIC_REVIEWS = Importer(_read, "SYNTHETIC reviews with regions, half of the helpfulness planted in each modality",
                             "generated; no rights", settings=Planted)  # fmt: skip
