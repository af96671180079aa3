"""Simulate studies with a known truth and count how often the statistics are right.

    python -m benchmarks.statistics_simulation [--studies 4000] [--output benchmarks/results]

Rates come with their 95 % binomial interval. Nothing is timed, so the hardware does not matter to the figures.
"""

import argparse
import importlib.metadata
import math
import platform
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from benchmarks.paired import compare_paired
from scipy import stats

from contrasweep.statistics.design import Design, contrast
from contrasweep.statistics.power_of_designs import power

Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def normal(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.normal(size=shape)


def heavy(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.standard_t(3, size=shape)


def skewed(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.exponential(size=shape) - 1


def folds(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Draw differences of this shape, of which any two correlate by 0.2, as Nadeau and Bengio assume for folds of 80 %
    training rows.
    """
    return math.sqrt(0.2) * rng.normal(size=(shape[0], 1)) + math.sqrt(0.8) * rng.normal(size=shape)


def cross_validations(rng: np.random.Generator, studies: int, repeats: int = 5) -> np.ndarray:
    """Differences [studies, 5 repeats x 5 folds] of two real learners under a true null.

    Each study draws 200 rows of two classes, a quarter of a deviation to either side of 0 in each of ten features;
    the learners are the nearest centroid on either half of the features, so their expected accuracies are equal.
    """
    rows = 200
    found = np.empty((studies, repeats * 5))
    for study in range(studies):
        y = rng.integers(0, 2, rows)
        x = rng.normal(size=(rows, 10)) + 0.5 * (y[:, None] - 0.5)
        for repeat in range(repeats):
            for fold, test in enumerate(np.array_split(rng.permutation(rows), 5)):
                train = np.setdiff1d(np.arange(rows), test)
                first = _hits(x[:, :5], y, train, test)
                second = _hits(x[:, 5:], y, train, test)
                found[study, 5 * repeat + fold] = first - second
    return found


def _hits(x: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    centres = np.stack([x[train][y[train] == c].mean(axis=0) for c in (0, 1)])
    distance = ((x[test][:, None] - centres) ** 2).sum(axis=2)
    return float((distance.argmin(axis=1) == y[test]).mean())


def row(what: str, method: str, design: str, hits: np.ndarray, promised: float) -> dict[str, Any]:
    count = int(np.sum(hits))
    studies = len(hits)
    interval = stats.binomtest(count, studies).proportion_ci(method="wilson")
    return {
        "what": what,
        "method": method,
        "design": design,
        "promised": promised,
        "rate": count / studies,
        "low": interval.low,
        "high": interval.high,
        "studies": studies,
    }


def false_positives(rng: np.random.Generator, studies: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each design and method: how often a difference of zero gets a verdict."""
    what = "false positives"
    for n in (5, 6, 8, 10, 15, 25):
        d = normal(rng, (studies, n))
        yield row(what, "compare_paired (sign-flip)", f"{n} fresh seeds", decided(d, None), 0.05)
    for n in (5, 10, 25):
        d = folds(rng, (studies, n))
        yield row(
            what,
            "compare_paired (Nadeau-Bengio)",
            f"{n} overlapping folds, correlation 0.2",
            decided(d, 0.8),
            0.05,
        )
        yield row(
            what, "naive t (contrast)", f"{n} overlapping folds, correlation 0.2", naive(d), 0.05
        )
    d = cross_validations(rng, max(200, studies // 4))
    yield row(
        what,
        "compare_paired (Nadeau-Bengio)",
        "5 x 5 folds, nearest centroids",
        decided(d, 0.8),
        0.05,
    )
    yield row(what, "naive t (contrast)", "5 x 5 folds, nearest centroids", naive(d), 0.05)


def decided(d: np.ndarray, fraction: float | None) -> np.ndarray:
    zeros = np.zeros(d.shape[1])
    return np.array(
        [compare_paired(x, zeros, train_fraction=fraction).verdict != "undecided" for x in d]
    )


def naive(d: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(stats.ttest_1samp(d, 0, axis=1).pvalue <= 0.05)


def bca(values: np.ndarray) -> tuple[float, float]:
    found = stats.bootstrap(
        (values,), np.mean, method="BCa", n_resamples=1999, rng=np.random.default_rng(0)
    )
    return found.confidence_interval.low, found.confidence_interval.high


def coverage(rng: np.random.Generator, studies: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each design and method: how often the interval holds the true mean."""
    for name, draw in {
        "normal": normal,
        "heavy tails (t3)": heavy,
        "skewed (exponential)": skewed,
    }.items():
        for n in (5, 6, 10, 20, 30, 100):
            d = draw(rng, (studies, n))
            kind = f"{n} seeds, {name}"
            yield row(
                "coverage",
                "interval of a mean",
                kind,
                covered(d, lambda x: contrast(x).interval()),
                0.95,
            )
            yield row("coverage", "plain BCa (contrast)", kind, covered(d, bca), 0.95)
    for n in (5, 10, 25):
        hits = covered(
            folds(rng, (studies, n)),
            lambda x: contrast(x, folds=range(len(x)), design=Design(folds=5)).interval(),
        )
        yield row(
            "coverage",
            "interval of a mean (Nadeau-Bengio)",
            f"{n} overlapping folds, correlation 0.2",
            hits,
            0.95,
        )


def covered(d: np.ndarray, interval: Callable[[np.ndarray], Any]) -> np.ndarray:
    return np.array([low <= 0 <= high for low, high in map(interval, d)])


def powers(rng: np.random.Generator, studies: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each design: how often the number of seeds that `power` asks for decides a difference."""
    for effect in (2.5, 1.5, 1.0, 0.5):
        n = next(n for n in range(2, 1000) if power(n, effect) >= 0.8)
        d = effect + normal(rng, (studies, n))
        yield row("power", "power", f"{effect:g} sd: {n} fresh seeds", decided(d, None), 0.8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=4000)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    rng = np.random.default_rng(20261121)
    rows = [r for part in (false_positives, coverage, powers) for r in part(rng, options.studies)]
    frame = pd.DataFrame(rows)
    options.output.mkdir(parents=True, exist_ok=True)
    frame.round(4).to_csv(options.output / "statistics.csv", index=False)
    text = [
        f"# Statistics by simulation\n\n{datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, Python "
        f"{platform.python_version()}, "
        f"SciPy {importlib.metadata.version('scipy')}; `python -m benchmarks.statistics_simulation --studies "
        f"{options.studies}`\n\nOf whole studies, by the same code: those that are looked at as they grow or are "
        "extended, and other methods on the same draws, in growing_studies.md; what advice promises, in advice.md; "
        "networks that were really trained, in real_learners.md.\n"
    ]
    text += ["| what | method | design | promised | found [95 %] |", "|---|---|---|---|---|"]
    text += [
        f"| {r['what']} | {r['method']} | {r['design']} | {r['promised']:g} | {r['rate']:.3f} [{r['low']:.3f}, "
        f"{r['high']:.3f}] |"
        for r in rows
    ]
    (options.output / "statistics.md").write_text("\n".join(text) + "\n")
    print("\n".join(text))


if __name__ == "__main__":
    main()
