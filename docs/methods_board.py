"""The board of methods under a small budget: the page docs/methods-board.md, from the records kept beside it.

    python -m docs.methods_board [--storage FOLDER]
    python -m docs.methods_board --again DIGITS simclr triplet --storage FOLDER

The first makes the page from docs/methods-board/; with a storage, what that has of whole studies is kept there before.
The second trains rows of the page anew, by the settings that their search found, and says whether each trial is equal
to the one that was kept, to the bit.
"""

import argparse
import itertools
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

import contrasweep as cs
from contrasweep import canonical
from contrasweep.errors import ContrasweepError, SpecError, check_known
from contrasweep.judging.board import Board
from contrasweep.judging.judged import rank
from contrasweep.results.rendering import markdown_table
from contrasweep.results.results import Results
from contrasweep.search_spaces import methods_board
from contrasweep.search_spaces.local import PIXELS
from contrasweep.storage.record import Record

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/methods-board.md"
KEPT = ROOT / "docs/methods-board"
FLOORS = KEPT / "floors.json"
STUDIES: dict[str, cs.Sweep] = {
    name: getattr(methods_board, name) for name in ("CIFAR", "MNIST", "DIGITS")
}
LABELLED = (
    "supcon",
    "sincere",
    "ocl",
    "triplet",
    "lifted",
    "batch-hard",
    "proxy-anchor",
    "arcface",
)
SCORES = {"accuracy": "kNN", "probe": "linear probe", "few_labels": "1 % of labels"}
TIMES = ("processor_seconds",)
"""Metrics of the machine and the hour, which no digest has."""
BUDGETS = (1, 2, 4, 8)


def digest(record: Record) -> str:
    """The digest of all that a trial measured but time, every number to its last bit."""
    return canonical.digest(
        {name: repr(value) for name, value in record.metrics.items() if name not in TIMES}, 12
    )


def row_of(record: Record, study: cs.Sweep) -> dict[str, Any]:
    """What is kept of a trial."""
    ended = record.status.counts
    return {
        "arm": record.arm,
        "seed": record.seed,
        "status": record.status.value,
        **{name: record.metrics.get(name) if ended else None for name in SCORES},
        "processor_seconds": round(record.metrics.get("processor_seconds", math.nan), 1),
        "seconds": round(record.seconds, 1),
        "memory_gib": round(record.host_memory_gib or math.nan, 2),
        "trial": record.trial_id,
        "digest": digest(record) if ended else None,
        "settings": json.dumps(
            {key: _at(record.config, key) for key in study.arms[record.arm].space}
        ),
        "error": None if record.error is None else record.error.strip().splitlines()[-1],
    }


def _at(config: Any, key: str) -> Any:
    for name in key.split("."):
        config = config[name]
    return config


def keep(name: str, storage: str) -> None:
    """Keep the trials of a study that has ended: its confirmation, its search, and the floor by raw pixels."""
    study = STUDIES[name]
    try:
        results = Results.load(study.name, storage)
    except SpecError as error:
        return print(f"{study.name} is left out: {error}")
    planned = len(study.arms) * len(study.confirm_seeds)
    if len(results.trial_records) < planned:
        return print(
            f"{study.name} is left out: {len(results.trial_records)} of {planned} confirmations have ended"
        )
    for part, records in (("", results.trial_records), ("-search", results.search_records)):
        kept = pd.DataFrame([row_of(one, study) for one in records.values()])
        kept.sort_values(["arm", "seed", "settings"]).to_csv(
            KEPT / f"{study.data}{part}.csv", index=False
        )
    arms = {"raw-pixels": cs.Arm(PIXELS)}
    grid = cs.AblationGrid(f"{study.name}-floor", arms, study.data, folds=None, metric="accuracy")
    floor = cs.run(grid, storage=storage, tracking="none").to_frame()["accuracy"].item()
    FLOORS.write_text(json.dumps(_floors() | {study.data: floor}) + "\n")
    return None


def _floors() -> dict[str, float]:
    return json.loads(FLOORS.read_text()) if FLOORS.is_file() else {}


def again(name: str, arms: list[str], storage: str) -> bool:
    """Train the confirmations of some rows anew; return whether all are equal to what was kept, and print it."""
    study = STUDIES[name]
    same = True
    kept = pd.read_csv(KEPT / f"{study.data}.csv")
    for arm in arms:
        check_known(arm, "methods", study.arms, "there is no such row", place="METHOD")
    found = {arm: json.loads(kept.loc[kept["arm"] == arm, "settings"].iloc[0]) for arm in arms}
    rows = {
        arm: replace(study.arms[arm], config=study.arms[arm].config | found[arm], space={})
        for arm in arms
    }
    grid = cs.AblationGrid(
        f"{study.name}-again",
        rows,
        study.data,
        seeds=study.confirm_seeds,
        folds=None,
        metric=study.metric,
    )
    made = {
        (one.arm, one.seed): digest(one)
        for one in cs.run(grid, storage=storage, tracking="none").trial_records.values()
    }
    for arm in arms:
        own = kept[kept["arm"] == arm]
        equal = sum(
            made.get((arm, seed)) == value
            for seed, value in zip(own["seed"], own["digest"], strict=True)
        )
        print(f"{arm}: {equal} of {len(own)} trials are equal to the bit")
        same &= equal == len(own)
    return same


def page() -> str:
    """The page, of the studies whose records are kept."""
    parts = {
        name: section(name) for name in STUDIES if (KEPT / f"{STUDIES[name].data}.csv").is_file()
    }
    return "\n".join([*HEAD, *itertools.chain.from_iterable(parts.values()), *TAIL]) + "\n"


def boards_of(data: str) -> dict[str, Board]:
    """The ranking by each score, by the code of `contrasweep judge --board`."""
    source = KEPT / f"{data}.csv"
    return {
        score: rank(source, arm="arm", metric=score, pair="seed", mode="max") for score in SCORES
    }


def section(name: str) -> list[str]:
    """What a data set's study came to."""
    study = STUDIES[name]
    kept, tried = (pd.read_csv(KEPT / f"{study.data}{part}.csv") for part in ("", "-search"))
    boards = boards_of(study.data)
    places = {score: {row.arm: row for row in board.rows} for score, board in boards.items()}
    floor = _floors()[study.data]
    lines = [["", "method", *SCORES.values(), "processor s"]]
    for row in boards["accuracy"].rows:
        own = kept[kept["arm"] == row.arm]
        scores = [
            f"{places[score][row.arm].mean:.3f} ({_ranks(places[score][row.arm])})"
            for score in SCORES
        ]
        lines.append(
            [
                str(row.rank),
                f"{row.arm}*" if row.arm in LABELLED else row.arm,
                *scores,
                f"{own['processor_seconds'].median():.1f}",
            ]
        )
    return [
        f"## {study.data}",
        "",
        f"{boards['accuracy'].design}. {len(kept)} trials on fresh seeds after {len(tried)} of the search, "
        f"{(kept['seconds'].sum() + tried['seconds'].sum()) / 3600:.1f} hours of training in all.",
        "",
        *markdown_table(lines),
        "",
        f"The nearest neighbour by raw pixels has {floor:.3f}.",
        "",
        *(f"- {line[:1].upper()}{line[1:]}." for line in boards["accuracy"].lines),
        *(f"- {line}" for line in skeptical(boards, tried, kept, floor)),
        "",
        "A row again, and the whole study:",
        "",
        "```",
        f"python -m docs.methods_board --again {name} {boards['accuracy'].rows[0].arm} --storage FOLDER",
        f"contrasweep run contrasweep.search_spaces.methods_board:{name}",
        f"contrasweep judge docs/methods-board/{study.data}.csv --board --arm arm --metric accuracy --pair seed",
        "```",
        "",
    ]


def _ranks(row: Any) -> str:
    return f"{row.low}" if row.low == row.high else f"{row.low}-{row.high}"


def skeptical(
    boards: dict[str, Board], tried: pd.DataFrame, kept: pd.DataFrame, floor: float
) -> list[str]:
    """What a reader should hold against the ranking."""
    board = boards["accuracy"]
    lines = []
    if low := [row.arm for row in board.rows if row.mean <= floor]:
        lines.append(f"Not above raw pixels on average: {', '.join(low)}.")
    apart = [
        f"{row.arm} ({_ranks(row)} by kNN, {_ranks(other)} by {SCORES[score]})"
        for score in ("probe", "few_labels")
        for row in board.rows
        for other in boards[score].rows
        if other.arm == row.arm and (other.low > row.high or other.high < row.low)
    ]
    lines.append(
        f"Ranks hang on the score: {', '.join(apart)}."
        if apart
        else "No method's ranks by kNN and by a probe exclude each other."
    )
    best = pd.DataFrame(
        {arm: _best_of(part["accuracy"]) for arm, part in tried.groupby("arm")}, index=BUDGETS
    ).T
    order = best.rank(ascending=False, method="first").astype(int)
    firsts = ", ".join(f"{order[k].idxmin()} at {k}" for k in BUDGETS)
    lines.append(f"By the number of configurations that are tried, the first is {firsts}.")
    spread = (best[8] - best[1]).sort_values(ascending=False)
    lines.append(
        f"Eight configurations bring over one most for {spread.index[0]} (+{spread.iloc[0]:.3f}), least for "
        f"{spread.index[-1]} (+{spread.iloc[-1]:.3f})."
    )
    for part, what in ((tried, "configurations"), (kept, "seeds")):
        for arm, failed in part[part["digest"].isna()].groupby("arm"):
            rates = ", ".join(
                f"{rate:.2g}"
                for rate in sorted(json.loads(s)["learning_rate"] for s in failed["settings"])
            )
            kinds = " and ".join(sorted({error.partition(":")[0] for error in failed["error"]}))
            few = f"{len(failed)} of {(part['arm'] == arm).sum()} {what}"
            lines.append(f"{arm}: {few} failed with {kinds}, at learning rates of {rates}.")
    return lines


def _best_of(values: pd.Series) -> list[float]:
    """The mean of the best of 1, 2, 4 and 8 of these values, over all choices of so many."""
    tried = values.fillna(0.0).tolist()
    return [
        sum(max(some) for some in itertools.combinations(tried, k)) / math.comb(len(tried), k)
        for k in (min(k, len(tried)) for k in BUDGETS)
    ]


HEAD = [
    "# Methods under a small budget",
    "",
    "Which of the shipped methods learns the best features where there is little to spend? Each tries eight "
    "configurations on fold 0 of the training part. Its best is trained anew on the whole training part with eight "
    "fresh seeds, and scored on the test part.",
    "",
    "- **Scores** are of frozen features: the nearest neighbour (kNN, which decides), a linear probe on all labels, "
    "and one on 1 % of them. In brackets: the ranks that a method may have, for all methods at once at 95 %.",
    "- **`*`**: the method learns from labels, which is an easier question.",
    "- **processor s**: median seconds of the thread that trains.",
    "- **Limits**: small data, a small CNN, a few epochs on two CPU cores, random search, batches of 128. "
    "Methods made for long training with large batches (MoCo, BYOL, DINO, SwAV) are at their worst here.",
    "",
]
TAIL = [
    "`python -m docs.methods_board` makes this page from `docs/methods-board/`, which has a row per trial, with "
    "its settings, memory, and the digest of what it measured."
]


def main() -> None:
    """Keep, make the page, or train rows again; bad input ends it with a line and status 2."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.methods_board", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--storage", help="folder of the studies")
    parser.add_argument(
        "--again", nargs="+", metavar=("STUDY", "METHOD"), help="train these rows anew, and compare"
    )
    chosen = parser.parse_args()
    try:
        if chosen.again:
            name, *arms = chosen.again
            check_known(name, "studies", STUDIES, "there is no such study", place="STUDY")
            sys.exit(0 if again(name, arms, chosen.storage or "./contrasweep-runs") else 1)
        for name in STUDIES if chosen.storage else ():
            keep(name, chosen.storage)
        PAGE.write_text(page())
    except ContrasweepError as error:
        print(f"methods_board: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
