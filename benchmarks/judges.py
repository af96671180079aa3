"""Error rates, coverage and power of `contrasweep judge` by design, beside the tests that other tools would take.

    python -m benchmarks.judges --studies 2000 > benchmarks/results/judges.md

Each design draws two arms many times, with no difference and with one that matters. `ours` is the shipped code: of the
first draws from a frame of runs to its verdict, of the others from the evidence on, which the first draws show to be
the same. Beside it: Student's paired t and Wilcoxon's signed rank over the same rows as if each were
an independent pair (what mushin-py and ml-experiment-stats do with folds), and Welch's t over them.
"""

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from contrasweep.judging.judged import judge, laid_out
from contrasweep.judging.roles import COLUMNS
from contrasweep.statistics.comparison import judged
from contrasweep.statistics.design import Design
from contrasweep.statistics.evidence import Evidence, ItemScores, paired_evidence
from contrasweep.statistics.family import Family
from contrasweep.statistics.unpaired import unpaired_evidence

CHECKED = 3
"""Of so many draws the verdict from the frame is compared with that from the evidence."""
Draw = Callable[[np.random.Generator, float], pd.DataFrame]


@dataclass(frozen=True)
class Simulated:
    """A design: what it draws for a true difference, that of the power, and whether rows are independent pairs."""

    name: str
    draw: Draw
    gain: float
    paired: bool = True


def arms(a: object, b: object, **names: object) -> pd.DataFrame:
    """Rows of both arms, of values of one shape; `names` are the columns of a row."""
    parts = [pd.DataFrame({"arm": arm, "score": np.ravel(x), **names}) for arm, x in (("a", a), ("b", b))]
    return pd.concat(parts, ignore_index=True)


def seeds(n: int, noise: Callable[[np.random.Generator, int], object]) -> Draw:
    """Arms on n shared seeds, whose differences have this noise."""

    def draw(rng: np.random.Generator, gain: float) -> pd.DataFrame:
        shared = rng.normal(size=n)
        return arms(gain + shared + np.asarray(noise(rng, n)), shared, seed=np.arange(n))

    return draw


def folds(k: int, m: int, fold: float = 1.0, shared: float = 0.2) -> Draw:
    """Arms on k folds x m seeds; differences of folds correlate by `shared`, as they share training rows."""

    def draw(rng: np.random.Generator, gain: float) -> pd.DataFrame:
        common = rng.normal() * math.sqrt(shared) * fold
        of_fold = rng.normal(size=(k, 1)) * math.sqrt(1 - shared) * fold
        d = gain + common + of_fold + rng.normal(size=(k, m)) * 0.5
        place = {"fold": np.repeat(np.arange(k), m), "seed": np.tile(np.arange(m), k)}
        return arms(d, np.zeros_like(d), **place)

    return draw


def answers(n: int, group: int = 1) -> Draw:
    """Right or wrong answers on n items, in groups that share half of the variance of the difficulty."""

    def draw(rng: np.random.Generator, gain: float) -> pd.DataFrame:
        hard = np.repeat(rng.normal(size=n // group), group) * (1 if group > 1 else 0) + rng.normal(size=n)
        lean = np.repeat(rng.normal(size=n // group), group) * (0.5 if group > 1 else 0)  # a group may suit one arm
        a = hard + rng.normal(size=n) + gain + lean > 0
        b = hard + rng.normal(size=n) > 0
        place = {"item": np.arange(n)} | ({"group": np.arange(n) // group} if group > 1 else {})
        return arms(a.astype(int), b.astype(int), **place)

    return draw


def crossed(m: int, n: int) -> Draw:
    """m seeds x n items, each with a part in the difference."""

    def draw(rng: np.random.Generator, gain: float) -> pd.DataFrame:
        d = gain + rng.normal(size=(m, 1)) * 0.15 + rng.normal(size=(1, n)) + rng.normal(size=(m, n))
        return arms(d, np.zeros_like(d), seed=np.repeat(np.arange(m), n), item=np.tile(np.arange(n), m))

    return draw


def tasks(n: int) -> Draw:
    """One score a task; differences of tasks have heavy tails."""

    def draw(rng: np.random.Generator, gain: float) -> pd.DataFrame:
        level = rng.normal(size=n) * 5
        return arms(gain + level + rng.standard_t(4, n) / math.sqrt(2), level, task=np.arange(n))

    return draw


def unpaired(n: int, m: int, spread: float = 1.0) -> Draw:
    """n runs of a, with `spread` times the deviation of the m runs of b."""

    def draw(rng: np.random.Generator, gain: float) -> pd.DataFrame:
        a, b = gain + rng.normal(size=n) * spread, rng.normal(size=m)
        return pd.DataFrame({"arm": ["a"] * n + ["b"] * m, "score": [*a, *b]})

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
    Simulated("5 folds", folds(5, 1), 3.0, paired=False),
    Simulated("5 folds x 2 seeds", folds(5, 2), 3.0, paired=False),
    Simulated("10 folds x 2 seeds", folds(10, 2, shared=0.1), 1.7, paired=False),
    Simulated("200 items, 0 or 1", answers(200), 0.45),
    Simulated("1,000 items, 0 or 1", answers(1000), 0.2),
    Simulated("200 items of 20 groups, 0 or 1", answers(200, 10), 0.65, paired=False),
    Simulated("4 seeds x 50 items", crossed(4, 50), 0.6, paired=False),
    Simulated("12 tasks", tasks(12), 0.9),
    Simulated("41 tasks", tasks(41), 0.45),
    Simulated("unpaired, 4 and 4 runs", unpaired(4, 4), 2.4, paired=False),
    Simulated("unpaired, 5 and 5 runs", unpaired(5, 5), 2.0, paired=False),
    Simulated("unpaired, 5 and 5 runs, 3 times the spread", unpaired(5, 5, 3.0), 4.5, paired=False),
    Simulated("unpaired, 10 and 10 runs", unpaired(10, 10), 1.3, paired=False),
    Simulated("unpaired, 4 and 12 runs", unpaired(4, 12), 1.8, paired=False),
    Simulated("unpaired, 4 and 12 runs, 3 times the spread", unpaired(4, 12, 3.0), 6.0, paired=False),
]


def truth(design: Simulated, gain: float) -> float:
    """The true difference of the metric: of right answers that of the shares, by 200 large draws."""
    if "0 or 1" not in design.name:
        return gain
    if not gain:
        return 0.0
    rng = np.random.default_rng(1)
    frames = [design.draw(rng, gain).groupby("arm")["score"].mean() for _ in range(2000)]
    return float(np.mean([means["a"] - means["b"] for means in frames]))


def evidence_of(frame: pd.DataFrame, design: Design) -> Evidence:
    """The evidence that `judge` takes from a frame whose layout has this design, without its tables."""
    if design.unit == "group":
        frame = frame.groupby(["arm", "group"], as_index=False)["score"].mean()
    a, b = (frame[frame["arm"] == arm] for arm in "ab")
    x, y = (part["score"].to_numpy(dtype=float) for part in (a, b))
    items = None
    if design.unit == "run":
        found = unpaired_evidence(x, y)
    else:
        names = {name: a[name].to_numpy() if name in a else 0 for name in ("fold", "seed")}
        rows = pd.DataFrame({"cell": 0, "failed_a": False, "failed_b": False, "a": x, "b": y} | names)
        if design.items:
            d, m = (x - y).reshape(-1, design.items), design.items
            items = ItemScores(list(d), [""] * len(d), {"": np.ones(m)})
            rows = rows.groupby("seed", as_index=False).mean().assign(failed_a=False, failed_b=False)
        elif not design.folds:
            rows["seed"] = np.arange(len(rows))
        found = paired_evidence(rows, design, items=items)
    assert found is not None
    return found


def measure(design: Simulated, gain: float, studies: int) -> dict[str, float]:
    """Return the shares of draws that each test calls significant, and of our intervals that hold the truth."""
    known, found = truth(design, gain), {"ours": 0, "covers": 0, "t": 0, "wilcoxon": 0, "welch": 0}
    for number in range(studies):
        frame = design.draw(np.random.default_rng([number, int(1000 * gain)]), gain)
        if not number:
            layout = laid_out(frame, dict.fromkeys((*COLUMNS, "mode", "reference"), ""), "further")[3]
        one = judged([evidence_of(frame, layout.design)], Family(1), "max")[0]
        if number < CHECKED:
            pair = judge(frame).pairs[0].seen_from("a")
            assert np.allclose([pair.comparison.p_value, pair.comparison.low], [one.p_value, one.low]), design.name
        found["ours"] += one.decided
        found["covers"] += one.low <= known <= one.high
        a, b = (frame.loc[frame["arm"] == arm, "score"].to_numpy(dtype=float) for arm in "ab")
        found["welch"] += stats.ttest_ind(a, b, equal_var=False).pvalue <= 0.05
        if len(a) == len(b):
            found["t"] += stats.ttest_rel(a, b).pvalue <= 0.05
            found["wilcoxon"] += bool(np.any(a != b)) and stats.wilcoxon(a, b).pvalue <= 0.05
        else:
            found["t"] = found["wilcoxon"] = math.nan
    return {name: count / studies for name, count in found.items()}


def main() -> None:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=2000)
    studies = parser.parse_args().studies
    error = math.sqrt(0.05 * 0.95 / studies)
    print("# Judges by design\n")
    print(
        f"{studies:,} draws of each design by `python -m benchmarks.judges`; the standard error of a rate near .05 is "
        f"{error:.3f}, of one near .8 {math.sqrt(0.16 / studies):.3f}. `false`: called better or worse where there is "
        "no difference. `covers`: intervals that hold the true difference, without one and with one. `power`: called "
        "better or worse where there is one. t and Wilcoxon take each row of an arm with the same row of the other as "
        "an independent pair; Welch takes rows as unpaired.\n"
    )
    print(
        "| design | false: ours | t | Wilcoxon | Welch | covers | with a difference | power: ours | t | Wilcoxon | "
        "Welch |\n|---|---|---|---|---|---|---|---|---|---|---|"
    )
    for design in DESIGNS:
        none, some = measure(design, 0.0, studies), measure(design, design.gain, studies)
        rows = [none[name] for name in ("ours", "t", "wilcoxon", "welch", "covers")]
        rows += [some[name] for name in ("covers", "ours", "t", "wilcoxon", "welch")]
        shown = ["–" if math.isnan(rate) else f"{rate:.3f}".lstrip("0") for rate in rows]
        print(f"| {design.name} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    main()
