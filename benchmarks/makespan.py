"""The simulator against the clock: 40 real trials on two slots, forecast from an earlier run of other replicates.

    nice -n 5 python -m benchmarks.makespan [--epochs 30] [--output benchmarks/results/makespan.md]

Both runs are `contrasweep run` on two local CPU slots: SupCon and OCL at four batch sizes on digits, five folds, seed 0
and then seed 1. Between them `contrasweep plan` forecasts the second one from the records of the first. The makespan is
from the first trial's start to the last one's end; Ray's own start is not part of it.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from contrasweep.cluster.inventory import Inventory, Node
from contrasweep.cluster.packing import Footprint
from contrasweep.cluster.simulate import simulate
from contrasweep.storage.record import Record
from contrasweep.storage.records import StudyRecords

SLOTS = 2
INVENTORY = Inventory((Node(cpus=SLOTS, memory_gib=64),))
STUDY = """
name: {name}
data: digits-lt
folds: 5
seeds: {seeds}
metric: f1_macro
axes: {{batch_size: [16, 32, 64, 128]}}
arms:
  supcon: {{trainable: "contrasweep.trainables.contrastive:train", config: {{loss: supcon, epochs: {epochs}}}}}
  ocl: {{trainable: "contrasweep.trainables.contrastive:train", config: {{loss: ocl, epochs: {epochs}}}}}
"""


def command(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "contrasweep", *words],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)
    return done.stdout


def run(folder: str, seeds: list[int], epochs: int, *more: str) -> list[Record]:
    """Run the study's trials with these seeds in one storage, and return their records by start time."""
    file = Path(folder) / "study.yaml"
    file.write_text(STUDY.format(name="makespan", seeds=seeds, epochs=epochs))
    command(
        "run",
        str(file),
        "--storage",
        folder,
        "--tracking",
        "none",
        "--max-concurrent",
        str(SLOTS),
        *more,
    )
    records = StudyRecords(folder, "makespan")
    return sorted(
        records.read(sorted(records.finished())).values(), key=lambda record: record.started
    )


def makespan(records: list[Record]) -> float:
    return max(r.ended for r in records) - min(r.started for r in records)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cs-makespan-") as folder:
        inventory = Path(folder) / "inventory.yaml"
        inventory.write_text(json.dumps({"nodes": [{"cpus": SLOTS, "memory_gib": 64}]}))
        first = run(folder, [0], options.epochs)
        (Path(folder) / "study.yaml").write_text(
            STUDY.format(name="makespan", seeds=[0, 1], epochs=options.epochs)
        )
        told = json.loads(
            command(
                "plan",
                str(Path(folder) / "study.yaml"),
                "--storage",
                folder,
                "--cluster",
                str(inventory),
                "--json",
            )
        )
        forecast_s = 3600 * told["hours"]
        earlier = {record.trial_id for record in first}
        second = [
            r for r in run(folder, [0, 1], options.epochs, "--extend") if r.trial_id not in earlier
        ]
    real_s = makespan(second)
    hindsight_s = (
        3600
        * simulate(
            [Footprint()] * len(second), [r.ended - r.started for r in second], INVENTORY
        ).hours
    )
    rows = {
        "forecast by `contrasweep plan` from the first run": forecast_s,
        "simulated from the second run's own times": hindsight_s,
    }
    load = sum(r.seconds for r in second) / sum(r.seconds for r in first)
    lines = [
        f"# Makespan: simulated against real ({datetime.date.today()})",
        "",
        f"{len(second)} trials of `contrasweep.trainables.contrastive` on {SLOTS} CPU slots, "
        f"{min(r.seconds for r in second):.1f} to "
        f"{max(r.seconds for r in second):.1f} s each; {platform.machine()}, {os.cpu_count()} cores, load average "
        f"{os.getloadavg()[2]:.1f}.",
        f"The machine was shared: the second run's trials took {load:.2f} times the first one's training time.",
        "",
        "| | makespan s | error |",
        "|---|---|---|",
        f"| real, first start to last end | {real_s:.1f} | |",
        *(f"| {name} | {value:.1f} | {value / real_s - 1:+.1%} |" for name, value in rows.items()),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.output:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
