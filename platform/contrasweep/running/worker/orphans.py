"""A process beside each worker that kills what the worker's own end leaves behind.

A forked child has copies of the worker's sockets. While it lives, Ray sees no connection close, takes a worker that was
killed for alive, and keeps its slot. So the worker leads a process group, and a guard in that group waits for the
worker's process to end. It then kills every process that was forked from the worker, in whatever session, and the rest
of the group: data loaders, subprocesses. A daemon stays that has left the group and executed another program, since it
holds no socket of the worker.

Run as a script by `guard_children`, with the worker's process id, when that process began, and the pipe that it holds:

    orphans.py PID BEGAN PIPE

It imports the standard library alone and starts in some 20 ms.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

CHECK_S = 1.0
_held: list[int] = []
"""A pipe that this process never closes. Its forked children hold it too, and what they execute does not."""


def guard_children() -> None:
    """Start the keeper process that ends this worker's children if the worker is killed; at most once.

    Does nothing where there is no /proc.
    """
    began = _began(os.getpid())
    if _held or not began:
        return
    # The worker leads a group, which the keeper inherits: it ends what is in there at last.
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    _held.extend(os.pipe())
    words = [str(os.getpid()), began, os.readlink(f"/proc/self/fd/{_held[0]}")]
    nothing = subprocess.DEVNULL
    subprocess.run(
        [sys.executable, "-I", "-S", __file__, *words],
        cwd="/",
        stdin=nothing,
        stdout=nothing,
        stderr=nothing,
    )


def main() -> None:
    """Fork out of the worker's children, wait for the worker's end, and kill the processes that it left.

    It ends with the group that it kills.
    """
    pid = int(sys.argv[1])
    began = sys.argv[2]
    pipe = sys.argv[3]
    if os.fork():
        # the worker waits for this one; the other is no child that Ray would kill with the worker
        os._exit(0)
    # a trainable may send them to its group
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while _began(pid) == began:
        time.sleep(CHECK_S)
    # Every process that was forked from the worker holds its pipe. A killed one may have forked meanwhile: again.
    while holders := [
        process
        for process in map(int, filter(str.isdecimal, os.listdir("/proc")))
        if _holds(process, pipe)
    ]:
        for process in holders:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)
    # this process is of the group, so that no other can have taken its number
    os.killpg(0, signal.SIGKILL)


def _began(pid: int) -> str:
    """Return when the process began, in ticks since the boot; "" where there is no such living process."""
    try:
        # What follows the name in brackets: word 0 is the state (Z: zombie, X: dead), word 19 the time of the start.
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if words[0] in "ZX" else words[19]


def _holds(pid: int, pipe: str) -> bool:
    """Whether the process has a descriptor of `pipe`."""
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):  # another user's, or gone meanwhile
        for descriptor in os.listdir(folder):
            with contextlib.suppress(OSError):
                if os.readlink(f"{folder}/{descriptor}") == pipe:
                    return True
    return False


if __name__ == "__main__":
    main()
