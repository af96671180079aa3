"""Product reviews with helpfulness votes: the columns of kind `reviews`, and the rules that are common to all sources.

Four splits. `products` has one row per product, sorted by product_id:
    product_id str · category str · split str (train, dev, test) · name str · description str · brand str ·
    image_urls list<str> · n_roi int32 · roi (only if there are features: several float16 [dim] per row)
`train`, `dev` and `test` have one row per review, sorted by (product_id, row_in_product); a product is in one of them:
    review_id str · product_id str · product_row int32 (row in `products`) · group str (= product_id, so that folds
    of the training split are grouped by product) · row_in_product int32 (the input order, which decides ties) ·
    category str · title str · text str · votes int32 · label int32 0-4 · rating float32 (NaN: none) ·
    image_urls list<str> · n_roi int32 · roi
Text is stored as published; missing text is "". Tokens and vocabulary are the trainable's: they depend on the training
part, which folds change. `part.ragged("roi")[i]` is [n_roi, dim] float16.
label = min(4, floor(log2(votes))); a review without votes is no row (it is counted as rejected).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from contrasweep.data import columns
from contrasweep.data.content import Content, Published, Rejected
from contrasweep.data.manifest import Folds
from contrasweep.errors import DataError

SPLITS = ("train", "dev", "test")
LABELS = ("0", "1", "2", "3", "4")
TABLE_ROWS = 512
"""Rows of a table, since region features of all reviews do not fit into memory."""
Features = NDArray[np.float16]
"""Region features of a product or review, [n dim]."""


@dataclass(frozen=True)
class Product:
    """A product as its source describes it; `split` is that of all its reviews."""

    product_id: str
    category: str
    split: str
    name: str = ""
    description: str = ""
    brand: str = ""
    image_urls: tuple[str, ...] = ()


@dataclass(frozen=True)
class Review:
    """A review as its source gives it; `votes` counts who called it helpful, `rating` is NaN where there is none."""

    review_id: str
    product_id: str
    text: str
    votes: int
    title: str = ""
    rating: float = float("nan")
    image_urls: tuple[str, ...] = ()


Lookup = Callable[[str, str], Features]
"""`features(split, id)` of a product or review: [n, dim]; n is 0 where it has no image."""


def label(votes: int) -> int:
    """Return the helpfulness 0 to 4 of a review with at least one vote: min(4, floor(log2 votes))."""
    # The bits of n are floor(log2 n) + 1, in whole numbers.
    return min(4, votes.bit_length() - 1)


def content(
    products: Sequence[Product],
    reviews: Sequence[Review],
    rejected: Rejected,
    *,
    features: Lookup | None = None,
    dim: int = 2048,
    source: Mapping[str, object] | None = None,
) -> Content:
    """Return the splits `products`, `train`, `dev` and `test`; reviews keep their input order within a product.

    Reviews without a vote, without text, or of unknown products are left out and counted in `rejected`. Products
    without a review are left out, too. `features` gives region features of `dim` numbers; None: there are no images.
    `source` goes into the manifest. `DataError` where no review is left.
    """
    known = {product.product_id: product for product in products}
    # Product id -> its reviews.
    reviews_of: dict[str, list[Review]] = {}
    for review in reviews:
        if review.votes < 1:
            rejected.add("no helpful vote", review.review_id)
        elif not (review.text or review.title).strip():
            rejected.add("no text", review.review_id)
        elif review.product_id not in known:
            rejected.add("unknown product", review.review_id)
        else:
            reviews_of.setdefault(review.product_id, []).append(review)
    if not reviews_of:
        raise DataError(f"no review has both text and a helpful vote; left out: {rejected}")
    # Products by id; reviews name their product by its row in this order.
    ordered = [known[product_id] for product_id in sorted(reviews_of)]
    rows = {product.product_id: row for row, product in enumerate(ordered)}
    specs = {"roi": columns.spec("float16", [dim], several=True)} if features else {}
    tables: dict[str, Iterator[pa.Table]] = {"products": _products(ordered, features, specs)}
    for split in SPLITS:
        products_of_split = [product for product in ordered if product.split == split]
        tables[split] = _reviews(products_of_split, reviews_of, rows, features, specs)
    return Content("reviews", tables, LABELS, specs, Folds(5, "grouped"), source or {}, rejected)


def published(
    rows: Mapping[str, int], dim: int, source: Mapping[str, object] | None = None
) -> Published:
    """Return the description of a dataset of reviews by its paper, with which it is planned before it is staged.

    `rows` has the number of rows of each split. `dim` is the size of a region's features; with 0 there are no images.
    `source` goes into the manifest.
    """
    specs = {"roi": columns.spec("float16", [dim], several=True)} if dim else {}
    return Published("reviews", rows, LABELS, specs, source or {})


def _products(products: list[Product], features: Lookup | None, specs: Any) -> Iterator[pa.Table]:
    """Yield the products in tables of at most `TABLE_ROWS` rows.

    `features` is that of `content`. `specs` has the shape of the column `roi`; {} without features.
    """
    for start in range(0, len(products), TABLE_ROWS):
        chosen = products[start : start + TABLE_ROWS]
        roi = (
            [features(product.split, product.product_id) for product in chosen]
            if features
            else None
        )
        names = ("product_id", "category", "split", "name", "description", "brand")
        table = {
            name: pa.array([getattr(product, name) for product in chosen], pa.string())
            for name in names
        }
        yield columns.table(table | _images(chosen, roi, specs), specs)


class PlacedReview(NamedTuple):
    """A review with its product and its position among the product's reviews, from 0."""

    product: Product
    position: int
    review: Review


def _reviews(
    products: list[Product],
    reviews_of: dict[str, list[Review]],
    rows: dict[str, int],
    features: Lookup | None,
    specs: Any,
) -> Iterator[pa.Table]:
    """Yield the reviews of these products in tables, product by product.

    `reviews_of` is product id -> its reviews, `rows` product id -> its row in the split `products`. For `features` and
    `specs` see `_products`.
    """
    placed_reviews = []
    for product in products:
        for position, review in enumerate(reviews_of[product.product_id]):
            placed_reviews.append(PlacedReview(product, position, review))
    for start in range(0, len(placed_reviews), TABLE_ROWS):
        chosen = placed_reviews[start : start + TABLE_ROWS]
        reviews = [placed.review for placed in chosen]
        roi = None
        if features is not None:
            roi = [features(placed.product.split, placed.review.review_id) for placed in chosen]
        yield columns.table(
            {
                "review_id": pa.array([review.review_id for review in reviews], pa.string()),
                "product_id": pa.array([review.product_id for review in reviews], pa.string()),
                "product_row": pa.array(
                    [rows[review.product_id] for review in reviews], pa.int32()
                ),
                "group": pa.array([review.product_id for review in reviews], pa.string()),
                "row_in_product": pa.array([placed.position for placed in chosen], pa.int32()),
                "category": pa.array([placed.product.category for placed in chosen], pa.string()),
                "title": pa.array([review.title for review in reviews], pa.string()),
                "text": pa.array([review.text for review in reviews], pa.string()),
                "votes": pa.array([review.votes for review in reviews], pa.int32()),
                "label": pa.array([label(review.votes) for review in reviews], pa.int32()),
                "rating": pa.array([review.rating for review in reviews], pa.float32()),
                **_images(reviews, roi, specs),
            },
            specs,
        )


def _images(
    rows: Sequence[Product | Review], roi: list[Features] | None, specs: Any
) -> dict[str, pa.Array]:
    """Return the columns about images of these rows, whose region features are `roi`; None: there are no images."""
    arrays = {
        "image_urls": pa.array([list(row.image_urls) for row in rows], pa.list_(pa.string())),
        "n_roi": pa.array([len(x) for x in roi] if roi else [0] * len(rows), pa.int32()),
    }
    if roi is not None:
        arrays["roi"] = columns.from_ragged(roi, "float16", specs["roi"]["shape"])
    return arrays


def split_products(ids: Sequence[str], seed: int) -> dict[str, str]:
    """Return train, dev or test of each product: 64, 16 and 20 % of the sorted ids, shuffled by `seed`."""
    names = sorted(set(ids))
    shuffled = [names[i] for i in np.random.RandomState(seed).permutation(len(names))]
    dev_starts = round(0.64 * len(names))
    test_starts = round(0.8 * len(names))
    train = dict.fromkeys(shuffled[:dev_starts], "train")
    dev = dict.fromkeys(shuffled[dev_starts:test_starts], "dev")
    return train | dev | dict.fromkeys(shuffled[test_starts:], "test")
