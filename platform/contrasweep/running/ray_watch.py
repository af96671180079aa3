"""Ray's own death: seen within seconds, where Ray itself waits for a minute and then ends the process without a word.

What has died does not come back: the GCS and raylet that this process started, the raylet of this machine, or the GCS
of a cluster that no longer takes connections. The run is interrupted as by Ctrl-C; where the main thread hangs in a
call to Ray, the process of the command line is ended with its status and line. Whatever finished has its record.
"""

import _thread
import os
import socket
import sys
import threading
import time
from collections.abc import Callable

import psutil
import ray

from contrasweep.running import signals

POLL_S = 1.0
GCS_PATIENCE_S = 6.0  # without a connection: a busy head, or one that is started again and recovers
UNWIND_S = 4.0  # in which the main thread may end by itself
INTERRUPTED = 130


class RayWatch:
    """Watches the connected Ray from `start` to `stop`, in a thread."""

    def __init__(self) -> None:
        self._leaving, self._stop = threading.Event(), threading.Event()
        self._unreachable_since: float | None = None

    def start(self) -> None:
        """Begin, if this is the main thread: no other can be interrupted."""
        if threading.current_thread() is threading.main_thread():
            checks = _checks(self)
            threading.Thread(target=self._work, args=(checks,), name="ray-watch", daemon=True).start()

    def leave(self) -> None:
        """Look no more: what dies from now on is shut down."""
        self._leaving.set()

    def stop(self) -> None:
        """End: Ray is shut down."""
        self._stop.set()

    def unreachable(self, address: str) -> bool:
        """Whether nothing has taken a connection at `address` for a while."""
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=POLL_S).close()
        except OSError:
            self._unreachable_since = self._unreachable_since or time.monotonic()
            return time.monotonic() - self._unreachable_since > GCS_PATIENCE_S
        self._unreachable_since = None
        return False

    def _work(self, checks: dict[str, Callable[[], bool]]) -> None:
        while not self._leaving.wait(POLL_S):
            for what, is_dead in checks.items():
                if is_dead():
                    return self._end(what)
        return None

    def _end(self, what: str) -> None:
        signals.interruption.reason = f"Ray is gone ({what}); finished trials have their records"
        _thread.interrupt_main()
        if self._stop.wait(UNWIND_S) or not signals.interruption.ends_process:
            return
        print(f"\ncontrasweep: {signals.interruption}", file=sys.stderr, flush=True)
        os._exit(INTERRUPTED)


def _checks(watch: RayWatch) -> dict[str, Callable[[], bool]]:
    """What must live, by what is said once it does not."""
    node = ray._private.worker.global_worker.node
    own = {kind: entries[0].process for kind, entries in node.all_processes.items() if entries}
    checks: dict[str, Callable[[], bool]] = {}
    if (gcs := own.get("gcs_server")) is not None:
        checks["its gcs_server has died"] = lambda: gcs.poll() is not None
    else:
        address = ray.get_runtime_context().gcs_address
        checks[f"its head at {address} does not answer"] = lambda: watch.unreachable(address)
    if (raylet := own.get("raylet")) is not None:
        checks["its raylet has died"] = lambda: raylet.poll() is not None
    elif (there := _raylet(node.raylet_socket_name)) is not None:
        checks["the raylet of this machine has died"] = lambda: not _lives(there)
    return checks


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
