"""A study's code and command sent to a Ray cluster as a job, checked before anything is queued.

`contrasweep.cluster.package` says what travels. Other checks are made inside the job, before its trials. Each failure
is one line of `SubmissionError`.
"""

import importlib.metadata
import json
import platform
import re
import shlex
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from contrasweep.cluster import package
from contrasweep.cluster.errors import SubmissionError
from contrasweep.cluster.jobs import ENDED, Dashboard, Job, last_words

ANSWER_S = 120
"""Seconds that a first job may take, and each node to tell its versions."""


def submit(
    entrypoint: Sequence[str],
    *,
    address: str,
    working_dir: Path,
    uris: Mapping[str, str],
    probe: Path,
    name: str = "study",
    files: Mapping[str, Path] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Job:
    """Check, send and queue a job; return it.

    Args:
        entrypoint: The words of the command, which the head's shell runs in a copy of `working_dir`.
        address: The cluster's Ray dashboard, `http://HEAD:8265`.
        working_dir: The project's folder.
        uris: Purpose -> address that the job will read or write (see `check_uris`).
        probe: The program that tests there what the job needs (see `check_there`).
        name: The study's name. While a job of it runs on the same storage, a second one is refused.
        files: Path in the copy -> further file, such as a study that lies elsewhere.
        metadata: Further texts that the cluster keeps beside the job.

    Raises:
        SubmissionError: The job is refused; nothing was queued.
    """
    # First all that may refuse the job, from cheap to dear; `dashboard.submit` alone queues it.
    dashboard = Dashboard(address)
    check_version(dashboard)
    to_probe = check_uris(uris, is_remote(dashboard))
    with tempfile.TemporaryDirectory(prefix="contrasweep-") as folder:
        snapshot(working_dir, Path(folder), files)
        check_not_running(dashboard, name, uris.get("storage", ""))
        # A checkout of contrasweep, whose job runs the code that is sent, not what is installed there.
        is_checkout = (working_dir / "platform" / "contrasweep").is_dir()
        env = {"PYTHONPATH": "platform"} if is_checkout else {}
        version = "" if is_checkout else versions()["contrasweep"]
        check_there(dashboard, probe, to_probe, version, Path(folder), env)
        # Only letters, digits and hyphens of the study's name stand in the job's id.
        slug = re.sub("[^a-z0-9]", "-", name.lower()).strip("-")[:40] or "study"
        return dashboard.submit(
            shlex.join(entrypoint),
            id=f"contrasweep-{slug}-{uuid.uuid4().hex[:8]}",
            env=env,
            folder=Path(folder),
            metadata={"contrasweep": name, "storage": uris.get("storage", ""), **(metadata or {})},
        )


def snapshot(root: Path, to: Path, files: Mapping[str, Path] | None = None) -> None:
    """Copy the files of the project at `root` that are sent, and `files` (path in the copy -> file), into `to`.

    Prints how much it is. `SubmissionError` where `package.contents` raises it.
    """
    chosen = package.contents(root, files)
    total = sum(path.stat().st_size for path in chosen.values()) / 2**20
    print(
        f"{len(chosen)} files are sent, {total:.2f} MiB; `contrasweep submit STUDY --dry-run` lists them",
        file=sys.stderr,
    )
    if secret := sorted(name for name in chosen if package.is_secret(Path(name).name)):
        print(
            f"warning: git tracks files that look like secrets, so they are sent: {', '.join(secret)}",
            file=sys.stderr,
        )
    for name, path in chosen.items():
        target = to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)  # with its mode: a script stays executable


def check_version(dashboard: Dashboard) -> None:
    """Raise `SubmissionError` unless a Ray dashboard answers, accepts our token and has this machine's version of Ray.

    Where Ray is not installed here, every version will do.
    """
    remote = dashboard.ray_version()
    try:
        import ray
    except ModuleNotFoundError:  # the job runs with the cluster's Ray
        return
    if remote != ray.__version__:
        raise SubmissionError(
            f"{dashboard.address} runs Ray {remote[:20]} and this is Ray {ray.__version__}; install ray=={remote[:20]} "
            f"here or {ray.__version__} there"
        )


def is_remote(dashboard: Dashboard) -> bool:
    """Return whether the cluster has nodes on other machines, which cannot see the folders of this one.

    The nodes' own addresses tell. The dashboard's does not, since it is 127.0.0.1 through a tunnel.
    """
    import psutil

    local = {entry.address for entries in psutil.net_if_addrs().values() for entry in entries}
    return not local.issuperset({*dashboard.addresses()} - {"127.0.0.1", "localhost"})


def check_uris(uris: Mapping[str, str], remote: bool) -> list[str]:
    """Return the addresses in `uris` that a probe can test; `SubmissionError` for the first address that is refused.

    `uris` maps purpose (storage, tracking, tracking wandb) to address or folder. An address with a user or a password
    is refused. If the cluster is `remote`, so is one that only this machine can read, such as a folder.
    """
    to_probe = []
    for purpose, uri in uris.items():
        parts = urlsplit(uri)
        if "@" in parts.netloc:
            raise SubmissionError(
                f"{purpose} {parts.scheme}://...@{parts.hostname}: a user or password in an address would be readable "
                "in the job; set it in the nodes' environment"
            )
        if parts.scheme not in ("", "file") and not parts.scheme.startswith("sqlite"):
            to_probe.append(uri)
        elif remote:
            server = "the address of an MLflow server, http://HOST:5000, or none"
            instead = "s3://BUCKET/PREFIX" if purpose == "storage" else server
            raise SubmissionError(
                f"{purpose} {uri} is a file of this machine, which the cluster cannot read; use {instead}"
            )
    return to_probe


def check_not_running(
    dashboard: Dashboard, study: str, storage: str, timeout_s: float = 3.0
) -> None:
    """Refuse while a job of the cluster is running `study` on `storage`: a second would train the same trials twice.

    Such a job is waited for `timeout_s` seconds, because the cluster notices the end of a killed driver late.
    `SubmissionError` where it still runs then.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        running = [
            Job(job["id"], dashboard.address)
            for job in dashboard.jobs()
            if (job["study"], job["storage"]) == (study, storage) and job["status"] not in ENDED
        ]
        if not running:
            return
        if time.monotonic() > deadline:
            raise SubmissionError(
                f"job {running[0].id} is running {study} on {storage}; `{running[0].command('logs')}` prints its log, "
                f"`{running[0].command('stop')}` ends it"
            )
        time.sleep(0.5)


def check_there(
    dashboard: Dashboard,
    probe: Path,
    uris: Iterable[str],
    version: str,
    folder: Path | None,
    env: Mapping[str, str],
) -> None:
    """Raise `SubmissionError` unless the cluster's `python` has contrasweep and can use each of `uris`.

    A small job tests this there, before the study's own is queued. It runs the text of the file `probe` where the
    study's job will run: in a copy of `folder`, if there is one, with the variables `env`. `version` is the one of
    contrasweep that is wanted; "" where any will do.
    """
    entrypoint = shlex.join(["python", "-c", probe.read_text(), version, *uris])
    job = dashboard.submit(entrypoint, env=env, folder=folder, metadata={"contrasweep": "probe"})
    deadline = time.monotonic() + ANSWER_S
    while job.status() not in ENDED:
        if time.monotonic() > deadline:
            job.stop(wait_s=0)
            raise SubmissionError(
                f"the cluster did not run a first job within {ANSWER_S} s; is its head overloaded?"
            )
        time.sleep(0.3)
    # The job prints one line, `PROBE {"address": "why it cannot be used"}`.
    logs = job.command("logs")
    printed = job.logs()
    answer = re.search(r"^PROBE (.*)$", printed, re.MULTILINE)
    try:
        unusable = dict(json.loads(answer[1] if answer else ""))
    except (ValueError, TypeError):
        if job.died_of_memory():
            raise SubmissionError(
                "the memory of the cluster's head ran out, so that a first job was killed there; submit when less "
                f"runs on it, or give it more memory; see `{logs}`"
            ) from None
        raise SubmissionError(
            f"a first job failed on the cluster ({last_words(printed)}); see `{logs}`"
        ) from None
    # One line says one problem: the first of them.
    for what, why in unusable.items():
        reason = " ".join(str(why).split())[:400]
        if what == "contrasweep":
            wanted = f"contrasweep {version}".rstrip()
            raise SubmissionError(
                f"the cluster's `python` lacks {wanted} ({reason}); install it there, in the environment that is first "
                "on the PATH of `ray start`"
            )
        raise SubmissionError(
            f"{what} cannot be used from the cluster ({reason}); its hosts read addresses and keys, such as "
            "AWS_ENDPOINT_URL, from the environment of their `ray start`"
        )


def versions() -> dict[str, str]:
    """Return package -> version of Python, contrasweep, Ray, torch and NumPy: results may differ between versions.

    "none" where a package is not installed.
    """
    installed = {"python": platform.python_version()}
    for name in ("contrasweep", "ray", "torch", "numpy"):
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            installed[name] = "none"
    return installed


def check_nodes() -> None:
    """Raise `SubmissionError` unless every node of the connected cluster has this process's versions.

    Each node is asked by a task of 0 cores, and has `ANSWER_S` seconds to answer. One that is lost meanwhile is left
    out.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ask = ray.remote(num_cpus=0)(versions)
    pending = []
    for node in ray.nodes():
        if node["Alive"]:
            on_node = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            answer = ask.options(scheduling_strategy=on_node).remote()
            pending.append((node["NodeName"], answer))
    answers = []
    for name, answer in pending:
        try:
            answers.append((name, ray.get(answer, timeout=ANSWER_S)))
        except ray.exceptions.GetTimeoutError:
            raise SubmissionError(
                f"node {name} does not answer within {ANSWER_S} s; is it overloaded?"
            ) from None
        except (
            ray.exceptions.NodeDiedError,
            ray.exceptions.TaskUnschedulableError,
            ray.exceptions.WorkerCrashedError,
        ):
            continue
    compare_versions(versions(), answers)


def compare_versions(
    driver: Mapping[str, str], nodes: Iterable[tuple[str, Mapping[str, str]]]
) -> None:
    """Raise `SubmissionError` for the first of `nodes` (name, versions) that differs from `driver`, its versions.

    Packages that only a node has are not compared.
    """
    for node, installed in nodes:
        for name, version in driver.items():
            if installed.get(name) != version:
                raise SubmissionError(
                    f"node {node} has {name} {installed.get(name)} and the driver {version}; use one image for all"
                )
