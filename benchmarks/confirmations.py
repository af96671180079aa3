"""Simulate users who confirm a sweep of equal arms again and again, by the code that runs and judges real ones.

    python -m benchmarks.confirmations simulate [--studies 1000] [--seconds 500]   # goes on where it ended
    python -m benchmarks.confirmations write       # benchmarks/results/confirmations.md

Declarations, searchers, the confirmation and the tables are the product's, the scores are drawn: that of a trial is the
sum of its configuration's (only on the fold that is searched) and its seed's, each with a standard deviation of 1.
"""

import hashlib
import tempfile
from dataclasses import replace

import numpy as np
from benchmarks.declared_anew import DIRECTIONS
from benchmarks.resumable import main

from contrasweep import Arm, Float, Sweep
from contrasweep.planning.planner import plan
from contrasweep.results.interim_analysis import count_look
from contrasweep.results.results import Results
from contrasweep.running.declaration import redeclare
from contrasweep.running.prepare import study_document
from contrasweep.storage.record import Phase, Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.trial import Trial
from contrasweep.tuning.source import NextTrial

SPACE = {"loss.temperature": Float(0.05, 1.0), "learning_rate": Float(0.01, 1.0)}
FIRST = 1_000_000
SEEDS = list(range(FIRST, FIRST + 8))
SWEEP = Sweep(
    "again",
    {name: Arm("contrastive", {"loss": "supcon"}, space=SPACE) for name in ("a", "b")},
    "digits-lt",
    folds=5,
    metric="knn_accuracy",
    searcher="random",
    trials_per_arm=8,
    confirm_on="test",
    confirm_seeds=SEEDS,
)
KINDS = {
    "declared once": [SWEEP],
    "a budget of 8, 16, 32, 64 configurations": [
        replace(SWEEP, trials_per_arm=n) for n in (8, 16, 32, 64)
    ],
    "five search seeds": [replace(SWEEP, search_seed=n) for n in range(5)],
    "8, 10, 12, 16 confirm seeds": [
        replace(SWEEP, confirm_seeds=list(range(FIRST, FIRST + n))) for n in (8, 10, 12, 16)
    ],
}


def normal(*parts: object) -> float:
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return float(np.random.default_rng(int.from_bytes(digest[:8])).normal())


def score(kind: str, study: int, trial: Trial, phase: Phase | None) -> float:
    configuration = (
        kind,
        study,
        trial.arm,
        str(trial.config["loss"]),
        trial.config["learning_rate"],
        phase,
    )
    of_seed = normal(configuration, trial.seed)
    return of_seed if phase is Phase.CONFIRM else of_seed + normal(configuration)


def run(sweep: Sweep, folder: str, kind: str, study: int) -> Results:
    """The table of a sweep in the storage `folder`, as `contrasweep run --extend` would leave it."""
    planned = plan(sweep, storage=folder)
    records = StudyRecords(folder, sweep.name)
    document = redeclare(planned, study_document(planned), records, extend=True)
    count_look(planned, records)
    records.claim(document)
    source = planned.source(records, records.finished())
    while not source.finished:
        following = source.next()
        if not isinstance(following, NextTrial):
            break
        trial = following.trial
        notes = following.notes
        metrics = {"step": 1, "time": 0.0, sweep.metric: score(kind, study, trial, notes.phase)}
        record = Record.of(trial, status=Status.DONE, rows=[metrics], notes=notes)
        records.write(record)
        source.done(record)
    return Results.load(sweep.name, folder)


def study(kind: str, number: int) -> dict[str, bool]:
    """Whether the first table, and whether any table, of a simulated study calls an arm better though all are equal."""
    with tempfile.TemporaryDirectory(prefix="confirmed-") as folder:
        sweeps = [
            replace(sweep, search_seed=sweep.search_seed + 10 * number) for sweep in KINDS[kind]
        ]
        tables = (run(sweep, folder, kind, number) for sweep in sweeps)
        errs = [
            any(pair.comparison.decision in DIRECTIONS for pair in table.answer.pairs)
            for table in tables
        ]
    return {"first": errs[0], "any": any(errs)}


def lines(came: dict[str, list[dict[str, bool]]]) -> list[str]:
    """Lines of the results page, from the studies of each kind."""
    text = [
        "# Sweeps that are confirmed again, by simulation",
        "",
        "`python -m benchmarks.confirmations`: two equal arms, eight confirm seeds on the test split unless said, "
        "alpha .05. The user extends the sweep as named and reads each table. Plan, search, confirmation and "
        "table are those of `contrasweep run --extend`; the scores are drawn. ± is two standard errors.",
        "",
        "| what the user does | the first table says that an arm is better | any table does | N |",
        "|---|---|---|---|",
    ]
    for kind, studies in came.items():
        n = len(studies)
        rates = [np.mean([study[which] for study in studies]) for which in ("first", "any")]
        told = [f"{rate:.3f} ± {2 * np.sqrt(rate * (1 - rate) / n):.3f}" for rate in rates]
        text.append(f"| {kind} | {told[0]} | {told[1]} | {n} |")
    return text


if __name__ == "__main__":
    main(__doc__, "confirmations", KINDS, study, lines)
