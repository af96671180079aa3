"""Trials per hour of whole studies, `cohort: auto` against `off`, through `contrasweep run`.

    python -m benchmarks.engines [--trials 1000] [--batches 16 32 128] [--together] [--losses supcon sincere ocl]
        [--turns 1] [--encoder cnn] [--data digits-lt] [--epochs 12] [--output benchmarks/results]

A study is the quickstart's cnn, or another encoder, with SupCon on digits-lt or other losses and data at one batch
size, or with `--together` at all of them, five folds and as many seeds as it takes, on the machine's cores;
`--batches 0` is the quickstart itself. Each run is a command of its own with a Ray of its own. `off` and `auto` have
a new storage, and `auto` has a cache of compiled graphs of its own, so that its time has all: the start, probes,
compilation, the report. `again` is another study after `auto` on the same storage and cache. Runs take turns, and
ratios are of medians: of seconds of the clock, which other work on the machine lengthens, and of processor seconds of
all processes of a run. Prints each run, and appends the table to engines.md.
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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml
from benchmarks.losses import processor

from contrasweep.search_spaces.quickstart import BASE, STUDY, TRAIN
from contrasweep.storage.records import StudyRecords

FOLDS = 5
RUNS = {"off": "off", "auto": "auto", "again": "auto"}
"""Name of a run -> its `cohort`; a run reads what the ones before it have left where they share a storage."""
SAMPLE_S = 0.5


@dataclass(frozen=True)
class Measured:
    """One run: seconds of the clock, processor seconds of its processes, how many trials each engine trained, and the
    mean of their last values of the metric."""

    seconds: float
    processor_s: float
    engines: Counter[str]
    mean: float


def study_file(
    folder: Path,
    trials: int,
    batches: list[int],
    epochs: int = 12,
    name: str = "engines",
    encoder: str = "cnn",
    data: str = "digits-lt",
    losses: Sequence[str] = ("supcon",),
) -> Path:
    """The study as YAML."""
    seeds = -(-trials // (FOLDS * len(batches) * len(losses)))
    config = BASE | {"epochs": epochs, "encoder": encoder}
    arms = {loss: config | {"loss": {"name": loss, "temperature": 0.2}} for loss in losses}
    study = {
        "name": name,
        "arms": {loss: {"trainable": TRAIN, "config": config} for loss, config in arms.items()},
        "axes": {"batch_size": batches},
        "data": data,
        "folds": FOLDS,
        "seeds": list(range(seeds)),
        "metric": "f1_macro",
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(study))
    return path


def run(study: str, name: str, cohort: str, storage: Path, inductor: Path) -> Measured:
    """Run a study of this name; prints what the run said of engines."""
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(inductor), "COLUMNS": "100"}
    command = [sys.executable, "-m", "contrasweep", "run", study, "--set", f"cohort={cohort}"]
    command += ["--storage", str(storage), "--tracking", "none"]
    begun = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        spent = processor_seconds(process)
        seconds = time.perf_counter() - begun
        output.seek(0)
        said = output.read()
    if process.returncode:
        raise SystemExit(said)
    records = StudyRecords(str(storage), name)
    read = list(records.read(records.finished()).values())
    engines = Counter(record.notes.engine or "unfused" for record in read)
    print("\n".join(line for line in said.splitlines() if "cohort" in line), flush=True)
    return Measured(seconds, spent, engines, statistics.fmean(record.metrics["f1_macro"] for record in read))


def processor_seconds(process: subprocess.Popen[bytes]) -> float:
    """Of a process and its descendants until it ends: what each had used when it was last seen."""
    spent: dict[tuple[int, float], float] = {}
    while process.poll() is None:
        try:
            parent = psutil.Process(process.pid)
            for one in (parent, *parent.children(recursive=True)):
                times = one.cpu_times()
                spent[one.pid, one.create_time()] = times.user + times.system
        except psutil.Error:  # one of them has ended just now
            pass
        time.sleep(SAMPLE_S)
    return sum(spent.values())


def compare(batches: list[int], trials: int, turns: int, **study: Any) -> list[str]:
    """Rows of the table for a study of these batch sizes, [0]: the quickstart; `study` as in `study_file`."""
    own = any(batches)
    shown = ", ".join(map(str, batches)) if own else "quickstart"
    taken: dict[str, list[Measured]] = {name: [] for name in RUNS}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(turns):
            for number, (name, cohort) in enumerate(RUNS.items()):
                called = f"engines-{name}" if own else STUDY.name
                place = Path(folder) / f"{turn}-{'off' if cohort == 'off' else 'auto'}{'' if own else number}"
                place.mkdir(exist_ok=True)
                path = "contrasweep.search_spaces.quickstart:STUDY"
                if own:
                    path = str(study_file(place, trials, batches, name=called, **study))
                taken[name].append(run(path, called, cohort, place, Path(folder) / f"inductor-{turn}"))
                print(shown, name, taken[name][-1], flush=True)
    seconds = {name: statistics.median(one.seconds for one in runs) for name, runs in taken.items()}
    spent = {name: statistics.median(one.processor_s for one in runs) for name, runs in taken.items()}
    rows = []
    for name, runs in taken.items():
        last, count = runs[-1], sum(runs[-1].engines.values())
        cells = [shown, count, name, last.engines["unfused"], f"{seconds[name]:.0f}"]
        cells += [f"{3600 * count / seconds[name]:.0f}", f"{seconds['off'] / seconds[name]:.2f}"]
        cells += [f"{spent[name]:.0f}", f"{spent['off'] / spent[name]:.2f}", f"{last.mean:.4f}"]
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return rows


def main() -> None:
    """Measure, print and append to the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--batches", nargs="+", type=int, default=[16, 32, 128])
    parser.add_argument("--together", action="store_true", help="one study of all batch sizes")
    parser.add_argument("--losses", nargs="+", default=["supcon"], help="one arm each")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--encoder", default="cnn")
    parser.add_argument("--data", default="digits-lt", help="a dataset's name, or where one was staged")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    study = {"epochs": options.epochs, "encoder": options.encoder, "data": options.data, "losses": options.losses}
    for batches in [options.batches] if options.together else [[batch] for batch in options.batches]:
        load = Path("/proc/loadavg").read_text().split()[0]
        lines = [
            f"{datetime.date.today()}, {processor()}, {os.cpu_count()} cores, {options.encoder} on "
            f"{Path(options.data).name}, {' '.join(options.losses)}, {options.turns} turns, {options.epochs} epochs; "
            f"load average at the start: {load}.",
            "",
            "| batch | trials | run | alone | seconds | trials an hour | ratio | processor s | ratio | mean macro F1 |",
            "|---|---|---|---|---|---|---|---|---|---|",
            *compare(batches, options.trials, options.turns, **study),
        ]
        print("\n".join(lines), flush=True)
        if options.output is not None:
            options.output.mkdir(parents=True, exist_ok=True)
            with (options.output / "engines.md").open("a") as file:
                file.write("\n".join([*lines, "", ""]))


if __name__ == "__main__":
    main()
