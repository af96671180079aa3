"""A worker that is killed: what it forked and started ends with it, and Ray gives its slot to the next trial."""

import contextlib
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from contrasweep import AblationGrid, Arm
from contrasweep.running.driver import run

WORKER = """
import os, subprocess, sys, time
from contrasweep.running.worker.orphans import guard_children

guard_children()
guard_children()  # a second one would be of no use

def forked(*, new_session=False, parents=0):
    if child := os.fork():
        if parents:
            os.waitpid(child, 0)
        return child
    if new_session:
        os.setsid()
    if parents:
        print(forked(parents=parents - 1), flush=True)
    else:
        time.sleep(600)
    os._exit(0)

print(forked(), forked(new_session=True), forked(parents=1), subprocess.Popen(["sleep", "600"]).pid, flush=True)
print(subprocess.Popen(["sleep", "601"], start_new_session=True).pid, flush=True)
print("started", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")
@pytest.mark.parametrize(
    "how", [signal.SIGKILL, signal.SIGSEGV, None], ids=["killed", "crashed", "ended"]
)
def test_what_a_worker_leaves_is_killed(how):
    """But a daemon that has left the group and executed a program of its own."""
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert worker.stdin and worker.stdout
    lines = list(iter(worker.stdout.readline, "started\n"))
    daemon = psutil.Process(int(lines.pop()))
    left = [
        psutil.Process(int(pid))
        for line in lines
        for pid in line.split()
        if psutil.pid_exists(int(pid))
    ]
    (guard,) = (
        p
        for p in psutil.process_iter(["cmdline"])
        if str(worker.pid) in (p.info["cmdline"] or [])[-3:]
    )
    try:
        assert len(left) == 4, lines
        worker.stdin.close() if how is None else worker.send_signal(how)
        worker.wait()
        _, alive = psutil.wait_procs([*left, guard], timeout=120)
        assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []
        assert daemon.is_running() and daemon.status() != psutil.STATUS_ZOMBIE
    finally:
        for process in [*left, daemon]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


@pytest.mark.slow
@pytest.mark.xdist_group("running")
def test_a_killed_worker_is_lost_though_its_child_lives(ray_core, storage):
    """The child has the worker's sockets, in a session of its own. Without a guard this run waits for it for ever."""
    arms = {"killed": Arm("misbehaving:is_killed_beside_its_child")}
    results = run(
        AblationGrid("orphans", arms, "digits", seeds=[0], max_failures=1),
        storage=storage,
        tracking="none",
    )
    (record,) = results.trial_records.values()
    assert record.status == "failed" and "its process was lost each time" in (record.error or "")
