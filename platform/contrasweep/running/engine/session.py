"""A connection to Ray for the length of a run: the cluster in RAY_ADDRESS, or this machine."""

import contextlib
import ctypes
import gc
import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import ray

from contrasweep.cluster.footprint import Footprint
from contrasweep.cluster.hosts import ClusterHosts, Hosts, wait_for_hosts
from contrasweep.cluster.inventory import Inventory, ray_inventory
from contrasweep.cluster.preflight import check_nodes
from contrasweep.errors import ContrasweepError
from contrasweep.running.engine import ray_internals
from contrasweep.running.engine.ray_watch import RayWatch
from contrasweep.running.engine.tune_engine import TUNE_ENVIRONMENT
from contrasweep.running.session import KEPT
from contrasweep.running.signals import interruption

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

    A Ray that was connected before stays as it is.
    """
    with contextlib.ExitStack() as own:
        if not ray.is_initialized():
            (KEPT.get() or own).enter_context(_connection())
        yield ray_inventory(ray.nodes())


@contextmanager
def _connection() -> Iterator[None]:
    os.environ.update({k: v for k, v in TUNE_ENVIRONMENT.items() if k.startswith("RAY_")})
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # a trial has one core unless it asks for more
    address, auth_mode = _address(), os.environ.get(AUTH_MODE)
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if address == "local" and 0 <= limit < MIN_ADDRESS_SPACE:  # Ray aborts the process, with its stack
        raise ContrasweepError(
            f"the address space of this process is limited to {limit / 2**30:.1f} GiB, and Ray needs "
            f"{MIN_ADDRESS_SPACE / 2**30:.0f} GiB to start; `ulimit -v unlimited` lifts the limit"
        )
    options = {"include_dashboard": False} if address == "local" else {}
    watch = RayWatch(address)
    try:
        watch.start()
        with _no_handler_of_ray():
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
    """Call `ray.init`, and again where a busy machine took too long.

    Raises `ContrasweepError` where Ray does not start.
    """
    auth_mode = os.environ.get(AUTH_MODE)
    for attempt, wait_s in enumerate(GCS_WAITS_S, 1):
        try:
            with _environment({ray_internals.GCS_WAIT: str(wait_s)} if address == "local" else {}):
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
            return
        except Exception as error:  # Ray raises a plain Exception when a busy machine took it over 30 s to start
            watch.start_again()
            ray.shutdown()
            _restore(auth_mode)
            if ray_internals.SLOW_START.search(str(error)) and attempt < len(GCS_WAITS_S):
                continue
            what = (
                "Ray cannot be started on this machine"
                if address == "local"
                else f"no Ray cluster at RAY_ADDRESS={address}"
            )
            raise ContrasweepError(f"{what} ({str(error).splitlines()[0]})") from None


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set variables of the environment while open, but those that the user has set."""
    added = values.keys() - os.environ.keys()
    os.environ.update({name: values[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


@contextmanager
def _no_handler_of_ray() -> Iterator[None]:
    """Keep this process's handler of SIGTERM while Ray starts. Ray's own raises SystemExit, which no caller expects."""
    with contextlib.ExitStack() as kept:
        before = signal.getsignal(signal.SIGTERM)
        if before is not None and threading.current_thread() is threading.main_thread():
            kept.callback(signal.signal, signal.SIGTERM, before)
        kept.enter_context(ray_internals.no_sigterm_handler())
        yield


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Keep the handler of SIGTERM while Ray shuts down: it puts the default in its place, which kills the process.

    The main thread is in Ray then, so another one puts it back, by Python's C API.
    """
    get, put = ctypes.pythonapi.PyOS_getsig, ctypes.pythonapi.PyOS_setsig
    get.restype = put.restype = ctypes.c_void_p
    put.argtypes = (ctypes.c_int, ctypes.c_void_p)
    handler, over = get(signal.SIGTERM), threading.Event()

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


def cluster_hosts(missing: Callable[[Inventory], Footprint | None], inventory: Inventory) -> Inventory:
    """Return the hosts to run on: those of `inventory`, once a trial fits one.

    On a cluster on which a trial fits no host yet (`missing`), a host is waited for.
    """
    if _address() == "local":
        return inventory
    return wait_for_hosts(inventory, missing, lambda text: print(text, file=sys.stderr, flush=True))


def growing_hosts(inventory: Inventory) -> Hosts:
    """The hosts of a run that begins with `inventory`: of a cluster more may join, this machine stays as it is."""
    return Hosts() if _address() == "local" else ClusterHosts(inventory, ray.nodes)


def _restore(auth_mode: str | None) -> None:
    """Undo what Ray has set in RAY_AUTH_MODE.

    Ray sets this variable to `token` where it starts itself. On a cluster that asks for no token no actor would begin
    then: not of this process's next run, and not of a process that it starts.
    """
    if auth_mode is None and os.environ.pop(AUTH_MODE, None) is not None:
        ray_internals.forget_authentication()


def _address() -> str:
    return os.environ.get("RAY_ADDRESS") or "local"
