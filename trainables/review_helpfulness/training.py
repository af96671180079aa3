"""Train one of the eight models to rank a product's reviews by helpfulness.

list(train(trial))

One report an epoch, with validation metrics. The last one has the metrics of the test part under the best epoch's
weights, and their values per product.
"""

import math
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np

from contrasweep.cluster.memory import Workload
from contrasweep.config import Config
from contrasweep.data.manifest import Manifest
from contrasweep.trainables.pytorch import Tensor, nn, torch
from contrasweep.trainables.review_helpfulness.settings import Settings
from contrasweep.trial import Report, Trial

GROUPS_A_REVIEW = (0.65, 0.36)
"""Groups of an epoch for each training review, with a `sampler.interval` of 0 and of 1. They are those of the clothing
reviews, which stand for any data that is not read yet."""
COUNTED_PAIRS = 2
"""Pairs that are counted, with real tensors: most of the models look at values (packed sequences, chosen rows)."""
VOCABULARY = 30_000
"""Words of products and of reviews, before the data is read: Amazon-MRHP's size."""
CHARACTERS = 100
"""Characters, before the data is read."""
CHARACTERS_A_WORD = 16
"""Characters of a word, before the data is read."""


def memory(config: Config, data: Manifest) -> Workload:
    """Return the memory and the work of a trial with this config: those of a step, and the most steps it can have."""
    settings = Settings(**config)
    sampler = settings.sampler
    rows = sampler.groups * (1 + sampler.num_negatives)
    # Groups of an epoch, estimated from the number of reviews; larger intervals count as the last one of the table.
    per_review = GROUPS_A_REVIEW[min(sampler.interval, len(GROUPS_A_REVIEW) - 1)]
    groups = data.rows("train") * per_review
    # Without images an item has one region of one zero.
    has_images = "roi" in data.columns and settings.use_images
    roi_dim = data.columns["roi"]["shape"][0] if has_images else 1
    regions = settings.max_regions if has_images else 1

    def build() -> "nn.Module":
        """Build the model with zeros for words and characters, of which only the shapes count."""
        from contrasweep.trainables.review_helpfulness.batch import Inputs
        from contrasweep.trainables.review_helpfulness.networks import build_model

        words = torch.zeros(VOCABULARY, settings.word_dim)
        characters = torch.zeros(VOCABULARY, CHARACTERS_A_WORD, dtype=torch.long)
        return build_model(settings, Inputs(words, words.clone(), characters, CHARACTERS, roi_dim))

    return Workload(
        architecture=f"review_helpfulness {settings.model.name}",
        shape=(
            rows,
            settings.max_tokens,
            regions,
            roi_dim,
            has_images,
            settings.word_dim,
            repr(settings.model),
        ),
        build=build,
        inputs=lambda: (_batch(COUNTED_PAIRS, settings.max_tokens, regions, roi_dim),),
        loss=_loss,
        device=settings.device,
        cpus=float(settings.threads),
        # Counted with real tensors on a few pairs, and multiplied by `parts`.
        fake=False,
        parts=rows / COUNTED_PAIRS,
        # An epoch has at most `max_groups` groups, if that is set.
        steps=settings.epochs
        * math.ceil(min(groups, sampler.max_groups or groups) / sampler.groups),
    )


def _batch(rows: int, tokens: int, regions: int, roi: int) -> Any:
    """Return a `Batch` of `rows` equal pairs, with which a plan counts memory: only its shapes matter.

    Each text has `tokens` words, and each item `regions` image regions of `roi` features.
    """
    from contrasweep.trainables.review_helpfulness.batch import Corpus

    texts = [np.ones(tokens, np.int64)] * rows
    images = [np.ones((regions, roi), np.float32)] * rows
    zeros = np.zeros(rows, np.int64)
    corpus = Corpus(
        product_tokens=texts,
        record_tokens=texts,
        product_regions=images,
        category=zeros,
        review_tokens=texts,
        review_regions=images,
        product=zeros,
        label=zeros,
        product_ids=[],
        review_ids=[],
        lengths=zeros,
        roi_dim=roi,
    )
    # Of the same review in each row: their shapes alone count.
    return corpus.batch(zeros)


def _loss(output: Any) -> Tensor:
    """Return the sum of an output's scores and own losses, in place of the ranking loss, where memory is counted."""
    total: Tensor = output.score.sum() + sum(value.sum() for value in output.losses.values())
    return total


def train(trial: Trial, resume: Path | None = None) -> Generator[Report]:
    """Train `trial`, from the checkpoint folder `resume` if given, and yield a report per epoch; `step` is the epoch.

    Every report has `loss` and its parts, `grad_norm`, `learning_rate` and `contrastive_rows` (helpful rows of a step,
    on average). It has `dev_map`, `dev_ndcg@3`, `dev_ndcg@5` and `dev_mrr` of the validation part.

    The last report also has `map`, `ndcg@3`, `ndcg@5` and `mrr` of the test part. The same metrics follow for a random
    order (`random_map`, ...) and for the longest review first (`length_map`, ...), and with `distances` those of Tables
    7-8. Its items are one value for each test product, in the order of the data. Its artifact `reviews.parquet` has the
    score of each test review.
    """
    from contrasweep.trainables import loop
    from contrasweep.trainables.review_helpfulness.corpora import load
    from contrasweep.trainables.review_helpfulness.trainer import Trainer

    settings = Settings(**trial.config).with_threshold(trial.data)
    trainer = Trainer(settings, load(trial, settings), (trial.seed, trial.fold))
    yield from loop.run(trainer, trial, resume)


train.settings = Settings  # type: ignore[attr-defined]
train.memory = memory  # type: ignore[attr-defined]


def load_model(folder: Path, trial: Trial) -> "nn.Module":
    """Return the ranker in a checkpoint of `trial`, with the weights of its best epoch.

    It takes a `Batch` to an `Output`, whose `score` [b] ranks reviews.
    """
    from contrasweep.trainables import checkpoint
    from contrasweep.trainables.review_helpfulness.corpora import load
    from contrasweep.trainables.review_helpfulness.networks import build_model

    settings = Settings(**trial.config)
    model = build_model(settings, load(trial, settings).inputs)
    model.load_state_dict(checkpoint.part(folder, "best")["weights"])
    return model.cpu().eval()
