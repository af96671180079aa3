"""Real servers for the tests and benchmarks of tracking: MLflow, PostgreSQL, S3. Each ends with its `with`."""

import contextlib
import glob
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

POSTGRES_BINARIES = "/usr/lib/postgresql/*/bin"
START_S = 240.0  # of a server on a busy machine
S3_ENV = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
}


class MlflowServer:
    """An MLflow server on a fixed port, which can be killed and started again on the same store."""

    def __init__(
        self,
        store: str,
        artifacts: str,
        log: Path,
        env: dict[str, str] | None = None,
        workers: int = 1,
    ) -> None:
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self._log = log
        self._command = [
            sys.executable,
            "-m",
            "mlflow",
            "server",
            "--backend-store-uri",
            store,
            "--artifacts-destination",
            artifacts,
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--workers",
            str(workers),
        ]
        quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        self._env = {**os.environ, **quiet, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = process = subprocess.Popen(
                self._command, env=self._env, stdout=log, stderr=log, start_new_session=True
            )
        try:
            wait_until(
                lambda: process.poll() is not None or _answers(f"{self.uri}/health"),
                "MLflow server",
            )
        except TimeoutError:
            raise RuntimeError(
                f"the MLflow server is not up:\n{self._log.read_text()[-2000:]}"
            ) from None
        if self._process.poll() is not None:
            raise RuntimeError(f"the MLflow server ended:\n{self._log.read_text()[-2000:]}")

    def kill(self) -> None:
        """SIGKILL the server and its workers."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@contextlib.contextmanager
def mlflow_server(
    store: str, artifacts: str, folder: Path, **options: Any
) -> Iterator[MlflowServer]:
    server = MlflowServer(store, artifacts, folder / "mlflow.log", **options)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@contextlib.contextmanager
def s3_server(bucket: str) -> Iterator[str]:
    """Start a moto S3 server with an empty bucket; yields its endpoint."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    try:
        keys = {
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
            "region_name": "us-east-1",
        }
        boto3.client("s3", endpoint_url=endpoint, **keys).create_bucket(Bucket=bucket)
        yield endpoint
    finally:
        server.stop()


def postgres_missing() -> str:
    """Reason why PostgreSQL cannot be started here; "" if it can."""
    if not glob.glob(f"{POSTGRES_BINARIES}/initdb"):
        return f"no PostgreSQL server in {POSTGRES_BINARIES} (Debian: apt-get install postgresql)"
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "no psycopg (pip install 'psycopg[binary]')"
    if os.getuid() == 0 and subprocess.run(["id", "postgres"], capture_output=True).returncode:
        return "initdb refuses root, and there is no user postgres to run it as"
    return ""


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """Start PostgreSQL in a temporary folder with a database `mlflow`; yields its address."""
    binaries = sorted(glob.glob(POSTGRES_BINARIES))[-1]
    folder = Path(tempfile.mkdtemp(prefix="contrasweep-pg-"))
    port = free_port()
    prefix = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    if prefix:
        shutil.chown(folder, "postgres")

    def run(*command: str) -> None:
        subprocess.run([*prefix, *command], check=True, capture_output=True, cwd="/")

    data = str(folder / "data")
    try:
        run(f"{binaries}/initdb", "-D", data, "-U", "postgres", "--auth=trust", "--no-sync")
        options = f"-p {port} -h 127.0.0.1 -k {folder}"
        run(
            f"{binaries}/pg_ctl",
            "-D",
            data,
            "-o",
            options,
            "-l",
            str(folder / "log"),
            "-w",
            "start",
        )
        run(f"{binaries}/createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "mlflow")
        yield f"postgresql://postgres@127.0.0.1:{port}/mlflow"
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            run(f"{binaries}/pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(holds: Callable[[], bool], what: str, timeout_s: float = START_S) -> None:
    until = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > until:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        time.sleep(0.1)


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=10).close()
    except OSError:
        return False
    return True
