"""Synthetic multimodal reviews with a planted signal: for tests of models, never for claims about reviews.

A review's helpfulness is the sum of two independent parts of equal weight. One shows in its words (how many of them
are informative), the other in its image regions (how far these lie along one direction of feature space). Noise lies
over both, and regions also show their product's topic. A model that reads only text can know one half, a model that
also sees the images both. Labels are the fifths of helpfulness over all reviews, votes the fewest with that label.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import pydantic
from numpy.typing import NDArray

from contrasweep.data.content import Content, Importer, Rejected
from contrasweep.schema import checked
from contrasweep.trainables.fields import Count, NotNegative, Seed
from contrasweep.trainables.review_helpfulness.datasets.reviews import (
    Features,
    Product,
    Review,
    content,
    split_products,
)

INFORMATIVE = [f"detail{i}" for i in range(15)]
"""Words of which helpful reviews have more."""
FILLER = [f"word{i}" for i in range(60)]
"""Words that say nothing."""


@checked
class Planted:
    """How many products there are, and how clearly helpfulness shows.

    Each of `products` (20 at least, to fill three splits) has 6 to 12 reviews with images of 1 to 4 regions of
    `roi_dim` features, and one of `topics`. `noise` is the standard deviation of a region's features, in units of the
    planted direction's length.
    """

    products: Annotated[int, pydantic.Field(ge=20)] = 200
    roi_dim: Count = 64
    topics: Count = 8
    noise: NotNegative = 0.5
    seed: Seed = 0


def _read(source: Path, settings: Planted) -> Content:
    """Generate products and reviews of the settings; nothing is read from `source`."""
    # Products are known by the ids of their regions.
    generator = _Generator(settings)
    splits = split_products(list(generator.product_roi), settings.seed)
    products = [
        Product(
            product_id,
            category="synthetic",
            split=splits[product_id],
            name=f"topic{topic} item",
            description=f"synthetic product of topic{topic}",
        )
        for product_id, topic in zip(generator.product_roi, generator.topic_of_product, strict=True)
    ]
    features = {**generator.product_roi, **generator.review_roi}
    return content(
        products,
        generator.reviews,
        Rejected(),
        features=lambda split, item: features[item],
        dim=settings.roi_dim,
        source={"synthetic": True},
    )


class _Generator:
    """Generates the whole dataset at once, since labels are fifths of helpfulness over all reviews.

    `topic_of_product` has the number of each product's topic, `reviews` are all reviews. `review_roi` and `product_roi`
    have the region features of each review and product by its id.
    """

    def __init__(self, settings: Planted) -> None:
        self.settings = settings
        # NumPy's old generator, whose stream never changes: a seed gives the same dataset in any version.
        self.random = random = np.random.RandomState(settings.seed)
        # The planted direction has length 1, and the vector of each topic about that length.
        direction = random.normal(size=settings.roi_dim)
        self.direction = direction / np.linalg.norm(direction)
        self.topic_vectors = random.normal(size=(settings.topics, settings.roi_dim)) / np.sqrt(
            settings.roi_dim
        )
        self.topic_of_product = random.randint(settings.topics, size=settings.products)
        # The product of each review: 6 to 12 reviews of each.
        owner = np.repeat(np.arange(settings.products), random.randint(6, 13, settings.products))
        # The two halves of each review's helpfulness; labels are fifths of their sum, and 2^label votes give a label.
        in_text, in_images = random.normal(size=(2, len(owner)))
        helpfulness = in_text + in_images
        label = np.searchsorted(np.quantile(helpfulness, [0.2, 0.4, 0.6, 0.8]), helpfulness)
        self.reviews = [
            Review(
                f"r{row:06d}",
                f"p{owner[row]:05d}",
                text=self._text(in_text[row]),
                votes=int(2 ** label[row]),
            )
            for row in range(len(owner))
        ]
        # Regions of reviews show the half of helpfulness that is in images, regions of products none.
        self.review_roi = {
            review.review_id: self._regions(int(product), strength)
            for review, product, strength in zip(self.reviews, owner, in_images, strict=True)
        }
        self.product_roi = {
            f"p{product:05d}": self._regions(product, 0.0) for product in range(settings.products)
        }

    def _text(self, strength: float) -> str:
        """Return 12 to 29 words, each of them informative with the probability sigmoid(strength - 1)."""
        probability = 1 / (1 + np.exp(1.0 - strength))
        informative = self.random.rand(self.random.randint(12, 30)) < probability
        return " ".join(
            str(self.random.choice(INFORMATIVE if yes else FILLER)) for yes in informative
        )

    def _regions(self, product: int, strength: float) -> Features:
        """Return 1 to 4 regions: the product's topic, `strength` along the planted direction, and noise."""
        count = self.random.randint(1, 5)
        dim = self.settings.roi_dim
        noise = self.settings.noise * self.random.normal(size=(count, dim)) / np.sqrt(dim)
        regions: NDArray[np.float64] = (
            self.topic_vectors[self.topic_of_product[product]] + strength * self.direction + noise
        )
        return regions.astype(np.float16)


SYNTHETIC_REVIEWS = Importer(
    _read,
    "SYNTHETIC reviews with regions, half of the helpfulness planted in each modality",
    "generated; no rights",
    settings=Planted,
)
