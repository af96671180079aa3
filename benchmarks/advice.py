"""What `results.advice()` promises against what comes of it, by simulation with the code that gives it.

    python -m benchmarks.advice simulate [--studies 1000] [--seconds 500]   # goes on where it ended
    python -m benchmarks.advice write                                       # benchmarks/results/advice.md

Each study compares three arms; the true differences are 0, .25, .5, .8 or 1.2 standard deviations of a paired
difference. What is undecided is run on: to twice and four times its replicates, and to as many as are said to decide it
in 80 %. What the larger study then says, at the level of a second look, is set beside the promise. Nothing is timed.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
from benchmarks.resumable import command_line, read_rows, simulate, write_lines

from contrasweep.statistics.comparison import judge
from contrasweep.statistics.design import Contrast, Design, contrast
from contrasweep.statistics.evidence import Evidence
from contrasweep.statistics.family import Family
from contrasweep.statistics.predictive import predict, smallest_sufficient_design

EFFECTS = (0.0, 0.25, 0.5, 0.8, 1.2)
FAMILY = Family(3)
NEXT = FAMILY.level / 2
"""What a second look at a study of a fixed size is judged at."""
BINS = (0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 1.01)
MOST = 400  # replicates that are simulated

Replicates = Callable[[int], Contrast]
"""The first so many seeds of a study."""
Draw = Callable[[np.random.Generator, float], Replicates]


@dataclass
class Account:
    """How often the promises of `advice` for one design came true."""

    promised: list[float] = field(default_factory=list)
    kept: list[bool] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    advised: list[list[Any]] = field(default_factory=list)
    undecided: int = 0
    studies: int = 0


def seeds(rng: np.random.Generator, effect: float) -> Replicates:
    values = effect + rng.normal(size=MOST)
    return lambda n: contrast(values[:n])


def folds(rng: np.random.Generator, effect: float) -> Replicates:
    """Replicates on five folds: a fifth to four fifths of the noise belongs to the fold and correlates by .2 between
    folds.
    """
    share = rng.choice([0.2, 0.5, 0.8])
    fold_noise = math.sqrt(0.8) * rng.normal(size=(5, 1)) + math.sqrt(0.2) * rng.normal()
    values = (
        2 * effect + math.sqrt(share) * fold_noise + math.sqrt(1 - share) * rng.normal(size=(5, 80))
    )

    def first(n: int) -> Contrast:
        names = np.repeat(range(5), n).tolist()
        return contrast(
            values[:, :n].ravel(), folds=names, seeds=list(range(n)) * 5, design=Design(folds=5)
        )

    return first


def decided(now: Contrast, level: float) -> bool:
    """Whether the comparison has a verdict, by itself at this level."""
    return judge([Evidence(now)], Family(1, level))[0].verdict != "undecided"


def follow(study: Replicates, pilot: int) -> dict[str, Any] | None:
    """Compare the advice on one simulated study with what larger studies then show, by name; None where its pilot
    decides it.
    """
    now = study(pilot)
    if decided(now, FAMILY.level):
        return None
    came: dict[str, Any] = {"promised": [], "low": [], "high": [], "kept": [], "advised": []}
    for times in (2, 4):
        design = Design(now.design.folds, 1, times * pilot)
        if (promise := predict(now, design, NEXT)) is not None:
            came["promised"].append(promise.assurance)
            came["low"].append(promise.low)
            came["high"].append(promise.high)
            came["kept"].append(decided(study(times * pilot), NEXT))
    most = 80 if now.design.folds else MOST
    if (
        size := smallest_sufficient_design(now, "seeds", NEXT)
    ) is not None and size.design.seeds <= most:
        came["advised"].append([size.assurance, decided(study(size.design.seeds), NEXT)])
    return came


DESIGNS: dict[str, tuple[Draw, int]] = {
    **{f"{n} seeds": (seeds, n) for n in (5, 6, 10)},
    **{f"5 folds x {n} seed{'s' if n > 1 else ''}": (folds, n) for n in (1, 2, 4)},
}


def study(name: str, seed: int) -> dict[str, Any] | None:
    """Simulate the study of this seed: the advice and what came of it; None where the pilot decides."""
    draw, pilot = DESIGNS[name]
    rng = np.random.default_rng([seed, pilot, len(name)])
    return follow(draw(rng, float(rng.choice(EFFECTS))), pilot)


def account_of(came: Sequence[dict[str, Any] | None]) -> Account:
    """Sum up the studies of one design, as `study` returns them."""
    undecided = [study_outcome for study_outcome in came if study_outcome is not None]
    account = Account(undecided=len(undecided), studies=len(came))
    for study_outcome in undecided:
        for name in ("promised", "low", "high", "kept", "advised"):
            getattr(account, name).extend(study_outcome[name])
    return account


def rate(kept: list[bool]) -> str:
    p = float(np.mean(kept))
    n = len(kept)
    return f"{p:.3f} ± {2 * math.sqrt(max(p * (1 - p), 0.01) / n):.3f}"


def lines_of(accounts: dict[str, Account]) -> Iterator[str]:
    yield "Chances of a verdict at twice and four times the replicates, all designs of a kind together:"
    for kind in ("seeds", "folds"):
        chosen = [
            account for name, account in accounts.items() if ("folds" in name) == (kind == "folds")
        ]
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(account, name) for account in chosen])
            for name in ("promised", "kept", "low", "high")
        }
        yield from (
            "",
            f"| {kind}: promised | mean promise | came true ± 2 se | mean range | N |",
            "|---|---|---|---|---|",
        )
        for low, high in itertools.pairwise(BINS):
            here = (columns["promised"] >= low) & (columns["promised"] < high)
            if here.sum() < 20:
                continue
            span = f"{columns['low'][here].mean():.2f} to {columns['high'][here].mean():.2f}"
            promise = columns["promised"][here].mean()
            yield (
                f"| {low:g} to {min(high, 1):g} | {promise:.3f} | {rate(columns['kept'][here].tolist())} | {span} "
                f"| {here.sum()} |"
            )
    yield from (
        "",
        "By design, and what came of the number of seeds that is said to decide in 80 %:",
        "",
    )
    yield "| pilot | undecided | promised in the mean | came true | for 80 % promised | came true ± 2 se | N |"
    yield "|---|---|---|---|---|---|---|"
    for name, account in accounts.items():
        advised = [p for p, _ in account.advised]
        reached = rate([kept for _, kept in account.advised]) if advised else "-"
        yield (
            f"| {name} | {account.undecided} | {np.mean(account.promised):.3f} | {rate(account.kept)} "
            f"| {np.mean(advised) if advised else math.nan:.3f} | {reached} | {len(advised)} |"
        )


def main() -> None:
    options = command_line(__doc__, "advice", 1000)
    if options.what == "simulate":
        simulate(options.rows, dict.fromkeys(DESIGNS, options.studies), study, options.seconds)
        return
    accounts = {name: account_of(came) for name, came in read_rows(options.rows, DESIGNS).items()}
    lines = [
        "# What the advice promises, and what comes of it",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}; `python -m benchmarks.advice`, {min(a.studies for a in accounts.values())} "
        "studies a design. Three arms, "
        f"true differences of {', '.join(f'{e:g}' for e in EFFECTS)} standard deviations in equal parts (over folds "
        "twice these), of which only the undecided are run on; the larger study is judged as a second look "
        "(alpha / 3 / 2). Over folds a fifth, a half or four fifths of the noise is the fold's.",
        "",
        *lines_of(accounts),
    ]
    write_lines(options.output, lines)


if __name__ == "__main__":
    main()
