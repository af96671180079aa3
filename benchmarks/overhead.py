"""What the platform costs beside training: the quickstart through contrasweep and through a plain Ray Tune script.

    python benchmarks/overhead.py [--slots 2] [--output benchmarks/results/overhead.md]

Both do the same trials (same trainable, data, folds, seeds) with the same slots, one after the other in
processes of their own. The plain script is what one writes by hand: a function trainable with Tune's defaults.
Overhead is (wall time x slots - training time) / training time; wall time is from the start of Ray to its end.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STUDY = "search_spaces.quickstart:STUDY"


def ours(slots: int, folder: str, tracking: str) -> dict[str, float]:
    """The quickstart as a user runs it; `tracking` on (a new sqlite store) or off."""
    import ray

    from contrasweep.running.driver import run
    from contrasweep.study.file import load_study

    began = time.perf_counter()
    ray.init(num_cpus=slots, include_dashboard=False, log_to_driver=False)
    store = f"sqlite:///{folder}/mlflow.db" if tracking == "on" else "none"
    results = run(load_study(STUDY), storage=folder, tracking=store)
    ray.shutdown()
    frame = results.to_frame()
    assert results.complete, results.counts
    return {"trials": len(frame), "wall_s": time.perf_counter() - began, "training_s": float(frame["seconds"].sum())}


def plain(slots: int, folder: str) -> dict[str, float]:
    """The same trials as somebody writes them with Ray Tune alone."""
    import ray
    from ray import tune

    from contrasweep import data
    from contrasweep.planning.facade import plan
    from contrasweep.study.file import load_study

    study = load_study(STUDY)
    trials = (
        plan(study, storage=folder)
        .relocated(lambda n: data.resolve(n, folds=study.folds, storage=folder, write=True))
        .trials
    )

    def train_one(config: dict) -> None:
        from contrasweep.imports import import_path

        trial, began = config["trial"], time.perf_counter()
        for report in import_path(trial.trainable, "")(trial):
            tune.report(dict(report.metrics) | {"seconds": time.perf_counter() - began})

    began = time.perf_counter()
    ray.init(num_cpus=slots, include_dashboard=False, log_to_driver=False)
    grid = tune.Tuner(
        train_one,
        param_space={"trial": tune.grid_search(list(trials))},
        run_config=tune.RunConfig(storage_path=folder, verbose=0),
    ).fit()
    ray.shutdown()
    seconds = [result.metrics["seconds"] for result in grid]
    return {"trials": len(seconds), "wall_s": time.perf_counter() - began, "training_s": sum(seconds)}


def measured(name: str, slots: int) -> dict[str, float]:
    """One of the two in a process of its own, so that neither warms the other."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, __file__, "--one", name, "--slots", str(slots), "--folder", folder],
            capture_output=True,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    found["overhead"] = (found["wall_s"] * slots - found["training_s"]) / found["training_s"]
    found["trials_per_hour"] = 3600 * found["trials"] / found["wall_s"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--one", choices=["ours", "untracked", "plain"])
    parser.add_argument("--folder")
    options = parser.parse_args()
    if options.one:
        found = (
            plain(options.slots, options.folder)
            if options.one == "plain"
            else ours(options.slots, options.folder, "on" if options.one == "ours" else "off")
        )
        print(json.dumps(found))
        return
    rows = {name: measured(name, options.slots) for name in ("plain", "ours", "untracked", "plain", "ours")}
    names = {
        "plain": "plain Ray Tune, default actors",
        "ours": "contrasweep, with MLflow",
        "untracked": "contrasweep, --tracking none",
    }
    lines = [
        f"Quickstart, {rows['ours']['trials']:.0f} trials on {options.slots} slots; {datetime.date.today()}, "
        f"{platform.machine()}, {os.cpu_count()} cores.",
        "",
        "| | wall s | training s | overhead | trials per hour | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        ratio = row["trials_per_hour"] / rows["plain"]["trials_per_hour"]
        lines.append(
            f"| {names[name]} | {row['wall_s']:.1f} | {row['training_s']:.1f} | {row['overhead']:.2f} | "
            f"{row['trials_per_hour']:.0f} | {ratio:.2f} |"
        )
    text = "\n".join(lines) + "\n"
    print(text)
    if options.output:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
