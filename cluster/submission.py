"""A study's code and command sent to a Ray cluster as a job, checked before anything is queued.

`contrasweep.cluster.package` says what travels.
"""

import shlex
import shutil
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from contrasweep.cluster import package, preflight
from contrasweep.cluster.jobs import Dashboard, Job


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
        uris: Purpose -> address that the job will read or write (see `preflight.check_uris`).
        probe: The program that tests there what the job needs (see `preflight.check_there`).
        name: The study's name. While a job of it runs on the same storage, a second one is refused.
        files: Path in the copy -> further file, such as a study that lies elsewhere.
        metadata: Further texts that the cluster keeps beside the job.

    Raises:
        SubmissionError: The job is refused; nothing was queued.
    """
    # First all that may refuse the job, from cheap to dear; `dashboard.submit` alone queues it.
    dashboard = Dashboard(address)
    preflight.check_version(dashboard)
    to_probe = preflight.check_uris(uris, preflight.is_remote(dashboard))
    with tempfile.TemporaryDirectory(prefix="contrasweep-") as folder:
        snapshot(working_dir, Path(folder), files)
        preflight.check_not_running(dashboard, name, uris.get("storage", ""))
        # A checkout of contrasweep, whose job runs the code that is sent, not what is installed there.
        is_checkout = (working_dir / "platform" / "contrasweep").is_dir()
        env = {"PYTHONPATH": "platform"} if is_checkout else {}
        version = "" if is_checkout else preflight.versions()["contrasweep"]
        preflight.check_there(dashboard, probe, to_probe, version, Path(folder), env)
        slug = (
            "".join(character if character.isalnum() else "-" for character in name.lower()).strip(
                "-"
            )[:40]
            or "study"
        )
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
