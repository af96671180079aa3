"""Trials per hour of whole studies, `cohort: auto` against `off`, through `contrasweep run`.

    python -m benchmarks.engines [--trials 1000] [--batches 16 32] [--turns 1] [--epochs 12] [--output FOLDER]

The study is the quickstart's cnn with SupCon on digits-lt, five folds and as many seeds as it takes, on the machine's
cores. Each run is a command of its own with a Ray, a storage and (the first of `auto`) a cache of compiled graphs of
its own, so that its time has all: the start, probes, compilation, the report. Runs take turns, and ratios are of
medians. Writes engines.md.
"""

import argparse
import datetime
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import yaml

from benchmarks.losses import processor
from contrasweep.storage.records import StudyRecords
from search_spaces.quickstart import BASE, TRAIN

FOLDS = 5


def study_file(folder: Path, trials: int, batches: list[int], epochs: int) -> Path:
    """The study as YAML."""
    seeds = -(-trials // (FOLDS * len(batches)))
    config = BASE | {"epochs": epochs, "loss": {"name": "supcon", "temperature": 0.2}}
    study = {
        "name": "engines",
        "arms": {"supcon": {"trainable": TRAIN, "config": config}},
        "axes": {"batch_size": batches},
        "data": "digits-lt",
        "folds": FOLDS,
        "seeds": list(range(seeds)),
        "metric": "f1_macro",
    }
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(study))
    return path


def run(study: Path, cohort: str, folder: Path, inductor: Path) -> tuple[float, float]:
    """Seconds of a run, and the mean of its trials' last values; prints what the run said of engines."""
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(inductor), "COLUMNS": "100"}
    command = [sys.executable, "-m", "contrasweep", "run", str(study), "--set", f"cohort={cohort}"]
    command += ["--storage", str(folder), "--tracking", "none"]
    begun = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - begun
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    records = StudyRecords(str(folder), "engines")
    read = list(records.read(records.finished()).values())
    engines = Counter(record.notes.engine or "alone" for record in read)
    print(cohort, f"{seconds:.1f} s", dict(engines), flush=True)
    print("\n".join(line for line in (done.stdout + done.stderr).splitlines() if "cohort" in line), flush=True)
    return seconds, statistics.fmean(record.metrics["f1_macro"] for record in read)


def main() -> None:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--batches", nargs="+", type=int, default=[16, 32])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    load = Path("/proc/loadavg").read_text().split()[0]
    taken: dict[str, list[float]] = {"off": [], "auto": []}
    means: dict[str, list[float]] = {"off": [], "auto": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        study = study_file(folder, options.trials, options.batches, options.epochs)
        for turn in range(options.turns):
            for cohort, seconds in taken.items():
                inductor = folder / f"inductor-{turn}"
                took, mean = run(study, cohort, folder / f"{cohort}-{turn}", inductor)
                seconds.append(took)
                means[cohort].append(mean)
    medians = {cohort: statistics.median(seconds) for cohort, seconds in taken.items()}
    batches = ", ".join(map(str, options.batches))
    rows = [
        f"| {batches} | {options.trials} | {cohort} | {medians[cohort]:.0f} | "
        f"{3600 * options.trials / medians[cohort]:.0f} | {medians['off'] / medians[cohort]:.2f} | "
        f"{statistics.fmean(means[cohort]):.4f} |"
        for cohort in taken
    ]
    lines = [
        f"{datetime.date.today()}, {processor()}, {os.cpu_count()} cores, {options.turns} turns, "
        f"{options.epochs} epochs; load average at the start: {load}.",
        "",
        "| batch | trials | cohort | seconds | trials per hour | ratio | mean macro F1 |",
        "|---|---|---|---|---|---|---|",
        *rows,
    ]
    print("\n".join(lines))
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "engines.md").write_text("\n".join(["# Engines in whole studies", "", *lines]) + "\n")


if __name__ == "__main__":
    main()
