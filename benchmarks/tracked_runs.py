"""What tracking costs a run whose trials take a second each: untracked, and with MLflow on sqlite and on PostgreSQL.

    python -m benchmarks.tracked_runs [--trials 320] [--seconds 1] [--idle] [--rounds 2] [--output FILE]

Each trial uses a second of the processor and reports once, two at a time, so that two cores are full. With
`--seconds 0` the trials are trivial, and what is measured is the platform. With `--idle` they wait for their second, as
one waits for its GPU. Columns: how long a trial took on the clock; processor seconds of the driver and of the process
beside it that shows the study; how long after the last record that process had shown all. In turns; of the rounds the
fastest counts.
"""

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from datetime import date
from pathlib import Path

import psutil
from benchmarks.tracking_services import postgres, postgres_missing

from contrasweep.schema import checked
from contrasweep.study.arm import Arm
from contrasweep.study.grid import AblationGrid
from contrasweep.trial import Report, Trial

SLOTS = 2
UNTRACKED = "untracked"
WAYS = (UNTRACKED, "MLflow, sqlite", "MLflow, PostgreSQL")


@checked
class Settings:
    """`seconds` of the processor that a trial uses."""

    seconds: float = 1.0
    idle: bool = False
    lr: float = 0.1


def train(trial: Trial, resume: Path | None = None) -> Generator[Report, None, None]:
    """One report."""
    if trial.config["idle"]:
        time.sleep(trial.config["seconds"])
    until = time.process_time() + trial.config["seconds"] * (not trial.config["idle"])
    while time.process_time() < until:
        sum(range(1000))
    yield Report(1, {"accuracy": 1.0 / (1 + trial.seed)})


train.settings = Settings  # type: ignore[attr-defined]


def study_of(trials: int, seconds: float, idle: bool) -> AblationGrid:
    """So many trials of four arms."""
    settings = {"seconds": seconds, "idle": idle}
    arms = {f"arm{i}": Arm("benchmarks.tracked_runs:train", config={"lr": 0.1 + i, **settings}) for i in range(4)}
    return AblationGrid("tracked-runs", arms=arms, data="digits-lt", seeds=list(range(trials // 4)), metric="accuracy")


class Watch(threading.Thread):
    """Looks at the process that shows the study: its processor seconds, and when it was last seen."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.processor_s, self.seen, self.stopping = 0.0, 0.0, threading.Event()

    def run(self) -> None:
        process: psutil.Process | None = None
        while not self.stopping.wait(0.1):
            with contextlib.suppress(psutil.NoSuchProcess):
                if process is None:
                    found = [p for p in psutil.Process().children() if "contrasweep.tracking" in p.cmdline()]
                    process = found[0] if found else None
                elif process.status() != psutil.STATUS_ZOMBIE:
                    used = process.cpu_times()
                    self.processor_s, self.seen = used.user + used.system, time.time()


def run(study: AblationGrid, folder: str, tracking: str | None) -> dict[str, float]:
    """Run the study in this process, without Ray's start."""
    import ray

    from contrasweep.running.driver import run as run_study

    ray.init(num_cpus=SLOTS, include_dashboard=False, log_to_driver=False)
    watch = Watch()
    watch.start()
    used = time.process_time()
    results = run_study(study, storage=f"{folder}/runs", tracking=tracking)
    driver_s = time.process_time() - used
    watch.stopping.set()
    ray.shutdown()
    assert results.complete, results.statuses
    records = results.trial_records.values()
    if tracking is not None:
        assert len(results.run_urls) == len(records), (
            f"{len(results.run_urls)} of {len(records)} trials have a run in MLflow"
        )
    ended = [record.ended for record in records]
    return {
        "span_s": max(ended) - min(record.started for record in records),
        "trial_s": sum(record.seconds for record in records) / len(records),
        "driver_s": driver_s,
        "tracking_s": watch.processor_s,
        "after_s": max(0.0, watch.seen - max(ended)),
        "load": os.getloadavg()[0],
    }


def measured(options: argparse.Namespace, way: str, uri: str | None) -> dict[str, float]:
    """`run` in a process of its own."""
    words = [f"--trials={options.trials}", f"--seconds={options.seconds}", *(["--idle"] if options.idle else [])]
    with tempfile.TemporaryDirectory() as folder:
        uri = f"sqlite:///{folder}/mlflow.db" if "sqlite" in way else uri
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.tracked_runs", *words, "--folder", folder, "--uri", uri or ""],
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
    parser.add_argument("--trials", type=int, default=320, help="a multiple of 4")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--idle", action="store_true")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--output", type=Path, help="a file to which the table is written")
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--uri", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder:
        study = study_of(options.trials, options.seconds, options.idle)
        print(json.dumps(run(study, options.folder, options.uri or None)))
        return
    best: dict[str, dict[str, float]] = {}
    for _ in range(options.rounds):
        for way in WAYS:
            if "PostgreSQL" in way and postgres_missing():
                continue
            with postgres() if "PostgreSQL" in way else contextlib.nullcontext() as uri:
                found = measured(options, way, uri)
            print(way, found, file=sys.stderr, flush=True)
            known = best.get(way, found)
            best[way] = {key: min(value, known[key]) for key, value in found.items()}
    lines = [
        f"| {way} | {at['span_s']:.1f} | {at['trial_s']:.3f} | {at['trial_s'] / best[UNTRACKED]['trial_s']:.3f} | "
        f"{at['driver_s']:.1f} | {at['tracking_s']:.1f} | {at['after_s']:.1f} | {at['load']:.1f} |"
        for way, at in best.items()
    ]
    kind = "idle" if options.idle else "processor"
    text = (
        f"{options.trials} trials of {options.seconds:g} {kind} s, {SLOTS} slots, best of {options.rounds}; "
        f"{date.today()}, {platform.machine()}, {os.cpu_count()} shared cores.\n\n"
        "| | first start to last record, s | a trial, s | untracked = 1 | driver's processor s | that of tracking "
        "| all shown after the last record, s | load |\n|---|---|---|---|---|---|---|---|\n" + "\n".join(lines) + "\n"
    )
    print(text)
    if options.output:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
