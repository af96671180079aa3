"""Error rates, coverage and power of `contrasweep judge` by design, beside the tests that other tools would take.

    python -m benchmarks.judges --studies 2000 > benchmarks/results/judges.md
    pip install mushin-py autorank    # in an environment of their own; what is installed has columns too

Each design draws two arms many times, with no difference and with one that matters. `ours` is the shipped code: of the
first draws from a frame of runs to its verdict, of the others from the contrast on, which the first draws show to be
the same. Beside it: Student's paired t and Wilcoxon's signed rank over the same rows as if each were
an independent pair, and Welch's t over them; mushin-py and autorank take the same rows:
Wilcoxon's test is mushin's default, and autorank chooses between tests of two populations, from five rows on.
"""

import argparse
import contextlib
import io
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from contrasweep.judging.judged import judge, read_source
from contrasweep.statistics.comparison import Comparison, judged_comparisons
from contrasweep.statistics.design import Contrast, Design, contrast, contrast_over_items
from contrasweep.statistics.evidence import Evidence
from contrasweep.statistics.family import Family
from contrasweep.statistics.mcnemar import DiscordantContrast
from contrasweep.statistics.unpaired import unpaired_contrast

CHECKED = 3
"""Of so many draws the verdict from the frame is compared with that from the contrast."""
Drawn = tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]
"""The values of both arms, row by row, and the columns that name a row."""
Draw = Callable[[np.random.Generator, float], Drawn]


@dataclass(frozen=True)
class Simulated:
    """A simulated design: how it draws runs, and the true difference at which its power is measured."""

    name: str
    draw: Draw
    gain: float


def arms(a: ArrayLike, b: ArrayLike, **names: np.ndarray) -> Drawn:
    """Runs of both arms, from values of the same shape; `names` are the other columns of a run."""
    return np.ravel(a).astype(float), np.ravel(b).astype(float), names


def frame_of(drawn: Drawn) -> pd.DataFrame:
    """The runs as a frame, as a user would have written them down."""
    parts = [
        pd.DataFrame({"arm": arm, "score": x, **drawn[2]})
        for arm, x in zip("ab", drawn, strict=False)
    ]
    return pd.concat(parts, ignore_index=True)


def seeds(n: int, noise: Callable[[np.random.Generator, int], object]) -> Draw:
    """A design of two arms on the same n seeds; `noise` draws the differences."""

    def draw(rng: np.random.Generator, gain: float) -> Drawn:
        shared = rng.normal(size=n)
        return arms(gain + shared + np.asarray(noise(rng, n)), shared, seed=np.arange(n))

    return draw


def folds(k: int, m: int, fold: float = 1.0, shared: float = 0.2) -> Draw:
    """A design of k folds x m seeds.

    `shared` is the correlation between differences of folds, which share training rows.
    """

    def draw(rng: np.random.Generator, gain: float) -> Drawn:
        common = rng.normal() * math.sqrt(shared) * fold
        of_fold = rng.normal(size=(k, 1)) * math.sqrt(1 - shared) * fold
        d = gain + common + of_fold + rng.normal(size=(k, m)) * 0.5
        place = {"fold": np.repeat(np.arange(k), m), "seed": np.tile(np.arange(m), k)}
        level = rng.normal(size=d.shape)
        return arms(d + level, level, **place)

    return draw


def answers(n: int, group: int = 1) -> Draw:
    """A design of right and wrong answers on n items, in groups that share half of the variance of the difficulty."""

    def draw(rng: np.random.Generator, gain: float) -> Drawn:
        hard = np.repeat(rng.normal(size=n // group), group) * (1 if group > 1 else 0) + rng.normal(
            size=n
        )
        # a group may suit one arm
        lean = np.repeat(rng.normal(size=n // group), group) * (0.5 if group > 1 else 0)
        a = hard + rng.normal(size=n) + gain + lean > 0
        b = hard + rng.normal(size=n) > 0
        place = {"item": np.arange(n)} | ({"group": np.arange(n) // group} if group > 1 else {})
        return arms(a.astype(int), b.astype(int), **place)

    return draw


def crossed(m: int, n: int) -> Draw:
    """A design of m seeds x n items: both add to the variance of the difference."""

    def draw(rng: np.random.Generator, gain: float) -> Drawn:
        d = (
            gain
            + rng.normal(size=(m, 1)) * 0.15
            + rng.normal(size=(1, n))
            + rng.normal(size=(m, n))
        )
        level = rng.normal(size=d.shape)
        return arms(
            d + level, level, seed=np.repeat(np.arange(m), n), item=np.tile(np.arange(n), m)
        )

    return draw


def tasks(n: int) -> Draw:
    """A design of one score for each of n tasks; differences between tasks have heavy tails."""

    def draw(rng: np.random.Generator, gain: float) -> Drawn:
        level = rng.normal(size=n) * 5
        return arms(gain + level + rng.standard_t(4, n) / math.sqrt(2), level, task=np.arange(n))

    return draw


def unpaired(n: int, m: int, spread: float = 1.0) -> Draw:
    """A design of n runs of a and m runs of b without partners; those of a scatter `spread` times as widely."""

    def draw(rng: np.random.Generator, gain: float) -> Drawn:
        return gain + rng.normal(size=n) * spread, rng.normal(size=m), {}

    return draw


def normal(rng: np.random.Generator, n: int) -> object:
    """Normal noise."""
    return rng.normal(size=n)


def skewed(rng: np.random.Generator, n: int) -> object:
    """The difference of two exponential noises: heavy tails."""
    return rng.exponential(size=n) - rng.exponential(size=n)


DESIGNS = [
    Simulated("5 seeds", seeds(5, normal), 1.7),
    Simulated("8 seeds", seeds(8, normal), 1.2),
    Simulated("8 seeds, heavy tails", seeds(8, skewed), 1.7),
    Simulated("20 seeds", seeds(20, normal), 0.66),
    Simulated("5 folds", folds(5, 1), 3.0),
    Simulated("5 folds x 2 seeds", folds(5, 2), 3.0),
    Simulated("10 folds x 2 seeds", folds(10, 2, shared=0.1), 1.7),
    Simulated("200 items, 0 or 1", answers(200), 0.45),
    Simulated("1,000 items, 0 or 1", answers(1000), 0.2),
    Simulated("200 items of 20 groups, 0 or 1", answers(200, 10), 0.65),
    Simulated("4 seeds x 50 items", crossed(4, 50), 0.6),
    Simulated("12 tasks", tasks(12), 0.9),
    Simulated("41 tasks", tasks(41), 0.45),
    Simulated("unpaired, 4 and 4 runs", unpaired(4, 4), 2.4),
    Simulated("unpaired, 5 and 5 runs", unpaired(5, 5), 2.0),
    Simulated("unpaired, 5 and 5 runs, 3 times the spread", unpaired(5, 5, 3.0), 4.5),
    Simulated("unpaired, 10 and 10 runs", unpaired(10, 10), 1.3),
    Simulated("unpaired, 4 and 12 runs", unpaired(4, 12), 1.8),
    Simulated("unpaired, 4 and 12 runs, 3 times the spread", unpaired(4, 12, 3.0), 6.0),
]


def truth(design: Simulated, gain: float) -> float:
    """The true difference of the metric, by 2,000 draws where answers are 0 or 1."""
    if "0 or 1" not in design.name:
        return gain
    if not gain:
        return 0.0
    rng = np.random.default_rng(1)
    draws = [design.draw(rng, gain) for _ in range(2000)]
    return float(np.mean([a.mean() - b.mean() for a, b, _ in draws]))


def comparison_of(drawn: Drawn, design: Design) -> Comparison:
    """The comparison that `judge` makes of rows whose layout has this design, from its contrast on."""
    a, b, names = drawn
    d = None if design.unit == "run" else a - b
    if d is None:
        found: Contrast = unpaired_contrast(a, b)
    elif design.items:
        found = contrast_over_items(d.reshape(-1, design.items))
    elif design.unit == "group":
        found = contrast(
            np.bincount(names["group"], d) / np.bincount(names["group"]), design=design
        )
    else:
        folds = list(names["fold"]) if design.folds else None
        found = contrast(
            d, folds=folds, seeds=list(names["seed"]) if folds else None, design=design
        )
        if design.unit == "item":
            found = DiscordantContrast(
                **{entry.name: getattr(found, entry.name) for entry in fields(found)}
            )
    return judged_comparisons([Evidence(found)], Family(1), "max")[0]


def by_mushin(a: np.ndarray, b: np.ndarray) -> float:
    """Share of the draws [draws, rows] that mushin-py calls significant; each draw is a metric, which is a family."""
    import xarray
    from mushin.benchmark import compare_methods

    rows = {
        str(i): (("method", "seed"), np.stack(pair))
        for i, pair in enumerate(zip(a, b, strict=True))
    }
    places = {"method": ["a", "b"], "seed": np.arange(a.shape[1])}
    return float(compare_methods(xarray.Dataset(rows, coords=places))["significant"].mean())


def by_autorank(a: np.ndarray, b: np.ndarray) -> float:
    """Share of the draws [draws, rows] that autorank calls significant; it takes five rows and more."""
    from autorank import autorank

    if a.shape[1] < 5:
        return math.nan
    with contextlib.redirect_stdout(io.StringIO()):
        p = [autorank(pd.DataFrame({"a": x, "b": y})).pvalue for x, y in zip(a, b, strict=True)]
    return float((np.array(p) <= 0.05).mean())


OTHERS = {"mushin-py": by_mushin, "autorank": by_autorank}


def installed() -> dict[str, str]:
    """The others that are installed here -> their versions."""
    found = {}
    for name in OTHERS:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def measure(design: Simulated, gain: float, studies: int) -> dict[str, float]:
    """Return the shares of draws that each test calls significant, and of our intervals that hold the truth."""
    known = truth(design, gain)
    draws = []
    ours = covers = 0
    for number in range(studies):
        drawn = design.draw(np.random.default_rng([number, int(1000 * gain)]), gain)
        draws.append(drawn[:2])
        if not number:
            layout = read_source(frame_of(drawn), {}, "further").layout
        found = comparison_of(drawn, layout.design)
        if number < CHECKED:
            (pair,) = judge(frame_of(drawn)).pairs
            shipped = pair.seen_from("a").comparison
            assert np.allclose([shipped.p_value, shipped.low], [found.p_value, found.low]), (
                design.name
            )
        ours = ours + found.decided
        covers = covers + (found.low <= known <= found.high)
    a, b = (np.array(x) for x in zip(*draws, strict=True))
    rates = {
        "ours": ours / studies,
        "covers": covers / studies,
        "t": math.nan,
        "wilcoxon": math.nan,
    }
    rates["welch"] = float((stats.ttest_ind(a, b, axis=1, equal_var=False).pvalue <= 0.05).mean())
    if a.shape == b.shape:
        rates["t"] = float((stats.ttest_rel(a, b, axis=1).pvalue <= 0.05).mean())
        rates["wilcoxon"] = float((stats.wilcoxon(a, b, axis=1).pvalue <= 0.05).mean())
    for name in installed():
        rates[name] = OTHERS[name](a, b) if a.shape == b.shape else math.nan
    return rates


def main() -> None:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=2000)
    studies = parser.parse_args().studies
    error = math.sqrt(0.05 * 0.95 / studies)
    others = installed()
    warnings.simplefilter("ignore")
    columns = {
        "ours": "ours",
        "t": "t",
        "wilcoxon": "Wilcoxon",
        "welch": "Welch",
        **{name: name for name in others},
    }
    told = ", ".join(f"{name} {number}" for name, number in others.items()) or "nobody"
    print("# Judges by design\n")
    print(
        f"{studies:,} draws of each design by `python -m benchmarks.judges` on {datetime.now(UTC).date()}, {told} too. "
        f"The standard error of a rate near .05 is {error:.3f}, of one near .8 {math.sqrt(0.16 / studies):.3f}. "
        "`false`: called better or worse where there is no difference. `covers`: intervals that hold the true "
        "difference, without one and with one. `power`: called better or worse where there is one. t, Wilcoxon and the "
        "other programs take each row of an arm with the same row of the other as an independent pair; Welch takes "
        "rows as unpaired.\n"
    )
    names = list(columns.values())
    head = [
        "design",
        f"false: {names[0]}",
        *names[1:],
        "covers",
        "with a difference",
        f"power: {names[0]}",
        *names[1:],
    ]
    print(f"| {' | '.join(head)} |\n{'|---' * len(head)}|")
    for design in DESIGNS:
        none = measure(design, 0.0, studies)
        some = measure(design, design.gain, studies)
        rows = [
            *(none[name] for name in columns),
            none["covers"],
            some["covers"],
            *(some[name] for name in columns),
        ]
        shown = ["–" if math.isnan(rate) else f"{rate:.3f}".lstrip("0") for rate in rows]
        print(f"| {design.name} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    main()
