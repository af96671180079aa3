"""Jobs of a Ray cluster over its REST API, for a machine without Ray: the part of `ray.job_submission.
JobSubmissionClient` that is used here, with the same names (docs.ray.io, "Ray Jobs REST API")."""

import asyncio
import hashlib
import io
import time
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import requests

T = TypeVar("T")

POLL_S = 1.0
MAX_QUIET_S = 8.0
"""Between two looks at a log that has nothing new, at most."""
CHARACTERS_PER_S, MAX_WAIT_S = 2**18, 60.0
"""What following a log may fetch, and how long that may keep what is new waiting."""
TIMEOUT_S = 60.0
MAX_PACKAGE = 500 * 2**20
"""Bytes of a package that the head takes (Ray's GCS_STORAGE_MAX_SIZE)."""
SAME_TIME = (1980, 1, 1, 0, 0, 0)
"""Of every file in a package, so that the same files are the same package."""

RuntimeEnv = Mapping[str, Any]
"""A Ray runtime environment; its fields are Ray's (`working_dir`, `env_vars`, ...)."""
JobAnswer = Mapping[str, Any]
"""A job as the cluster's REST API describes it."""


class JobStatus(StrEnum):
    """How a job stands."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"

    def is_terminal(self) -> bool:
        """Whether it is over."""
        return self not in (JobStatus.PENDING, JobStatus.RUNNING)


@dataclass(frozen=True)
class JobDetails:
    """A job as the cluster lists it; times in milliseconds since 1970."""

    submission_id: str | None
    status: JobStatus
    metadata: Mapping[str, str]
    start_time: int | None
    end_time: int | None


class JobClient:
    """Raises RuntimeError with the status code where the cluster refuses and where its answer is none of Ray's, OSError
    where it is not reached."""

    def __init__(self, address: str, headers: Mapping[str, str]) -> None:
        self.address, self.headers = address, dict(headers)
        self.clock: Callable[[], float] = time.monotonic
        self.sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def submit_job(
        self,
        *,
        entrypoint: str,
        runtime_env: RuntimeEnv | None = None,
        metadata: Mapping[str, str] | None = None,
        submission_id: str | None = None,
    ) -> str:
        """Send the folder `runtime_env["working_dir"]`, queue a job in it; its id."""
        environment = dict(runtime_env or {})
        if "working_dir" in environment:
            environment["working_dir"] = self._upload(Path(environment["working_dir"]))
        job = {
            "entrypoint": entrypoint,
            "submission_id": submission_id,
            "runtime_env": environment,
            "metadata": dict(metadata or {}),
        }
        return self._read(lambda answer: str(answer["submission_id"]), "POST", "/api/jobs/", json=job)

    def get_job_status(self, job: str) -> JobStatus:
        """How it stands."""
        return self._read(lambda answer: JobStatus(answer["status"]), "GET", _path(job))

    def get_job_logs(self, job: str) -> str:
        """All that it has printed."""
        return self._read(lambda answer: str(answer["logs"]), "GET", f"{_path(job)}/logs")

    async def tail_job_logs(self, job: str) -> AsyncIterator[str]:
        """What it prints, from its beginning, until it ends. The API gives the whole log or none of it, so it is asked
        for the less often the longer it is, and the longer nothing new was in it; how the job stands, each second."""
        written, quiet_s, due = 0, POLL_S, 0.0
        while True:
            ended = self.get_job_status(job).is_terminal()
            if ended or self.clock() >= due:
                text = self.get_job_logs(job)
                if fresh := text[written:]:
                    yield fresh
                quiet_s = POLL_S if fresh else min(2 * quiet_s, MAX_QUIET_S)
                written = max(written, len(text))
                due = self.clock() + max(quiet_s, min(written / CHARACTERS_PER_S, MAX_WAIT_S))
            if ended:
                return
            await self.sleep(POLL_S)

    def stop_job(self, job: str) -> bool:
        """Ask it to end; whether it was running."""
        return self._read(lambda answer: bool(answer["stopped"]), "POST", f"{_path(job)}/stop")

    def list_jobs(self) -> list[JobDetails]:
        """All jobs that the cluster remembers."""
        return self._read(lambda answer: [_details(job) for job in answer], "GET", "/api/jobs/")

    def _upload(self, folder: Path) -> str:
        """Send a folder as a package, unless the cluster has it; its address."""
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as package:
            for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), SAME_TIME)
                entry.external_attr, entry.compress_type = path.stat().st_mode << 16, zipfile.ZIP_DEFLATED
                package.writestr(entry, path.read_bytes())
        content = file.getvalue()
        if len(content) > MAX_PACKAGE:
            raise RuntimeError(f"the code is a package of {len(content) >> 20} MiB; Ray takes {MAX_PACKAGE >> 20}")
        name = f"_ray_pkg_{hashlib.sha1(content).hexdigest()[:16]}.zip"
        if not self._has(name):
            self._ask("PUT", f"/api/packages/gcs/{name}", data=content)
        return f"gcs://{name}"

    def _has(self, name: str) -> bool:
        return self._send("GET", f"/api/packages/gcs/{name}").ok

    def _read(self, read: Callable[[Any], T], method: str, path: str, **content: Any) -> T:
        """What `read` takes from the JSON of an answer."""
        answer = self._ask(method, path, **content)
        try:
            return read(answer.json())
        except (ValueError, LookupError, TypeError) as error:
            raise RuntimeError(f"{path} is not answered as Ray does ({type(error).__name__}: {error})") from None

    def _ask(self, method: str, path: str, **content: Any) -> requests.Response:
        answer = self._send(method, path, **content)
        if not answer.ok:
            raise RuntimeError(f"Request failed with status code {answer.status_code}: {answer.text}.")
        return answer

    def _send(self, method: str, path: str, **content: Any) -> requests.Response:
        return requests.request(method, self.address + path, auth=self._sign, timeout=TIMEOUT_S, **content)

    def _sign(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """As requests' `auth`: without one it puts a password of ~/.netrc in place of the token."""
        request.headers.update(self.headers)
        return request


def _path(job: str) -> str:
    return f"/api/jobs/{quote(job, safe='')}"


def _details(job: JobAnswer) -> JobDetails:
    start, end = (None if job[name] is None else int(job[name]) for name in ("start_time", "end_time"))
    return JobDetails(job["submission_id"], JobStatus(job["status"]), dict(job["metadata"] or {}), start, end)
