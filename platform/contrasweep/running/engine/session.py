"""A connection to Ray for the length of a run, the cluster in RAY_ADDRESS or this machine, and the watch over it.

Ray's own death is seen within seconds, where Ray itself waits for a minute and then ends the process without a word. It
is watched from before Ray starts. What has died does not come back: the GCS and raylet that this process started, the
raylet of this machine, or the GCS of a cluster that no longer takes connections. The run is interrupted as by Ctrl-C;
where the main thread hangs in a call to Ray, the process of the command line is ended with its status and line.
Whatever finished has its record.
"""

import _thread
import atexit
import contextlib
import ctypes
import gc
import logging
import os
import re
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import ray

from contrasweep.cluster.hosts import ClusterHosts, Hosts, wait_for_hosts
from contrasweep.cluster.inventory import Inventory, ray_inventory
from contrasweep.cluster.packing import Footprint
from contrasweep.cluster.preflight import check_nodes
from contrasweep.errors import ContrasweepError
from contrasweep.running import signals
from contrasweep.running.engine import ray_internals
from contrasweep.running.engine.tune_engine import TUNE_ENVIRONMENT
from contrasweep.running.session import KEPT
from contrasweep.running.signals import interruption

POLL_S = 1.0
STARTING_POLL_S = 0.2
GCS_PATIENCE_S = 6.0  # without a connection: a busy head, or one that is started again and recovers
UNWIND_S = 4.0  # in which the main thread may end by itself
GONE = "Ray is gone ({}); finished trials have their records"
HOST_AND_PORT = re.compile(r"[^/]+:\d+")


class RayWatch:
    """Watches Ray in a thread, and interrupts the main thread where Ray dies.

    It runs from `start`, before the connection, to `stop`.
    """

    def __init__(self, address: str) -> None:
        """Watch the cluster at `address`; `local` is a Ray that this process starts."""
        self._leaving = threading.Event()
        self._stop = threading.Event()
        self._seen = False
        self._away_since = time.monotonic()
        self._poll_s = STARTING_POLL_S
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
        """Begin anew before a second try to start Ray: processes of the first try are not watched any more.

        Raises `KeyboardInterrupt` where a signal has killed the GCS of the first try, since somebody has ended it on
        purpose.
        """
        if any(
            _was_killed(process.pid) for process in _own_gcs() if process.pid not in self._earlier
        ):
            signals.interruption.reason = GONE.format("its gcs_server has died")
            raise KeyboardInterrupt
        self._earlier |= {process.pid for process in _own_gcs()}
        self._seen = False
        self._away_since = time.monotonic()

    def connected(self) -> None:
        """Watch the Ray that this process is connected to."""
        self._seen = True
        self._away_since = time.monotonic()
        self._checks = _checks(self)
        self._poll_s = POLL_S

    def leave(self) -> None:
        """Stop to react: from now on Ray is shut down on purpose."""
        self._leaving.set()

    def stop(self) -> None:
        """End the thread, after Ray was shut down."""
        self._stop.set()

    def unreachable(self, address: str) -> bool:
        """Try to connect to `address` (`host:port`), and return whether it is gone.

        It is where it has taken a connection before, and none for `GCS_PATIENCE_S`.
        """
        host, _, port = address.rpartition(":")  # an address of IPv6 stands in brackets
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=POLL_S).close()
        except OSError:
            return self._is_gone(False)
        return self._is_gone(True)

    def _own_gcs_is_gone(self) -> bool:
        """Whether the GCS that this process starts was killed. One that fails by itself is Ray's to report."""
        started = [process for process in _own_gcs() if process.pid not in self._earlier]
        self._seen |= any(_was_killed(process.pid) for process in started)
        return self._is_gone(any(map(_lives, started)))

    def _is_gone(self, there: bool) -> bool:
        """Return whether something has been missing for `GCS_PATIENCE_S`; `there`: whether it is present now.

        What was never present is not missing.
        """
        now = time.monotonic()
        if there or not self._seen:
            self._seen = self._seen or there
            self._away_since = now
        return now - self._away_since > GCS_PATIENCE_S

    def _work(self) -> None:
        """Make the checks, until one says that Ray is dead or this process leaves Ray."""
        while not self._leaving.wait(self._poll_s):
            for what, is_dead in self._checks.items():
                if is_dead():
                    return self._end(what)
        return None

    def _end(self, what: str) -> None:
        """Interrupt the main thread; `what` has died, in words.

        A main thread that hangs in a call to Ray never sees that, so the process of the command line is ended.
        """
        signals.interruption.reason = GONE.format(what)
        _thread.interrupt_main()
        if self._stop.wait(UNWIND_S) or not signals.interruption.ends_process:
            return
        signals.interruption.end_process()


def _checks(watch: RayWatch) -> dict[str, Callable[[], bool]]:
    """Return checks of the processes and addresses that must be alive, by the message where one is not.

    Each returns whether it is dead. {} where Ray does not say which processes it has.
    """
    own_processes = ray_internals.own_processes()
    if own_processes is None:
        return {}
    started, raylet_socket = own_processes
    checks: dict[str, Callable[[], bool]] = {}
    # What this process has started it can watch as a child; what was there before only by asking its address.
    if (gcs := started.get("gcs_server")) is not None:
        checks["its gcs_server has died"] = lambda: gcs.poll() is not None
    else:
        address = ray.get_runtime_context().gcs_address
        checks[_no_answer(address)] = lambda: watch.unreachable(address)
    if (raylet := started.get("raylet")) is not None:
        checks["its raylet has died"] = lambda: raylet.poll() is not None
    elif (there := _raylet(raylet_socket)) is not None:
        checks["the raylet of this machine has died"] = lambda: not _lives(there)
    return checks


def _no_answer(address: str) -> str:
    return f"its head at {address} does not answer"


def _own_gcs() -> list[psutil.Process]:
    """Return each GCS that this process has started and not waited for."""
    servers = []
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name() == "gcs_server":
                servers.append(process)
    return servers


def _was_killed(child: int) -> bool:
    """Return whether a signal has ended a child, without waiting for the child."""
    with contextlib.suppress(ChildProcessError):
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return ended is not None and ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
    return False


def _raylet(socket_name: str) -> psutil.Process | None:
    """Return the raylet of this machine that another command has started; None where there is none.

    It is known by its command line, which names its socket.
    """
    for process in psutil.process_iter(["name", "cmdline"]):
        if process.info["name"] == "raylet" and any(
            socket_name in word for word in process.info["cmdline"] or ()
        ):
            return process
    return None


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


MIN_ADDRESS_SPACE = 8 * 2**30
"""Bytes of address space that Ray's processes need to start: they map far more than they use (6 GB are too few)."""
GCS_WAITS_S = (10, 30, 30)
"""How long each attempt to start Ray waits for the GCS: a busy machine may need long, and a GCS that was killed is
noticed only after the wait."""
AUTH_MODE = "RAY_AUTH_MODE"
HANDLER_S = 0.01
"""How often it is looked whether SIGTERM has its handler while Ray shuts down."""


@contextmanager
def connected() -> Iterator[Inventory]:
    """Connect to Ray and yield its hosts; disconnect at the end, or at that of the session of several studies.

    A Ray that was connected before stays as it is. Raises `ContrasweepError` where there is no Ray to connect to.
    """
    with contextlib.ExitStack() as leaving:
        if not ray.is_initialized():
            # Of a session of several studies, else of this one.
            kept = KEPT.get() or leaving
            kept.enter_context(_connection())
            # Where the process exits within, this runs before what Ray has registered. A closed one has nothing to do.
            atexit.register(kept.close)
        yield ray_inventory(ray.nodes())


@contextmanager
def _connection() -> Iterator[None]:
    """Connect to Ray, started here where no address is named.

    Shut it down at the end, and undo what it has set in RAY_AUTH_MODE. Raises `ContrasweepError` where Ray cannot be
    started or reached, and `SubmissionError` where the cluster's versions are not those of this process.
    """
    # Ray reads these as it starts.
    os.environ.update({k: v for k, v in TUNE_ENVIRONMENT.items() if k.startswith("RAY_")})
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # a trial has one core unless it asks for more
    address = _address()
    auth_mode = os.environ.get(AUTH_MODE)
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    # With less Ray aborts the process and prints a stack. A limit below 0 is none.
    if address == "local" and 0 <= limit < MIN_ADDRESS_SPACE:
        raise ContrasweepError(
            f"the address space of this process is limited to {limit / 2**30:.1f} GiB, and Ray needs "
            f"{MIN_ADDRESS_SPACE / 2**30:.0f} GiB to start; `ulimit -v unlimited` lifts the limit"
        )
    options = {"include_dashboard": False} if address == "local" else {}
    watch = RayWatch(address)
    try:
        watch.start()
        with ray_internals.no_sigterm_handler():
            _start(address, options, watch)
        watch.connected()
        interruption.check()
        if address != "local":
            check_nodes()
        yield
    finally:
        watch.leave()
        # Tune leaves cycles with references into Ray; freed after the shutdown, by any thread, they end the process
        gc.collect()
        with _handlers_kept():
            ray.shutdown()
        watch.stop()
        _restore(auth_mode)


def _start(address: str, options: dict[str, bool], watch: RayWatch) -> None:
    """Call `ray.init` with `options`, and again where a busy machine took too long.

    Raises `ContrasweepError` where Ray does not start, or where `address` has no cluster.
    """
    auth_mode = os.environ.get(AUTH_MODE)
    stated_wait = os.environ.get(ray_internals.GCS_WAIT)  # by the user
    for attempt, wait_s in enumerate(GCS_WAITS_S, 1):
        os.environ[ray_internals.GCS_WAIT] = stated_wait or str(wait_s)
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
            return
        # Ray raises a plain Exception when a busy machine took it over 30 s to start
        except Exception as error:
            watch.start_again()
            ray.shutdown()
            _restore(auth_mode)
            if ray_internals.SLOW_START.search(str(error)) and attempt < len(GCS_WAITS_S):
                continue
            failure = (
                "Ray cannot be started on this machine"
                if address == "local"
                else f"no Ray cluster at RAY_ADDRESS={address}"
            )
            raise ContrasweepError(f"{failure} ({str(error).splitlines()[0]})") from None
        finally:
            if stated_wait is None:
                del os.environ[ray_internals.GCS_WAIT]


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Keep the handler of SIGTERM while Ray shuts down: it puts the default in its place, which kills the process.

    The main thread is in Ray then, so another one puts it back. `signal.signal` works in the main thread alone, so that
    is done by Python's C API.
    """
    get = ctypes.pythonapi.PyOS_getsig
    put = ctypes.pythonapi.PyOS_setsig
    get.restype = put.restype = ctypes.c_void_p
    put.argtypes = (ctypes.c_int, ctypes.c_void_p)
    handler = get(signal.SIGTERM)
    over = threading.Event()

    def keep() -> None:
        while not over.wait(HANDLER_S):
            if get(signal.SIGTERM) != handler:
                put(signal.SIGTERM, handler)

    keeping = threading.Thread(target=keep, name="handlers", daemon=True)
    keeping.start()
    try:
        yield
    finally:
        over.set()
        keeping.join()
        put(signal.SIGTERM, handler)


def cluster_hosts(
    missing: Callable[[Inventory], Footprint | None], inventory: Inventory
) -> tuple[Inventory, Hosts]:
    """Return the hosts to run on, those of `inventory` once a trial fits one, and what tells of hosts that join.

    On a cluster on which a trial fits no host yet (`missing`), a host is waited for. This machine stays as it is.
    """
    if _address() == "local":
        return inventory, Hosts()
    inventory = wait_for_hosts(
        inventory, missing, lambda text: print(text, file=sys.stderr, flush=True)
    )
    return inventory, ClusterHosts(inventory, ray.nodes)


def _restore(auth_mode: str | None) -> None:
    """Undo what Ray has set in RAY_AUTH_MODE.

    Ray sets this variable to `token` where it starts itself. On a cluster that asks for no token no actor would begin
    then: not of this process's next run, and not of a process that it starts.
    """
    if auth_mode is None and os.environ.pop(AUTH_MODE, None) is not None:
        ray_internals.forget_authentication()


def _address() -> str:
    return os.environ.get("RAY_ADDRESS") or "local"
