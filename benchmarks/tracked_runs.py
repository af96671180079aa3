"""What tracking adds to a run of trivial trials: `contrasweep run` untracked, and with MLflow on a local sqlite file.

    python -m benchmarks.tracked_runs [--trials 300] [--rounds 2] [--output benchmarks/results/tracked_runs.md]

The trials report once and end (`benchmarks.driver_memory`), so what is measured is the platform. In turns, the faster
of the rounds counts. Wall seconds are those of `run`, without Ray's start; the processor's are of the driver's process,
where MLflow's calls are made, all threads. What a trial costs is the slope between a tenth of the trials and all of
them, so that start-up counts nothing.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

from benchmarks.driver_memory import SLOTS, study_of

WAYS = {"untracked": None, "MLflow, sqlite": "sqlite:///{folder}/mlflow.db"}


def run(trials: int, folder: str, tracking: str | None) -> dict[str, float]:
    """Run the study in this process: seconds of the wall and of this process, without Ray's start."""
    import ray

    from contrasweep.running.driver import run as run_study

    ray.init(num_cpus=SLOTS, include_dashboard=False, log_to_driver=False)
    began, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    results = run_study(study_of(trials), storage=f"{folder}/runs", tracking=tracking)
    after = resource.getrusage(resource.RUSAGE_SELF)
    figures = {
        "wall_s": time.perf_counter() - began,
        "processor_s": after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime,
    }
    ray.shutdown()
    assert results.complete, results.counts
    if tracking is not None:
        assert len(results.run_urls) == trials, f"{len(results.run_urls)} of {trials} trials have a run in MLflow"
    return figures


def measured(trials: int, way: str) -> dict[str, float]:
    """`run` in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.tracked_runs", f"--trials={trials}", "--one", way, "--folder", folder],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "CONTRASWEEP_CACHE": f"{folder}/cache"},
        )
    if done.returncode:
        raise SystemExit(done.returncode)
    figures: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=300, help="a multiple of 40")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--output", type=Path, help="a file to which the table is written")
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        uri = WAYS[options.one]
        print(json.dumps(run(options.trials, options.folder, uri and uri.format(folder=options.folder))))
        return
    best: dict[tuple[str, int], dict[str, float]] = {}
    few = options.trials // 10 // 4 * 4
    for _ in range(options.rounds):
        for way in WAYS:
            for trials in (few, options.trials):
                found, known = measured(trials, way), best.get((way, trials), {})
                best[way, trials] = {key: min(value, known.get(key, value)) for key, value in found.items()}
    lines = []
    cost: dict[str, dict[str, float]] = {}
    for way in WAYS:
        whole, part = best[way, options.trials], best[way, few]
        cost[way] = {key: (whole[key] - part[key]) / (options.trials - few) for key in whole}
        ratio = {key: cost[way][key] / cost["untracked"][key] for key in whole}
        lines.append(
            f"| {way} | {whole['wall_s']:.1f} | {whole['processor_s']:.1f} | {1000 * cost[way]['wall_s']:.0f} | "
            f"{1000 * cost[way]['processor_s']:.1f} | {ratio['wall_s']:.2f} | {ratio['processor_s']:.2f} | "
            f"{whole['wall_s'] / best['untracked', options.trials]['wall_s']:.2f} |"
        )
    text = (
        f"{options.trials} trials of one report, {SLOTS} slots, fastest of {options.rounds}; {date.today()}, "
        f"{platform.machine()}, {os.cpu_count()} shared cores, load {os.getloadavg()[0]:.1f}.\n\n"
        "| | wall s | driver's processor s | wall ms a trial | driver's ms a trial | wall a trial, untracked = 1 | "
        "driver's | whole wall |\n|---|---|---|---|---|---|---|---|\n" + "\n".join(lines) + "\n"
    )
    print(text)
    if options.output:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
