"""Ray's own death: seen within seconds, where Ray itself waits for a minute and then ends the process without a word.

It is watched from before Ray starts. What has died does not come back: the GCS and raylet that this process started,
the raylet of this machine, or the GCS of a cluster that no longer takes connections. The run is interrupted as by
Ctrl-C; where the main thread hangs in a call to Ray, the process of the command line is ended with its status and line.
Whatever finished has its record.
"""

import _thread
import contextlib
import os
import re
import socket
import threading
import time
from collections.abc import Callable

import psutil
import ray

from contrasweep.running import signals
from contrasweep.running.engine import ray_internals

POLL_S, STARTING_POLL_S = 1.0, 0.2
GCS_PATIENCE_S = 6.0  # without a connection: a busy head, or one that is started again and recovers
UNWIND_S = 4.0  # in which the main thread may end by itself
GONE = "Ray is gone ({}); finished trials have their records"
HOST_AND_PORT = re.compile(r"[^/]+:\d+")


class RayWatch:
    """Watches Ray from `start`, before it is connected, to `stop`, in a thread."""

    def __init__(self, address: str) -> None:
        """Watch the cluster at `address`; `local` is a Ray that this process starts."""
        self._leaving, self._stop = threading.Event(), threading.Event()
        self._seen, self._away_since, self._poll_s = False, time.monotonic(), STARTING_POLL_S
        self._earlier: set[int] = set()  # GCS of attempts to start Ray that are given up
        self._checks: dict[str, Callable[[], bool]] = {}
        if address == "local":
            self._checks["its gcs_server has died"] = self._own_gcs_is_gone
        elif HOST_AND_PORT.fullmatch(address):
            self._checks[_no_answer(address)] = lambda: self.unreachable(address)

    def start(self) -> None:
        """Begin to watch, if this is the main thread: no other can be interrupted."""
        if threading.current_thread() is threading.main_thread():
            threading.Thread(target=self._work, name="ray-watch", daemon=True).start()

    def start_again(self) -> None:
        """Forget what has been started: it is shut down, and Ray is started once more.

        Raises `KeyboardInterrupt` where a signal has killed the GCS: somebody has ended it.
        """
        if any(_was_killed(process.pid) for process in _own_gcs() if process.pid not in self._earlier):
            signals.interruption.reason = GONE.format("its gcs_server has died")
            raise KeyboardInterrupt
        self._earlier |= {process.pid for process in _own_gcs()}
        self._seen, self._away_since = False, time.monotonic()

    def connected(self) -> None:
        """Watch the Ray that this process is connected to."""
        self._seen, self._away_since = True, time.monotonic()
        self._checks, self._poll_s = _checks(self), POLL_S

    def leave(self) -> None:
        """Look no more: what dies from now on is shut down."""
        self._leaving.set()

    def stop(self) -> None:
        """End the watch: Ray is shut down."""
        self._stop.set()

    def unreachable(self, address: str) -> bool:
        """Return whether `address` has taken no connection for a while, though it did before."""
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=POLL_S).close()
        except OSError:
            return self._is_gone(False)
        return self._is_gone(True)

    def _own_gcs_is_gone(self) -> bool:
        """Whether the GCS that this process starts was killed. One that fails by itself is Ray's to report."""
        own = [process for process in _own_gcs() if process.pid not in self._earlier]
        self._seen |= any(_was_killed(process.pid) for process in own)
        return self._is_gone(any(map(_lives, own)))

    def _is_gone(self, there: bool) -> bool:
        """Return whether something has been missing for `GCS_PATIENCE_S`; `there`: whether it is present now.

        What was never present is not missing.
        """
        now = time.monotonic()
        if there or not self._seen:
            self._seen, self._away_since = self._seen or there, now
        return now - self._away_since > GCS_PATIENCE_S

    def _work(self) -> None:
        while not self._leaving.wait(self._poll_s):
            for what, is_dead in self._checks.items():
                if is_dead():
                    return self._end(what)
        return None

    def _end(self, what: str) -> None:
        signals.interruption.reason = GONE.format(what)
        _thread.interrupt_main()
        if self._stop.wait(UNWIND_S) or not signals.interruption.ends_process:
            return
        signals.interruption.end_process()


def _checks(watch: RayWatch) -> dict[str, Callable[[], bool]]:
    """Return checks of the processes and addresses that must be alive, by the message where one is not."""
    known = ray_internals.own_processes()
    if known is None:
        return {}
    own, raylet_socket = known
    checks: dict[str, Callable[[], bool]] = {}
    if (gcs := own.get("gcs_server")) is not None:
        checks["its gcs_server has died"] = lambda: gcs.poll() is not None
    else:
        address = ray.get_runtime_context().gcs_address
        checks[_no_answer(address)] = lambda: watch.unreachable(address)
    if (raylet := own.get("raylet")) is not None:
        checks["its raylet has died"] = lambda: raylet.poll() is not None
    elif (there := _raylet(raylet_socket)) is not None:
        checks["the raylet of this machine has died"] = lambda: not _lives(there)
    return checks


def _no_answer(address: str) -> str:
    return f"its head at {address} does not answer"


def _own_gcs() -> list[psutil.Process]:
    """Return each GCS that this process has started and not waited for."""
    own = []
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name() == "gcs_server":
                own.append(process)
    return own


def _was_killed(child: int) -> bool:
    """Return whether a signal has ended a child, without waiting for the child."""
    with contextlib.suppress(ChildProcessError):
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return ended is not None and ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
    return False


def _raylet(socket_name: str) -> psutil.Process | None:
    """The raylet of this machine that another command has started."""
    for process in psutil.process_iter(["name", "cmdline"]):
        if process.info["name"] == "raylet" and any(socket_name in word for word in process.info["cmdline"] or ()):
            return process
    return None


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
