"""A process beside each worker, the keeper, that kills the worker's children after the worker has ended.

A forked child has copies of the worker's sockets. While it lives, Ray sees no connection close, takes a killed worker
for alive, and keeps its slot. So the worker leads a process group, and the keeper in that group waits for the worker to
end. It then kills every process that was forked from the worker, in whatever session. At last it kills the rest of the
group, such as data loaders and subprocesses. Only a daemon that has left the group and executed another program stays,
because it holds no socket of the worker.

`guard_children` runs this file as a script. Its arguments are the worker's process id, the time when that process
began, and the name of a pipe that it holds:

    orphans.py PID BEGAN PIPE

The script imports the standard library alone and starts in some 20 ms.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

CHECK_S = 1.0
"""How often the keeper looks whether its worker lives."""
_held: list[int] = []
"""The descriptors of a pipe that this process never closes. Forked children hold it too, executed programs do not."""


def guard_children() -> None:
    """Start the keeper of this worker, once for each process.

    Does nothing where there is no /proc.
    """
    began = _began(os.getpid())
    if _held or not began:
        return
    # The worker leads a group, which the keeper inherits and kills at last.
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    # Processes that are forked from the worker are known by this pipe, which they hold too.
    _held.extend(os.pipe())
    pipe = os.readlink(f"/proc/self/fd/{_held[0]}")
    words = [str(os.getpid()), began, pipe]
    nothing = subprocess.DEVNULL
    subprocess.run(
        [sys.executable, "-I", "-S", __file__, *words],
        cwd="/",
        stdin=nothing,
        stdout=nothing,
        stderr=nothing,
    )


def main() -> None:
    """Wait until the worker has ended, and then kill what it has left, and this process at last.

    That is each process that was forked from the worker, and the rest of the worker's process group.
    """
    pid = int(sys.argv[1])
    began = sys.argv[2]
    pipe = sys.argv[3]
    # The worker waits for the parent, which ends here. The forked process is then no child of the worker, so that Ray
    # does not kill it with the worker.
    if os.fork():
        os._exit(0)
    # A trainable may send these signals to its group.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while _began(pid) == began:
        time.sleep(CHECK_S)
    # Every process that was forked from the worker holds its pipe. A process may fork before it is killed, so this is
    # repeated until none is left.
    holders = _holders(pipe)
    while holders:
        for process in holders:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)
        holders = _holders(pipe)
    # This process is in the group, so no other group can have taken the group's number.
    os.killpg(0, signal.SIGKILL)


def _began(pid: int) -> str:
    """Return when a process began, in ticks since the boot; "" where there is no such living process."""
    try:
        # After the name, which is in brackets, word 0 is the state (Z: zombie, X: dead) and word 19 the time of start.
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if words[0] in "ZX" else words[19]


def _holders(pipe: str) -> list[int]:
    """Return the ids of the processes that have a descriptor of `pipe`."""
    return [
        process
        for process in map(int, filter(str.isdecimal, os.listdir("/proc")))
        if _holds(process, pipe)
    ]


def _holds(pid: int, pipe: str) -> bool:
    """Return whether a process has a descriptor of `pipe`."""
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):  # it is another user's, or has ended meanwhile
        for descriptor in os.listdir(folder):
            with contextlib.suppress(OSError):
                if os.readlink(f"{folder}/{descriptor}") == pipe:
                    return True
    return False


if __name__ == "__main__":
    main()
