"""Verdicts on networks that are really trained: where there is no difference, and where there is one.

    python -m benchmarks.real_learners train --pool build/real_learners     # the networks, once; goes on if interrupted
    python -m benchmarks.real_learners judge --pool build/real_learners     # writes benchmarks/results/real_learners.md

The networks are the quickstart's, of one arm (SupCon, batch size 128), on five folds of the digits with a long tail.

No difference: the arm under two names, each with seeds of its own, in 40 pairs that share no network. Whatever is
called better or worse is a false verdict. A difference: the arm against itself trained half as long.
"""

import argparse
import contextlib
import os
import platform
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import numpy as np
from benchmarks.resumable import write_lines
from scipy import stats

from contrasweep import AblationGrid, Arm, Replicates
from contrasweep.code.version import CurrentCode
from contrasweep.planning.planner import plan
from contrasweep.results.results import Results
from contrasweep.running.engine.interim_source import InterimSource
from contrasweep.running.prepare import prepare
from contrasweep.search_spaces.quickstart import BASE, TRAIN
from contrasweep.statistics.group_sequential import Looks, SpendingName
from contrasweep.storage.interim_log import read_looks
from contrasweep.storage.record import CodeRef, Record, Status
from contrasweep.storage.records import StudyRecords, encode_items
from contrasweep.trial import Trial
from contrasweep.tuning.source import Finished, Source

PAIRS = 40
SEEDS = 2
FOLDS = 5
EPOCHS = {"whole": 6, "half": 3}
STUDIES = 10  # of each design with a difference
SCORES = ("f1_macro", "accuracy", "knn1", "knn5", "probe", "map_at_r")


@dataclass(frozen=True)
class Looked:
    """A design of studies with a real difference: these seeds on `folds` of one partition, or (None) on one split."""

    title: str
    folds: int | None
    replicates: Replicates

    def networks(self, number: int) -> tuple[int, int]:
        """First seed and fold of the pool's networks that study `number` uses; no two studies share a network."""
        if self.folds:
            return number * self.replicates.most, 0
        return number // FOLDS * self.replicates.most, number % FOLDS


DESIGNS = (
    Looked(f"{FOLDS} folds", FOLDS, Replicates(first=2, step=2, most=8)),
    Looked("one split", None, Replicates(first=5, step=5, most=40)),
)
HALVES = max(design.networks(STUDIES - 1)[0] + design.replicates.most for design in DESIGNS)
"""Seeds of the pool that are also trained half as long."""


def arm(epochs: int) -> Arm:
    return Arm(
        TRAIN,
        config=BASE
        | {"epochs": epochs, "batch_size": 128, "loss": {"name": "supcon", "temperature": 0.2}},
    )


@dataclass(frozen=True)
class Pool:
    """Trained networks in a folder, by length of training, seed and fold."""

    folder: Path

    def file(self, kind: str, seed: int) -> Path:
        return self.folder / f"{kind}-{seed}.npz"

    def wanted(self) -> Iterator[tuple[str, int]]:
        for seed in range(max(2 * PAIRS * SEEDS, HALVES)):
            yield "whole", seed
            if seed < HALVES:
                yield "half", seed

    def train(self) -> None:
        from contrasweep.trainables.contrastive import train

        self.folder.mkdir(parents=True, exist_ok=True)
        for kind, seed in self.wanted():
            if self.file(kind, seed).exists():
                continue
            study = AblationGrid(
                "pool", {"a": arm(EPOCHS[kind])}, "digits-lt", folds=FOLDS, seeds=[seed]
            )
            kept: dict[str, Any] = {}
            for trial in plan(study, storage=str(self.folder)).trials:
                last = list(train(trial))[-1]
                kept |= {
                    f"metric/{trial.fold}/{name}": value for name, value in last.metrics.items()
                }
                kept |= {
                    f"item/{trial.fold}/{name}": np.asarray(value)
                    for name, value in last.items.items()
                }
            scratch = self.folder / "unfinished.npz"
            np.savez_compressed(scratch, **kept)
            scratch.replace(self.file(kind, seed))

    def read(self, kind: str, seed: int, fold: int) -> tuple[dict[str, float], dict[str, Any]]:
        with np.load(self.file(kind, seed)) as content:
            metrics = {
                k.split("/")[2]: float(content[k])
                for k in content
                if k.startswith(f"metric/{fold}/")
            }
            items = {k.split("/")[2]: content[k] for k in content if k.startswith(f"item/{fold}/")}
        return metrics, items


@dataclass(frozen=True)
class Networks:
    """Which networks of the pool stand for an arm: seeds from `first` on, of the trial's fold or of `fold` alone."""

    kind: str
    first: int
    fold: int = 0

    def of(self, trial: Trial) -> tuple[str, int, int]:
        """Kind, seed and fold of the network of a trial."""
        return self.kind, self.first + trial.seed, self.fold if trial.fold is None else trial.fold


def fill(study: AblationGrid, storage: str, pool: Pool, networks: dict[str, Networks]) -> int:
    """Write records of `study` with scores of the pool's networks instead of training; returns how many."""
    planned = plan(study, storage=storage)
    records = StudyRecords(storage, study.name)
    code = CurrentCode(planned.study.functions)
    ended = 0
    prepared = prepare(planned, records, code, extend=False, retry_failed=False)
    source: Source = planned.source(records, prepared.finished)
    if study.replicates is not None:
        source = InterimSource(planned, source, records, lambda line: None)
    while not isinstance(following := source.next(), Finished):
        assert following is not None
        trial = following.trial
        write(trial, records, code, pool, networks[trial.arm])
        source.done(records.read_one(trial.id))  # type: ignore[arg-type]
        ended += 1
    return ended


def write(
    trial: Trial, records: StudyRecords, code: CurrentCode, pool: Pool, networks: Networks
) -> None:
    metrics, items = pool.read(*networks.of(trial))
    records.write_encoded_items(trial.id, encode_items(items))
    reference = CodeRef(code.of(trial.trainable, trial.config).version.digest)
    rows = [{"step": EPOCHS[networks.kind], "time": 0.0, **metrics}]
    records.write(
        Record.of(trial, status=Status.DONE, rows=rows, items=tuple(items), code=reference)
    )


def null_verdicts(pool: Pool) -> Counter[str]:
    """For equal arms: how many of the comparisons by each score have p <= .05."""
    wrong = Counter(dict.fromkeys(SCORES, 0))
    study = AblationGrid(
        "null",
        dict.fromkeys(("one", "other"), arm(EPOCHS["whole"])),
        "digits-lt",
        folds=FOLDS,
        seeds=list(range(SEEDS)),
        metric="f1_macro",
    )
    for pair in range(PAIRS):
        with tempfile.TemporaryDirectory() as storage:
            first = 2 * SEEDS * pair
            fill(
                study,
                storage,
                pool,
                {"one": Networks("whole", first), "other": Networks("whole", first + SEEDS)},
            )
            results = Results.load("null", storage)
            for score in SCORES:
                wrong[score] += p_value(results, score) <= 0.05
    return wrong


def p_value(results: Results, score: str) -> float:
    """p of no difference between the study's two arms if `score` is its metric; at most .05 it is a verdict."""
    asked = replace(results, document=replace(results.document, metric=score))
    return float(asked.versus("one", "other", score).overall.comparison.p_value)


def differences(pool: Pool, design: Looked) -> Iterator[tuple[int, int, str, str]]:
    """Yield for each study with a real difference: trials with looks, trials without, and both verdicts."""
    for number in range(STUDIES):
        arms = {name: arm(epochs) for name, epochs in EPOCHS.items()}
        base: dict[str, Any] = {
            "arms": arms,
            "data": "digits-lt",
            "folds": design.folds,
            "metric": "f1_macro",
        }
        first, fold = design.networks(number)
        networks = {name: Networks(name, first, fold) for name in arms}
        with tempfile.TemporaryDirectory() as storage:
            taken = fill(
                AblationGrid("looked", replicates=design.replicates, **base),
                storage,
                pool,
                networks,
            )
            log = read_looks(StudyRecords(storage, "looked"))
            assert log is not None
            fixed = AblationGrid("fixed", seeds=list(range(design.replicates.most)), **base)
            all_ = fill(fixed, storage, pool, networks)
            whole = (
                Results.load("fixed", storage).versus("whole", "half").overall.comparison.verdict
            )
            yield taken, all_, log.looks[-1].comparisons[0].decision, str(whole)


def difference_lines(pool: Pool, design: Looked) -> list[str]:
    """The table of one design, and what looks saved."""
    rows = list(differences(pool, design))
    looks = design.replicates
    with_looks, without = (float(np.mean([row[i] for row in rows])) for i in (0, 1))
    return [
        "",
        f"On {design.title}, looks at {looks.first}, {looks.first + looks.step}, ..., {looks.most} seeds against all "
        f"{looks.most}:",
        "",
        "| study | trials with looks | verdict | trials without | verdict |",
        "|---|---|---|---|---|",
        *(
            f"| {i + 1} | {taken} | {verdict} | {all_} | {fixed} |"
            for i, (taken, all_, verdict, fixed) in enumerate(rows)
        ),
        "",
        f"In the mean {with_looks:.0f} trials with looks and {without:.0f} without ({with_looks / without:.0%}).",
    ]


def why_little_is_saved() -> list[str]:
    """Table of the t that each look needs: over few folds far more than first looks can reach."""
    rows = []
    designs = {
        f"{FOLDS} folds, more seeds": [FOLDS - 1] * 4,
        f"repeats of {FOLDS} folds": [9, 19, 29, 39],
    }
    for design, degrees in designs.items():
        for spending in get_args(SpendingName):
            levels = Looks((2, 4, 6, 8), (0.25, 0.5, 0.75, 1), spending).nominal_levels(0.05)
            asked = [stats.t.isf(level / 2, d) for level, d in zip(levels, degrees, strict=True)]
            rows.append(f"| {design} | {spending} | {' | '.join(f'{t:.1f}' for t in asked)} |")
    return [
        "",
        f"Why folds save little: seeds that are added to {FOLDS} folds leave {FOLDS - 1} degrees of freedom, however "
        "many, and the early looks of alpha spending ask for a p that such a t hardly reaches. What |t| decides at "
        "each look:",
        "",
        "| design | spending | 2 | 4 | 6 | 8 |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
        "So over few folds looks at more seeds save trials only where the difference is many times its standard error, "
        "and hardly any with O'Brien-Fleming spending; a fixed number of seeds is as good there. Looks save where each "
        "adds degrees of freedom: seeds on one split, or repeats of the folds (see growing_studies.md too).",
    ]


def judge(pool: Pool, output: Path) -> None:
    wrong = null_verdicts(pool)
    total = PAIRS * len(SCORES)
    lines = [
        "# Verdicts on networks that were really trained",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, {platform.machine()}, {os.cpu_count()} cores, no GPU; "
        "`python -m benchmarks.real_learners`: the quickstart's SupCon networks (batch size 128, "
        f"{EPOCHS['whole']} epochs) on {FOLDS} folds of digits-lt, {SEEDS} seeds a fold.",
        "",
        f"**No difference**: the same arm under two names with other seeds, {PAIRS} pairs that share no network.",
        "",
        "| score | p <= .05 | of |",
        "|---|---|---|",
        *(f"| {score} | {errors} | {PAIRS} |" for score, errors in wrong.items()),
        "",
        f"In all {wrong.total()} of {total} ({wrong.total() / total:.3f}; scores of one pair are not independent).",
        "",
        f"**A difference**: the arm against itself trained half as long ({EPOCHS['half']} epochs), {STUDIES} studies "
        "a design that share no network.",
    ]
    for design in DESIGNS:
        lines += difference_lines(pool, design)
    lines += why_little_is_saved()
    write_lines(output, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["train", "judge"])
    parser.add_argument("--pool", type=Path, default=Path("build/real_learners"))
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).parent / "results" / "real_learners.md"
    )
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        pool = Pool(options.pool)
        pool.train() if options.what == "train" else judge(pool, options.output)


if __name__ == "__main__":
    main()
