"""Servers of the object stores' protocols, and a way to S3's on which faults happen, for the tests of this area."""

import contextlib
import http.client
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass

import pytest
from benchmarks.fault_proxy import faulty_proxy
from benchmarks.tracking_services import free_port
from places import environment_without

from contrasweep.storage.records import StudyRecords


@dataclass(frozen=True)
class S3:
    """A bucket of its own on a running server. `env` is what a process needs to reach it."""

    endpoint: str
    uri: str
    env: dict[str, str]


def s3_environment(endpoint):
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@pytest.fixture(scope="session")
def s3_endpoint():
    """The address of a moto server in a process of its own."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment_without("AWS_"),  # moto calls boto3 too
    )
    try:
        for _ in range(3000):
            assert server.poll() is None, "the S3 server ended while starting"
            with contextlib.suppress(OSError):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                connection.request("GET", "/moto-api/")
                connection.getresponse().read()
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="session")
def s3_client(s3_endpoint):
    """What makes the buckets; boto3 takes half a second for a client."""
    import boto3

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AWS_PROFILE", raising=False)
        return boto3.client(
            "s3",
            region_name="us-east-1",
            endpoint_url=s3_endpoint,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )


@pytest.fixture
def s3(s3_endpoint, s3_client, monkeypatch):
    """A fresh bucket; the environment of this process and of its children points at it."""
    env = s3_environment(s3_endpoint)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    bucket = f"test-{uuid.uuid4().hex[:12]}"
    s3_client.create_bucket(Bucket=bucket)
    return S3(s3_endpoint, f"s3://{bucket}/runs", env)


@pytest.fixture
def faults(s3, monkeypatch):
    """A proxy in front of the S3 server; this process's S3 requests go through it."""
    with faulty_proxy(s3.endpoint) as faults:
        monkeypatch.setenv("AWS_ENDPOINT_URL", faults.endpoint)
        monkeypatch.setattr("contrasweep.storage.s3_retry.FIRST_WAIT_S", 0.01)
        yield faults


@pytest.fixture
def records(storage):
    """Those of a study `s`, of which nothing is written yet."""
    return StudyRecords(storage, "s")
