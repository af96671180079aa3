"""Builds the corpora and inputs of a trial from a staged dataset of reviews."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from contrasweep.data import Part, open_dataset
from contrasweep.data.column_files import Array, Ints
from contrasweep.data.manifest import Manifest
from contrasweep.errors import DataError
from contrasweep.trainables import seeding
from contrasweep.trainables.review_helpfulness import vocabulary
from contrasweep.trainables.review_helpfulness.batch import Corpus, Inputs
from contrasweep.trainables.review_helpfulness.datasets.word_vectors import WordVector
from contrasweep.trainables.review_helpfulness.settings import Settings
from contrasweep.trainables.review_helpfulness.vocabulary import OOV, Words
from contrasweep.trial import Trial

DEV_SHARE = 0.2
"""The share of training products that are held out where the dataset has no validation split: 16 of 80 per cent."""


@dataclass(frozen=True)
class Products:
    """The products of a dataset; a product's number is its index in each of these lists.

    A product's `text` is its name and description, its `record` name, brand, category and description, each as one
    text. `regions` are [m f] for each product, with m = 0 where it has no images.
    """

    ids: Sequence[str]
    category: Sequence[str]
    text: Sequence[str]
    record: Sequence[str]
    regions: Sequence[Array]


@dataclass(frozen=True)
class Reviews:
    """The reviews of one part of a dataset.

    Their order decides ties; `product` is the number of each review's product, `regions` the image features [m f] of
    each review.
    """

    product: Ints
    text: Sequence[str]
    label: Ints
    regions: Sequence[Array]
    ids: Sequence[str]

    def __len__(self) -> int:
        return len(self.label)

    def take(self, rows: Ints) -> "Reviews":
        """Return these rows, in this order."""
        text, regions, ids = (
            [column[i] for i in rows] for column in (self.text, self.regions, self.ids)
        )
        return Reviews(self.product[rows], text, self.label[rows], regions, ids)


@dataclass(frozen=True)
class PreparedParts:
    """The parts of a trial by name (`train`, `dev`, `test`), and what its model is built from.

    `dropped` counts the reviews that were left out because no known word was left of them.
    """

    corpora: Mapping[str, Corpus]
    inputs: Inputs
    dropped: Mapping[str, int]


def hold_out(reviews: Reviews, products: Products) -> tuple[Reviews, Reviews]:
    """Return training and validation reviews.

    A fifth of the products, chosen by the digest of their ids and so always the same ones, is kept for validation.
    """
    owners = np.unique(reviews.product)
    if len(owners) < 2:
        raise DataError("a validation part needs at least two products in the training part")
    ranked = sorted(
        owners.tolist(), key=lambda number: hashlib.sha256(products.ids[number].encode()).digest()
    )
    count = max(1, round(DEV_SHARE * len(owners)))
    is_dev = np.isin(reviews.product, ranked[:count])
    return reviews.take(np.flatnonzero(~is_dev)), reviews.take(np.flatnonzero(is_dev))


def prepare(
    products: Products,
    parts: Mapping[str, Reviews],
    roi_dim: int,
    settings: Settings,
    key: tuple[int | None, ...],
    pretrained_vectors: Callable[[], Iterable[WordVector]] = tuple,
) -> PreparedParts:
    """Make vocabularies of the part `train`, then corpora of all parts.

    `roi_dim` is the size of a region's features. `key` (seed, fold) seeds the initial word vectors.
    `pretrained_vectors` gives pairs (word, vector), which take the place of those that are drawn; by default none.
    """
    # Vocabularies are those of training reviews and their products alone.
    train = parts["train"]
    records = [products.record[number] for number in np.unique(train.product)]
    product_words = vocabulary.build(records, settings.min_word_count)
    review_words = vocabulary.build(train.text, settings.min_word_count)
    categories = sorted(set(products.category))
    # Both vocabularies share a generator, from which the initial vectors of products' words are drawn first.
    rng = np.random.default_rng(seeding.derive(*key, "word vectors"))
    product_vectors, review_vectors = (
        torch.from_numpy(
            vocabulary.word_vectors(words, settings.word_dim, rng, pretrained_vectors())
        )
        for words in (product_words, review_words)
    )
    character_table, characters = vocabulary.characters(review_words)
    inputs = Inputs(
        product_vectors,
        review_vectors,
        review_characters=torch.from_numpy(character_table),
        characters=characters,
        roi_dim=roi_dim,
        categories=len(categories),
        helpful_threshold=settings.helpful_threshold,
    )
    # Products are the same in all parts.
    corpus_of = partial(
        Corpus,
        product_tokens=_encode(products.text, product_words, settings),
        record_tokens=_encode(products.record, product_words, settings),
        product_regions=_regions(products.regions, settings),
        category=np.array(
            [categories.index(category) for category in products.category], dtype=np.int64
        ),
        roi_dim=roi_dim,
    )
    # Reviews differ from part to part.
    corpora = {
        name: _corpus(reviews, review_words, products.ids, corpus_of, settings)
        for name, reviews in parts.items()
    }
    dropped = {name: len(reviews) - len(corpora[name]) for name, reviews in parts.items()}
    return PreparedParts(corpora, inputs, dropped)


def _corpus(
    reviews: Reviews,
    words: Words,
    product_ids: Sequence[str],
    corpus_of: Callable[..., Corpus],
    settings: Settings,
) -> Corpus:
    """Return the corpus of one part's reviews, without those that have no word of the vocabulary.

    `corpus_of` builds it, and knows the fields that describe products, which are the same for all parts.
    """
    # Such a review is left out even where texts are hidden: then all models see the same reviews.
    tokens = [vocabulary.encode(text, words, settings.max_tokens) for text in reviews.text]
    rows = np.flatnonzero([len(tokens_of_review) > 0 for tokens_of_review in tokens])
    kept = reviews.take(rows)
    return corpus_of(
        review_tokens=[tokens[i] if settings.use_text else np.array([OOV]) for i in rows],
        review_regions=_regions(kept.regions, settings),
        product=kept.product,
        label=kept.label,
        product_ids=[product_ids[number] for number in kept.product],
        review_ids=kept.ids,
        lengths=np.array([len(tokens[i]) for i in rows], dtype=np.int64),
    )


def _encode(texts: Iterable[str], words: Words, settings: Settings) -> list[Ints]:
    """Return token numbers of product texts; a hidden text, or one without known words, is one `<OOV>`."""
    empty_text = np.array([OOV], dtype=np.int64)
    encoded = (vocabulary.encode(text, words, settings.max_tokens) for text in texts)
    return [tokens if len(tokens) and settings.use_text else empty_text for tokens in encoded]


def _regions(regions: Sequence[Array], settings: Settings) -> list[Array]:
    """Return the first `max_regions` regions of each item, or none where images are hidden."""
    most = settings.max_regions if settings.use_images else 0
    return [item[:most] for item in regions]


def load(trial: Trial, settings: Settings) -> PreparedParts:
    """Return the parts `train`, `dev` and `test` of a trial; `DataError` where its dataset has no reviews.

    The test part is that of the trial's fold, or without one the dataset's own. A trial without a fold takes the
    dataset's own `dev` split, if it has one; else reviews of some training products are held out.
    """
    if trial.data.kind != "reviews":
        raise DataError(
            f"dataset {trial.data.name} is of kind {trial.data.kind!r}; review_helpfulness trains on reviews"
        )
    dataset = open_dataset(trial.data)
    products, numbers = _products(dataset.split("products"))
    train, test = dataset.parts(trial.fold)
    parts = {"train": _reviews(train, numbers), "test": _reviews(test, numbers)}
    if trial.fold is None and trial.data.rows("dev"):
        parts["dev"] = _reviews(dataset.split("dev"), numbers)
    else:
        parts["train"], parts["dev"] = hold_out(parts["train"], products)
    # Without images, the size of the one region of zeros that each item has.
    roi_dim = trial.data.columns["roi"]["shape"][0] if "roi" in trial.data.columns else 1
    key = (trial.seed, trial.fold)
    vectors = partial(_pretrained_vectors, settings, trial.data)
    return prepare(products, parts, roi_dim, settings, key, vectors)


def _pretrained_vectors(settings: Settings, data: Manifest) -> Iterable[WordVector]:
    """Return pairs (word, vector): the staged word vectors that the setting `word_vectors` names; () without one."""
    if settings.word_vectors is None:
        return ()
    part = open_dataset(settings.staged_vectors(data)).split("train")
    return zip(part.column("word").to_pylist(), part.array("vector"), strict=True)


def _products(part: Part) -> tuple[Products, dict[str, int]]:
    """Return the products of a part, and id -> number of each."""
    ids = _texts(part, "product_id")
    name, brand, category, description = (
        _texts(part, column) for column in ("name", "brand", "category", "description")
    )
    # A product's text has its name and description; its record has brand and category too.
    text = [" ".join(fields) for fields in zip(name, description, strict=True)]
    record = [" ".join(fields) for fields in zip(name, brand, category, description, strict=True)]
    numbers = {product: number for number, product in enumerate(ids)}
    return Products(ids, category, text, record, _roi(part)), numbers


def _reviews(part: Part, numbers: Mapping[str, int]) -> Reviews:
    """Return the reviews of a part; `numbers` are id -> number of the products."""
    owners = np.array([numbers[product] for product in _texts(part, "product_id")], dtype=np.int64)
    return Reviews(owners, _texts(part, "text"), part.labels, _roi(part), _texts(part, "review_id"))


def _texts(part: Part, name: str) -> list[str]:
    """Return a column of texts; a missing one is ""."""
    return [text or "" for text in part.column(name).to_pylist()]


def _roi(part: Part) -> Sequence[Array]:
    """Return region features of each row, [m f]; m is 0 where the dataset has no image side."""
    if "roi" in part.split.manifest.columns:
        regions = part.ragged("roi")
        return [regions[row] for row in range(len(part))]
    return [np.zeros((0, 1), dtype=np.float16)] * len(part)
