"""The stacks of a worker's threads, read from outside while its trainable does not return."""

import contextlib
import faulthandler
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from contrasweep.running.engine import ray_internals

PY_SPY_S = 30
TASK_S = 60
SIGNAL = signal.SIGUSR2
FRAME = re.compile(r"^    (?P<function>\S.*) \((?P<place>[^()]+:\d+)\)$")


def answer_signal() -> None:
    """Make this process write the stacks of its threads to standard error when it receives `SIGNAL`.

    A process that has a handler of its own keeps it.
    """
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # standard error may be closed
        if signal.getsignal(SIGNAL) is signal.SIG_DFL:
            faulthandler.register(SIGNAL, file=2, all_threads=True)


def stack_of_actor(actor: Any) -> str:
    """Return the stacks of an actor's process, from the node where it lives.

    "" where they are in its own log instead, or where Ray does not say which process it is.
    """
    return str(_ask_of(actor, stack_of) or "")


def actor_waits_for_task(actor: Any) -> bool:
    """Whether an actor's process waits for the answer to a task of Ray."""
    return bool(_ask_of(actor, waits_for_task))


def _ask_of(actor: Any, ask: Callable[[int], object]) -> object:
    """Return `ask(pid)` of an actor's process, called on its node; None where Ray does not say which that is.

    On another node it is called as a task without cores, which has `TASK_S` seconds.
    """
    if (place := ray_internals.place_of(actor)) is None:
        return None
    pid, node = place
    if node == ray.get_runtime_context().get_node_id():
        return ask(pid)
    there = ray.remote(ask).options(
        num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False)
    )
    return ray.get(there.remote(pid), timeout=TASK_S)


def waits_for_task(pid: int) -> bool:
    """Return whether a Ray worker on this host waits for a task's answer; False where py-spy may not read its stack."""
    # `ray.get` or `ray.wait` stands among the innermost: what they call is compiled, or wraps them.
    frames = frames_of(_spied(pid))[:4]
    return any(
        f["function"] in ("get", "wait") and "ray/_private/worker.py" in f["place"] for f in frames
    )


def stack_of(pid: int) -> str:
    """Return the stacks of a process of this host by py-spy.

    "" without py-spy: then the process is sent `SIGNAL` and writes them to its own log.
    """
    if stack := _spied(pid):
        return stack
    os.kill(pid, SIGNAL)
    return ""


def _spied(pid: int) -> str:
    """Return the stacks of a process of this host by py-spy, which halts it meanwhile; "" where py-spy may not look.

    Also "" where py-spy is not installed, or takes longer than `PY_SPY_S`.
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
    """Return the place of the main thread, `train (method.py:12)`, from the output of py-spy; "" where it has none.

    It is the innermost frame of the user's own code, or else the innermost of all.
    """
    if not (frames := frames_of(stack)):
        return ""
    users = next(
        (
            f
            for f in frames
            if not re.search(r"site-packages|/lib/python|contrasweep/running", f["place"])
        ),
        frames[0],
    )
    return f"{users['function']} ({users['place'].rsplit('/', 1)[-1]})"


def frames_of(stack: str) -> list[re.Match[str]]:
    """Return the frames of the main thread, the innermost first, from the output of py-spy.

    Each has the groups `function` and `place`, `/path/method.py:12`. A text without a main thread is taken as a whole.
    """
    main = stack.partition('"MainThread"')[2] or stack
    return [match for line in main.splitlines() if (match := FRAME.match(line))]
