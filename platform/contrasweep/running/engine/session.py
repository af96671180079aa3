"""A connection to Ray for the length of a run, to the cluster in RAY_ADDRESS or on this machine, and the watch over it.

Ray itself notices its own death after a minute, and then ends the process without a word. The watch notices it within
seconds: it connects to the head and to this machine's raylet. The run is then interrupted as by Ctrl-C. Where the main
thread hangs in a call to Ray, the process of the command line is ended. Every finished trial has its record.
"""

import _thread
import atexit
import contextlib
import ctypes
import gc
import logging
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import ray

from contrasweep.cluster.hosts import ClusterHosts, Hosts, wait_for_hosts
from contrasweep.cluster.inventory import Inventory, ray_inventory
from contrasweep.cluster.packing import Footprint
from contrasweep.cluster.submission import check_nodes
from contrasweep.errors import ContrasweepError
from contrasweep.running.engine import ray_internals
from contrasweep.running.engine.tune_engine import TUNE_ENVIRONMENT
from contrasweep.running.session import SESSION_STACK
from contrasweep.running.signals import interruption

POLL_S = 1.0
"""How often the watch asks whether Ray is there."""
PATIENCE_S = 6.0
"""How long Ray may take no connection: its machine may be busy, or its head is started again and recovers."""
UNWIND_S = 4.0
"""How long the main thread may take to end after Ray's death."""


class RayWatch:
    """Watches the connected Ray in a thread, and interrupts the main thread where Ray dies."""

    def __init__(self) -> None:
        self._leaving = threading.Event()
        self._stop = threading.Event()

    def start(self, *, on_this_host: bool) -> None:
        """Start to watch Ray, in a thread. Do nothing outside of the main thread: no other thread could be interrupted.

        With `on_this_host`, this process has started Ray itself. Ray is then reached by 127.0.0.1, which works even if
        a laptop's network changes.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        context = ray.get_runtime_context()
        [node] = [node for node in ray.nodes() if node["NodeID"] == context.get_node_id()]
        # what must take connections: name -> `host:port`
        watched = {
            "head": context.gcs_address,
            "raylet": f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}",
        }
        threading.Thread(
            target=self._work, args=[watched, on_this_host], name="ray-watch", daemon=True
        ).start()

    def leave(self) -> None:
        """Ask no more: from now on Ray is shut down on purpose."""
        self._leaving.set()

    def stop(self) -> None:
        """End the thread, after Ray was shut down."""
        self._stop.set()

    def _work(self, watched: Mapping[str, str], on_this_host: bool) -> None:
        """Connect to each of `watched` every `POLL_S` seconds, until `leave` is called or one does not answer.

        `watched` is name -> `host:port`; with `on_this_host` the host is 127.0.0.1. Where one has not answered for
        `PATIENCE_S`, the main thread is interrupted.
        """
        seen = dict.fromkeys(watched, time.monotonic())  # when each took a connection last
        while not self._leaving.wait(POLL_S):
            for name, address in watched.items():
                host, _, port = address.rpartition(":")  # an address of IPv6 stands in brackets
                host = "127.0.0.1" if on_this_host else host.strip("[]")
                with contextlib.suppress(OSError):
                    socket.create_connection((host, int(port)), POLL_S).close()
                    seen[name] = time.monotonic()
                if time.monotonic() - seen[name] > PATIENCE_S:
                    self._end(f"its {name} at {address} does not answer")
                    return

    def _end(self, what_died: str) -> None:
        """Interrupt the main thread because Ray has died; `what_died` is a clause, such as `its head does not answer`.

        Where the main thread hangs in a call to Ray, the process of the command line is ended after `UNWIND_S` seconds.
        """
        interruption.reason = f"Ray is gone ({what_died}); finished trials have their records"
        _thread.interrupt_main()
        # A main thread that hangs in a call to Ray is not interrupted, so the process of the command line is ended.
        if not self._stop.wait(UNWIND_S) and interruption.ends_process:
            interruption.end_process()


MIN_ADDRESS_SPACE = 8 * 2**30
"""Bytes of address space that Ray's processes need to start: they map far more than they use (6 GB are too few)."""
MAX_STARTS = 3
"""How often Ray is started, where a busy machine takes too long."""
AUTH_MODE = "RAY_AUTH_MODE"
"""The environment variable that says how Ray authenticates."""
HANDLER_S = 0.01
"""How often the handler of SIGTERM is checked while Ray shuts down."""


@contextmanager
def connected() -> Iterator[Inventory]:
    """Be connected to Ray in a `with` block, and yield the hosts that Ray has.

    A connection that is made here ends with the block, or with the `session` around it. A connection that this process
    had before stays. Raises `ContrasweepError` where there is no Ray to connect to.
    """
    with contextlib.ExitStack() as block:
        # It is called last. Where Ray was shut down before, it does nothing.
        block.callback(ray_internals.give_back_places)
        if not ray.is_initialized():
            stack = SESSION_STACK.get() or block
            stack.enter_context(_connection())
            # If the process exits within the block, Ray is shut down here before Ray's own exit functions run. A stack
            # that was closed before does nothing then.
            atexit.register(stack.close)
        yield ray_inventory(ray.nodes())


@contextmanager
def _connection() -> Iterator[None]:
    """Be connected to Ray in a `with` block: to the cluster in RAY_ADDRESS, else to a Ray that is started here.

    At the end of the block Ray is shut down. Raises `ContrasweepError` where Ray cannot be started or reached, and
    `SubmissionError` where the versions of the cluster are not those of this process.
    """
    # Ray reads these as it starts.
    os.environ.update(
        {name: value for name, value in TUNE_ENVIRONMENT.items() if name.startswith("RAY_")}
    )
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # a trial has one core unless it asks for more
    address = _address()
    # A Ray that starts here sets this variable, which is put back at the end of the block.
    auth_mode = os.environ.get(AUTH_MODE)
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    # With less address space Ray aborts the process and prints a stack. A limit below 0 means no limit.
    if address == "local" and 0 <= limit < MIN_ADDRESS_SPACE:
        raise ContrasweepError(
            f"the address space of this process is limited to {limit / 2**30:.1f} GiB, and Ray needs "
            f"{MIN_ADDRESS_SPACE / 2**30:.0f} GiB to start; `ulimit -v unlimited` lifts the limit"
        )
    options = {"include_dashboard": False} if address == "local" else {}
    watch = RayWatch()
    try:
        # The program's own handler of SIGTERM stays while Ray starts and while it shuts down: with it the run ends in
        # good order, where Ray's handlers would end the process.
        with ray_internals.no_sigterm_handler():
            _start(address, options)
        watch.start(on_this_host=address == "local")
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


def _start(address: str, options: dict[str, bool]) -> None:
    """Call `ray.init` with `options`, and again where a busy machine took too long.

    Raises `ContrasweepError` where Ray does not start, or where there is no cluster at `address`.
    """
    # A failed attempt may have set this variable; it is put back before the next one.
    auth_mode = os.environ.get(AUTH_MODE)
    for attempt in range(1, MAX_STARTS + 1):
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
            return
        # Ray raises a plain Exception where it took too long to start.
        except Exception as error:
            ray.shutdown()
            _restore(auth_mode)
            if ray_internals.SLOW_START.search(str(error)) and attempt < MAX_STARTS:
                continue
            failure = (
                "Ray cannot be started on this machine"
                if address == "local"
                else f"no Ray cluster at RAY_ADDRESS={address}"
            )
            raise ContrasweepError(f"{failure} ({str(error).splitlines()[0]})") from None


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

    `inventory` are the hosts that Ray has now. On this machine these are all. On a cluster this waits until there is a
    host that a trial fits: `missing(inventory)` returns the footprint that fits none, or None. `on_message` receives a
    line on what is waited for.
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
