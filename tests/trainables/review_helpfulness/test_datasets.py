"""The datasets of reviews, each on a small source in its published format, by its dotted path as a study names it."""

import csv
import io
import json
import pickle
import re
import shutil
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dataset_sources import Exploit
from refusals import refused
from staged_data import check_staged

from contrasweep.data import open_dataset, resolve, stage
from contrasweep.data.resolving import default_place, find
from contrasweep.errors import DataError
from contrasweep.trainables.review_helpfulness.datasets import mcr_reviews, reviews

PACKAGE = "contrasweep.trainables.review_helpfulness.datasets"
CLOTHING, MCR, SYNTHETIC = (
    f"{PACKAGE}:{name}_REVIEWS" for name in ("CLOTHING", "MCR", "SYNTHETIC")
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CONTRASWEEP_CACHE", str(tmp_path / "node-cache"))
    monkeypatch.delenv("CONTRASWEEP_DATA", raising=False)


def clothing(folder):
    head = ",Clothing ID,Age,Title,Review Text,Rating,Recommended IND,Positive Feedback Count,"
    names = f"{head}Division Name,Department Name,Class Name".split(",")
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(names)
    for i in range(120):
        text_of_row = f"review {i},\nsecond line"
        writer.writerow([i, i % 24, 30, "", text_of_row, 4, 1, i % 20, "General", "Tops", "Knits"])
    with zipfile.ZipFile(folder / "reviews.zip", "w") as archive:
        archive.writestr("Reviews.csv", f"\ufeff{text.getvalue()}")
    return folder / "reviews.zip"


def mcr(folder):
    import torch

    for number, split in enumerate(("train", "dev", "test")):
        ids = [f"p{number}{i}" for i in range(6)]
        reviews = [(product, f"r-{product}-{j}") for product in ids for j in range(4)]
        tables = {
            "prd": {
                "product_id": ids,
                "name": ["name"] * 6,
                "description": [None] * 6,
                "img_url": [["u"]] * 6,
                "keyword": ["k"] * 6,
                "brand_name": ["b"] * 6,
            },
            "rvw": {
                "product_id": [p for p, _ in reviews],
                "review_id": [r for _, r in reviews],
                "content": [f"good {r}" for _, r in reviews],
                "title": ["t"] * 24,
                "img_url": ["v"] * 24,
                "time": [0] * 24,
            },
            "rel": {
                "product_id": [p for p, _ in reviews],
                "review_id": [r for _, r in reviews],
                "upvotes": [j % 20 for j in range(24)],
            },
        }
        for kind, table in tables.items():
            text = json.dumps(
                {
                    name: {str(i): value for i, value in enumerate(values)}
                    for name, values in table.items()
                }
            )
            (folder / f"Toys.{kind}.{split}").write_text(text)
        for item, n in ((ids[0], 40), (reviews[1][1], 3)):
            place = folder / "features" / split / item
            place.mkdir(parents=True)
            torch.save(
                [{"x": np.random.RandomState(7).rand(n, 2048).astype(np.float32), "num_boxes": n}],
                place / f"{item}.pth",
            )
    return folder


SOURCES: dict[str, Callable[[Path], Path | None]] = {
    CLOTHING: clothing,
    MCR: mcr,
    SYNTHETIC: lambda folder: None,
}


def here(name, folder, to="staged", **settings):
    """The dataset `name`, staged from a source in `folder`."""
    place = folder / "source"
    if not place.exists():
        place.mkdir()
        (folder / "place").write_text(str(SOURCES[name](place) or ""))
    return stage(
        name, str(folder / to), source=(folder / "place").read_text() or None, settings=settings
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", SOURCES)
def test_a_staged_dataset_is_whole_repeatable_and_readable(name, tmp_path):
    manifest = here(name, tmp_path)
    check_staged(manifest)
    assert here(name, tmp_path, "again").digest == manifest.digest


def test_synthetic_reviews_are_staged_on_demand_and_are_the_same_for_ever(storage):
    manifest = find(SYNTHETIC, storage=storage)
    assert manifest.digest.startswith("cb129eeed282") and manifest.synthetic


@pytest.mark.parametrize(
    ("votes", "label"),
    [(1, 0), (2, 1), (3, 1), (4, 2), (7, 2), (8, 3), (15, 3), (16, 4), (1000, 4)],
)
def test_votes_to_label(votes, label):
    assert reviews.label(votes) == label


def test_the_market_of_mcr_reviews_says_what_is_relevant(tmp_path):
    amazon = here(MCR, tmp_path)
    lazada = here(MCR, tmp_path, "lazada", market="lazada")
    assert [one.source["relevance_threshold"] for one in (amazon, lazada)] == [1, 0]
    assert default_place(MCR, dict(amazon.source["settings"])) != default_place(
        MCR, dict(lazada.source["settings"])
    )


@pytest.mark.parametrize("products", [6, 1])
def test_mcr_reviews_may_have_a_row_a_line(products, tmp_path):
    """A text may have an end of line that is none of JSON, and a split a single product."""
    source = mcr(tmp_path)
    expected = stage(MCR, str(tmp_path / "tables"), source=source).rows("train")
    for file in source.glob("Toys.*"):
        table = json.loads(file.read_text())
        rows = [
            {name: column[str(i)] for name, column in table.items()}
            for i in range(len(table["product_id"]))
        ]
        if file.name == "Toys.prd.dev":
            rows = rows[:products]
        text = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        file.write_text(text.replace("good ", "good\u2028\x85"), encoding="utf-8")
    lines = stage(MCR, str(tmp_path / "lines"), source=source)
    assert lines.rows("train") == expected and lines.rows("products") == 12 + products
    texts = open_dataset(lines).split("train").column("text").to_pylist()
    assert all("\u2028\x85" in text for text in texts)


def test_mcr_reviews_keep_features_order_and_products_apart(tmp_path):
    dataset = open_dataset(here(MCR, tmp_path))
    train = dataset.split("train")
    products = dataset.split("products")
    roi = dict(
        zip(
            products.column("product_id").to_pylist(),
            (products.ragged("roi")[i] for i in range(len(products))),
            strict=True,
        )
    )
    file = tmp_path / "source/features/train/p00/p00.pth"
    assert np.array_equal(roi["p00"], mcr_reviews.load(file)[0][:32].astype(np.float16)), (
        "at most 32 regions an image"
    )
    names = list(
        zip(
            train.column("product_id").to_pylist(),
            train.column("row_in_product").to_pylist(),
            strict=True,
        )
    )
    assert names == sorted(names)
    rows = products.column("product_id").take(train.column("product_row"))
    assert rows.to_pylist() == train.column("product_id").to_pylist()
    split_of = [
        set(dataset.split(split).column("product_id").to_pylist()) for split in reviews.SPLITS
    ]
    assert not split_of[0] & split_of[1] and not split_of[1] & split_of[2]
    assert not split_of[0] & split_of[2]


def zip_of(name):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as writer:
        writer.writestr(f"archive/{name}", pickle.dumps([{"x": np.ones((2, 2048))}]))
    return archive.getvalue()


def damaged_archive():
    return zip_of("data.pkl").replace(b"numpy", b"nampy")  # its checksum is that of before


def changed(name, column, values):
    """A change of the first values of a column."""

    def change(source):
        table = json.loads((source / name).read_text())
        table[column] |= {str(i): value for i, value in enumerate(values)}
        (source / name).write_text(json.dumps(table))

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda source: (source / "Toys.rel.dev").unlink(), "Toys.rel.dev is missing"),
        (
            lambda source: (source / "Toys.rel.dev").write_text("{]"),
            "is not pandas JSON (Expecting",
        ),
        (
            lambda source: shutil.copy(source / "Toys.prd.train", source / "Books.prd.train"),
            "it has Books, Toys: choose one with --set category=NAME",
        ),
        (changed("Toys.rel.dev", "upvotes", ["many"]), "upvotes and rating must be numbers"),
        (changed("Toys.prd.dev", "product_id", ["p00"]), "product 'p00' is in both train and dev"),
    ],
)
def test_files_of_mcr_that_do_not_fit_are_named(change, says, tmp_path):
    change(source := mcr(tmp_path))
    with refused(DataError, says):
        stage(MCR, str(tmp_path / "to"), source=source)


def test_reviews_of_mcr_without_votes_or_addresses_of_images_are_kept_or_counted(tmp_path):
    source = mcr(tmp_path)
    changed("Toys.rel.dev", "review_id", ["another"])(source)
    changed("Toys.rvw.dev", "img_url", [7, None, ["a", "b"]])(source)
    manifest = stage(MCR, str(tmp_path / "to"), source=source)
    rejected = manifest.source["rejected"]
    assert rejected["no row in rel"] == {"count": 1, "first": ["r-p10-0"]}
    urls = open_dataset(manifest).split("dev").column("image_urls").to_pylist()
    assert urls[:2] == [[], ["a", "b"]]


@pytest.mark.parametrize(
    "content",
    [
        b"half a downlo",
        damaged_archive(),
        pickle.dumps([{"y": 1}]),
        pickle.dumps([{"x": np.full((2, 2048), np.nan)}]),
        pickle.dumps([{"x": np.full((2, 2048), 1e6)}]),  # infinite in 16 bits
    ],
    ids=["cut", "damaged archive", "no features", "not a number", "too large"],
)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_broken_region_features_are_counted_and_named_and_their_item_has_none(content, tmp_path):
    source = mcr(tmp_path)
    (source / "features/train/p00/p00.pth").write_bytes(content)
    manifest = stage(MCR, str(tmp_path / "to"), source=source, settings={"category": "Toys"})
    broken = manifest.source["rejected"]["broken region features"]
    assert broken["count"] == 1 and broken["first"][0].startswith("p00: ")
    products = open_dataset(manifest).split("products")
    place = products.column("product_id").to_pylist().index("p00")
    assert len(products.ragged("roi")[place]) == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: f"number{text}", "has no column ''; it is not"),
        (lambda text: text.replace("Knits\r\n3,", '"Knits\r\n3,'), "begins on line .* is no CSV"),
        (lambda text: text.replace("Rating", "Title"), "the column 'Title' twice"),
    ],
    ids=["no index", "an open quote", "a column twice"],
)
def test_clothing_reviews_are_read_whole_or_not_at_all(change, says, tmp_path):
    with zipfile.ZipFile(clothing(tmp_path)) as archive:
        text = archive.read("Reviews.csv").decode("utf-8-sig")
    file = tmp_path / "Reviews.csv"
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    rows = stage(CLOTHING, str(tmp_path / "whole"), source=file).rows("products")
    assert rows == here(CLOTHING, tmp_path).rows("products") == 24
    file.write_bytes(change(text).encode())
    with refused(DataError, match=says):
        stage(CLOTHING, str(tmp_path / "changed"), source=file)


def test_clothing_reviews_without_a_text_are_counted_and_a_zip_of_two_files_is_refused(tmp_path):
    with zipfile.ZipFile(archive := clothing(tmp_path)) as packed:
        text = packed.read("Reviews.csv").decode()
    file = tmp_path / "Reviews.csv"
    file.write_text(text.replace('"review 3,\nsecond line"', ""))
    manifest = stage(CLOTHING, str(tmp_path / "one"), source=file)
    assert manifest.source["rejected"]["no text"]["count"] == 1
    file.write_text(re.sub('"review [0-9]*,\nsecond line"', "", text))
    with refused(DataError, "and a helpful vote; left out: 6 (no helpful vote), 114 (no text)"):
        stage(CLOTHING, str(tmp_path / "none"), source=file)
    with zipfile.ZipFile(archive, "a") as packed:
        packed.writestr("More.csv", "")
    with refused(DataError, "must hold one CSV file, got ['Reviews.csv', 'More.csv']"):
        stage(CLOTHING, str(tmp_path / "two"), source=archive)


def test_synthetic_features_are_labelled(tmp_path):
    assert not here(CLOTHING, tmp_path).synthetic
    assert here(CLOTHING, tmp_path, "b", synthetic_roi=2, roi_dim=8).synthetic


def test_real_clothing_reviews(staged):
    manifest = resolve(staged(CLOTHING), folds=None, storage="unused")
    labels = np.sum(
        [manifest.counts[split]["classes"] for split in ("train", "dev", "test")], axis=0
    )
    assert labels.tolist() == [4043, 3626, 2494, 1446, 701]
    assert manifest.rows("products") == 853


def test_forged_region_features_are_refused(tmp_path):
    target = tmp_path / "executed"
    (tmp_path / "x.pth").write_bytes(pickle.dumps([{"x": Exploit(target)}]))
    with refused(DataError, "not loaded"):
        mcr_reviews.load(tmp_path / "x.pth")
    assert not target.exists()


def test_products_are_split_by_their_ids_whatever_the_order_of_rows():
    ids = [f"p{i:03d}" for i in range(200)]
    split = reviews.split_products(ids, 0)
    assert split == reviews.split_products(ids[::-1] * 2, 0) != reviews.split_products(ids, 1)
    assert Counter(split.values()) == {"train": 128, "dev": 32, "test": 40}
