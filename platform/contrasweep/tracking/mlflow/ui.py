"""`contrasweep ui`: the MLflow UI on a tracking store, in the foreground."""

import os
import shlex
import signal
import socket
import sys
import time
import urllib.request
from pathlib import Path

from contrasweep.commands.process import Process
from contrasweep.errors import SpecError, StorageError
from contrasweep.imports import is_installed
from contrasweep.shell import command_line
from contrasweep.tracking.mlflow.address import UI_PORT, checked_uri
from contrasweep.tracking.mlflow.client import SETTINGS, new_client
from contrasweep.tracking.mlflow.server import PAGE_KIND, find_experiment, study_page
from contrasweep.tracking.tracker import TrackedStudy, TrackingError

STUDIES = f"#/experiments?{PAGE_KIND}"
"""The page with the list of all studies."""
PORTS_TRIED = 20
POLL_S = 0.2
START_S = 240.0  # seconds for the server to start on a busy machine; an idle one takes 10


def serve(uri: str, port: int = UI_PORT, study: TrackedStudy | None = None) -> int:
    """Show the runs at `uri` until interrupted, and print the address to open; return the exit status.

    Args:
        uri: The tracking store. For one that is a server already, its address is printed, and that is all.
        port: Where to serve; a taken port gives way to the next free one.
        study: The study whose page the address opens. The address opens the list of all studies without it, for a
            study that is not there, and for a server if MLflow is not installed on this machine.

    Raises:
        SpecError: There is nothing to show, or no port is free.
        StorageError: The store or the server does not answer.
    """
    address = checked_uri(uri)
    if address.is_none:
        raise SpecError("there is nothing to show without tracking", place="tracking", value="none")
    # Only MLflow's client can find the page of a study. A machine without it can still name the list of a server.
    if address.is_server and not is_installed("mlflow"):
        print(f"{address}/{STUDIES}")
        return 0
    # A new client makes a missing database. The server's workers would each try to, and break it.
    client = new_client(address)
    try:
        experiment = find_experiment(client, study) if study else None
    except TrackingError as error:
        raise StorageError(f"tracking: {error}") from None
    if study and not experiment:
        sync = command_line("sync", study.name, storage=study.storage or None, tracking=address)
        print(
            f"study {study.name} is not in {address}; to record it there: {sync}", file=sys.stderr
        )
    page = study_page(experiment.experiment_id) if experiment else STUDIES
    if address.is_server:
        print(f"{address}/{page}")
        return 0
    port = _free_port(port)
    # The pages need no job runner of MLflow, which is a further process.
    settings = {**os.environ, **SETTINGS, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    settings["MLFLOW_BACKEND_STORE_URI"] = address
    # SIGTERM ends this as Ctrl-C does, so that the server ends too.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    words = shlex.split(
        f"-m mlflow server --host 127.0.0.1 --port {port} --workers 1 --uvicorn-opts '--log-level warning'"
    )
    server = Process([sys.executable, *words], Path.cwd(), settings, sys.stderr)
    try:
        _wait_until_up(server, port)
        print(f"http://127.0.0.1:{port}/{page}  (Ctrl-C ends it)", flush=True)
        while not server.ended(POLL_S):
            pass
        return server.returncode or 0
    except KeyboardInterrupt:
        return 0
    finally:
        server.stop()
        signal.signal(signal.SIGTERM, before)


def _free_port(wanted: int) -> int:
    """Return the first free port from `wanted` on; `SpecError` where several in a row are taken."""
    for port in range(wanted, wanted + PORTS_TRIED):
        with socket.socket() as probe:
            # As the server does: a port whose last connections are just closing is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except (OSError, OverflowError):  # it is taken, or above 65535
                continue
            return port
    raise SpecError(
        f"none of {PORTS_TRIED} ports is free",
        place="port",
        value=wanted,
        hint="choose another with --port",
    )


def _wait_until_up(server: Process, port: int) -> None:
    """Return when the server answers; `StorageError` where it ends or does not answer in time."""
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if server.ended(POLL_S):
            raise StorageError(
                f"the MLflow server ended with status {server.returncode}: its own message is above"
            )
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).close()
            return
        except OSError:
            pass
    raise StorageError(f"the MLflow server did not answer on port {port} within {START_S:g} s")
