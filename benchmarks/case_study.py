"""The survey's case study at a size for two cores: SINCERE with cosine similarity against negative arc length.

    python benchmarks/case_study.py --cifar10-lt cifar10_lt_if100.npz --mnist mnist.npz [--storage FOLDER]

Stages both datasets where they are missing, runs `search_spaces.similarity_losses:CASE_STUDY_SMALL` through the
platform (a second call only reads), and writes results/case_study.md, case_study.csv and, for each dataset, the four
histograms: trained with each similarity, measured by each.
"""

import argparse
import csv
import platform
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import contrasweep as cs
from contrasweep.data import resolve, stage
from contrasweep.data.resolving import default_place
from contrasweep.errors import DataError
from contrasweep.planning.planner import plan
from contrasweep.results.results import Results
from contrasweep.search_spaces.local import PIXELS
from contrasweep.search_spaces.similarity_losses import CASE_STUDY_SMALL
from contrasweep.trainables import raw_pixels
from contrasweep.trainables.evaluation.bootstrap import interval
from contrasweep.trainables.evaluation.target_noise import arc_length, histogram

RESULTS = Path(__file__).parent / "results"
ARMS = ("cosine", "neg_arc_length")
CLASSIFIERS = ("knn1", "knn5")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cifar10-lt", type=Path, help="npz with x_train, y_train, x_test, y_test")
    parser.add_argument("--mnist", type=Path, help="npz with x_train, y_train, x_test, y_test")
    parser.add_argument("--storage", default="./contrasweep-runs")
    parser.add_argument("--max-concurrent", type=int, default=2)
    options = parser.parse_args()
    for name, source in (("cifar10-lt", options.cifar10_lt), ("mnist", options.mnist)):
        staged(name, source, options.storage)
    tracking = f"sqlite:///{Path(options.storage).resolve()}/mlflow.db"
    results = cs.run(
        CASE_STUDY_SMALL, storage=options.storage, tracking=tracking, max_concurrent=options.max_concurrent
    )
    record(results)
    print((RESULTS / "case_study.md").read_text())


def record(results: Results) -> None:
    """Write tables and figures of the trials that are done."""
    RESULTS.mkdir(exist_ok=True)
    trials = results.to_frame().query("status == 'done'")
    items = {trial: results.records.items(trial) for trial in trials["trial_id"]}
    rows = compared(trials, items)
    with (RESULTS / "case_study.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    floors = {str(name): floor(str(name), results.records.storage) for name in dict.fromkeys(trials["data"])}
    (RESULTS / "case_study.md").write_text(report(rows, trials, results, floors))
    for name in dict.fromkeys(trials["data"]):
        four_histograms(name, trials, items, RESULTS / f"case_study_{name}.png")


def staged(name: str, source: Path | None, storage: str) -> None:
    """Stage `name` from `source` unless it is there."""
    try:
        resolve(name, folds=None, storage=storage)
    except DataError:
        if source is None:
            raise
        stage(name, default_place(name, None, storage), source=source)


def floor(name: str, storage: str) -> float:
    """Accuracy of the nearest training image by its pixels."""
    study = cs.AblationGrid(name="floor", arms={"raw-pixels": cs.Arm(PIXELS)}, data=name, metric="accuracy")
    trial = plan(study, storage=storage).trials[0]
    return float(next(raw_pixels.train(trial)).metrics["accuracy"])


def compared(trials: pd.DataFrame, items: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row per dataset, seed and classifier: both accuracies and their paired bootstrap difference."""
    rows = []
    for (data, seed), pair in trials.groupby(["data", "seed"], sort=False):
        if len(pair) < len(ARMS):
            continue
        of = {arm: items[trial] for arm, trial in zip(pair["arm"], pair["trial_id"], strict=True)}
        for classifier in CLASSIFIERS:
            hits = [np.asarray(of[arm][classifier], dtype=float) for arm in ARMS]
            each, difference = [interval(h) for h in hits], interval(hits[1], hits[0])
            scores = {arm: round(found.value, 4) for arm, found in zip(ARMS, each, strict=True)}
            bounds = {
                f"{arm} interval": f"{found.low:.4f} to {found.high:.4f}" for arm, found in zip(ARMS, each, strict=True)
            }
            rows.append(
                {
                    "data": data,
                    "seed": seed,
                    "classifier": classifier,
                    **scores,
                    **bounds,
                    "difference": round(difference.value, 4),
                    "low": round(difference.low, 4),
                    "high": round(difference.high, 4),
                    "significant": difference.significant,
                }
            )
    return rows


def report(rows: list[dict[str, Any]], trials: pd.DataFrame, results: Results, floors: Mapping[str, float]) -> str:
    """The tables as Markdown."""
    head = list(rows[0])
    table = [head, ["---"] * len(head), *([str(row[name]) for name in head] for row in rows)]
    seeds = [["data", "trained with", "seeds", *CLASSIFIERS], ["---"] * 5]
    for (data, arm), group in trials.groupby(["data", "arm"], sort=False):
        spread = [
            f"{group[k].mean():.4f}" + (f" ± {group[k].std():.4f}" if len(group) > 1 else "") for k in CLASSIFIERS
        ]
        seeds.append([str(data), str(arm), str(len(group)), *spread])
    seeds += [[data, "nothing: raw pixels", "–", f"{value:.4f}", "–"] for data, value in floors.items()]
    config = CASE_STUDY_SMALL.arms["cosine"].config
    recipe = ", ".join(f"{key} {value}" for key, value in config.items() if key not in ("figures", "loss", "retrieval"))
    hours = trials["seconds"].sum() / 3600
    return "\n".join(
        [
            "# SINCERE with cosine similarity against negative arc length, small scale",
            "",
            f"{date.today()}, {platform.machine()} CPU, one thread a trial, {len(trials)} of {len(results.planned)} "
            f"trials, {hours:.2f} hours of "
            f"wall time in all (other jobs may have shared the machine), torch {versions(results)}. Recipe: {recipe}; "
            f"10 epochs of long-tailed CIFAR-10 (imbalance factor 100, real images, full "
            "test set), 1 of MNIST. Neither similarity was tuned: both have the temperature that SINCERE's authors "
            "found "
            "for cosine. The full-scale recipe is `contrasweep.search_spaces.similarity_losses:CASE_STUDY`.",
            "",
            "Paired bootstrap of the test set (1,000 resamples, percentiles 2.5 and 97.5; difference = arc length - "
            "cosine):",
            "",
            *("| " + " | ".join(row) + " |" for row in table),
            "",
            "Mean and standard deviation over seeds, which the bootstrap does not see:",
            "",
            *("| " + " | ".join(map(str, row)) + " |" for row in seeds),
            "",
            "An arm that is hardly above raw pixels has not learned enough to say anything of its similarity; where "
            "networks do, the question is decided in [docs/claims.md](../../docs/claims.md).",
            "",
            "Histograms of target and noise similarities (seed 0): case_study_<dataset>.png.",
            "",
        ]
    )


def versions(results: Results) -> str:
    """The torch version that the records name."""
    return next(iter(results.trial_records.values())).versions.get("torch", "unknown")


def four_histograms(data: str, trials: pd.DataFrame, items: Mapping[str, Any], path: Path) -> None:
    """Target and noise similarities of seed 0: a row per similarity trained with, a column per one measured by."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    canvas = FigureCanvasAgg(Figure(figsize=(10, 6), layout="constrained"))
    axes: Any = canvas.figure.subplots(2, 2)
    chosen = trials[(trials["data"] == data) & (trials["seed"] == 0)]
    for row, arm in enumerate(ARMS):
        of = items[chosen[chosen["arm"] == arm]["trial_id"].iloc[0]]
        cosine = np.asarray(of["target_similarity"]), np.asarray(of["noise_similarity"])
        for column, (target, noise) in enumerate((cosine, (arc_length(cosine[0]), arc_length(cosine[1])))):
            counts, ax = histogram(target, noise), axes[row, column]
            for shares, name, colour in zip(counts.shares(), ("target", "noise"), ("#1b7837", "#b2182b"), strict=True):
                ax.bar(
                    counts.edges[:-1], shares, np.diff(counts.edges), align="edge", label=name, color=colour, alpha=0.6
                )
            ax.set(title=f"trained with {arm}", xlabel=f"{ARMS[column]} similarity", ylabel="share of test images")
    axes[0, 0].legend(frameon=False)
    canvas.figure.suptitle(f"{data}: nearest training image of the same class (target) and of another (noise)")
    canvas.print_png(str(path))


if __name__ == "__main__":
    main()
