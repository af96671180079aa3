"""The process that starts a command, reports how it ended, and ends it even if the trial's worker has died.

It is no child of the worker: Ray kills those with SIGKILL when it ends a worker, which leaves a command no time to save
what it has. Run as a script by `commands.process`, with two descriptors of pipes before the command's words:

    supervisor.py CONTROL STATUS WORD ...

When CONTROL closes, by the worker or with it, the command's process group gets SIGTERM. `GRACE_S` later, or once the
command has ended, all that it has started gets SIGKILL: on Linux also what has a session of its own, as the ranks of
`torchrun` have, because this process inherits what loses its parent. A second process above it inherits all if this one
is killed, and ends it. To STATUS it writes `started PID`, or `refused
ERRNO` where the command cannot be started, then `ended RETURNCODE`, as `subprocess` counts it. It imports the standard
library alone, and starts in some 20 ms.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

GRACE_S = 30.0
"""How long a command may take to end after SIGTERM, before SIGKILL."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Start the command, report its start and its end, and end all that it has started, as the module says.

    First this process makes itself no child of the worker any more. It returns when CONTROL has closed and nothing of
    the command is left, or when the command could not be started.
    """
    control = int(sys.argv[1])
    status = int(sys.argv[2])
    words = sys.argv[3:]
    # The worker waits for the process that ends here. Its child goes on, without a parent.
    if os.fork():
        os._exit(0)
    os.setsid()  # no signal for the worker's group reaches it
    nothing = os.open(os.devnull, os.O_RDWR)
    # Linux gives a process whose parent has ended to the nearest process above that has asked so: a subreaper.
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # Two processes from here on. The child is the supervisor proper; the parent only waits for it, and ends what is
    # left where the child was killed.
    if supervisor := os.fork():
        for descriptor in (1, 2):
            os.dup2(nothing, descriptor)
        os.waitpid(supervisor, 0)
        _end_descendants()  # STATUS closes as this process ends, once nothing is left
        return
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # The end of the command is a signal, which writes a byte to this pipe: `select` waits for that beside CONTROL.
    woken, wake = os.pipe()
    for descriptor in (woken, wake):
        os.set_blocking(descriptor, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler no byte is written
    signal.set_wakeup_fd(wake)
    try:
        command = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_end_with_parent
        )
    except OSError as error:
        os.write(status, f"refused {error.errno}\n".encode())
        return
    os.write(status, f"started {command.pid}\n".encode())
    for descriptor in (1, 2):
        os.dup2(nothing, descriptor)  # its output ends with the command, not with this process
    _wait(command, woken, control)
    if command.poll() is None:  # CONTROL has closed: the trial was stopped, or its worker has died
        _signal(command.pid, signal.SIGTERM)
        _wait(command, woken, seconds=GRACE_S)
        _end_all(command)
    with contextlib.suppress(BrokenPipeError):  # the worker is gone
        os.write(status, f"ended {command.wait()}\n".encode())
    # Children of a command that ended by itself may live until its trial ends.
    select.select([control], [], [])
    _end_all(command)


def _wait(
    command: "subprocess.Popen[bytes]",
    woken: int,
    control: int | None = None,
    seconds: float = float("inf"),
) -> None:
    """Wait until the command ends or the pipe `control`, if it is given, closes; `seconds` at most.

    `woken` is the pipe that has a byte for each child that has ended.
    """
    pipes = [woken] if control is None else [woken, control]
    until = time.monotonic() + seconds
    while command.poll() is None:
        seconds_left = until - time.monotonic()
        if seconds_left <= 0:
            return
        # `select` takes no infinite time; after a million seconds it is called again.
        ready, _, _ = select.select(pipes, [], [], min(seconds_left, 1e6))
        if control in ready:
            return
        with contextlib.suppress(BlockingIOError):
            os.read(woken, 4096)


def _end_all(command: "subprocess.Popen[bytes]") -> None:
    """Send SIGKILL to the command's group and to all that it has started, until nothing of it is left."""
    _signal(command.pid, signal.SIGKILL)
    command.wait()
    _end_descendants()


def _end_descendants() -> None:
    """Send SIGKILL to all processes that this process has started, directly or not, until none is left."""
    while children_left := _children(os.getpid()):
        # The children of a process are noted before it is killed. Those that it starts in between become children of
        # this process, and the outer loop finds them.
        while children_left:
            child = children_left.pop()
            children_left += _children(child)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        # Ended children stay in the list of processes until they are asked for.
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def _children(process: int) -> list[int]:
    """Return the ids of the processes whose parent is `process`; Linux only, [] elsewhere and where it has ended."""
    children = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{process}/task"):
            with (
                contextlib.suppress(OSError),
                open(f"/proc/{process}/task/{task}/children", encoding="ascii") as file,
            ):
                children += [int(child) for child in file.read().split()]
    return children


def _signal(group: int, number: signal.Signals) -> None:
    """Send a signal to a process group; nothing where it has ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _end_with_parent() -> None:
    """Have Linux kill the command when the supervisor ends; called in the command's process before the command begins.

    The signal is SIGKILL, not SIGTERM: where the supervisor is gone, the trial has ended already.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    """Set an option of this process in Linux's kernel; other systems know no such thing, and nothing is done."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


if __name__ == "__main__":
    main()
