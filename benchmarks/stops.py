"""SIGTERM at each moment of a command: its exit status, its lines, and how long it took to end.

    python -m benchmarks.stops [--moments 40] [--step 0.2] [--tracking none] [--output benchmarks/results]

A small study is run anew for each moment, on a Ray of its own. A command that needs over `PATIENCE_S` to end says where
its threads are: the stacks are kept beside the table.
"""

import argparse
import contextlib
import datetime
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.drivers import ray_folder, start_driver

LINE = "contrasweep: interrupted; the same command goes on from here"
PATIENCE_S = 8.0
STACKS = "import faulthandler, signal\nfaulthandler.register(signal.SIGUSR1)\n"
STUDY = """name: stopped
data: digits-lt
folds: 4
arms: {scl: {trainable: contrastive, config: {loss: supcon, epochs: 3}}}
"""


def stopped(folder: Path, moment: float, tracking: str) -> tuple[int, float, list[str]]:
    """Send one signal to a running command: its exit status, seconds until it ended, and the lines that it printed."""
    (folder / "study.yaml").write_text(STUDY)
    (folder / "sitecustomize.py").write_text(STACKS)
    environment = {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    with ray_folder() as ray:
        began = time.monotonic()
        words = ("run", "study.yaml", "--storage", "runs", "--tracking", tracking, "--quiet")
        command = start_driver(*words, folder=folder, ray=ray, environment=environment)
        with contextlib.suppress(subprocess.TimeoutExpired):
            command.wait(began + moment - time.monotonic())
        command.send_signal(signal.SIGTERM)
        sent = time.monotonic()
        while True:
            try:
                status = command.wait(PATIENCE_S)
                return status, time.monotonic() - sent, command.communicate()[1].splitlines()
            except subprocess.TimeoutExpired:
                command.send_signal(signal.SIGUSR1)


def main() -> None:
    """Measure, print and write stops.md."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--moments", type=int, default=40)
    parser.add_argument("--step", type=float, default=0.2)
    parser.add_argument("--tracking", default="none")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    rows = []
    for number in range(1, options.moments + 1):
        load = os.getloadavg()[0]
        with tempfile.TemporaryDirectory() as folder:
            status, took, lines = stopped(Path(folder), number * options.step, options.tracking)
        own_lines = [line for line in lines if line.startswith("contrasweep:")]
        right = status == 0 or (status == 130 and own_lines == [LINE] and len(lines) == 1)
        rows.append(
            f"| {number * options.step:.1f} | {status} | {len(lines)} | {took:.1f} | {load:.0f} |"
        )
        print(rows[-1], flush=True)
        if not right or took > PATIENCE_S:
            print(*lines, sep="\n", file=sys.stderr, flush=True)
    text = [
        "# SIGTERM at each moment of a command",
        "",
        f"{datetime.date.today()}, {platform.processor()}, {os.cpu_count()} cores that others use too; "
        f"`python -m benchmarks.stops --moments {options.moments} --step {options.step} "
        f"--tracking {options.tracking}`.",
        "",
        "| signal after s | exit status | lines on stderr | s to the end | load |",
        "|---|---|---|---|---|",
        *rows,
    ]
    (options.output / "stops.md").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
