"""A Ray cluster of many raylets on this machine: how fast trials of a second go through it while nodes come and go.

    python -m benchmarks.many_nodes [--nodes 8] [--trials 1000] [--every 60] [--output FILE]

The nodes have two logical cores and a logical GPU each, of three types by their labels; one arm fits every type, one
the two larger, one the largest alone. Every so many seconds a node is killed (`kill -9` of all its processes) and
another of its type is added. What is trained waits and logs (`benchmarks.timed_trial`), so that the platform is what
is measured; all nodes, their workers and the driver share this machine's processors.

Checked from the trials' own log and the records: shares of a GPU at one time never above 1, no trial on a type that is
too small for it, none without its record or with other metrics, none begun after it had its record.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import psutil
import yaml

from benchmarks.timed_trial import accuracy
from contrasweep.results.results import Results
from tests.support.raylets import RayCluster, wait_for

NEEDS = {"any": (6, {"T4", "A100", "H100"}), "large": (30, {"A100", "H100"}), "largest": (60, {"H100"})}
"""Arm -> GiB of GPU memory, and the types that have them."""
TYPES = ("T4", "A100", "T4", "H100")
STEPS = 2
POLL_S = 1.0
LIMIT_S = 1200.0


@dataclass
class Cluster:
    """The cluster's nodes by name, with the type of each; how many GPUs there were for how long."""

    ray: RayCluster
    types: dict[str, str] = field(default_factory=dict)
    killed: list[float] = field(default_factory=list)
    number: int = 0

    def add(self, accelerator: str) -> None:
        """Start a node of this type."""
        name, self.number = f"n{self.number}", self.number + 1
        self.ray.add_node(name, accelerator, cpus=2, memory_gib=4)
        self.types[name] = accelerator

    def replace_oldest(self) -> None:
        """Kill the node that was started first, and start another of its type."""
        name = next(iter(self.types))
        self.ray.nodes[name].kill()
        self.killed.append(time.time())
        self.add(self.types.pop(name))


def declare(folder: Path, trials: int, seconds: float) -> Path:
    """The study file: half of its trials fit any type, a third the two larger, the rest the largest."""
    common = {"log": str(folder / "log"), "seconds": seconds, "steps": STEPS}
    parts = {"any": 3, "large": 2, "largest": 1}
    arms = {
        f"{kind}{part}" if part else kind: {
            "trainable": "benchmarks.timed_trial:train",
            "config": common | {"seconds": seconds + part / 1000},  # another configuration, so other trials
            "footprint": {"gpu_memory_gib": NEEDS[kind][0], "host_memory_gib": 0.25},
        }
        for kind, count in parts.items()
        for part in range(count)
    }
    seeds = list(range(-(-trials // len(arms))))
    fields = {"name": "many-nodes", "data": "digits-lt", "seeds": seeds, "metric": "accuracy", "arms": arms}
    (folder / "study.yaml").write_text(yaml.safe_dump(fields | {"max_failures": 20}))
    return folder / "study.yaml"


def run(folder: Path, nodes: int, trials: int, seconds: float, every_s: float) -> dict[str, Any]:
    """Run the study to its end on a cluster whose nodes change; the figures."""
    study = declare(folder, trials, seconds)
    ray = RayCluster()
    try:
        cluster = Cluster(ray)
        for index in range(nodes):
            cluster.add(TYPES[index % len(TYPES)])
            ray.wait_for_nodes(index + 2)  # one after another, because each start takes seconds of a core
        environment = ray.environment | {"RAY_ADDRESS": f"127.0.0.1:{ray.gcs_port}", "TMPDIR": str(folder)}
        words = ["run", str(study), "--storage", str(folder / "runs"), "--tracking", "none"]
        with (folder / "output").open("wb") as output:
            driver = subprocess.Popen(
                [sys.executable, "-m", "contrasweep", *words], cwd=folder, env=environment, stdout=output, stderr=output
            )
        try:
            used = _attend(driver, cluster, folder, every_s)
        finally:
            driver.kill()
    finally:
        ray.close()
    if driver.returncode != 0:
        raise SystemExit((folder / "output").read_text()[-4000:])
    lines = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    return used | judged(lines, Results.load("many-nodes", str(folder / "runs")), len(cluster.killed), nodes)


def _attend(driver: "subprocess.Popen[bytes]", cluster: Cluster, folder: Path, every_s: float) -> dict[str, Any]:
    """Kill and add nodes from the first trial on until the driver has ended; what the driver has used."""
    process, log = psutil.Process(driver.pid), folder / "log"
    wait_for(lambda: log.exists() or driver.poll() is not None, 180, lambda: (folder / "output").read_text())
    began = hit = time.monotonic()
    before, memory, cpu_s = _processor_s(process), 0, 0.0
    while driver.poll() is None:
        if time.monotonic() - began > LIMIT_S:
            raise SystemExit(f"not at its end after {LIMIT_S:.0f} s: {(folder / 'output').read_text()[-2000:]}")
        try:
            cpu_s, memory = _processor_s(process) - before, max(memory, process.memory_info().rss)
        except psutil.NoSuchProcess:
            break
        if time.monotonic() - hit > every_s:
            cluster.replace_oldest()
            hit = time.monotonic()
        time.sleep(POLL_S)
    driver.wait()
    return {"driver_s": cpu_s, "driver_mb": memory / 1e6}


def _processor_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def judged(lines: Sequence[dict[str, Any]], results: Results, killed: int, nodes: int) -> dict[str, Any]:
    """What the trials' log and the records say of speed, placement and losses."""
    spans = spans_of(lines)
    records = results.trial_records
    ended = {trial: record.ended for trial, record in records.items()}
    first, last = min(span.begin for span in spans), max(ended.values())
    wanted = {trial: accuracy(record.seed, STEPS) for trial, record in records.items()}
    return {
        "nodes": nodes,
        "trials": len(records),
        "wall_s": last - first,
        "trials_per_s": len(records) / (last - first),
        "at_once": sum(span.end - span.begin for span in spans) / (last - first),
        "held": sum(span.share * (span.end - span.begin) for span in spans) / (nodes * (last - first)),
        "killed": killed,
        "begun_again": len(spans) - len({span.trial for span in spans}),
        "most_share": most_share(spans),
        "wrong_type": sum(span.type not in NEEDS[span.arm.rstrip("0123456789")][1] for span in spans),
        "lost": sum(
            record.status != "done" or record.metrics["accuracy"] != wanted[trial] for trial, record in records.items()
        )
        + results.counts.get("missing", 0),
        "twice": sum(span.begin > ended[span.trial] for span in spans),
        "types": dict(Counter(span.type for span in spans)),
    }


@dataclass(frozen=True)
class Span:
    """From when to when a trial was trained, with which share of which GPUs of which node."""

    trial: str
    arm: str
    node: str
    type: str
    gpus: tuple[str, ...]
    share: float
    begin: float
    end: float


def spans_of(lines: Iterable[dict[str, Any]]) -> list[Span]:
    """Pairs of a trial's `begin` and `end` in one process; one that was killed has ended when it began, since nobody
    knows when it did."""
    open_lines: dict[tuple[str, int, str], dict[str, Any]] = {}
    spans = []

    def span(line: dict[str, Any], end: float) -> Span:
        named = [line[name] for name in ("trial", "arm", "node", "type")]
        return Span(*named, tuple(line["gpus"]), line["share"], line["time"], end)

    for line in lines:
        key = line["node"], line["pid"], line["trial"]
        if line["what"] == "begin":
            open_lines[key] = line
        else:
            spans.append(span(open_lines.pop(key), line["time"]))
    return spans + [span(line, line["time"]) for line in open_lines.values()]


def most_share(spans: Iterable[Span]) -> float:
    """The largest sum of shares that trials held of one GPU at one time."""
    changes: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for span in spans:
        for gpu in span.gpus:
            changes[span.node, gpu] += [(span.begin, min(span.share, 1.0)), (span.end, -min(span.share, 1.0))]
    most = 0.0
    for moments in changes.values():
        held = 0.0
        for _, change in sorted(moments):  # at one moment, what ends goes before what begins
            held += change
            most = max(most, held)
    return round(most, 6)


COLUMNS = {
    "nodes": "nodes",
    "trials": "trials",
    "wall_s": "wall s",
    "trials_per_s": "trials per s",
    "at_once": "trained at once, mean",
    "held": "GPUs held by training",
    "driver_ms": "driver, processor ms a trial",
    "driver_mb": "driver MB",
    "killed": "nodes killed and added",
    "begun_again": "trials begun again",
    "most_share": "most shares of a GPU",
    "wrong_type": "on too small a type",
    "lost": "lost",
    "twice": "trained after their record",
}


def table(figures: dict[str, Any]) -> str:
    """The figures, one a line."""
    figures = figures | {"driver_ms": 1000 * figures["driver_s"] / figures["trials"]}
    shown = {key: f"{figures[key]:.2f}" if isinstance(figures[key], float) else figures[key] for key in COLUMNS}
    return "| | |\n|---|---|\n" + "\n".join(f"| {COLUMNS[key]} | {value} |" for key, value in shown.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a trial")
    parser.add_argument("--every", type=float, default=60.0, help="seconds between two nodes that are killed")
    parser.add_argument("--output", type=Path, help="a file to which the table is appended")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the nodes end with the benchmark
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="cs-") as folder:
        figures = run(Path(folder), options.nodes, options.trials, options.seconds, options.every)
    where = f"{date.today()}, {platform.machine()}, {os.cpu_count()} shared cores; load {load:.1f} before, "
    where += (
        f"{os.getloadavg()[0]:.1f} after. Trials of {options.seconds:g} s, a node killed every {options.every:g} s."
    )
    text = f"{where} Trials by type: {figures['types']}.\n\n{table(figures)}\n"
    print(text)
    if options.output:
        with options.output.open("a") as file:
            file.write(("\n" if file.tell() else "") + text)


if __name__ == "__main__":
    main()
