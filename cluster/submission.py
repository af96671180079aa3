"""A study's code and command sent to a Ray cluster as a job, checked before anything is queued.

The code that travels is a copy of the project without what is large, private or made by running it.
"""

import fnmatch
import os
import shlex
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from contrasweep.cluster import preflight
from contrasweep.cluster.errors import SubmissionError
from contrasweep.cluster.jobs import Dashboard, Job

EXCLUDES = (
    *(".*", "__pycache__", "*.pyc", "*.egg-info", "node_modules", "build", "dist", "venv", "docs", "tests"),
    *("contrasweep-runs", "mlruns", "mlartifacts", "mlflow.db*", "wandb", "data", "datasets", "shared"),
    *("*.parquet", "*.arrow", "*.npy", "*.npz", "*.pt", "*.pth", "*.ckpt", "*.safetensors"),
    *("*.zip", "*.tar", "*.gz", "*.whl", "id_rsa*", "*.pem", "*.key"),
)
"""Names, of files or folders at any depth, that stay behind; everything hidden (.git, .venv, .env) is among them.
The package folder `contrasweep/data` is code and travels: see `_kept`."""
LIMIT_MIB = 50.0
"""More than this is no code. Ray itself refuses 512 MiB and is slow long before."""


def submit(
    entrypoint: Sequence[str],
    *,
    address: str,
    working_dir: Path,
    uris: Mapping[str, str],
    name: str = "study",
    env: Mapping[str, str] | None = None,
    files: Mapping[str, Path] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Job:
    """Check, send and queue a job. `SubmissionError` before anything is queued.

    entrypoint: words of the command, run by the head's shell in a copy of `working_dir`.
    uris: what the job will read and write, {"storage": ..., "tracking": ...}; must be reachable from the cluster.
    name: of the study; a second job of that name on the same storage is refused as long as one runs.
    env: variables of the job and its workers, no credentials. PYTHONPATH is set if the project has `platform/`.
    files: more files for the copy, as {path in it: file}, such as a study that lies elsewhere.
    """
    dashboard, variables = Dashboard(address), dict(env or {})
    preflight.check_env(variables)
    preflight.check_version(dashboard)
    to_probe = preflight.check_uris(uris, preflight.is_remote(dashboard))
    if (working_dir / "platform").is_dir():
        variables.setdefault("PYTHONPATH", "platform")
    with tempfile.TemporaryDirectory(prefix="contrasweep-") as folder:
        snapshot(working_dir, Path(folder), files)
        preflight.check_not_running(dashboard, name, uris.get("storage", ""))
        preflight.check_reachable(dashboard, to_probe, dict(env or {}))
        return dashboard.submit(
            shlex.join(entrypoint),
            id=f"contrasweep-{_slug(name)}-{uuid.uuid4().hex[:8]}",
            env=variables,
            folder=Path(folder),
            metadata={"contrasweep": name, "storage": uris.get("storage", ""), **(metadata or {})},
        )


def _slug(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-")[:40] or "study"


def snapshot(root: Path, to: Path, files: Mapping[str, Path] | None = None) -> float:
    """Copy the project at `root` into the folder `to`, and `files` (path in the copy -> file) beside it.

    Return the size in MiB. `SubmissionError` if there is no such folder or if the copy would exceed `LIMIT_MIB`: it
    names the largest files.
    """
    if not root.is_dir():
        raise SubmissionError(f"the folder to send, {root}, does not exist or is not a folder")
    chosen = {path.relative_to(root).as_posix(): path for path in _kept(root)} | dict(files or {})
    sizes = {name: path.stat().st_size / 2**20 for name, path in chosen.items()}
    if (total := sum(sizes.values())) > LIMIT_MIB:
        largest = ", ".join(f"{n} ({sizes[n]:.0f} MiB)" for n in sorted(sizes, key=lambda n: -sizes[n])[:3])
        raise SubmissionError(
            f"the folder to send, {root}, holds {total:.0f} MiB, more than {LIMIT_MIB:.0f}: {largest}; "
            "exclude them and stage data with `contrasweep data stage`"
        )
    for name, path in chosen.items():
        target = to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return total


def _kept(root: Path) -> Iterator[Path]:
    """Yield the files below `root` that travel.

    Inside a Python package (a folder with `__init__.py`), a folder counts as code whatever its name, if it is a package
    too, and then a link to it is followed. Other links to folders are not: they lead to data, mostly.
    """
    for folder, names, files in os.walk(root, followlinks=True):
        here = Path(folder)
        inside = (here / "__init__.py").exists()
        packages = {name for name in names if inside and (here / name / "__init__.py").exists()}
        names[:] = sorted(
            name
            for name in names
            if (name in packages and not here.resolve().is_relative_to((here / name).resolve()))  # a link to above
            or not (_excluded(name) or (here / name).is_symlink())
        )
        yield from (here / name for name in sorted(files) if not _excluded(name) and (here / name).is_file())


def _excluded(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in EXCLUDES)
