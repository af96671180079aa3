"""What the last report says of the test part: metrics with their floors, and distances between modalities."""

from collections.abc import Iterable
from typing import TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from contrasweep.errors import DataError
from contrasweep.rows import ItemColumns
from contrasweep.trainables.review_helpfulness.batch import Batch, Corpus, Output
from contrasweep.trainables.review_helpfulness.distances import relation_distances
from contrasweep.trainables.review_helpfulness.metrics import PerProduct, per_product, random_order_metrics

RANDOM_ORDERS = 50


class Rows(TypedDict):
    """What all rankings of a part are measured on."""

    labels: NDArray[np.int64]
    products: NDArray[np.int64]
    threshold: int


def with_floors(scored: PerProduct, corpus: Corpus, threshold: int) -> tuple[dict[str, float], ItemColumns]:
    """Means and per-product values of `scored`, of a random order (`random_`) and of longest first (`length_`)."""
    rows: Rows = {"labels": corpus.label, "products": corpus.product, "threshold": threshold}
    rankings = {
        "": scored,
        "random_": random_order_metrics(**rows, draws=RANDOM_ORDERS),
        "length_": per_product(**rows, scores=[len(tokens) for tokens in corpus.review_tokens]),
    }
    metrics = {prefix + name: value for prefix, ranking in rankings.items() for name, value in ranking.mean().items()}
    items = {prefix + name: values for prefix, ranking in rankings.items() for name, values in ranking.values.items()}
    return metrics, items


def distance_metrics(outputs: Iterable[tuple[Output, Batch]], helpful_threshold: int) -> dict[str, float]:
    """Tables 7-8: `cs_<relation>_<helpful or unhelpful>` and `l2_...`, means over the test pairs whose product and
    review both have images. `DataError` if there is none, since all regions would then be the same zero."""
    batches: list[dict[str, Tensor]] = []
    for output, batch in outputs:
        seen = batch.has_image_p & batch.has_image_r
        distances = {name: values[seen] for name, values in relation_distances(output.features).items()}
        batches.append(distances | {"helpful": (batch.label >= helpful_threshold)[seen]})
    joined = {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}
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
