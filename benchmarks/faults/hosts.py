"""Hosts that are lost, stopped, drained, cut off, or whose clock is wrong: a Ray cluster of a head and two nodes."""

import glob
import os
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.faults.injection import Hit, Process, inject
from benchmarks.faults.network import CutOffCluster
from benchmarks.faults.processes import stop
from benchmarks.faults.study import FaultStudy, Row
from tests.support.raylets import BIN, RayCluster

from contrasweep.cluster.jobs import Dashboard

FAKETIME = os.environ.get("FAKETIME_LIBRARY", "/usr/lib/*/faketime/libfaketime.so.1")
NODES = ("a", "b")


def on_hosts(what: str, folder: Path, times: int, seed: int, stop_s: float = 0.0) -> list[Row]:
    """A node or the head is `killed`, `stopped` for so many seconds, `drained`, or `cut off` from the network,
    or a fifth of the packets to and from it is `lost` for a while."""
    rng = random.Random(f"{seed} hosts {what}")
    cluster = CutOffCluster() if what in ("node cut off", "packets lost") else RayCluster()
    kinds: dict[str, Callable[[Process], None]] = {
        "node killed": lambda process: _kill_node(cluster, rng.choice(NODES)),
        "node stopped": lambda process: _stop(cluster, rng.choice(NODES), stop_s),
        "node drained": lambda process: _drain(cluster),
        "node cut off": lambda process: _cut_off(cluster, rng),
        "packets lost": lambda process: _lose_packets(cluster, rng),
        "head killed": lambda process: _kill_head(cluster, process),
        "head stopped": lambda process: _stop(cluster, "head", stop_s),
    }

    def hit(process: Process) -> bool:
        kinds[what](process)
        _repair(cluster)
        return True

    name = f"{what} for {stop_s:.0f} s" if stop_s else what
    try:
        _repair(cluster)
        return inject(_studies(folder, cluster), [(name, hit)] * times, rng, between_s=(1.0, 3.0))
    finally:
        cluster.close()


def wrong_clock(folder: Path, times: int, seed: int) -> list[Row]:
    """A node whose clock is an hour ahead, while workers on both nodes are killed."""
    rng = random.Random(f"{seed} clock")
    cluster = RayCluster()
    if not (library := glob.glob(FAKETIME)):
        return []
    try:
        # with the monotonic clock left alone, `time.sleep` fails under libfaketime
        plain = cluster.environment
        cluster.environment = plain | {
            "LD_PRELOAD": library[0],
            "FAKETIME": "+1h",
            "FAKETIME_DONT_FAKE_MONOTONIC": "0",
        }
        cluster.add_node("a", "T4")
        cluster.environment = plain
        cluster.add_node("b", "T4")
        cluster.wait_for_nodes(3)

        def hit(process: Process) -> bool:
            trains = [
                process
                for node in cluster.nodes.values()
                for process in node.running("ray::ResourceTrainable")
            ]
            if trains:
                rng.choice(trains).kill()
            return bool(trains)

        kind = "worker killed, the clock of one node an hour ahead"
        faults: list[tuple[str, Hit]] = [(kind, hit)] * times
        return inject(_studies(folder, cluster), faults, rng, between_s=(1.0, 3.0))
    finally:
        cluster.close()


def _studies(folder: Path, cluster: RayCluster) -> Callable[[], FaultStudy]:
    """What begins another study on the cluster."""
    number = iter(range(100))
    environment = {"RAY_ADDRESS": f"{cluster.host}:{cluster.gcs_port}", "RAY_AUTH_MODE": "disabled"}

    def new_study() -> FaultStudy:
        there = folder / str(next(number))
        return FaultStudy(there, seeds=2, storage=str(there / "runs"), environment=environment)

    return new_study


def _repair(cluster: RayCluster) -> None:
    """Start what is missing, as whoever keeps the cluster would."""
    if "head" not in cluster.nodes or cluster.nodes["head"].process.poll() is not None:
        cluster.start_head()
    for name in NODES:
        node = cluster.nodes.get(name)
        if node is None or node.process.poll() is not None or not node.running("raylet/raylet"):
            if node is not None:
                node.kill()
            cluster.add_node(name, "T4")
    until = time.monotonic() + 60
    while cluster.alive() < 1 + len(NODES) and time.monotonic() < until:
        time.sleep(0.5)


def _kill_node(cluster: RayCluster, name: str) -> None:
    cluster.nodes[name].kill()


def _kill_head(cluster: RayCluster, process: Process) -> None:
    """Another head is started once the driver and the nodes have noticed."""
    cluster.nodes["head"].kill()
    process.wait()
    cluster.wait_until_idle()


def _stop(cluster: RayCluster, name: str, seconds: float) -> None:
    stop(sorted(cluster.nodes[name].processes(), key=lambda process: process.pid), seconds)


def _cut_off(cluster: RayCluster, rng: random.Random) -> None:
    """Nothing reaches node a for a while, which may be shorter or longer than Ray waits for a sign of it."""
    assert isinstance(cluster, CutOffCluster)
    cluster.connect(False)
    time.sleep(rng.choice((1.0, 4.0, 12.0)))
    cluster.connect(True)
    time.sleep(2.0)  # a node that was given up ends itself once it hears of it


def _lose_packets(cluster: RayCluster, rng: random.Random) -> None:
    assert isinstance(cluster, CutOffCluster)
    cluster.lose(0.2)
    time.sleep(rng.uniform(2.0, 12.0))
    cluster.lose(0.0)


def _drain(cluster: RayCluster) -> None:
    """Announce to Ray that a node will go, as a cloud does before it takes a spot host back."""
    nodes = Dashboard(cluster.address).read(
        lambda answer: answer["data"]["result"]["result"], "GET", "/api/v0/nodes"
    )
    chosen = next(n["node_id"] for n in nodes if n["state"] == "ALIVE" and not n["is_head_node"])
    reason = [
        "--reason=DRAIN_NODE_REASON_PREEMPTION",
        "--reason-message=drill",
        "--deadline-remaining-seconds=3",
    ]
    address = f"--address={cluster.host}:{cluster.gcs_port}"
    command = [str(BIN / "ray"), "drain-node", address, f"--node-id={chosen}", *reason]
    subprocess.run(command, env=os.environ | cluster.environment, capture_output=True, check=False)
    time.sleep(4.0)  # in which it goes
