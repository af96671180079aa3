"""MCR's review files (Liu et al. 2021; Amazon and Lazada): three JSON tables per split, and region features.

    {category}.{prd,rvw,rel}.{train,dev,test}    pandas JSON; prd: product_id, name, description, img_url, keyword,
                                                 brand_name; rvw: product_id, review_id, content, title, img_url,
                                                 time; rel: product_id, review_id, upvotes, perhaps rating
    features/{split}/{id}/{id}.pth               a list of one dict per image, `x` the features [n, 2048]

The features are pickles inside: they are read by an unpickler that can build plain arrays and nothing else.
"""

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from contrasweep.data import safety
from contrasweep.data.content import Content, Importer, Published, Rejected
from contrasweep.errors import DataError
from contrasweep.schema import checked
from contrasweep.trainables.review_helpfulness.datasets.reviews import (
    SPLITS,
    Features,
    Product,
    Review,
    content,
    published,
)

PER_IMAGE = 32
"""Regions of an image that are kept, at most."""
PER_ITEM = 128
"""Regions of a product or review that are kept, at most."""
MAX_BYTES = 2**30
"""The largest pickle that is read out of a file."""
RELEVANCE_THRESHOLDS = {"amazon": 1, "lazada": 0}
"""Market -> the label above which its reviews are relevant, by MCR's code."""
THOUSANDS = {
    "amazon": {"Clothing": (20, 349, 87), "Electronics": (16, 325, 80), "Home": (23, 462, 111)},
    "lazada": {"Clothing": (10, 130, 32), "Electronics": (6, 52, 13), "Home": (5, 47, 13)},
}
"""Products, reviews for training and validation, and for tests, in thousands: enough for a plan of what is not staged.

Written from memory of Liu et al. 2021 and Nguyen et al. 2022 (Table 2), whose tables were not at hand."""
ROI_DIM = 2048
SUFFIX = ".prd.train"
"""What the name of a category's file of training products ends with."""
Row = Mapping[str, Any]
"""A line of a published file; its fields are checked as they are read."""


@checked
class Settings:
    """What can be set when MCR's files are staged.

    `category` is the category to stage; None: the only one in the folder. With `features` false the images' features
    are left out. `market` says whose reviews they are: the markets differ in the label above which a review is
    relevant.
    """

    category: str | None = None
    features: bool = True
    market: Literal["amazon", "lazada"] = "amazon"


def read(source: Path, settings: Settings) -> Content:
    """Return products, reviews and region features of one category; reviews without votes are left out and counted."""
    category = _category(source, settings.category)
    rejected = Rejected()
    products: list[Product] = []
    reviews: list[Review] = []
    for split in SPLITS:
        # The files of products (prd), of reviews (rvw), and of votes (rel).
        tables = {
            kind: list(_rows(source / f"{category}.{kind}.{split}"))
            for kind in ("prd", "rvw", "rel")
        }
        products += [_product(row, category, split) for row in tables["prd"]]
        # Votes and ratings lie in a table of their own, by product and review.
        votes = {(str(row["product_id"]), str(row["review_id"])): row for row in tables["rel"]}
        for row in tables["rvw"]:
            key = str(row["product_id"]), str(row["review_id"])
            if key in votes:
                reviews.append(_review(row, votes[key]))
            else:
                rejected.add("no row in rel", key[1])
    _check_disjoint(products, source)
    features = (
        _Features(source / "features", rejected)
        if settings.features and (source / "features").is_dir()
        else None
    )
    about = {"category": category, "relevance_threshold": RELEVANCE_THRESHOLDS[settings.market]}
    return content(products, reviews, rejected, features=features, source=about)


def _category(source: Path, wanted: str | None) -> str:
    """Return the category to stage: the one that is `wanted`, or the only one; `DataError` where there is none such."""
    # Each category has a file CATEGORY.prd.train.
    names = sorted(file.name.removesuffix(SUFFIX) for file in source.glob(f"?*{SUFFIX}"))
    if wanted in names:
        return str(wanted)
    if wanted is None and len(names) == 1:
        return names[0]
    hint = "there is no *.prd.train in it"
    if names:
        hint = f"it has {', '.join(names)}: choose one with --set category=NAME"
    raise DataError(f"{source}: which category? {hint}")


def _rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a JSON file in one of the forms of pandas.

    These are {column: {index: value}}, which is its default, a list of rows, and a row per line. `DataError` where the
    file is missing or of another form.
    """
    try:
        text = path.read_text(encoding="utf-8")
        try:
            parsed = json.loads(text)
        # A row a line is no JSON as a whole. A text may have other ends of lines than this one.
        except ValueError:
            parsed = [json.loads(line) for line in text.split("\n") if line.strip()]
        # The first column has the index of every row. Where it has none, there is a single row a line.
        if not isinstance(parsed, dict):
            yield from parsed
        elif parsed and not isinstance(next(iter(parsed.values())), dict):
            yield parsed
        else:
            for index in next(iter(parsed.values()), {}):
                yield {name: column.get(index) for name, column in parsed.items()}
    except FileNotFoundError:
        raise DataError(f"{path} is missing") from None
    except (ValueError, AttributeError, TypeError) as error:
        raise DataError(f"{path} is not pandas JSON ({error})") from None


def _product(row: Row, category: str, split: str) -> Product:
    """Return the product of a row of a `prd` file."""
    return Product(
        _text(row, "product_id"),
        category,
        split,
        name=_text(row, "name"),
        description=_text(row, "description"),
        brand=_text(row, "brand_name"),
        image_urls=_urls(row),
    )


def _review(row: Row, relation: Row) -> Review:
    """Return the review of a row of an `rvw` file; its votes and rating come from `relation`, its row of `rel`."""
    rating = relation.get("rating")
    try:
        return Review(
            _text(row, "review_id"),
            _text(row, "product_id"),
            text=_text(row, "content"),
            votes=int(relation["upvotes"] or 0),
            title=_text(row, "title"),
            rating=float("nan") if rating is None else float(rating),
            image_urls=_urls(row),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"review {row.get('review_id')!r}: upvotes and rating must be numbers ({error!r})"
        ) from None


def _text(row: Row, name: str) -> str:
    """Return a field of a row as text; "" where the field is missing, null or NaN."""
    value = row.get(name)
    return "" if value is None or value != value else str(value)


def _urls(row: Row) -> tuple[str, ...]:
    """Return the addresses of a row's images; () where there are none.

    MCR's files have in `img_url` a single address as text, or a list of them.
    """
    urls = row.get("img_url") or ()
    if isinstance(urls, str):
        return (urls,)
    if isinstance(urls, list):
        return tuple(str(url) for url in urls)
    return ()


def _check_disjoint(products: list[Product], source: Path) -> None:
    """Raise `DataError` where a product is in two splits."""
    seen: dict[str, str] = {}
    for product in products:
        if seen.setdefault(product.product_id, product.split) != product.split:
            raise DataError(
                f"{source}: product {product.product_id!r} is in both {seen[product.product_id]} and {product.split}"
            )


class _Features:
    """Gives the region features [n, 2048] of an item, at most 32 an image and 128 an item.

    n is 0 where the item has no file, or a broken one, which is counted as rejected.
    """

    def __init__(self, folder: Path, rejected: Rejected) -> None:
        self.folder = folder
        self.rejected = rejected

    def __call__(self, split: str, item: str) -> Features:
        empty = np.empty((0, ROI_DIM), np.float16)
        try:
            path = self.folder / split / safety.check_member(item, str(self.folder)) / f"{item}.pth"
            if not path.is_file():
                return empty
            # The first regions of each image, one image below the other; `empty`, as the file may have no image.
            images = [np.asarray(image, np.float16)[:PER_IMAGE] for image in load(path)]
            regions = np.concatenate([empty, *images])[:PER_ITEM]
            if not np.isfinite(regions).all():
                raise ValueError("a number is not finite in 16 bits")
            return regions
        except Exception as error:  # libraries raise any error for damaged files
            self.rejected.add("broken region features", f"{item}: {error}")
            return empty


def load(path: Path) -> list[Any]:
    """Return the feature arrays [n, 2048] of one .pth file, whether torch zipped it or pickled it plainly."""
    data = path.read_bytes()
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(path) as archive:
            inside = [name for name in archive.namelist() if name.endswith("data.pkl")]
            if len(inside) != 1:
                raise DataError(f"{path} is not a file of torch.save")
            data = safety.read_member(archive, inside[0], MAX_BYTES)
    # A dict for each image; files of Python 2 have bytes for keys.
    try:
        images = safety.unpickle(data, str(path))
        return [image["x"] if "x" in image else image[b"x"] for image in images]
    except (KeyError, TypeError) as error:
        raise DataError(f"{path} is not a list of dicts with features `x` ({error!r})") from None


def _published(settings: Settings) -> Published | None:
    """Return the sizes of a category of Lazada-MRHP or Amazon-MRHP; None for one that the papers do not have.

    The split is 64, 16 and 20 % of the products, so a fifth of the reviews that are not for tests is for validation.
    """
    if settings.category not in THOUSANDS[settings.market]:
        return None
    products, reviews, test = (
        1000 * count for count in THOUSANDS[settings.market][settings.category]
    )
    rows = {"products": products, "train": reviews * 4 // 5, "dev": reviews // 5, "test": test}
    about = {
        "category": settings.category,
        "relevance_threshold": RELEVANCE_THRESHOLDS[settings.market],
    }
    return published(rows, ROI_DIM if settings.features else 0, about)


MCR_REVIEWS = Importer(
    read,
    "product reviews with images (Amazon-MRHP, Lazada-MRHP) in MCR's files",
    "as published by MCR",
    "the folder of {category}.{prd,rvw,rel}.{train,dev,test}, with features/ if there are any",
    Settings,
    published=_published,
)
