"""Train one of the eight models to rank a product's reviews by helpfulness.

list(train(trial))

One report an epoch, with validation metrics; the last one has the metrics of the test part under the best epoch's
weights, and their values per product.
"""

import itertools
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from contrasweep.errors import DataError
from contrasweep.trial import Report, Trial
from trainables import checkpoint
from trainables.review_helpfulness.batch import Corpus
from trainables.review_helpfulness.data import load
from trainables.review_helpfulness.distances import relation_distances
from trainables.review_helpfulness.fit import Fit
from trainables.review_helpfulness.memory import memory
from trainables.review_helpfulness.metrics import per_product, random_order_metrics
from trainables.review_helpfulness.models import MODELS
from trainables.review_helpfulness.settings import Settings

RANDOM_ORDERS = 50


def train(trial: Trial, resume: Path | None = None) -> Generator[Report, None, None]:
    """Train `trial`, from the checkpoint folder `resume` if given. `step` is the epoch, from 1.

    Every report: `loss` and its parts, `grad_norm`, `learning_rate`, `contrastive_rows` (mean B of a step), and the
    validation part's `dev_map`, `dev_ndcg@3`, `dev_ndcg@5`, `dev_mrr`. The last one: `map`, `ndcg@3`, `ndcg@5` and
    `mrr` of the test part, the same under a random order (`random_map`) and longest first (`length_map`), and with
    `distances` those of Tables 7-8. Its items have one value per test product, in the order of the data.
    """
    settings = Settings(**trial.config)
    key = (trial.seed, trial.fold)
    prepared = load(trial, settings, key)
    fit = Fit(settings, prepared.inputs, prepared.corpora["train"], key)
    done = checkpoint.restore(resume, fit.parts)["epoch"] if resume is not None else 0
    if done and fit.stopped(done):
        return
    with tempfile.TemporaryDirectory(prefix="contrasweep-") as folder:
        for epoch in itertools.count(done + 1):
            metrics = fit.epoch(epoch)
            dev = fit.evaluate(prepared.corpora["dev"]).mean()
            fit.select(epoch, dev["map"])
            metrics |= {f"dev_{name}": value for name, value in dev.items()}
            saved = checkpoint.save(Path(folder), fit.parts, epoch=epoch)
            if fit.stopped(epoch):
                scored, items = test(fit, prepared.corpora["test"])
                counts = {f"dropped_{part}_reviews": float(n) for part, n in prepared.dropped.items()}
                yield Report(epoch, metrics | scored | counts, saved, items)
                return
            yield Report(epoch, metrics, saved)


train.settings = Settings  # type: ignore[attr-defined]


def load_model(folder: Path, trial: Trial) -> nn.Module:
    """The ranker in a checkpoint of `trial`, with the weights of its best epoch: a `Batch` to an `Output`, whose
    `score` [b] ranks reviews."""
    settings = Settings(**trial.config)
    prepared = load(trial, settings, (trial.seed, trial.fold))
    model: nn.Module = MODELS[settings.model].model(settings.options(), prepared.inputs)  # type: ignore[call-arg]
    model.load_state_dict(checkpoint.part(folder, "best")["weights"])
    return model.cpu().eval()


train.memory = memory  # type: ignore[attr-defined]


def test(fit: Fit, corpus: Corpus) -> tuple[dict[str, float], dict[str, Any]]:
    """Metrics and per-product values of the test part under the best epoch's weights."""
    fit.load_best()
    rows: dict[str, Any] = {
        "labels": corpus.label,
        "products": corpus.product,
        "threshold": fit.settings.relevance_threshold,
    }
    found = {
        "": fit.evaluate(corpus),
        "random_": random_order_metrics(**rows, draws=RANDOM_ORDERS),
        "length_": per_product(**rows, scores=[len(tokens) for tokens in corpus.review_tokens]),
    }
    metrics = {prefix + name: value for prefix, values in found.items() for name, value in values.mean().items()}
    items = {prefix + name: array for prefix, values in found.items() for name, array in values.values.items()}
    if fit.settings.distances:
        metrics |= measure_distances(fit, corpus)
    return metrics | {"best_epoch": float(fit.best.epoch), "test_products": float(len(items["map"]))}, items


def measure_distances(fit: Fit, corpus: Corpus) -> dict[str, float]:
    """Tables 7-8: `cs_<relation>_<helpful or unhelpful>` and `l2_...`, means over the test pairs whose product and
    review both have images. `DataError` if there is none, since all regions would then be the same zero."""
    found: list[dict[str, Tensor]] = []
    for _, output, batch in fit.outputs(corpus):
        seen = batch.has_image_p & batch.has_image_r
        helpful = batch.label >= fit.settings.helpful_threshold
        found.append(
            {name: values[seen] for name, values in relation_distances(output.features).items()}
            | {"helpful": helpful[seen]}
        )
    joined = {name: torch.cat([batch[name] for batch in found]) for name in found[0]}
    helpful = joined.pop("helpful")
    if not len(helpful):
        raise DataError(
            "distances between text and images need pairs with images on both sides; the test part has none"
        )
    groups = {"helpful": helpful, "unhelpful": ~helpful}
    return {
        f"{name}_{group}": values[rows].mean().item()
        for name, values in joined.items()
        for group, rows in groups.items()
        if rows.any()
    }
