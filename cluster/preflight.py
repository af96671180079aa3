"""Checks before a job is sent. Each failure is one line of `SubmissionError`."""

import http.client
import json
import os
import re
import shlex
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from contrasweep.cluster import probe
from contrasweep.cluster.errors import SubmissionError

_CREDENTIAL = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|ACCESS_KEY|API_KEY|PRIVATE_KEY", re.IGNORECASE)


def normal_address(address: str) -> str:
    """The address of a Ray dashboard as `http://host:port`; raises `SubmissionError` if it is none."""
    text = address if "://" in address else f"http://{address}"
    if text.startswith("ray://"):
        raise SubmissionError(f"{address} is an address for Ray Client; jobs go to the dashboard, http://HOST:8265")
    if urlsplit(text).scheme not in ("http", "https") or not urlsplit(text).hostname:
        raise SubmissionError(f"{address} is no address of a Ray dashboard; write http://HOST:8265")
    return text.rstrip("/")


def auth_headers() -> dict[str, str]:
    """What Ray's token authentication wants: with RAY_AUTH_MODE=token, the token in RAY_AUTH_TOKEN, in the file
    that RAY_AUTH_TOKEN_PATH names, or in ~/.ray/auth_token. Read each time, where Ray reads once a process."""
    if os.environ.get("RAY_AUTH_MODE") != "token":
        return {}
    file = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    token = os.environ.get("RAY_AUTH_TOKEN") or (file.read_text() if file.is_file() else "")
    return {"Authorization": f"Bearer {token.strip()}"} if token.strip() else {}


def check_address(address: str, timeout_s: float = 10.0) -> None:
    """Raise `SubmissionError` unless a Ray dashboard answers at `address` and accepts our token, of our version where
    Ray is installed here."""
    answer = _get(address, "/api/version", timeout_s)
    theirs = answer.get("ray_version") if isinstance(answer, dict) else None
    if not isinstance(theirs, str):
        raise SubmissionError(f"{address} answers, but not as a Ray dashboard does; write http://HOST:8265")
    try:
        import ray
    except ModuleNotFoundError:  # the job runs with theirs
        return
    if theirs != ray.__version__:
        raise SubmissionError(
            f"{address} runs Ray {theirs} and this is Ray {ray.__version__}; install ray=={theirs} here or "
            f"{ray.__version__} there"
        )


def is_remote(address: str, timeout_s: float = 10.0) -> bool:
    """Whether any node of the cluster is another machine, so that folders of this one are not seen there. The
    nodes' own addresses tell; that of the dashboard does not, since a tunnel makes it 127.0.0.1."""
    import psutil

    here = {entry.address for entries in psutil.net_if_addrs().values() for entry in entries} | {
        "127.0.0.1",
        "localhost",
    }
    path = "/api/v0/nodes"
    answer = _get(address, path, timeout_s)
    try:
        listed = answer["data"]["result"]["result"]
        return any(str(node["node_ip"]) not in here for node in listed if node["state"] == "ALIVE")
    except (LookupError, TypeError) as error:
        raise SubmissionError(
            f"{address}{path} is not answered as Ray does ({type(error).__name__}: {error})"
        ) from None


def check_uris(uris: Mapping[str, str], remote: bool) -> list[str]:
    """Raise `SubmissionError` for addresses that only this machine can read, if the cluster is `remote`, and for
    passwords in any. `uris` maps purpose (storage, tracking) to address; returns those that a probe can test."""
    to_probe = []
    for purpose, uri in uris.items():
        parts = urlsplit(uri)
        database = parts.scheme.partition("+")[0] in ("postgresql", "mysql")
        if parts.password or ("@" in parts.netloc and not database):
            raise SubmissionError(
                f"{purpose} {parts.scheme}://...@{parts.hostname}: a user or password in an address would be readable "
                "in the job; set it in the nodes' environment"
            )
        if parts.scheme in ("", "file") or parts.scheme.startswith("sqlite"):
            if remote:
                raise SubmissionError(
                    f"{purpose} {uri} is a file of this machine, which the cluster cannot read; {_instead(purpose)}"
                )
        else:
            to_probe.append(uri)
    return to_probe


def _instead(purpose: str) -> str:
    return (
        "use the address of an MLflow server, http://HOST:5000" if purpose == "tracking" else "use s3://BUCKET/PREFIX"
    )


def check_env(env: Mapping[str, str]) -> None:
    """Raise `SubmissionError` for credentials: whoever can see the job can read its variables."""
    for name in env:
        if _CREDENTIAL.search(name):
            raise SubmissionError(
                f"{name} looks like a credential and would be readable in the job; set it in the nodes' environment"
            )


def check_not_running(client: Any, study: str, storage: str, timeout_s: float = 3.0) -> None:
    """Raise `SubmissionError` if a job of the cluster is running `study` on `storage`: a second would train the same
    trials twice. Waits `timeout_s` for it to end, because the cluster notices a killed driver after a second."""
    deadline = time.monotonic() + timeout_s
    while True:
        ours = {"contrasweep": study, "storage": storage}
        alive = [
            job
            for job in client.list_jobs()
            if ours.items() <= (job.metadata or {}).items() and not job.status.is_terminal()
        ]
        if not alive:
            return
        if time.monotonic() > deadline:
            raise SubmissionError(
                f"job {alive[0].submission_id} is running {study} on {storage}; `contrasweep logs` follows it, "
                f"`contrasweep stop` ends it"
            )
        time.sleep(0.5)


def send(client: Any, timeout_s: float = 60.0, **job: Any) -> str:
    """Queue a job and return its id; a head that has only just started, without an agent for jobs, is asked again."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return str(client.submit_job(**job))
        except RuntimeError as error:
            if "No available agent" not in str(error):
                raise
            if time.monotonic() > deadline:
                raise SubmissionError(
                    f"the head takes no jobs after {timeout_s:.0f} s: its agent for jobs does not run"
                ) from None
            print("the head has no agent for jobs yet; asking again", file=sys.stderr, flush=True)


def check_reachable(client: Any, uris: Iterable[str], env: Mapping[str, str], timeout_s: float = 120.0) -> None:
    """Raise `SubmissionError` unless the cluster reaches `uris`; a small job tests it from there."""
    wanted = list(uris)
    if not wanted:
        return
    source = Path(probe.__file__).read_text()
    job = send(
        client,
        entrypoint=f"python -c {shlex.quote(source)} " + " ".join(map(shlex.quote, wanted)),
        runtime_env={"env_vars": dict(env)} if env else None,
        metadata={"contrasweep": "probe"},
    )
    deadline = time.monotonic() + timeout_s
    while not client.get_job_status(job).is_terminal():
        if time.monotonic() > deadline:
            client.stop_job(job)
            raise SubmissionError(
                f"the cluster did not run a first job within {timeout_s:.0f} s; is its head overloaded?"
            )
        time.sleep(0.3)
    answer = re.search(r"^PROBE (.*)$", client.get_job_logs(job), re.MULTILINE)
    if answer is None:
        raise SubmissionError(f"a first job failed on the cluster; see `contrasweep logs {job}`")
    try:
        unreachable = dict(json.loads(answer[1]))
    except (ValueError, TypeError):
        said = f"{answer[1][:80]!r}, which is not its answer"
        raise SubmissionError(f"a first job on the cluster printed {said}; see `contrasweep logs {job}`") from None
    for uri, why in unreachable.items():
        raise SubmissionError(f"{uri} cannot be reached from the cluster ({' '.join(str(why).split())[:200]})")


def _get(address: str, path: str, timeout_s: float) -> Any:
    request = urllib.request.Request(address + path, headers=auth_headers())
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            raise SubmissionError(f"{address} {_token_hint(error.code)}") from None
        raise SubmissionError(f"{address} answers {error.code}; is it a Ray dashboard?") from None
    except (OSError, ValueError, http.client.HTTPException, RecursionError) as error:
        reason = getattr(error, "reason", error)  # refused, no such host, timed out; not JSON, not HTTP
        raise SubmissionError(
            f"no Ray dashboard answers at {address} ({getattr(reason, 'strerror', None) or reason})"
        ) from None


def _token_hint(code: int) -> str:
    if code == 403:
        return "refuses the token in RAY_AUTH_TOKEN or ~/.ray/auth_token; it must be the cluster's"
    if os.environ.get("RAY_AUTH_MODE") != "token":
        return "asks for a token; set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or write it to ~/.ray/auth_token"
    return "asks for a token; set RAY_AUTH_TOKEN or write it to ~/.ray/auth_token"
