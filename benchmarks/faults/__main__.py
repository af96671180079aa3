"""`python -m benchmarks.faults [--seed N] [--only NAME,...] [--times N] [--minutes N]`: inject faults, write what each
of them cost.

Each scenario is one line of results/faults.jsonl once it has ended; one that has its line for this seed is not run
again, so that an interrupted run goes on. results/faults.md is written from all lines. Some need Linux as root (disk,
read-only, memory, cut-off, packets), PostgreSQL (wire, database), libfaketime (clock; or its file in
FAKETIME_LIBRARY); `weed` of SeaweedFS is used for S3 where it is installed. Where nothing could be injected, nothing is
written.
"""

import argparse
import json
import math
import platform
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.faults.files import broken_files, full_at_each_write, full_disk
from benchmarks.faults.hosts import on_hosts, wrong_clock
from benchmarks.faults.memory import out_of_memory
from benchmarks.faults.operation import (
    at_start_and_end,
    database_stopped,
    floods,
    read_only,
    submitted_twice,
    two_drivers,
    under_limits,
)
from benchmarks.faults.processes import on_processes
from benchmarks.faults.servers import Scenario, on_the_wire
from benchmarks.faults.study import EPOCHS, PAUSE_S, Row

RESULTS = Path(__file__).resolve().parents[1] / "results"
STOP_S = 60.0

SCENARIOS: dict[str, tuple[Scenario, int]] = {
    "wire": (on_the_wire, 70),
    "driver": (partial(on_processes, "driver"), 12),
    "worker": (partial(on_processes, "worker"), 24),
    "gcs": (partial(on_processes, "gcs_server"), 8),
    "raylet": (partial(on_processes, "raylet"), 8),
    "driver-stop": (partial(on_processes, "driver", stop_s=STOP_S), 3),
    "worker-stop": (partial(on_processes, "worker", stop_s=STOP_S), 3),
    "gcs-stop": (partial(on_processes, "gcs_server", stop_s=STOP_S), 3),
    "raylet-stop": (partial(on_processes, "raylet", stop_s=STOP_S), 3),
    "node": (partial(on_hosts, "node killed"), 8),
    "drained": (partial(on_hosts, "node drained"), 5),
    "cut-off": (partial(on_hosts, "node cut off"), 8),
    "head": (partial(on_hosts, "head killed"), 4),
    "node-stop": (partial(on_hosts, "node stopped", stop_s=STOP_S), 2),
    "head-stop": (partial(on_hosts, "head stopped", stop_s=STOP_S), 2),
    "clock": (wrong_clock, 5),
    "memory": (out_of_memory, 12),
    "disk": (full_disk, 10),
    "files": (broken_files, 60),
    "full": (full_at_each_write, 60),
    "start-end": (at_start_and_end, 60),
    "two": (two_drivers, 10),
    "read-only": (read_only, 20),
    "limits": (under_limits, 8),
    "database": (database_stopped, 12),
    "floods": (floods, 10),
    "submit": (submitted_twice, 6),
    "packets": (partial(on_hosts, "packets lost"), 8),
}
"""What is run, and how many faults of it (of `wire`: of each of two servers)."""


def main() -> None:
    """Run the scenarios and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default=",".join(SCENARIOS), help=f"of {', '.join(SCENARIOS)}")
    parser.add_argument(
        "--times", type=int, default=0, help="faults of each scenario (default: its own number)"
    )
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="begin no scenario after so long"
    )
    parser.add_argument("--output", type=Path, default=RESULTS / "faults.jsonl")
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started ends too
    for name in options.only.split(","):
        there = {(line["scenario"], line["seed"]) for line in read_lines(options.output)}
        if (name, options.seed) in there or time.monotonic() > until:
            continue
        scenario, times = SCENARIOS[name]
        folder = Path(tempfile.mkdtemp(prefix="cs-faults-"))
        keep = False
        try:
            began = time.monotonic()
            rows = scenario(folder / name, options.times or times, options.seed)
            took = round(time.monotonic() - began)
            if not sum(row.injected for row in rows):
                print(
                    f"{name}: nothing was injected, so nothing is written: what it needs is missing",
                    flush=True,
                )
                continue
            line = {
                "scenario": name,
                "seed": options.seed,
                "date": time.strftime("%Y-%m-%d"),
                "seconds": took,
            }
            with options.output.open("a") as file:
                file.write(json.dumps(line | {"rows": [asdict(row) for row in rows]}) + "\n")
            print(f"{name}: {sum(row.injected for row in rows)} faults in {took} s", flush=True)
            if keep := any(row.lost or row.twice for row in rows):
                print(f"{name}: what must not be is in {folder}", flush=True)
        finally:
            if not keep:
                shutil.rmtree(folder, ignore_errors=True)
    options.output.with_suffix(".md").write_text(table(read_lines(options.output)))


def read_lines(file: Path) -> list[dict[str, Any]]:
    """What was measured: a mapping for each scenario and seed."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def table(lines: Iterable[dict[str, Any]]) -> str:
    """The results in Markdown: a row for each kind of fault, over all studies."""
    order = list(SCENARIOS)
    rows = dict[str, Row]()
    lines = sorted(lines, key=lambda line: (order.index(line["scenario"]), line["seed"]))
    for line in lines:
        for row in (Row(**fields) for fields in line["rows"] if fields["injected"]):
            rows.setdefault(row.fault, Row(row.fault)).add(row)
    dates = sorted({line["date"] for line in lines})
    seconds = sum(line["seconds"] for line in lines)
    text = [
        "# What faults cost",
        "",
        f"`python -m benchmarks.faults`, {' to '.join(dict.fromkeys((dates[0], dates[-1])))}, {_hardware()}, "
        f"{seconds / 60:.0f} minutes in all, beside other work.",
        f"Grids of small trainings ({EPOCHS} epochs of {PAUSE_S} s, a checkpoint each second epoch) are run by the "
        "command line while faults happen at random moments; where the command ends, the same command is given again. "
        "*Lost*: results that were recorded and are gone or others, or that differ from a run that nothing disturbed. "
        "*Twice*: trials that were trained on after they had their record, beyond the epoch that had begun. "
        "*Epochs repeated* and *commands* are those of all studies in which a fault was injected, by all of its "
        "faults. *s to go on*: from the fault to the next epoch of the study that began after it (of a request: to "
        "the next same one that is answered), half of them within, and the most; a stop and a disk that is full "
        "count in it.",
        "",
        "| fault | injected | studies | results lost | trials twice | epochs repeated | s to go on | commands | first "
        "line said |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows.values():
        times = row.recovery_s
        recovery = f"{statistics.median(times):.1f} (most {max(times):.0f})" if times else ""
        said = row.message.replace("|", "/")
        cost = f"{row.injected} | {row.studies} | {row.lost} | {row.twice} | {row.repeated}"
        text.append(f"| {row.fault} | {cost} | {recovery} | {row.runs} | {said[:150]} |")
    if missing := [name for name in SCENARIOS if name not in {line["scenario"] for line in lines}]:
        text += ["", f"Not run yet: {', '.join(missing)}."]
    total = sum(row.injected for row in rows.values())
    lost, twice = (
        max((getattr(row, name) for row in rows.values()), default=0) for name in ("lost", "twice")
    )
    text += [
        "",
        f"**{total} faults; results lost: {lost or 'none'}; trials twice: {twice or 'none'}.**",
        "",
    ]
    return "\n".join(text)


def _hardware() -> str:
    import psutil

    memory = psutil.virtual_memory().total / 2**30
    return f"{psutil.cpu_count()} shared {platform.machine()} cores, {memory:.0f} GiB, no GPU"


if __name__ == "__main__":
    main()
