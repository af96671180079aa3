"""Jobs of a Ray cluster over the REST API of its dashboard (docs.ray.io, "Ray Jobs REST API"); Ray is not needed here.

A job belongs to the cluster from the moment it is accepted: the machine that sent it may go away, and any other may
follow it. Each failure is one line of `SubmissionError`.
"""

import hashlib
import http.client
import io
import json
import os
import re
import shlex
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from typing_extensions import TypedDict

from contrasweep.cluster import out_of_memory
from contrasweep.cluster.errors import JobNotFoundError, SubmissionError

T = TypeVar("T")

JOB_ID = re.compile(r"contrasweep-.+-[0-9a-f]{8}|raysubmit_\w+")
"""An id as `submit` or Ray gives it."""
RAYS_LINE = re.compile(
    r"^Running entrypoint for job |^Job entrypoint command failed | job_manager\.py:"
)
"""A line of a job's log that Ray has written, and not the job."""
STATUSES = ("PENDING", "RUNNING", "SUCCEEDED", "FAILED", "STOPPED")
ENDED = STATUSES[2:]
"""Statuses of jobs that do not run any more."""
POLL_S = 1.0
"""How often the dashboard is asked again."""
CHARACTERS_PER_S = 2**18
"""Characters a second that may be fetched to follow a log."""
MAX_WAIT_S = 60.0
"""Seconds for which this limit may keep new text waiting, at most."""
TIMEOUT_S = 30.0
"""How long the dashboard may take for an answer."""
MAX_PACKAGE = 500 * 2**20
"""Bytes of a package that the head takes (Ray's GCS_STORAGE_MAX_SIZE)."""
SAME_TIME = (1980, 1, 1, 0, 0, 0)
"""Time of every file in a package, so that the same files are the same package."""


class JobRow(TypedDict):
    """A study's job as the cluster lists it; `start` and `end` in seconds since 1970, None before the job has them.

    `by` says who sent it from which machine; `exit_status` is that of `contrasweep run`, None before its end and where
    the job was stopped. `reason` is the last line that Ray or the job says of its failure; "" where it did not fail.
    """

    id: str
    study: str
    storage: str
    by: str
    status: str
    exit_status: int | None
    reason: str
    start: float | None
    end: float | None


JobAnswer = Mapping[str, Any]
"""A job as the REST API describes it."""


@dataclass(frozen=True)
class Job:
    """A job that the cluster at `address`, `http://HEAD:8265`, has accepted.

    Its methods ask the dashboard there. They raise `JobNotFoundError` where it does not know the job, `SubmissionError`
    where it does not answer, or not as Ray does.
    """

    id: str
    address: str

    def status(self) -> str:
        """Return PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED."""
        return self._ask(lambda answer: _status(answer["status"]))

    def logs(self) -> str:
        """Return all that the job has printed so far."""
        return self._ask(lambda answer: str(answer["logs"]), "/logs")

    def died_of_memory(self) -> bool:
        """Whether the job was ended because memory ran out, by what Ray says of it or its log says."""
        message = self._ask(lambda answer: str(answer.get("message") or ""))
        return out_of_memory.exhausted_memory(f"{message}\n{self.logs()}") is not None

    def follow(self, write: Callable[[str], object] = print, timeout_s: float = 300.0) -> str:
        """Write what the job prints, from its beginning, until it ends; return its last status.

        The API gives the whole log or none of it, so a long log is fetched less often. A dashboard that does not answer
        is asked again for `timeout_s` seconds; then `SubmissionError` says what to do. Interrupting (Ctrl-C) leaves the
        job as it is.
        """
        written = 0  # characters of the log
        due = 0.0  # when the log is fetched next
        answered = time.monotonic()  # when the dashboard answered last
        warned = False  # whether it was said that it does not answer
        while True:
            try:
                status = self.status()
                if status in ENDED or time.monotonic() >= due:
                    text = self.logs()
                    if len(text) > written:
                        write(text[written:])
                        written = len(text)
                    due = time.monotonic() + min(written / CHARACTERS_PER_S, MAX_WAIT_S)
                if status in ENDED:
                    return status
                answered = time.monotonic()
                warned = False
            except JobNotFoundError:
                raise
            except SubmissionError as error:
                if not warned:
                    print(
                        f"{error}; attaching again for {timeout_s:.0f} s",
                        file=sys.stderr,
                        flush=True,
                    )
                warned = True
                if time.monotonic() - answered > timeout_s:
                    hint = (
                        f"the job may still run: `{self.command('logs')} --follow` attaches again"
                    )
                    raise SubmissionError(f"{error}; {hint}") from None
            time.sleep(POLL_S)

    def stop(self, wait_s: float = 60.0) -> str:
        """Ask the job to end, wait `wait_s` seconds at most until it has, and return its status then.

        The job gets SIGTERM, so that it writes what it has and can be resumed.
        """
        self._ask(lambda answer: bool(answer["stopped"]), "/stop", "POST")
        deadline = time.monotonic() + wait_s
        while True:
            status = self.status()
            if status in ENDED or time.monotonic() >= deadline:
                return status
            time.sleep(0.3)

    def command(self, name: str) -> str:
        """Return the command `contrasweep NAME` on this job, as a shell takes it."""
        return shlex.join(["contrasweep", name, self.id, "--address", self.address])

    def _ask(self, parse: Callable[[Any], T], path: str = "", method: str = "GET") -> T:
        """Return `parse(answer)` of the dashboard's JSON answer to `method` at the job's path followed by `path`."""
        job = f"/api/jobs/{quote(self.id, safe='')}"
        return Dashboard(self.address).read(parse, method, job + path)


class Dashboard:
    """The REST API at `address`, `http://HEAD:8265`; no answer, or none that Ray gives, is a `SubmissionError`."""

    def __init__(self, address: str) -> None:
        self.address = normal_address(address)

    def ray_version(self) -> str:
        """Return the cluster's version of Ray."""
        return self.read(lambda answer: str(answer["ray_version"]), "GET", "/api/version")

    def addresses(self) -> list[str]:
        """Return the address of each node that lives."""
        return self.read(
            lambda answer: [
                str(node["node_ip"])
                for node in answer["data"]["result"]["result"]
                if node["state"] == "ALIVE"
            ],
            "GET",
            "/api/v0/nodes",
        )

    def jobs(self) -> list[JobRow]:
        """Return the jobs of studies that the cluster remembers, the newest first; others and probes are left out."""
        listed = self.read(
            # `submit` notes the study of a job in its metadata, and a probe says that it is one.
            lambda answer: [
                _row(job)
                for job in answer
                if (job["metadata"] or {}).get("contrasweep") not in (None, "probe")
            ],
            "GET",
            "/api/jobs/",
        )
        return sorted(listed, key=lambda job: -(job["start"] or 0.0))

    def submit(
        self,
        entrypoint: str,
        *,
        id: str | None = None,
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
        metadata: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
    ) -> Job:
        """Queue a job on the cluster and return it; a `folder` is uploaded first, if one is given.

        `entrypoint` is the command, which the shell runs in a copy of `folder` with the variables `env`. `id` is the
        job's id (None: Ray makes one), `metadata` texts that the cluster keeps beside the job. A head that has just
        started may not have its agent for jobs yet; it is asked again for `timeout_s` seconds. `SubmissionError` where
        the job is refused.
        """
        environment: dict[str, object] = {"env_vars": dict(env or {})}
        if folder is not None:
            environment["working_dir"] = self._upload(folder)
        job = {
            "entrypoint": entrypoint,
            "runtime_env": environment,
            "metadata": dict(metadata or {}),
            "submission_id": id,
        }
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return Job(self._queue(job), self.address)
            except SubmissionError as error:
                if "No available agent" not in str(error):
                    raise
                if time.monotonic() > deadline:
                    raise SubmissionError(
                        f"the head takes no jobs after {timeout_s:.0f} s: its agent for jobs does not run"
                    ) from None
                print(
                    "the head has no agent for jobs yet; asking again", file=sys.stderr, flush=True
                )
                time.sleep(POLL_S)

    def _queue(self, job: Mapping[str, object]) -> str:
        """Queue a job of these fields; return its id."""
        return self.read(
            lambda answer: str(answer["submission_id"]),
            "POST",
            "/api/jobs/",
            json.dumps(job).encode(),
        )

    def _upload(self, folder: Path) -> str:
        """Send a folder as a package, unless the cluster has it; return the package's address, `gcs://NAME.zip`.

        The name is a digest of the content. `SubmissionError` where the package is larger than the head takes.
        """
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as package:
            for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), SAME_TIME)
                # The upper 16 bits hold the permissions, so that a script stays executable.
                entry.external_attr = path.stat().st_mode << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                package.writestr(entry, path.read_bytes())
        content = file.getvalue()
        if len(content) > MAX_PACKAGE:
            raise SubmissionError(
                f"the code is a package of {len(content) >> 20} MiB; Ray takes {MAX_PACKAGE >> 20}"
            )
        name = f"_ray_pkg_{hashlib.sha1(content).hexdigest()[:16]}.zip"
        try:
            self._send("GET", f"/api/packages/gcs/{name}")
        except SubmissionError:  # it is not there
            self._send("PUT", f"/api/packages/gcs/{name}", content)
        return f"gcs://{name}"

    def read(
        self, parse: Callable[[Any], T], method: str, path: str, body: bytes | None = None
    ) -> T:
        """Send the request `method` at `path`, with `body` if given, and return `parse(answer)` of its JSON answer.

        A path is such as `/api/version`. `SubmissionError` where there is no answer, or one that Ray does not give:
        `parse` then raises an error.
        """
        try:
            return parse(json.loads(self._send(method, path, body)))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            problem = f"{type(error).__name__}: {error}"[:100]
            raise SubmissionError(
                f"{self.address}{path} is not answered as a Ray dashboard does ({problem}); write http://HOST:8265"
            ) from None

    def _send(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Return the body of the dashboard's answer to `method` at `path`, with `body` (None: none) and our token.

        `SubmissionError` in one line where it refuses or does not answer within `TIMEOUT_S`; `JobNotFoundError` for a
        job that it does not know.
        """
        request = urllib.request.Request(self.address + path, body, auth_headers(), method=method)
        request.add_header("Content-Type", "application/json")
        try:
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                    return bytes(answer.read())
            except urllib.error.HTTPError as error:
                text = error.read().decode(errors="replace").strip()
                raise self._refusal(error.code, text) from None
        # Reading a refusal may fail too, where the dashboard ends amid it.
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)  # refused, no such host, timed out; not HTTP
            message = str(getattr(reason, "strerror", None) or reason).strip()
            # What speaks no HTTP, as Ray's own port, answers with bytes.
            cause = message if message.isprintable() else "what answers speaks no HTTP"
            raise SubmissionError(f"no Ray dashboard answers at {self.address} ({cause})") from None

    def _refusal(self, code: int, text: str) -> SubmissionError:
        """Return the error for an answer with the HTTP status `code`.

        The error tells of a wrong token or an unknown job. For any other code it has the first and the last line of the
        server's `text`.
        """
        if code in (401, 403):
            asks = (
                "asks for a token" if code == 401 else "refuses the token; it must be the cluster's"
            )
            hint = "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or write it to ~/.ray/auth_token"
            return SubmissionError(f"{self.address} {asks}; {hint}")
        if code == 404 and "does not exist" in text:
            listed = shlex.join(["contrasweep", "jobs", "--address", self.address])
            return JobNotFoundError(
                f"there is no job of that name or study at {self.address}: `{listed}` lists those that there are; a "
                "head that was started again has forgotten its jobs, and submitting the study again goes on from its "
                "records"
            )
        lines = text.splitlines() or ["is it a Ray dashboard?"]  # a traceback of the server, mostly
        summary = lines[0] if len(lines) == 1 else f"{lines[0]} ... {lines[-1]}"
        return SubmissionError(f"{self.address} answers {code}: {summary[:400]}")


def normal_address(address: str) -> str:
    """Return the address of a Ray dashboard as `http://host:port`; `SubmissionError` if `address` cannot be one.

    `host:port` alone is taken for one of http. Whether anything answers there is not asked.
    """
    text = address if ":/" in address else f"http://{address}"
    if set("@?#") & set(text):
        raise SubmissionError(
            "the address of a Ray dashboard has no user, password, query or fragment in it"
        )
    try:
        parts = urlsplit(text)
        is_dashboard = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # half an IPv6 address, a port that is no number
        is_dashboard = False
    if not is_dashboard:
        raise SubmissionError(f"{address} is no address of a Ray dashboard; write http://HOST:8265")
    return text.rstrip("/")


def auth_headers() -> dict[str, str]:
    """Return the HTTP headers that Ray's token authentication wants; {} without RAY_AUTH_MODE=token or without a token.

    The token is that in RAY_AUTH_TOKEN, else in the file that RAY_AUTH_TOKEN_PATH names, else in ~/.ray/auth_token.
    """
    if os.environ.get("RAY_AUTH_MODE") != "token":
        return {}
    file = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    token = os.environ.get("RAY_AUTH_TOKEN") or (file.read_text() if file.is_file() else "")
    return {"Authorization": f"Bearer {token.strip()}"} if token.strip() else {}


def _status(word: str) -> str:
    """Return `word` if it is a status of Ray's; else raise `ValueError`."""
    if word not in STATUSES:
        raise ValueError(f"there is no status {word!r}")
    return word


def _row(job: JobAnswer) -> JobRow:
    """Return a job of Ray's answer, whose times are in milliseconds, as a row in seconds.

    `submit` has put the names of the study and of its storage into the job's metadata.
    """
    start = job["start_time"]
    end = job["end_time"]
    metadata = job["metadata"]
    exit_status = job.get("driver_exit_code")
    reason = _reason(str(job["message"] or ""), exit_status) if job["status"] == "FAILED" else ""
    return JobRow(
        id=job["submission_id"],
        study=metadata["contrasweep"],
        storage=metadata.get("storage", ""),
        by=metadata.get("by", ""),
        status=_status(job["status"]),
        exit_status=exit_status,
        reason=reason,
        start=None if start is None else int(start) / 1000,
        end=None if end is None else int(end) / 1000,
    )


def _reason(message: str, exit_status: int | None) -> str:
    """Return why a job failed: the signal that killed it, else the last line of Ray's message that the job has printed.

    Ray's message ends with the log of the job, among which are lines of Ray's own.
    """
    if exit_status is not None and exit_status < 0:
        return f"killed by signal {-exit_status}"
    return last_words(message)


def last_words(text: str) -> str:
    """Return the last line of a log that the job has printed and not Ray; "" where there is none."""
    ours = [line for line in text.splitlines() if line.strip() and not RAYS_LINE.search(line)]
    return ours[-1].strip()[:400] if ours else ""
