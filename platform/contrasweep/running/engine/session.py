"""A connection to Ray for the length of a run, to the cluster in RAY_ADDRESS or on this machine, and the watch over it.

Ray itself notices its own death after a minute, and then ends the process without a word. The watch notices it within
seconds, from before Ray starts. It looks at the processes that never come back: the GCS and raylet that this process
started, the raylet of this machine, and a cluster's GCS. The run is then interrupted as by Ctrl-C. Where the main
thread hangs in a call to Ray, the process of the command line is ended. Every finished trial has its record.
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
import threading
import time
from collections.abc import Callable, Collection, Iterator
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
"""How often the watch makes its checks."""
STARTING_POLL_S = 0.2
"""The same while Ray starts."""
GCS_PATIENCE_S = 6.0
"""How long a GCS may take no connection: its machine may be busy, or it is started again and recovers."""
UNWIND_S = 4.0
"""How long the main thread may take to end after Ray's death."""
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
        self._seen = False  # whether the GCS was present once
        self._away_since = time.monotonic()  # when the GCS was present last
        self._poll_s = STARTING_POLL_S
        self._earlier: set[int] = set()  # process ids of the GCS of earlier attempts to start Ray
        # what has died, in words -> a function that returns whether it has
        self._checks: dict[str, Callable[[], bool]] = {}
        if address == "local":
            self._checks["its gcs_server has died"] = self._own_gcs_is_gone
        elif HOST_AND_PORT.fullmatch(address):
            self._checks[_no_answer(address)] = lambda: self.unreachable(address)

    def start(self) -> None:
        """Begin to watch if this is the main thread, because no other thread can be interrupted."""
        if threading.current_thread() is threading.main_thread():
            threading.Thread(target=self._work, name="ray-watch", daemon=True).start()

    def start_again(self) -> None:
        """Begin anew before another attempt to start Ray; processes of the failed attempt are not watched any more.

        Raises `KeyboardInterrupt` where a signal has killed the GCS of the failed attempt, because somebody has ended
        it on purpose.
        """
        started = _own_gcs(self._earlier)
        if any(_was_killed(process.pid) for process in started):
            signals.interruption.reason = GONE.format("its gcs_server has died")
            raise KeyboardInterrupt
        self._earlier |= {process.pid for process in started}
        self._seen = False
        self._away_since = time.monotonic()

    def connected(self) -> None:
        """Watch the Ray to which this process is connected now."""
        self._seen = True
        self._away_since = time.monotonic()
        self._checks = _checks_of_connected(self)
        self._poll_s = POLL_S

    def leave(self) -> None:
        """Make no checks any more: from now on Ray is shut down on purpose."""
        self._leaving.set()

    def stop(self) -> None:
        """End the thread, after Ray was shut down."""
        self._stop.set()

    def unreachable(self, address: str) -> bool:
        """Try to connect to `address` (`host:port`), and return whether it is gone.

        It is gone if it took a connection once, but none for `GCS_PATIENCE_S`.
        """
        host, _, port = address.rpartition(":")  # an address of IPv6 stands in brackets
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=POLL_S).close()
        except OSError:
            return self._is_gone(False)
        return self._is_gone(True)

    def _own_gcs_is_gone(self) -> bool:
        """Return whether the GCS that this process starts was killed. Ray itself reports a GCS that fails."""
        started = _own_gcs(self._earlier)
        # A killed GCS was there, even if no earlier check has seen it.
        if any(_was_killed(process.pid) for process in started):
            self._seen = True
        return self._is_gone(any(_lives(process) for process in started))

    def _is_gone(self, present: bool) -> bool:
        """Return whether the GCS has been missing for `GCS_PATIENCE_S`; `present` says whether it is there now.

        A GCS that was never present is not missing.
        """
        now = time.monotonic()
        self._seen = self._seen or present
        if present or not self._seen:
            self._away_since = now
        return now - self._away_since > GCS_PATIENCE_S

    def _work(self) -> None:
        """Make the checks until one says that Ray is dead, or this process leaves Ray."""
        while not self._leaving.wait(self._poll_s):
            for what_died, is_dead in self._checks.items():
                if is_dead():
                    return self._end(what_died)
        return None

    def _end(self, what_died: str) -> None:
        """Interrupt the main thread, with a phrase on what has died as the reason."""
        signals.interruption.reason = GONE.format(what_died)
        _thread.interrupt_main()
        # A main thread that hangs in a call to Ray is not interrupted, so the process of the command line is ended.
        if not self._stop.wait(UNWIND_S) and signals.interruption.ends_process:
            signals.interruption.end_process()


def _checks_of_connected(watch: RayWatch) -> dict[str, Callable[[], bool]]:
    """Return what must not die of the connected Ray: a phrase on its death -> a function that says whether it is dead.

    {} where this Ray does not list its processes.
    """
    own_processes = ray_internals.own_processes()
    if own_processes is None:
        return {}
    started, raylet_socket = own_processes
    checks: dict[str, Callable[[], bool]] = {}
    # A GCS that this process has started is its child; another one can only be asked at its address.
    gcs = started.get("gcs_server")
    if gcs is not None:
        checks["its gcs_server has died"] = lambda: gcs.poll() is not None
    else:
        address = ray.get_runtime_context().gcs_address
        checks[_no_answer(address)] = lambda: watch.unreachable(address)
    # The raylet may be a child too; another one runs on this machine in any case, and is found by its socket.
    raylet = started.get("raylet")
    other_raylet = None if raylet else _raylet(raylet_socket)
    if raylet is not None:
        checks["its raylet has died"] = lambda: raylet.poll() is not None
    elif other_raylet is not None:
        checks["the raylet of this machine has died"] = lambda: not _lives(other_raylet)
    return checks


def _no_answer(address: str) -> str:
    return f"its head at {address} does not answer"


def _own_gcs(earlier: Collection[int]) -> list[psutil.Process]:
    """Return each GCS process that is a child of this process, as far as nobody has waited for it.

    Those with the process ids `earlier` are left out.
    """
    servers = []
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name() == "gcs_server" and process.pid not in earlier:
                servers.append(process)
    return servers


def _was_killed(child: int) -> bool:
    """Return whether a signal has ended the child process of this id; others can still wait for the child."""
    with contextlib.suppress(ChildProcessError):
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return ended is not None and ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
    return False


def _raylet(socket_name: str) -> psutil.Process | None:
    """Return the raylet of this machine whose command line names the socket `socket_name`; None where there is none."""
    for process in psutil.process_iter(["name", "cmdline"]):
        if process.info["name"] == "raylet" and any(
            socket_name in word for word in process.info["cmdline"] or ()
        ):
            return process
    return None


def _lives(process: psutil.Process) -> bool:
    """Return whether a process runs: it exists and is no zombie."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


MIN_ADDRESS_SPACE = 8 * 2**30
"""Bytes of address space that Ray's processes need to start: they map far more than they use (6 GB are too few)."""
GCS_WAITS_S = (10, 30, 30)
"""Seconds that each attempt to start Ray waits for the GCS. A busy machine may need long; but a GCS that was killed is
noticed only after the wait, so the first one is short."""
AUTH_MODE = "RAY_AUTH_MODE"
HANDLER_S = 0.01
"""How often the handler of SIGTERM is checked while Ray shuts down."""


@contextmanager
def connected() -> Iterator[Inventory]:
    """Connect to Ray and yield its hosts; disconnect at the end of the block, or of the `session` around it.

    If this process is connected to Ray already, the connection stays after the block. Raises `ContrasweepError` where
    there is no Ray to connect to.
    """
    with contextlib.ExitStack() as block:
        # It is called last. Where Ray was shut down before, it does nothing.
        block.callback(ray_internals.give_back_places)
        if not ray.is_initialized():
            stack = KEPT.get() or block
            stack.enter_context(_connection())
            # If the process exits within the block, Ray is shut down here before Ray's own exit functions run. A stack
            # that was closed before does nothing then.
            atexit.register(stack.close)
        yield ray_inventory(ray.nodes())


@contextmanager
def _connection() -> Iterator[None]:
    """Connect to Ray, or start it where RAY_ADDRESS names no cluster; shut it down at the end of the block.

    Raises `ContrasweepError` where Ray cannot be started or reached, and `SubmissionError` where the versions of the
    cluster are not those of this process.
    """
    # Ray reads these as it starts.
    os.environ.update({k: v for k, v in TUNE_ENVIRONMENT.items() if k.startswith("RAY_")})
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # a trial has one core unless it asks for more
    address = _address()
    # A Ray that starts here sets this variable, which is put back at the end of the block.
    auth_mode = os.environ.get(AUTH_MODE)
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    # With less address space Ray aborts the process and prints a stack. A limit below 0 means no limit.
    if address == "local" and 0 <= limit < MIN_ADDRESS_SPACE:
        raise ContrasweepError(
            f"the address space of this process is limited to {limit / 2**30:.1f} GiB, and Ray needs "
            f"{MIN_ADDRESS_SPACE / 2**30:.0f} GiB to start; `ulimit -v unlimited` lifts the limit"
        )
    options = {"include_dashboard": False} if address == "local" else {}
    watch = RayWatch(address)
    try:
        watch.start()
        # The program's own handler of SIGTERM stays while Ray starts and while it shuts down: with it the run ends in
        # good order, where Ray's handlers would end the process.
        with ray_internals.no_sigterm_handler():
            _start(address, options, watch)
        watch.connected()
        interruption.check()
        if address != "local":
            check_nodes()
        yield
    finally:
        watch.leave()
        # Tune leaves reference cycles into Ray. If any thread frees them after the shutdown, the process ends.
        gc.collect()
        with _sigterm_handler_kept():
            ray.shutdown()
        watch.stop()
        _restore(auth_mode)


def _start(address: str, options: dict[str, bool], watch: RayWatch) -> None:
    """Call `ray.init` with `options`, and again where a busy machine took too long.

    Raises `ContrasweepError` where Ray does not start, or where there is no cluster at `address`.
    """
    # A failed attempt may have set this variable; it is put back before the next one.
    auth_mode = os.environ.get(AUTH_MODE)
    users_wait = os.environ.get(ray_internals.GCS_WAIT)
    for attempt, wait_s in enumerate(GCS_WAITS_S, 1):
        os.environ[ray_internals.GCS_WAIT] = users_wait or str(wait_s)
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
            return
        # Ray raises a plain Exception where it took too long to start.
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
            if users_wait is None:
                del os.environ[ray_internals.GCS_WAIT]


@contextmanager
def _sigterm_handler_kept() -> Iterator[None]:
    """Keep the handler of SIGTERM while Ray shuts down within the `with` block.

    Ray sets the default handler, with which SIGTERM kills the process. The main thread is in Ray's code then, so
    another thread sets the earlier handler again. It uses Python's C API, because `signal.signal` works only in the
    main thread.
    """
    get = ctypes.pythonapi.PyOS_getsig
    put = ctypes.pythonapi.PyOS_setsig
    get.restype = put.restype = ctypes.c_void_p
    put.argtypes = (ctypes.c_int, ctypes.c_void_p)
    handler = get(signal.SIGTERM)
    is_shut_down = threading.Event()

    def keep() -> None:
        """Set the earlier handler again whenever Ray has changed it."""
        while not is_shut_down.wait(HANDLER_S):
            if get(signal.SIGTERM) != handler:
                put(signal.SIGTERM, handler)

    keeper = threading.Thread(target=keep, name="handlers", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        is_shut_down.set()
        keeper.join()
        put(signal.SIGTERM, handler)


def cluster_hosts(
    missing: Callable[[Inventory], Footprint | None],
    inventory: Inventory,
    on_message: Callable[[str], object],
) -> tuple[Inventory, Hosts]:
    """Return the hosts to run on, and the `Hosts` that tells which hosts join later.

    `inventory` are the hosts of the connected Ray. `missing` returns, for given hosts, the footprint of a trial that
    fits none of them (None: each fits one). On a cluster this waits for a host that such a trial fits, and says so by
    `on_message`.
    """
    if _address() == "local":
        return inventory, Hosts()
    inventory = wait_for_hosts(inventory, missing, on_message)
    return inventory, ClusterHosts(inventory, ray.nodes)


def _restore(auth_mode: str | None) -> None:
    """Delete RAY_AUTH_MODE if `auth_mode`, its value before Ray started, is None: only Ray has set it then.

    Ray sets the variable to `token` when it starts on this machine. With that value, no actor would begin on a cluster
    that asks for no token. This holds for the next run of this process, and for its child processes.
    """
    if auth_mode is None and os.environ.pop(AUTH_MODE, None) is not None:
        ray_internals.forget_authentication()


def _address() -> str:
    """Return the address of the cluster; `local` where RAY_ADDRESS names none."""
    return os.environ.get("RAY_ADDRESS") or "local"
