"""Jobs on a Ray cluster from a machine outside it: submit, look, follow, stop.

A job belongs to the cluster from the moment it is accepted: the machine that sent it may go away, and any other
may follow it. What is checked before is in `preflight`.
"""

import asyncio
import contextlib
import logging
import shlex
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from contrasweep.cluster import preflight
from contrasweep.cluster.errors import SubmissionError
from contrasweep.cluster.job_client import JobClient
from contrasweep.cluster.snapshot import EXCLUDES, snapshot

ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
_DASHBOARD_CHECK_S = 10.0


def submit(
    entrypoint: Sequence[str],
    *,
    address: str,
    working_dir: Path,
    uris: Mapping[str, str],
    name: str = "study",
    env: Mapping[str, str] | None = None,
    files: Mapping[str, Path] | None = None,
    excludes: Sequence[str] = EXCLUDES,
    metadata: Mapping[str, str] | None = None,
) -> str:
    """Check, send and queue a job; returns its id. `SubmissionError` before anything is queued.

    entrypoint: words of the command, run by the head's shell in a copy of `working_dir`.
    uris: what the job will read and write, {"storage": ..., "tracking": ...}; must be reachable from the cluster.
    name: of the study; a second job of that name on the same storage is refused as long as one runs.
    env: variables of the job and its workers, no credentials. PYTHONPATH is set if the project has `platform/`.
    files: more files for the copy, as {path in it: file}, such as a study that lies elsewhere.
    """
    address = preflight.normal_address(address)
    variables = dict(env or {})
    preflight.check_env(variables)
    preflight.check_address(address, _DASHBOARD_CHECK_S)
    to_probe = preflight.check_uris(uris, preflight.is_remote(address, _DASHBOARD_CHECK_S))
    if (working_dir / "platform").is_dir():
        variables.setdefault("PYTHONPATH", "platform")
    with tempfile.TemporaryDirectory(prefix="contrasweep-") as folder, _client(address) as client:
        snapshot(working_dir, Path(folder), excludes=excludes, files=files)
        preflight.check_not_running(client, name, uris.get("storage", ""))
        preflight.check_reachable(client, to_probe, dict(env or {}))
        return preflight.send(
            client,
            entrypoint=shlex.join(entrypoint),
            submission_id=f"contrasweep-{_slug(name)}-{uuid.uuid4().hex[:8]}",
            runtime_env={"working_dir": folder, "env_vars": variables},
            metadata={"contrasweep": name, "storage": uris.get("storage", ""), **(metadata or {})},
        )


def status(job: str, *, address: str) -> str:
    """PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED."""
    with _client(preflight.normal_address(address)) as client:
        return str(client.get_job_status(job).value)


def logs(job: str, *, address: str) -> str:
    """All that the job has printed so far."""
    with _client(preflight.normal_address(address)) as client:
        return str(client.get_job_logs(job))


def follow(job: str, *, address: str, write: Callable[[str], object], timeout_s: float = 300.0) -> str:
    """Write what the job prints, from its beginning, until it ends; returns its last status.

    When the connection breaks it is made again and goes on where it was; after `timeout_s` without an answer
    it is given up, with what to do then. Interrupting (Ctrl-C) leaves the job as it is.
    """
    address = preflight.normal_address(address)
    written, last_answer, warned = 0, time.monotonic(), False
    while True:
        try:
            with _client(address) as client:
                current = str(client.get_job_status(job).value)
                last_answer, warned = time.monotonic(), False
                for text in _tail(client, job, written):
                    written += len(text)
                    last_answer = time.monotonic()
                    write(text)
                if current in ENDED:
                    return current
        except SubmissionError as error:
            if "there is no job" in str(error):
                raise
            if not warned:
                warned = True
                print(f"{error}; attaching again for {timeout_s:.0f} s", file=sys.stderr, flush=True)
            if time.monotonic() - last_answer > timeout_s:
                raise SubmissionError(
                    f"{error}; the job may still run: `contrasweep logs {job} --follow` attaches again"
                ) from None
        time.sleep(0.5)


def stop(job: str, *, address: str, wait_s: float = 60.0) -> str:
    """Ask the job to end (SIGTERM: it writes what it has and is resumable) and wait for that; its last status."""
    with _client(preflight.normal_address(address)) as client:
        client.stop_job(job)
        deadline = time.monotonic() + wait_s
        while (current := str(client.get_job_status(job).value)) not in ENDED and time.monotonic() < deadline:
            time.sleep(0.3)
        return current


class JobRow(TypedDict):
    """One of our jobs on a cluster; `start` and `end` in seconds since 1970, None before."""

    id: str
    study: str
    status: str
    start: float | None
    end: float | None


def jobs(*, address: str) -> list[JobRow]:
    """Our jobs on the cluster, newest first: id, study, status, start and end in seconds since 1970."""
    with _client(preflight.normal_address(address)) as client:
        listed = [job for job in client.list_jobs() if (job.metadata or {}).get("contrasweep") not in (None, "probe")]
    listed.sort(key=lambda job: -(job.start_time or 0))
    return [
        {
            "id": job.submission_id,
            "study": job.metadata["contrasweep"],
            "status": str(job.status.value),
            "start": (job.start_time or 0) / 1000,
            "end": job.end_time / 1000 if job.end_time else None,
        }
        for job in listed
    ]


def _slug(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-")[:40] or "study"


@contextlib.contextmanager
def _client(address: str) -> Iterator[Any]:
    """A client for jobs; its errors, which carry tracebacks of the server, as one line."""
    connect, errors = _job_client()
    for name in (
        "ray.dashboard.modules.job.sdk",
        "ray.dashboard.modules.dashboard_sdk",
        "ray._private.runtime_env.packaging",
    ):
        logging.getLogger(name).setLevel(logging.WARNING)
    preflight.check_address(address, _DASHBOARD_CHECK_S)
    try:
        yield connect(address, headers=preflight.auth_headers())
    except SubmissionError:
        raise
    except errors as error:
        text = str(error).strip()
        if "status code 404" in text:
            raise SubmissionError(
                f"there is no job of that name at {address}; a head that was started again has forgotten its jobs, and "
                "submitting the study again goes on from its records"
            ) from None
        lines = text.splitlines() or [type(error).__name__]
        shown = lines[0] if len(lines) == 1 else f"{lines[0]} ... {lines[-1]}"
        raise SubmissionError(f"{address}: {shown}") from None


def _job_client() -> tuple[Callable[..., Any], tuple[type[Exception], ...]]:
    """Ray's client for jobs, or ours where Ray is not installed, and what it raises."""
    try:
        import aiohttp
        from ray.job_submission import JobSubmissionClient
    except ModuleNotFoundError:
        return JobClient, (RuntimeError, OSError)
    return JobSubmissionClient, (RuntimeError, OSError, aiohttp.ClientError)


def _tail(client: Any, job: str, skip: int) -> Iterator[str]:
    """What the job prints after its first `skip` characters, as it comes, until it ends or the connection does."""
    loop = asyncio.new_event_loop()
    chunks = client.tail_job_logs(job)
    try:
        while True:
            try:
                text = loop.run_until_complete(anext(chunks))
            except StopAsyncIteration:
                return
            fresh = text[skip:]
            skip = max(0, skip - len(text))
            if fresh:
                yield fresh
    finally:
        loop.run_until_complete(chunks.aclose())
        loop.close()
