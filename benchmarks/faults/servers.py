"""The servers of a study, and what goes wrong on the way to them: SeaweedFS for S3, MLflow on PostgreSQL."""

import contextlib
import os
import random
import shutil
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.fault_proxy import faulty_proxy
from benchmarks.faults.study import FaultStudy, Row
from benchmarks.tracking_services import (
    S3_ENV,
    free_port,
    mlflow_server,
    postgres,
    s3_server,
    wait_until,
)

from contrasweep.tracking.kinds import checked_tracking
from contrasweep.tracking.sync import sync

S3_FAULTS = ["reset", "cut", "500", "503", "403", "slow", "lost", "stall"]
MLFLOW_FAULTS = ["reset", "500", "403", "stall", "slow", "lost"]
SAID = {
    "500": "InternalError",
    "503": "SlowDown",
    "403": "AccessDenied",
    "stall": "no whole answer",
    "reset": "closed",
}
"""A word of the line that an S3 fault leads to; of the others only their retries are seen, if at all."""
RATE = 0.12  # of the requests
DOWN_S = 5.0
DOWN_EVERY_S = 14.0
DOWN = f"down for {DOWN_S:.0f} s"
LIMIT_S = 300.0


@contextlib.contextmanager
def seaweedfs(folder: Path) -> Iterator[str]:
    """A SeaweedFS server with an empty bucket `faults`: its endpoint."""
    import boto3

    port, *ports = (_free_port() for _ in range(4))
    command = [
        "weed",
        "server",
        f"-dir={folder}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-volume.max=100",
        "-s3",
    ]
    command += [
        f"-{name}.port={p}" for name, p in zip(("master", "volume", "filer"), ports, strict=True)
    ]
    folder.mkdir()
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([*command, f"-s3.port={port}"], stdout=log, stderr=log)
    endpoint = f"http://127.0.0.1:{port}"
    client = boto3.client("s3", endpoint_url=endpoint, **_keys())

    def has_bucket() -> bool:
        with contextlib.suppress(Exception):  # until it is up, whatever goes wrong
            client.create_bucket(Bucket="faults")
            client.put_object(Bucket="faults", Key="up", Body=b"")
            return True
        return False

    try:
        wait_until(has_bucket, "SeaweedFS")
        yield endpoint
    finally:
        server.kill()
        server.wait()


def _free_port() -> int:
    """One that is free, and 10,000 above it a port for gRPC."""
    while (port := free_port()) > 55_000:
        pass
    return port


def _keys() -> dict[str, str]:
    return {
        "aws_access_key_id": "test",
        "aws_secret_access_key": "test",
        "region_name": "us-east-1",
    }


@contextlib.contextmanager
def s3(folder: Path) -> Iterator[tuple[str, str]]:
    """The name and the endpoint of an S3 server: SeaweedFS where it is installed, else moto."""
    if shutil.which("weed"):
        with seaweedfs(folder) as endpoint:
            yield "SeaweedFS", endpoint
    else:
        with s3_server("faults") as endpoint:
            yield "moto", endpoint


def on_the_way_to_s3(folder: Path, endpoint: str, storage: str, times: int) -> list[Row]:
    """A small study in `storage` whose requests to the S3 server at `endpoint` meet the faults in turns, `times` in
    all; the keys and the address of the server are in the environment."""
    with faulty_proxy(endpoint) as faults:
        environment = {"AWS_ENDPOINT_URL": faults.endpoint}
        study = FaultStudy(folder, seeds=1, storage=storage, environment=environment)
        process = study.start()
        study.wait_for_epoch(process)
        faults.plan = turns = Turns(S3_FAULTS, times)
        seen = dict[str, str]()
        while process.poll() is None:
            time.sleep(0.5)
            seen |= study.recorded()
        faults.plan = lambda method, path, n: None
        if process.returncode != 0:
            study.finish()
    judged = study.judge(seen)
    rows = []
    for fault, count in sorted(turns.done.items()):
        rows.append(
            Row(
                f"S3, {fault}",
                count,
                message=study.message(words=[SAID[fault]]) if fault in SAID else "",
            )
        )
        rows[-1].add(judged)
    return rows


def on_the_wire(folder: Path, times: int, seed: int) -> list[Row]:
    """A study whose requests to S3 and MLflow meet every fault, `times` in all of each server, and outages."""
    folder.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        name, endpoint = stack.enter_context(s3(folder / "s3"))
        database = stack.enter_context(postgres())
        environment = S3_ENV | {"AWS_ENDPOINT_URL": endpoint}
        server = stack.enter_context(
            mlflow_server(database, "s3://faults/artifacts", folder, env=environment)
        )
        to_s3, to_mlflow = (
            stack.enter_context(faulty_proxy(uri)) for uri in (endpoint, server.uri)
        )
        # this process reads the storage without faults
        os.environ.update(S3_ENV | {"AWS_ENDPOINT_URL": endpoint})
        study = FaultStudy(
            folder / "study",
            seeds=4,
            storage="s3://faults/runs",
            tracking=to_mlflow.endpoint,
            environment=S3_ENV | {"AWS_ENDPOINT_URL": to_s3.endpoint},
        )
        plans = {
            f"{name}, ": (to_s3, Plan(S3_FAULTS, times, f"{seed} s3")),
            "MLflow, ": (to_mlflow, Plan(MLFLOW_FAULTS, times, f"{seed} mlflow")),
        }
        process = study.start()
        until = time.monotonic() + LIMIT_S
        seen = dict[str, str]()
        study.wait_for_epoch(process)
        for faults, plan in plans.values():
            plan.begin()
            faults.plan = plan
        while time.monotonic() < until and process.poll() != 0:
            time.sleep(1.0)
            seen |= study.recorded()
            if process.poll():
                process = study.start()
        for faults, _ in plans.values():
            faults.plan = lambda method, path, n: None
        if process.wait() != 0:
            study.finish()
        judged = study.judge(seen)
        (synced,) = sync(study.records, checked_tracking(server.uri))
        rows = []
        for server_name, (_, plan) in plans.items():
            for fault, count in sorted(plan.done.items()):
                row = Row(f"{server_name}{fault}", count, recovery_s=plan.recovery_s[fault])
                row.message = study.message(words=[SAID[fault]]) if fault in SAID else ""
                row.add(judged)
                if server_name.startswith("MLflow"):
                    row.message = f"sync afterwards: {synced.added + synced.mended} added"
                rows.append(row)
        return rows


class Turns:
    """Every second request meets the next of `kinds`, until `times` faults have happened."""

    def __init__(self, kinds: list[str], times: int) -> None:
        self.kinds = kinds
        self.times = times
        self.requests = 0
        self.done = Counter[str]()
        self.lock = threading.Lock()

    def __call__(self, method: str, path: str, n: int) -> str | None:
        with self.lock:
            self.requests += 1
            if self.requests % 2 or (number := self.done.total()) >= self.times:
                return None
            self.done[kind := self.kinds[number % len(self.kinds)]] += 1
            return kind


class Plan:
    """Which request meets which fault: a share `RATE` of them at random, and all during an outage.

    It counts as recovered with the next request of the same kind that meets none, or after an outage with any request.
    """

    def __init__(self, kinds: list[str], times: int, seed: str) -> None:
        self.kinds = kinds
        self.times = times
        self.rng = random.Random(seed)
        self.done = Counter[str]()
        self.recovery_s: defaultdict[str, list[float]] = defaultdict(list)
        self.open: dict[tuple[str, str], tuple[str, float]] = {}  # request -> its fault, and when
        self.lock = threading.Lock()
        self.outage = -1
        self.begin()

    def begin(self) -> None:
        """Start to count the time to outages."""
        self.began = time.monotonic()

    def __call__(self, method: str, path: str, n: int) -> str | None:
        request = (method, path.partition("?")[0])
        now = time.monotonic()
        with self.lock:
            number, within = divmod(now - self.began, DOWN_EVERY_S)
            if number >= 1 and within < DOWN_S:
                if number != self.outage:
                    self.outage = int(number)
                    self.done[DOWN] += 1
                    self.open["", ""] = (DOWN, now)
                return "reset"
            if self.done.total() < self.times and self.rng.random() < RATE:
                kind = self.rng.choice(self.kinds)
                self.done[kind] += 1
                self.open[request] = (kind, now)
                return kind
            for answered in (request, ("", "")):
                if entry := self.open.pop(answered, None):
                    self.recovery_s[entry[0]].append(round(now - entry[1], 1))
            return None


Scenario = Callable[[Path, int, int], list[Row]]
