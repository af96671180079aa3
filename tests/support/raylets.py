"""A real Ray cluster on one machine: a head without cores and nodes beside it, each of which can be killed as a host
can."""

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from places import environment_without

from contrasweep.cluster.errors import SubmissionError
from contrasweep.cluster.hosts import NODE_GROUP_LABEL
from contrasweep.cluster.jobs import Dashboard

BIN = Path(sys.executable).parent
QUICK = {
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "3",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "5",
    "RAY_raylet_start_wait_time_s": "60",
    "RAY_prestart_worker_first_driver": "0",
}
"""A dead node or head is noticed within seconds, where Ray's own settings take up to a minute; no workers that nobody
uses."""

TRIAL = "ray::ResourceTrainable"
"""What a worker that trains is called in a list of processes."""


class Node:
    """`ray start --block` in a session of its own, and what it started; `log` is what it printed."""

    def __init__(self, words, environment, log, prefix=()):
        """`prefix` are words before the command."""
        self.log = log
        command = [
            *prefix,
            str(BIN / "ray"),
            "start",
            "--block",
            "--disable-usage-stats",
            "--include-log-monitor=false",
            "--object-store-memory=80000000",
            *words,
        ]
        with log.open("a") as file:
            self.process = subprocess.Popen(
                command, env=environment, stdout=file, stderr=file, start_new_session=True
            )

    def processes(self):
        """All that live: raylet, agents, workers; on a head also the jobs' drivers, which have sessions of their
        own."""
        self.process.poll()  # no zombie of ours
        own = {p for p in psutil.process_iter() if _session(p) == self.process.pid}
        return own | {child for p in own for child in _children(p)}

    def running(self, *words):
        """Of those that live, the ones whose command line has all `words`."""
        return {
            process
            for process in self.processes()
            if all(word in _command(process) for word in words)
        }

    def kill(self):
        """`kill -9` of everything, as a power cut does."""
        while living := self.processes():
            kill(living)
            psutil.wait_procs(living, timeout=10)


class RayCluster:
    """A head, which runs drivers and no trials, on ports of its own; workers are added."""

    host = "127.0.0.1"

    def __init__(self):
        self.folder = Path(
            tempfile.mkdtemp(prefix="cs-", dir="/tmp")
        )  # short: Ray puts sockets below it
        self.environment = (
            environment_without("RAY_")
            | QUICK
            | {"RAY_AUTH_MODE": "disabled", "PATH": f"{BIN}:{os.environ['PATH']}"}
        )
        self.gcs_port, self.dashboard_port, self.client_port = free_ports(3)
        self.address = f"http://127.0.0.1:{self.dashboard_port}"
        self.nodes = {}
        try:
            self.start_head()
        except BaseException:
            self.close()
            raise

    def start_head(self):
        """Start the head, or start it again on the same ports, and wait until it takes jobs."""
        self._start(
            "head",
            [
                "--head",
                f"--port={self.gcs_port}",
                f"--dashboard-port={self.dashboard_port}",
                "--num-cpus=0",
                "--num-gpus=0",
                f"--ray-client-server-port={self.client_port}",
            ],
        )
        self.wait_for_nodes(1)

    def add_node(self, name, accelerator, group="", *, cpus=1, memory_gib=0):
        """A node of so many logical cores, one logical GPU of this type and so much memory (0: what Ray finds free on
        this machine); an autoscaler's, of a `group`."""
        self._start(
            name,
            [
                f"--address={self.host}:{self.gcs_port}",
                f"--num-cpus={cpus}",
                "--num-gpus=1",
                *([f"--memory={int(memory_gib * 2**30)}"] if memory_gib else []),
                f"--labels=ray.io/accelerator-type={accelerator}"
                + (f",{NODE_GROUP_LABEL}={group}" if group else ""),
            ],
        )

    def _start(self, name, words, prefix=()):
        words = [*words, "--dashboard-agent-listen-port=0", f"--temp-dir={self.folder}/{name}"]
        self.nodes[name] = Node(words, self.environment, self.folder / f"{name}.log", prefix)

    def alive(self):
        """Nodes that the head believes alive; 0 if it does not answer."""
        return alive_nodes(self.address)

    def wait_for_nodes(self, count):
        wait_for(
            lambda: self.alive() == count,
            lambda: "".join(n.log.read_text()[-2000:] for n in self.nodes.values()),
        )

    def wait_until_idle(self):
        """Until no raylet and no worker of the nodes lives; their agents, which take a minute longer, are killed."""
        nodes = [node for name, node in self.nodes.items() if name != "head"]
        wait_for(
            lambda: not any(node.running(TRIAL) or node.running("raylet/raylet") for node in nodes)
        )
        for node in nodes:
            node.kill()

    def close(self):
        for node in self.nodes.values():
            node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def alive_nodes(address):
    """Nodes that the head of this dashboard believes alive; 0 if it does not answer."""
    try:
        return len(Dashboard(address).addresses())
    except SubmissionError:
        return 0


def kill(processes):
    """`kill -9` of each that still lives."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def wait_for(true, said=lambda: ""):
    """Ask every tenth of a second; AssertionError with what `said` gives shortly before the test's own time is up."""
    until = time.monotonic() + 800
    while not true():
        assert time.monotonic() < until, said()
        time.sleep(0.1)


# Outside of 10002-19999, which Ray keeps for workers, and of those that the system gives out. The processes of a test
# run have numbers near each other: each takes from a hundred ports of its own, since a port is only bound later.
PORTS = itertools.cycle(range(start := 20000 + os.getpid() % 120 * 100, start + 100))


def free_ports(count):
    """Ports that nobody listens at; none of them is given again before 99 others are."""
    collected = []
    for port in itertools.islice(PORTS, 100):
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) != 0:
                collected.append(port)
        if len(collected) == count:
            return collected
    raise RuntimeError("no free port")


def _session(process):
    with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
        return os.getsid(process.pid) if process.status() != psutil.STATUS_ZOMBIE else None
    return None


def _command(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def _children(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.children(recursive=True)
    return []
