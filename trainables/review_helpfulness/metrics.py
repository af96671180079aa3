"""Ranking metrics per product, their significance, and the label of a number of votes."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr

from contrasweep.errors import SpecError

METRICS = ("map", "ndcg@3", "ndcg@5", "mrr")


def label_from_votes(votes: ArrayLike) -> NDArray[np.int64]:
    """min(4, floor(log2 votes)), and -1 (no label: the review is left out) for no votes. Any shape."""
    count = np.asarray(votes, dtype=np.int64)
    # frexp is exact where floor(log2(x)) may round a power of two down.
    power = np.frexp(np.maximum(count, 1).astype(np.float64))[1].astype(np.int64) - 1
    return np.where(count > 0, np.minimum(4, power), -1)


@dataclass(frozen=True)
class PerProduct:
    """One value a product, in the order in which the products first appear in the rows."""

    products: list[Any]
    values: dict[str, NDArray[np.float64]]

    def mean(self) -> dict[str, float]:
        """Unweighted means over all products, those without a relevant review included."""
        return {name: float(values.mean()) if len(values) else 0.0 for name, values in self.values.items()}


def ranking_metrics(
    *, labels: ArrayLike, scores: ArrayLike, products: Sequence[Hashable] | ArrayLike, threshold: int
) -> dict[str, float]:
    """`map`, `ndcg@3`, `ndcg@5` and `mrr` over rows (reviews) of many products, averaged over products.

    A review is relevant if its label is above `threshold`; gains are 2^label - 1 of relevant ones. Rows are ordered
    by score within their product, ties in row order. A product without a relevant review counts as 0.
    """
    return per_product(labels=labels, scores=scores, products=products, threshold=threshold).mean()


def per_product(
    *, labels: ArrayLike, scores: ArrayLike, products: Sequence[Hashable] | ArrayLike, threshold: int
) -> PerProduct:
    """As `ranking_metrics`, before averaging."""
    truth, score = np.asarray(labels, dtype=np.int64), np.asarray(scores, dtype=np.float64)
    keys = products.tolist() if hasattr(products, "tolist") else list(products)  # type: ignore[arg-type]
    if not len(truth) == len(score) == len(keys):
        raise SpecError(
            "labels, scores and products must be equally long",
            place="products",
            value=[len(truth), len(score), len(keys)],
        )
    if not np.isfinite(score).all():
        raise SpecError("scores must be finite: an order of NaN is no order", place="scores")
    numbers: dict[Any, int] = {}
    group = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
    order = np.lexsort((np.arange(len(score)), -score, group))
    lists = np.split(truth[order], np.cumsum(np.bincount(group, minlength=len(numbers)))[:-1]) if len(keys) else []
    rows = np.array([_one(ranked, threshold) for ranked in lists]).reshape(-1, len(METRICS))
    return PerProduct(list(numbers), dict(zip(METRICS, rows.T, strict=True)))


def _one(ranked: NDArray[np.int64], threshold: int) -> tuple[float, float, float, float]:
    """The four metrics of one product from its labels in ranked order."""
    relevant = ranked > threshold
    if not relevant.any():
        return 0.0, 0.0, 0.0, 0.0
    ranks = np.flatnonzero(relevant) + 1
    precision = np.arange(1, len(ranks) + 1) / ranks
    gains = np.where(relevant, 2.0**ranked - 1, 0.0)
    return float(precision.mean()), _ndcg(gains, 3), _ndcg(gains, 5), float(1 / ranks[0])


def _ndcg(gains: NDArray[np.float64], k: int) -> float:
    discount = 1 / np.log2(np.arange(2, min(k, len(gains)) + 2))
    ideal = np.sort(gains)[::-1][:k] @ discount
    return float(gains[:k] @ discount / ideal)


def random_order_metrics(
    *, labels: ArrayLike, products: Sequence[Hashable] | ArrayLike, threshold: int, draws: int = 100, seed: int = 0
) -> PerProduct:
    """The expected metrics of a random order, per product, over `draws` seeded ones: the floor of any model."""
    rng = np.random.default_rng(seed)
    runs = [
        per_product(labels=labels, scores=rng.random(len(np.asarray(labels))), products=products, threshold=threshold)
        for _ in range(draws)
    ]
    return PerProduct(runs[0].products, {m: np.mean([run.values[m] for run in runs], axis=0) for m in METRICS})


@dataclass(frozen=True)
class PairedTest:
    """Student's paired test of a - b over n products: two-sided `p`, `difference` of the means, degrees `df`."""

    t: float
    p: float
    df: int
    difference: float


def paired_t(a: ArrayLike, b: ArrayLike) -> PairedTest:
    """Paired two-sided t-test over per-product values. Equal systems give t = 0 and p = 1."""
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1 or len(x) < 2:
        raise SpecError("a paired test needs two equally long lists of at least two values", value=[x.shape, y.shape])
    if np.array_equal(x, y):
        return PairedTest(0.0, 1.0, len(x) - 1, 0.0)
    difference, df = x - y, len(x) - 1
    error = difference.std(ddof=1) / np.sqrt(len(x))
    t = float(difference.mean() / error) if error > 0 else float(np.copysign(np.inf, difference.mean()))
    return PairedTest(t, float(2 * stdtr(df, -abs(t))), df, float(difference.mean()))


def paired_bootstrap(
    a: ArrayLike, b: ArrayLike, *, draws: int = 10_000, level: float = 0.95, seed: int = 0
) -> dict[str, float]:
    """Resample products in pairs: `low` and `high` of the difference's percentile interval, and the two-sided `p`
    (twice the smaller share of resampled differences on one side of 0, never below 1/draws)."""
    difference = np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64)
    rng = np.random.default_rng(seed)
    means = np.array([difference[rng.integers(0, len(difference), len(difference))].mean() for _ in range(draws)])
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    tail = min((means <= 0).mean(), (means >= 0).mean())
    return {
        "difference": float(difference.mean()),
        "low": float(low),
        "high": float(high),
        "p": float(min(1.0, max(2 * tail, 1 / draws))),
    }
