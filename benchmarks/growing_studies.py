"""Simulate studies that are looked at as they grow, by the code that decides real ones.

    python -m benchmarks.growing_studies simulate [--studies 2000] [--seconds 500]   # goes on where it ended
    python -m benchmarks.growing_studies write       # benchmarks/results/growing_studies.md

Each study draws paired values, is looked at as `contrasweep run` looks at it (its stages, its looks, its log), and
stops what its looks decide. Nothing is timed, so the hardware does not matter to the figures.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.other_methods import ROPE, contrast_of, fold_values, other_methods
from benchmarks.resumable import command_line, read_rows, simulate, write_lines

from contrasweep import Replicates
from contrasweep.planning.plan import Cell
from contrasweep.planning.stages import stage_after
from contrasweep.results.building import PairEvidence
from contrasweep.results.interim_analysis import UNIT, judge_look, look_before
from contrasweep.results.interim_verdicts import ExtensionVerdicts
from contrasweep.statistics.comparison import judge, judged_comparisons
from contrasweep.statistics.design import contrast
from contrasweep.statistics.evidence import Evidence, Gaps, collapsed
from contrasweep.statistics.family import LEVEL_DIVISOR, Family
from contrasweep.statistics.group_sequential import Looks, SpendingName
from contrasweep.storage.interim_log import EXTENDED, LookLog

Draw = Callable[[np.random.Generator, tuple[int, ...]], Any]
DRAWS: dict[str, Draw] = {
    "normal": lambda rng, shape: rng.normal(size=shape) / math.sqrt(2),
    "heavy tails (t3)": lambda rng, shape: rng.standard_t(3, size=shape) / math.sqrt(6),
    "discrete (accuracy of 50 items)": lambda rng, shape: (
        (rng.binomial(50, 0.8, size=shape) - 40) / 4
    ),
}
"""Values of one arm; the difference of two has a standard deviation of about 1."""
ALL_PAIRS = [(0, 1), (0, 2), (1, 2)]


@dataclass(frozen=True)
class Grown:
    """Outcome of one simulated study: trials as a share of the fixed design's, and for each comparison its true
    difference (a - b), decision and evidence.
    """

    share: float
    truths: tuple[float, ...]
    decisions: tuple[str, ...]
    evidence: tuple[Evidence, ...] = ()

    def wrong(self, margin: float | None) -> bool:
        """Whether any verdict is false."""
        for truth, decision in zip(self.truths, self.decisions, strict=True):
            if (decision == "better" and truth <= 0) or (decision == "worse" and truth >= 0):
                return True
            if decision == "equivalent" and margin is not None and abs(truth) >= margin:
                return True
        return False

    def counts(self, margin: float | None) -> dict[str, Any]:
        """Whether any verdict is false; how many of the true differences were decided and of the equal arms equivalent,
        and how many there are of both."""
        pairs = list(zip(self.truths, self.decisions, strict=True))
        decided = [decision in ("better", "worse") for truth, decision in pairs if truth]
        equal = [decision == "equivalent" for truth, decision in pairs if not truth]
        return {
            "wrong": self.wrong(margin),
            "decided": [sum(decided), len(decided)],
            "equivalent": [sum(equal), len(equal)],
        }


@cache
def declared(cells: int, arms: int, trials: int) -> tuple[Cell, ...]:
    """Every arm at every value of an axis, each with as many trials as it may get at most; they are numbers here."""
    numbers: Any = tuple(range(trials))
    return tuple(
        Cell(str(arm), {"task": cell}, numbers) for cell in range(cells) for arm in range(arms)
    )


def evidence_of(a: Any, b: Any, folds: int | None) -> Evidence:
    """Evidence of two arms as `report` computes it, from their values [seeds], or [seeds, folds]."""
    one_cell = np.zeros(a.size, np.intp)
    far = [tuple(map(str, np.flatnonzero(collapsed(v.ravel(), one_cell)))) for v in (a, b)]
    return Evidence(
        contrast_of(a - b, folds),
        Gaps(planned=a.size),
        pairs=a.size,
        means=(float(a.mean()), float(b.mean())),
        collapsed_a=far[0],
        collapsed_b=far[1],
    )


def grow(
    values: Any,
    means: Any,
    replicates: Replicates,
    margin: float | None,
    folds: int | None = None,
    bounds: tuple[float, float] | None = None,
) -> Grown:
    """Simulate one study with looks, as `contrasweep run` takes them; every two arms of a cell are compared.

    `values` are [cells, arms, replicates], or with folds [cells, arms, seeds, folds]; `means` are the true ones [cells,
    arms].
    """
    cells, arms = means.shape
    every = declared(cells, arms, replicates.most * (folds or 1))
    compared = [(c, a, b) for c in range(cells) for a, b in ALL_PAIRS]
    family = Family(len(compared), 0.05, margin)
    log = LookLog(replicates.spending, replicates.of)
    counts = np.zeros((cells, arms), int)
    while not (stage := stage_after(every, replicates, log)).over:
        for cell in stage.open:
            counts[cell.axes["task"], int(cell.arm)] = stage.replicates
        pairs = []
        for c, a, b in compared:
            n = min(counts[c, a], counts[c, b])
            evidence = evidence_of(values[c, a, :n], values[c, b, :n], folds)
            pairs.append(PairEvidence((("task", str(c)),), str(a), str(b), evidence))
        look, _ = judge_look(pairs, stage, log, replicates, family, bounds=bounds)
        log = log.with_look(look)
    decisions = []
    for c, a, b in compared:
        entry = log.newest((("task", str(c)),), str(a), str(b))
        assert entry is not None  # as every look has all comparisons
        decisions.append(entry.decision)
    share = float(counts.mean() / replicates.most)
    truths = tuple(float(means[c, a] - means[c, b]) for c, a, b in compared)
    return Grown(share, truths, tuple(decisions), tuple(pair.evidence for pair in pairs))


def fixed(values: Any, means: Any, margin: float | None, folds: int | None = None) -> Grown:
    """Look once at the study, with all of its replicates."""
    compared = [(c, a, b) for c in range(means.shape[0]) for a, b in ALL_PAIRS]
    evidence = [Evidence(contrast_of(values[c, a] - values[c, b], folds)) for c, a, b in compared]
    verdicts = [
        judgement.verdict for judgement in judge(evidence, Family(len(compared), 0.05, margin))
    ]
    return Grown(
        1.0, tuple(float(means[c, a] - means[c, b]) for c, a, b in compared), tuple(verdicts)
    )


@dataclass(frozen=True)
class Row:
    """A row of the table: how its studies are drawn, looked at and judged. `against` says whether the fixed design is
    run on the same draws."""

    name: str
    spending: SpendingName
    means: tuple[tuple[float, ...], ...] = ((0.0, 0.0, 0.0),)
    draw: str = "normal"
    margin: float | None = None
    folds: int | None = None
    against: bool = False

    @property
    def replicates(self) -> Replicates:
        first, most = (2, 8) if self.folds else (5, 40)
        return Replicates(first=first, step=first, most=most, spending=self.spending)

    def study(self, seed: int) -> dict[str, Any]:
        """What came of the study of this seed."""
        rng = np.random.default_rng(seed)
        means = np.array(self.means)
        most = self.replicates.most
        if self.folds:
            values = fold_values(rng, most)
        else:
            values = means[:, :, None] + DRAWS[self.draw](rng, (*means.shape, most))
        grown = grow(values, means, self.replicates, self.margin, self.folds)
        counted = {"grown": grown.counts(self.margin), "share": grown.share}
        if self.against:
            counted["fixed"] = fixed(values, means, self.margin, self.folds).counts(self.margin)
        return counted


def six_cells(effect: float) -> tuple[tuple[float, ...], ...]:
    return ((0.0, 0.0, 0.0), (0.0, effect, 2 * effect)) * 3


EXTENSIONS = {"10, 20, 40 seeds": (10, 20, 40), "6, 7, ..., 20 seeds": tuple(range(6, 21))}
"""Studies of a fixed size of three equal arms, each extended after its end for as long as anything is undecided."""


def extended(sizes: Sequence[int], seed: int) -> dict[str, bool]:
    """Simulate a study of equal arms that is extended to each of `sizes`; whether any look gives a verdict.

    "counted": looks are counted as `contrasweep run --extend` does; "uncounted": each look is judged as if it were the
    only one.
    """
    values = np.random.default_rng(seed).normal(size=(3, sizes[-1]))
    log = LookLog(EXTENDED, UNIT)
    family = Family(len(ALL_PAIRS), 0.05)
    uncounted = False
    ever = False
    for n in sizes:
        evidence = [
            Evidence(contrast(values[a, :n] - values[b, :n]), Gaps(planned=n)) for a, b in ALL_PAIRS
        ]
        pairs = [
            PairEvidence((), str(a), str(b), one)
            for (a, b), one in zip(ALL_PAIRS, evidence, strict=True)
        ]
        now = [one.verdict != "undecided" for one in judge(evidence, family)]
        uncounted |= any(now)
        looks = [
            ExtensionVerdicts(log).looks_before((), pair.a, pair.b, pair.evidence) for pair in pairs
        ]
        counted = judged_comparisons(evidence, family, "max", looks=looks)
        ever |= any(one.decided for one in counted)
        log = log.with_look(look_before(pairs, counted, log, n))
    return {"counted": ever, "uncounted": uncounted}


SPENDINGS: tuple[SpendingName, ...] = ("obrien-fleming", "power")
ROWS = [
    *(
        Row(f"3 equal arms, seeds, {draw}", spending, draw=draw)
        for draw in DRAWS
        for spending in SPENDINGS
    ),
    Row("3 equal arms, 5 folds x 2 to 8 seeds", "obrien-fleming", folds=5),
    *(
        Row(
            f"3 arms x 6 cells, half of the differences {effect:g} sd",
            spending,
            six_cells(effect),
            against=True,
        )
        for effect in (1.5, 0.75)
        for spending in SPENDINGS
    ),
    Row(
        "3 arms, one 1.5 sd better, smallest difference 0.75 sd",
        "obrien-fleming",
        ((0.0, 0.0, 1.5),),
        margin=0.75,
        against=True,
    ),
    Row("3 arms, one 0.5 sd better", "obrien-fleming", ((0.0, 0.0, 0.5),), against=True),
]
KINDS = [f"{row.name}, {row.spending}" for row in ROWS]


def study(kind: str, seed: int) -> dict[str, Any]:
    """Simulate the study of this kind and seed; no two kinds share draws."""
    if kind in EXTENSIONS:
        return extended(
            EXTENSIONS[kind], seed + 100_000 * (len(KINDS) + list(EXTENSIONS).index(kind))
        )
    number = KINDS.index(kind)
    return ROWS[number].study(seed + 100_000 * number)


def text_row(row: Row, studies: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    def mean(which: str, what: str) -> float:
        hits, of = (sum(s[which][what][i] for s in studies) for i in (0, 1))
        return hits / of if of else math.nan

    wrong = float(np.mean([s["grown"]["wrong"] for s in studies]))
    error = math.sqrt(max(wrong * (1 - wrong), 0.01) / len(studies))
    power = (
        f"{mean('grown', 'decided'):.3f} ({mean('fixed', 'decided'):.3f})" if row.against else "-"
    )
    same = "-"
    if row.margin is not None:
        same = f"{mean('grown', 'equivalent'):.3f} ({mean('fixed', 'equivalent'):.3f})"
    fixed_wrong = f"{np.mean([s['fixed']['wrong'] for s in studies]):.3f}" if row.against else "-"
    share = f"{np.mean([s['share'] for s in studies]):.0%}"
    return (
        row.name, row.spending, f"{wrong:.3f} ± {2 * error:.3f}", fixed_wrong, power, same, share, str(len(studies)),
    )  # fmt: skip


def extension_row(name: str, studies: Sequence[dict[str, bool]]) -> str:
    """How often studies of a fixed size that were extended ended with a false verdict."""
    cells = []
    for which in ("counted", "uncounted"):
        rate = float(np.mean([study[which] for study in studies]))
        cells.append(f"{rate:.3f} ± {2 * math.sqrt(rate * (1 - rate) / len(studies)):.3f}")
    most = (
        (LEVEL_DIVISOR - LEVEL_DIVISOR ** (1 - len(EXTENSIONS[name]))) / (LEVEL_DIVISOR - 1) * 0.05
    )
    return f"| {name} | {cells[0]} | {most:.3f} | {cells[1]} | {len(studies)} |"


def inflations() -> Iterator[tuple[str, ...]]:
    """By how much t statistics exceed a level if nothing is corrected, by looks and spending."""
    for looks in (range(5, 41, 5), range(2, 9, 2), range(2, 9), range(10, 31, 10)):
        for spending in SPENDINGS:
            factors = [
                f"{Looks(tuple(looks), tuple(n / looks[-1] for n in looks), spending).t_inflation(alpha):.2f}"
                for alpha in (0.05, 0.05 / 3, 0.05 / 18)
            ]
            yield f"{looks[0]}, {looks[1]}, ..., {looks[-1]} seeds", spending, *factors


def write(rows: Path, studies: int, output: Path) -> None:
    by_kind = read_rows(rows, [*KINDS, *EXTENSIONS])
    lines = [
        "# Studies that are looked at as they grow, by simulation",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}; `python -m benchmarks.growing_studies`: the stages, looks and verdicts are "
        "those of `contrasweep run`. Looks at 5, 10, ..., 40 seeds (over folds at 2, 4, 6, 8), every two arms of a "
        "cell compared, alpha 0.05 for the whole family; in brackets the fixed design of as many replicates as the "
        "last look has, on the same draws.",
        "",
        "| study | spending | any false verdict ± 2 se | fixed | differences decided | equal arms equivalent | trials |"
        " N |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {' | '.join(text_row(row, known))} |"
        for row, known in zip(ROWS, (by_kind[kind] for kind in KINDS), strict=True)
        if known
    ]
    lines += [
        "",
        "Studies of a fixed size, three equal arms, extended after their end whatever they said: how often any verdict "
        "is false as `run --extend` counts the looks (p of look k times 4^(k-1)), at most how often that can be, and "
        "how often where nobody counts.",
        "",
        "| looked at | any false verdict ± 2 se | at most | uncounted | N |",
        "|---|---|---|---|---|",
        *(extension_row(name, by_kind[name]) for name in EXTENSIONS if by_kind[name]),
    ]
    lines += [
        "",
        "By how much looks at t statistics exceed their level at .05, .0167 and .0028, which is corrected.",
        "",
    ]
    lines += ["| looks | spending | .05 | .0167 | .0028 |", "|---|---|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in inflations()]
    lines += [
        "",
        "Two arms on 5 folds x 5 seeds, one look: how often each method calls a difference.",
        "",
    ]
    lines += ["| truth | method | called different | N |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in other_methods(20261122, studies)]
    lines += [
        "",
        f"The two with a smallest difference have one of {ROPE:g} sd: the Bayesian test then calls a difference where "
        "it is larger than that with a posterior of .95, and not where it is not 0.",
    ]
    write_lines(output, lines)


def main() -> None:
    options = command_line(__doc__, "growing_studies", 2000)
    if options.what == "simulate":
        simulate(
            options.rows,
            dict.fromkeys([*KINDS, *EXTENSIONS], options.studies),
            study,
            options.seconds,
        )
    else:
        write(options.rows, options.studies, options.output)


if __name__ == "__main__":
    main()
