"""What a ranking of reviews is judged by: metrics per product, their floors, and distances between modalities."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from contrasweep.config import Config
from contrasweep.data.column_files import Ints
from contrasweep.errors import DataError, SpecError
from contrasweep.rows import ItemColumns
from contrasweep.trainables.pytorch import Float
from contrasweep.trainables.review_helpfulness.batch import (
    Batch,
    Corpus,
    Mask,
    OtherMask,
    OtherVectors,
    Output,
    Sequences,
    Vectors,
)
from contrasweep.trainables.review_helpfulness.networks.layers import cosine_matrix

METRICS = ("map", "ndcg@3", "ndcg@5", "mrr")
"""Mean average precision, normalised discounted cumulative gain of the first 3 and 5, mean reciprocal rank."""


@dataclass(frozen=True)
class PerProduct:
    """Metric -> its values [p], one per product, in the order in which the products first appear in the rows."""

    values: dict[str, NDArray[np.float64]]

    def mean(self) -> dict[str, float]:
        """Return unweighted means over all products, those without a relevant review included; 0 without products."""
        return {
            name: float(values.mean()) if len(values) else 0.0
            for name, values in self.values.items()
        }


def per_product(
    *,
    labels: ArrayLike,
    scores: ArrayLike,
    products: Sequence[Hashable] | ArrayLike,
    threshold: int,
) -> PerProduct:
    """Return `map`, `ndcg@3`, `ndcg@5` and `mrr` of each product over its rows (reviews).

    A review is relevant if its label is above `threshold`; gains are 2^label - 1 of relevant ones. Rows are ordered
    by score within their product, ties in row order. A product without a relevant review counts as 0. Raises
    `SpecError` where the three lists differ in length or a score is not finite.
    """
    truth = np.asarray(labels, dtype=np.int64)
    score = np.asarray(scores, dtype=np.float64)
    keys = products.tolist() if hasattr(products, "tolist") else list(products)  # type: ignore[arg-type]
    if not len(truth) == len(score) == len(keys):
        raise SpecError(
            "labels, scores and products must be equally long",
            place="products",
            value=[len(truth), len(score), len(keys)],
        )
    if not np.isfinite(score).all():
        raise SpecError("scores must be finite: an order of NaN is no order", place="scores")
    # Products by number, in the order in which they first appear.
    numbers: dict[Any, int] = {}
    group = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
    # By product, then falling score, then row (`lexsort` takes the last key first); cut where a product ends.
    order = np.lexsort((np.arange(len(score)), -score, group))
    ends = np.cumsum(np.bincount(group, minlength=len(numbers)))
    lists = np.split(truth[order], ends[:-1]) if len(keys) else []
    # A row of metrics for each product, turned into an array for each metric.
    rows = np.array([_of_product(ranked, threshold) for ranked in lists]).reshape(-1, len(METRICS))
    return PerProduct(dict(zip(METRICS, rows.T, strict=True)))


def _of_product(ranked: Ints, threshold: int) -> tuple[float, float, float, float]:
    """Return the four `METRICS` of one product from its labels in ranked order."""
    relevant = ranked > threshold
    if not relevant.any():
        return 0.0, 0.0, 0.0, 0.0
    # Ranks of the relevant reviews, from 1, and the precision at each of them.
    ranks = np.flatnonzero(relevant) + 1
    precision = np.arange(1, len(ranks) + 1) / ranks
    gains = np.where(relevant, 2.0**ranked - 1, 0.0)
    return float(precision.mean()), _ndcg(gains, 3), _ndcg(gains, 5), float(1 / ranks[0])


def _ndcg(gains: NDArray[np.float64], k: int) -> float:
    """Return the discounted gain of the first k over that of the best order; rank i is discounted by log2(i + 1)."""
    discount = 1 / np.log2(np.arange(2, min(k, len(gains)) + 2))
    ideal = np.sort(gains)[::-1][:k] @ discount
    return float(gains[:k] @ discount / ideal)


def random_order_metrics(
    *,
    labels: ArrayLike,
    products: Sequence[Hashable] | ArrayLike,
    threshold: int,
    draws: int = 100,
    seed: int = 0,
) -> PerProduct:
    """Return the metrics of a random order, per product: means over `draws` seeded orders, the floor of any model."""
    # All runs have the same products in the same order, so their values are averaged one by one.
    rng = np.random.default_rng(seed)
    runs = [
        per_product(
            labels=labels,
            scores=rng.random(len(np.asarray(labels))),
            products=products,
            threshold=threshold,
        )
        for _ in range(draws)
    ]
    return PerProduct(
        {metric: np.mean([run.values[metric] for run in runs], axis=0) for metric in METRICS}
    )


RELATIONS = {
    "intra_modal": (("text_p", "text_r"), ("roi_p", "roi_r")),
    "inter_modal": (("text_p", "roi_r"), ("roi_p", "text_r")),
    "intra_review": (("text_p", "roi_p"), ("text_r", "roi_r")),
}
"""Relation -> the two pairs of sequences whose distances it has: text and regions (roi) of product (p), review (r)."""


def token_distances(
    x: Vectors,
    mask_x: Mask,
    y: OtherVectors,
    mask_y: OtherMask,
) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"]]:
    """Return the means over all valid token pairs of 1 - cosine and of the Euclidean distance, per sample."""
    pairs = mask_x[:, :, None] & mask_y[:, None, :]
    count = pairs.sum((1, 2)).clamp(min=1)
    cosine = ((1 - cosine_matrix(x, y)) * pairs).sum((1, 2)) / count
    # The matrix product behind cdist's fast way loses digits where the distance is small.
    euclidean = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
    return cosine, (euclidean * pairs).sum((1, 2)) / count


def relation_distances(features: Mapping[str, Sequences]) -> dict[str, Float[Tensor, " b"]]:
    """Return the distances of each relation of `RELATIONS` per sample, means over its two pairs of sequences.

    `features` has the four sequences `text_p`, `text_r`, `roi_p`, `roi_r`. Names are `cs_RELATION` (1 - cosine) and
    `l2_RELATION` (Euclidean), with `intra_modal`, `inter_modal` or `intra_review`.
    """
    distances = {}
    for relation, pairs in RELATIONS.items():
        of_pairs = [token_distances(*features[a], *features[b]) for a, b in pairs]
        cosine, euclidean = zip(*of_pairs, strict=True)
        distances[f"cs_{relation}"] = (cosine[0] + cosine[1]) / 2
        distances[f"l2_{relation}"] = (euclidean[0] + euclidean[1]) / 2
    return distances


RANDOM_ORDERS = 50
"""Random orders whose metrics are averaged as a floor."""


def with_floors(
    scored: PerProduct, corpus: Corpus, threshold: int
) -> tuple[dict[str, float], ItemColumns]:
    """Return means and per-product values of three rankings: `scored`, and two floors with a prefix before each name.

    The floors are a random order (`random_`) and the longest review first (`length_`). Labels above `threshold` are
    relevant.
    """
    rows: Config = {"labels": corpus.label, "products": corpus.product, "threshold": threshold}
    # Prefix of the names -> ranking of the same rows.
    rankings = {
        "": scored,
        "random_": random_order_metrics(**rows, draws=RANDOM_ORDERS),
        "length_": per_product(**rows, scores=corpus.lengths),
    }
    metrics = {
        prefix + name: value
        for prefix, ranking in rankings.items()
        for name, value in ranking.mean().items()
    }
    items = {
        prefix + name: values
        for prefix, ranking in rankings.items()
        for name, values in ranking.values.items()
    }
    return metrics, items


def distance_metrics(
    outputs: Iterable[tuple[Output, Batch]], helpful_threshold: int
) -> dict[str, float]:
    """Return the distances of Tables 7 and 8 of Nguyen et al. 2022 by name.

    The names are `cs_<relation>_<group>` and `l2_<relation>_<group>`. A distance is the mean over the pairs of a group,
    `helpful` or `unhelpful`, whose product and review both have images. A group without pairs is left out. `DataError`
    where both groups have none.
    """
    batches: list[dict[str, Tensor]] = []
    is_helpful: list[Tensor] = []
    for output, batch in outputs:
        # Without an image on one side the region features are a fixed zero, whose distance means nothing.
        has_images = batch.has_image_p & batch.has_image_r
        distances = relation_distances(output.features)
        batches.append({name: values[has_images] for name, values in distances.items()})
        is_helpful.append((batch.label >= helpful_threshold)[has_images])
    helpful = torch.cat(is_helpful)
    if not len(helpful):
        raise DataError(
            "distances between text and images need pairs with images on both sides; the test part has none"
        )
    # The mean of each distance over either group of pairs, where the group has any.
    metrics = {}
    for name in batches[0]:
        values = torch.cat([distances[name] for distances in batches])
        for group, rows in (("helpful", helpful), ("unhelpful", ~helpful)):
            if rows.any():
                metrics[f"{name}_{group}"] = values[rows].mean().item()
    return metrics
