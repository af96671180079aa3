"""What it costs to keep trials that share a process apart: processor time of isolation in a study of short trials.

    python -m benchmarks.isolation [--trials 300] [--epochs 20] [--orders 10] [--output benchmarks/results]

First, fifteen arms that change their process and two calm ones run in random orders, in one slot: the records of the
calm arms are compared with those of each alone. Then a study of the quickstart's cnn is run by the command line, two
trials at once. Its trainable is `train` here, whose import makes each worker write the processor seconds of
`Isolation.begin` and `end`, and of all else that its process did meanwhile. So both are of one run, and other work on
the machine changes their ratio little.
"""

import argparse
import datetime
import functools
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from benchmarks.losses import processor

from contrasweep.running.worker.isolation import Isolation
from contrasweep.search_spaces.quickstart import BASE
from contrasweep.trainables import contrastive

TIMES = "CONTRASWEEP_BENCHMARK_TIMES"
"""The variable of the environment that names the folder to which workers write."""


def _timed(call: Callable[..., Any], folder: str) -> Callable[..., Any]:
    @functools.wraps(call)
    def timed(*arguments: Any, **named: Any) -> Any:
        before, clock = time.thread_time(), time.perf_counter()
        try:
            return call(*arguments, **named)
        finally:
            took, waited = time.thread_time() - before, time.perf_counter() - clock
            with Path(folder, str(os.getpid())).open("a") as file:
                file.write(f"{call.__name__} {took} {waited} {time.process_time()} {time.perf_counter()}\n")

    return timed


if folder := os.environ.get(TIMES):
    for name in ("begin", "end"):
        setattr(Isolation, name, _timed(getattr(Isolation, name), folder))

train = contrastive.train


def measured(trials: int, epochs: int) -> list[str]:
    """Run the study; what its workers wrote, as lines of a table."""
    with tempfile.TemporaryDirectory() as folder:
        times = Path(folder, "times")
        times.mkdir()
        arm = {"trainable": "benchmarks.isolation:train", "config": BASE | {"epochs": epochs}}
        arm["config"] |= {"loss": {"name": "supcon", "temperature": 0.2}, "batch_size": 32}
        study = {"name": "isolation", "arms": {"supcon": arm}, "data": "digits-lt", "folds": 5}
        study |= {"seeds": list(range(-(-trials // 5))), "metric": "f1_macro"}
        (Path(folder) / "study.yaml").write_text(yaml.safe_dump(study))
        words = ["run", "study.yaml", "--storage", "runs", "--tracking", "none", "--max-concurrent", "2"]
        environment = os.environ | {TIMES: str(times)}
        subprocess.run([sys.executable, "-m", "contrasweep", *words], cwd=folder, env=environment, check=True)
        rows = [[line.split() for line in file.read_text().splitlines()] for file in times.iterdir()]
    # from the first line of each process on, so that imports count on neither side
    spent = sum(float(process[-1][3]) - float(process[0][3]) for process in rows)
    lived = sum(float(process[-1][4]) - float(process[0][4]) for process in rows)
    lines = [row for process in rows for row in process[1:]]
    cells = []
    for name in ("begin", "end"):
        took, waited = (np.array([float(row[at]) for row in lines if row[0] == name]) for at in (1, 2))
        cells += [f"{1000 * np.median(took):.1f}", f"{1000 * np.percentile(took, 99):.1f}"]
        cells += [f"{100 * took.sum() / spent:.2f} %", f"{100 * waited.sum() / lived:.2f} %"]
    ended = sum(row[0] == "end" for row in lines)
    return [f"| {ended} | {len(rows)} | {spent / ended:.2f} | {lived / ended:.2f} | {' | '.join(cells)} |"]


def orders(number: int) -> list[str]:
    """Run the arms of `leaving` in so many orders; lines of a table."""
    support = str(Path(__file__).resolve().parents[1] / "tests" / "support")
    sys.path.insert(0, support)
    os.environ["PYTHONPATH"] = os.pathsep.join([support, os.environ.get("PYTHONPATH", "")])  # the workers'
    import leaving

    from contrasweep import run, session

    rng, alone, lines = random.Random(1), {}, []
    with tempfile.TemporaryDirectory() as folder, session():
        for arm in leaving.CALM:
            study = leaving.study([arm], reference=None)
            results = run(study, storage=f"{folder}/{arm}", tracking=None, max_concurrent=1, quiet=True)
            alone |= leaving.calm_records(results)
        for at in range(number):
            order = rng.sample([*leaving.CALM, *leaving.MISBEHAVING], 17)
            results = run(leaving.study(order), storage=f"{folder}/{at}", tracking=None, max_concurrent=1, quiet=True)
            counts = ", ".join(f"{count} {status}" for status, count in results.statuses.items())
            places = " and ".join(str(order.index(arm) + 1) for arm in leaving.CALM)
            lines.append(
                f"| {at + 1} | {places} | {counts} | {'yes' if leaving.calm_records(results) == alone else 'NO'} |"
            )
            print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Measure, print and write isolation.md."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--orders", type=int, default=10)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    load = Path("/proc/loadavg").read_text().split()[0]
    equal = orders(options.orders)
    rows = measured(options.trials, options.epochs)
    lines = [
        "# What it costs to keep trials apart",
        "",
        f"{datetime.date.today()}, {processor()}, {os.cpu_count()} cores, load average {load} at the start; "
        f"`python -m benchmarks.isolation --trials {options.trials} --epochs {options.epochs} "
        f"--orders {options.orders}`.",
        "",
        "| trials | workers | processor s a trial | s a trial | begin, median ms | 99 % ms | of processor s | of s | "
        "end, median ms | 99 % ms | of processor s | of s |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        f"Fifteen arms that change their process and two calm ones, one slot, {options.orders} random orders:",
        "",
        "| order | places of the calm arms | trials | calm arms' records equal to those of each alone |",
        "|---|---|---|---|",
        *equal,
    ]
    print("\n".join(lines))
    (options.output / "isolation.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
