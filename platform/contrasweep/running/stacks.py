"""The stacks of a worker's threads, read from outside while its trainable does not return."""

import contextlib
import faulthandler
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from contrasweep.running.engine import ray_internals

PY_SPY_S = 30
TASK_S = 60
SIGNAL = signal.SIGUSR2
LIBRARIES = r"site-packages|/lib/python|contrasweep/running"
FRAME = re.compile(r"^    (?P<function>\S.*) \((?P<place>[^()]+:\d+)\)$")


def answer_signal() -> None:
    """Make this process write the stacks of its threads to standard error when it receives a signal."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # standard error may be closed
        if signal.getsignal(SIGNAL) is signal.SIG_DFL:
            faulthandler.register(SIGNAL, file=2, all_threads=True)


def stack_of_actor(actor: Any) -> str:
    """The stacks of an actor's process, from the node where it lives; "" where they are in its own log instead."""
    if (place := ray_internals.place_of(actor)) is None:
        return ""
    pid, node = place
    if node == ray.get_runtime_context().get_node_id():
        return stack_of(pid)
    there = ray.remote(stack_of).options(
        num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False)
    )
    return str(ray.get(there.remote(pid), timeout=TASK_S))


def stack_of(pid: int) -> str:
    """The stacks of a process of this host by py-spy, which halts it meanwhile.

    Where py-spy may not look, the process writes them to its own log, and this returns "".
    """
    spy = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if spy is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(
                [spy, "dump", "--pid", str(pid)], capture_output=True, text=True, timeout=PY_SPY_S
            )
            if done.returncode == 0:
                return done.stdout
    os.kill(pid, SIGNAL)
    return ""


def innermost(stack: str) -> str:
    """Return the place of the main thread, `train (method.py:12)`, from the output of py-spy; "" where it has none."""
    main = stack.partition('"MainThread"')[2] or stack
    frames = [match for line in main.splitlines() if (match := FRAME.match(line))]
    if not frames:
        return ""
    users = [f for f in frames if not re.search(LIBRARIES, f["place"])]
    frame = (users or frames)[0]
    return f"{frame['function']} ({frame['place'].rsplit('/', 1)[-1]})"
