"""Women's E-Commerce Clothing Reviews (23,486 reviews with votes): the published CSV, or the zip it comes in.

There are no images. `synthetic_roi` adds that many seeded random region features per item, so that multimodal
models can be run; the manifest and every result then say `synthetic`.
"""

import hashlib
import zipfile
from pathlib import Path

import numpy as np

from contrasweep.data import safety
from contrasweep.data.content import Content, Importer, Published, Rejected
from contrasweep.data.csv_text import read_csv
from contrasweep.errors import DataError
from contrasweep.schema import checked
from contrasweep.trainables.fields import Count, MaybeCount, Seed
from contrasweep.trainables.review_helpfulness.datasets.reviews import (
    Features,
    Lookup,
    Product,
    Review,
    content,
    published,
    split_products,
)

COLUMNS = (
    "",
    "Clothing ID",
    "Title",
    "Review Text",
    "Rating",
    "Positive Feedback Count",
    "Division Name",
    "Department Name",
    "Class Name",
)
"""The columns that the published CSV must have; the first one has no name."""
MAX_BYTES = 2**28
"""The largest CSV that is read out of a zip."""


@checked
class Settings:
    """What can be set when the file is staged.

    `split_seed` is the seed of the split of products into train, dev and test. Each item gets `synthetic_roi` regions
    of `roi_dim` random features.
    """

    split_seed: Seed = 0
    synthetic_roi: MaybeCount = 0
    roi_dim: Count = 2048


def read(source: Path, settings: Settings) -> Content:
    """Return the products and reviews of the published CSV; products are split at random by `split_seed`.

    Raises `DataError` if a column is missing.
    """
    rows = list(_rows(source))
    splits = split_products([row["Clothing ID"] for row in rows], settings.split_seed)
    # Reversed, so that the first review of a product says what the product is. Its class stands for a name.
    products = {
        row["Clothing ID"]: Product(
            row["Clothing ID"],
            category=row["Department Name"],
            split=splits[row["Clothing ID"]],
            name=row["Class Name"],
            description=f"{row['Division Name']} {row['Department Name']}".strip(),
        )
        for row in reversed(rows)
    }
    # The first column, without a name, has the number of the review.
    reviews = [
        Review(
            review_id=row[""],
            product_id=row["Clothing ID"],
            text=row["Review Text"],
            votes=int(row["Positive Feedback Count"]),
            title=row["Title"],
            rating=float(row["Rating"]),
        )
        for row in rows
    ]
    features = None
    origin = {}
    if settings.synthetic_roi:
        features = synthetic_features(settings.synthetic_roi, settings.roi_dim)
        origin = {"synthetic": True, "synthetic_columns": ["roi", "n_roi"]}
    return content(
        list(products.values()),
        reviews,
        Rejected(),
        features=features,
        dim=settings.roi_dim,
        source=origin,
    )


def synthetic_features(count: int, dim: int) -> Lookup:
    """Return a function that draws `count` regions of `dim` standard normal features for an item, from its id alone."""

    def draw(split: str, item: str) -> Features:
        """Draw an item's regions [count, dim] from a generator that its id seeds."""
        seed = int.from_bytes(hashlib.sha256(item.encode()).digest()[:4], "little")
        return np.random.RandomState(seed).standard_normal((count, dim)).astype(np.float16)

    return draw


def _rows(source: Path) -> list[dict[str, str]]:
    """Return the rows of the published CSV, zipped or not; `DataError` where a column is missing."""
    if source.suffix == ".zip":
        with zipfile.ZipFile(source) as archive:
            inside = [name for name in archive.namelist() if name.endswith(".csv")]
            if len(inside) != 1:
                raise DataError(f"{source} must hold one CSV file, got {inside}")
            text = safety.read_member(archive, inside[0], MAX_BYTES).decode("utf-8-sig")
    else:
        text = source.read_text("utf-8-sig")
    names, rows = read_csv(text, source)
    missing = [repr(name) for name in COLUMNS if name not in names]
    if missing:
        raise DataError(
            f"{source} has no column {', '.join(missing)}; it is not the clothing reviews' CSV"
        )
    return [row for _, row in rows]


def _published(settings: Settings) -> Published:
    """Return the numbers of rows of each split, with which a plan reckons before the file is staged."""
    rows = {"products": 853, "train": 7_695, "dev": 2_098, "test": 2_517}
    return published(rows, settings.roi_dim if settings.synthetic_roi else 0)


CLOTHING_REVIEWS = Importer(
    read,
    "clothing reviews with helpful votes, 1,206 products, text only",
    "CC0 as published",
    "Womens Clothing E-Commerce Reviews.csv, or the zip it comes in",
    Settings,
    published=_published,
)
