"""A small corpus of random texts, regions and labels, and small settings for each of the eight models."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from contrasweep.trainables.review_helpfulness.batch import Corpus, Inputs
from contrasweep.trainables.review_helpfulness.corpora import PreparedParts
from contrasweep.trainables.review_helpfulness.settings import Settings
from contrasweep.trainables.review_helpfulness.trainer import Trainer

WORDS = 60
ROI_DIM = 6
CATEGORIES = 3
WORD_DIM = 12

SMALL: dict[str, dict[str, Any]] = {
    "bimpm": {"dim": 8, "perspectives": 3},
    "conv_knrm": {"filters": 12},
    "eg_cnn": {"filters": 16, "kernel": 3, "char_dim": 4, "char_filters": 6},
    "prh_net": {"dim": 16},
    "dr_net": {"dim": 16},
    "sse_cross": {"dim": 12},
    "mcr": {"dim": 16, "common_dim": 12, "region_layers": 1},
    "proposed": {"dim": 16, "depth": 2, "heads": 2, "region_layers": 1},
}
QUIET: dict[str, dict[str, Any]] = {
    "sse_cross": {"image_swap": 0.0, "text_swap": 0.0},
    "mcr": {"region_dropout": 0.0},
    "proposed": {"region_dropout": 0.0, "fusion_dropout": 0.0},
}
"""What takes the noise out of a model's training, beside dropout=0."""


def random_corpus(products=6, reviews=4, *, seed=0, images=True):
    """Each product has `reviews` reviews of 3 to 9 words with labels 0, 2, 4, ... in random order."""
    rng = np.random.default_rng(seed)

    def tokens(low, high):
        return rng.integers(2, WORDS, rng.integers(low, high))

    def regions():
        return rng.normal(size=(rng.integers(1, 4) if images else 0, ROI_DIM)).astype(np.float16)

    rows = products * reviews
    labels = np.concatenate(
        [rng.permutation(np.resize([4, 2, 0, 1], reviews)) for _ in range(products)]
    )
    corpus = Corpus(
        product_tokens=[tokens(2, 8) for _ in range(products)],
        record_tokens=[tokens(4, 10) for _ in range(products)],
        product_regions=[regions() for _ in range(products)],
        category=np.arange(products) % CATEGORIES,
        review_tokens=[tokens(3, 10) for _ in range(rows)],
        review_regions=[regions() for _ in range(rows)],
        product=np.repeat(np.arange(products), reviews),
        label=labels.astype(np.int64),
        product_ids=np.repeat([f"p{i}" for i in range(products)], reviews).tolist(),
        review_ids=[f"r{i}" for i in range(rows)],
        lengths=np.zeros(rows, np.int64),
        roi_dim=ROI_DIM,
    )
    return replace(corpus, lengths=np.array([len(text) for text in corpus.review_tokens]))


def random_inputs(seed=0):
    generator = torch.Generator().manual_seed(seed)
    words = [torch.rand(WORDS, WORD_DIM, generator=generator) - 0.5 for _ in range(2)]
    characters = torch.randint(2, 20, (WORDS, 5), generator=generator)
    characters[:, 3:] = 0
    return Inputs(words[0], words[1], characters, 20, ROI_DIM, CATEGORIES)


@pytest.fixture
def corpus():
    return random_corpus()


@pytest.fixture
def inputs():
    return random_inputs()


@pytest.fixture
def make_trainer():
    """make_trainer(model, corpus, model settings, **settings): a Trainer of small size, all of whose parts are
    `corpus`."""

    def make(model, corpus, options=None, **more):
        settings = Settings(
            model={"name": model, **SMALL[model], **(options or {})}, device="cpu", **more
        )
        inputs = replace(random_inputs(), helpful_threshold=settings.helpful_threshold)
        return Trainer(
            settings,
            PreparedParts(dict.fromkeys(("train", "dev", "test"), corpus), inputs, {}),
            (0, None),
        )

    return make


@pytest.fixture
def quiet():
    """quiet(model): settings of the model that take the noise out of its training."""
    return lambda model: {"dropout": 0.0, **QUIET.get(model, {})}


@pytest.fixture
def make_corpus():
    return random_corpus
