"""Stack traces of a worker's threads, taken from another process: they show where a silent trial hangs."""

import contextlib
import faulthandler
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from contrasweep.running.engine import ray_internals

T = TypeVar("T")
PY_SPY_S = 30
"""How long py-spy may take to read the stacks of a process."""
TASK_S = 60
"""How long another node may take to answer."""
WAIT_S = 0.5
"""How long a thread waits for an answer before it looks whether this process leaves Ray."""
STACK_SIGNAL = signal.SIGUSR2
"""The signal at which a worker writes its stacks."""
FRAME = re.compile(r"^    (?P<function>\S.*) \((?P<place>[^()]+:\d+)\)$")
"""A frame in the output of py-spy: `    train (/path/method.py:12)`."""


def answer_signal() -> None:
    """Make this process write the stacks of its threads to standard error when it receives `STACK_SIGNAL`.

    A process that has a handler of its own keeps it.
    """
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # standard error may be closed
        if signal.getsignal(STACK_SIGNAL) is signal.SIG_DFL:
            faulthandler.register(STACK_SIGNAL, file=2, all_threads=True)


def on_node_of(actor: Any, function: Callable[[int], T], leaving: Callable[[], bool]) -> T | None:
    """Return `function(pid)`, called on the node on which `actor` runs; `pid` is the id of the actor's process.

    None where `actor` is None. On another node, the call is a task of Ray that takes no cores, because trials may hold
    all of them. `TimeoutError` is raised where this task has not answered within `TASK_S` seconds. Once `leaving()`
    returns True, because this process disconnects from Ray, None is returned without an answer.
    """
    if actor is None:
        return None
    pid, node = ray_internals.place_of(actor)
    if node == ray.get_runtime_context().get_node_id():
        return function(pid)
    task = ray.remote(function).options(
        num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False)
    )
    answer = task.remote(pid)
    deadline = time.monotonic() + TASK_S
    while not leaving():
        answered, _ = ray.wait([answer], timeout=WAIT_S)
        if answered:
            return ray.get(answer)  # type: ignore[no-any-return]
        if time.monotonic() > deadline:
            raise TimeoutError(f"no answer from node {node} in {TASK_S} s")
    return None


def waits_for_task(stack: str) -> bool:
    """Return whether the main thread of a stack waits for a task of Ray: in `ray.get` or `ray.wait`, or just below."""
    return any(
        frame["function"] in ("get", "wait") and "ray/_private/worker.py" in frame["place"]
        for frame in frames_of(stack)[:4]
    )


def stack_of(pid: int) -> str:
    """Return the stacks of the process `pid` of this host, as a text.

    It is "" where py-spy cannot read them. Then the process is sent `STACK_SIGNAL`, and writes its stacks to its own
    log.
    """
    stack = spied(pid)
    if not stack:
        os.kill(pid, STACK_SIGNAL)
    return stack


def spied(pid: int) -> str:
    """Return the stacks of a process of this host as py-spy prints them; py-spy halts the process meanwhile.

    "" where py-spy is not installed, may not look, or takes longer than `PY_SPY_S`.
    """
    spy = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if spy is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(
                [spy, "dump", "--pid", str(pid)], capture_output=True, text=True, timeout=PY_SPY_S
            )
            if done.returncode == 0:
                return done.stdout
    return ""


def innermost(stack: str) -> str:
    """Return where the main thread is, such as `train (method.py:12)`; "" where `stack` has no frames.

    `stack` is the output of py-spy. The place is the innermost frame of the user's own code, or the innermost frame
    where there is no such code.
    """
    frames = frames_of(stack)
    if not frames:
        return ""
    users = [
        frame
        for frame in frames
        if not re.search(r"site-packages|/lib/python|contrasweep/running", frame["place"])
    ]
    frame = (users or frames)[0]
    return f"{frame['function']} ({frame['place'].rsplit('/', 1)[-1]})"


def frames_of(stack: str) -> list[re.Match[str]]:
    """Return the frames of the main thread from the output of py-spy, the innermost first.

    Each match has the groups `function`, such as `train`, and `place`, such as `/path/method.py:12`. Without a line
    that names the main thread, all frames are returned.
    """
    main = stack.partition('"MainThread"')[2] or stack
    return [match for match in map(FRAME.match, main.splitlines()) if match]
