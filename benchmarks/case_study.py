"""The survey's case study by its authors' own test, which resamples test items, beside the one of a study.

    python -m benchmarks.case_study [--storage FOLDER] [--to FILE]

Feeney and Hughes (2024) train each similarity once and compare 1NN and 5NN accuracy by a 95 % interval of 1,000
bootstraps of the test set. Such an interval is of the test items alone: it answers for these two networks. A study
trains several seeds of each, and its test answers for the methods. Runs the study (a second call only reads).
"""

import argparse
from datetime import date
from pathlib import Path

import numpy as np
import scipy.stats

import contrasweep as cs
from contrasweep.results.results import Results
from contrasweep.search_spaces.similarity_losses import CASE_STUDY_SMALL

BOOTSTRAPS = 1000
METRICS = ("knn1", "knn5")


def interval(first: np.ndarray, second: np.ndarray) -> tuple[float, float, float]:
    """Return the difference of two accuracies on the same test items, and its 95 % percentile interval.

    Args:
        first: Whether the first network is right, for each test item: [n] of 0 and 1.
        second: The same of the second network.
    """
    gains = first.astype(float) - second.astype(float)
    found = scipy.stats.bootstrap(
        (gains,),
        np.mean,
        n_resamples=BOOTSTRAPS,
        method="percentile",
        batch=50,
        rng=np.random.default_rng(0),
    ).confidence_interval
    return float(gains.mean()), float(found.low), float(found.high)


def report(results: Results) -> str:
    """The results page as Markdown."""
    frame = results.to_frame().query("status == 'done'")
    a, b = CASE_STUDY_SMALL.arms
    lines = [
        "# The survey's case study, by its own test and by that of a study",
        "",
        f"{date.today()}, by `python -m benchmarks.case_study`. {a} - {b}; a seed's interval is of {BOOTSTRAPS:,} "
        "bootstraps of its test items (percentiles), as the survey has it.",
    ]
    for data, rows in frame.groupby("data"):
        lines += [
            "",
            f"## {data}",
            "",
            "| metric | seed | " + f"{a} | {b} | difference, 95 % interval | excludes 0 |",
        ]
        lines += ["| --- | --- | --- | --- | --- | --- |"]
        for metric in METRICS:
            for seed, pair in rows.groupby("seed"):
                ids = pair.set_index("arm")["trial_id"]
                right = [np.asarray(results.items(ids[arm])[metric]) for arm in (a, b)]
                gain, low, high = interval(*right)
                lines.append(
                    f"| {metric} | {seed} | {right[0].mean():.4f} | {right[1].mean():.4f} | "
                    f"{gain:+.4f} [{low:+.4f}, {high:+.4f}] | {'no' if low <= 0 <= high else 'yes'} |"
                )
            found = results.compare(a, b, metric, at={"data": data})
            lines.append(f"| {metric} | all | | | {found.sentence(a, b)} | |")
    return "\n".join(lines) + "\n"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--storage", default="./contrasweep-runs")
    options.add_argument("--to", type=Path, default=Path("benchmarks/results/case_study.md"))
    chosen = options.parse_args()
    chosen.to.write_text(report(cs.run(CASE_STUDY_SMALL, storage=chosen.storage, tracking="none")))


if __name__ == "__main__":
    main()
