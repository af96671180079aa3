"""The code that travels with a job: a copy of the project without what is large, private or made by running it."""

import fnmatch
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from contrasweep.cluster.errors import SubmissionError

EXCLUDES = (
    ".*",
    "__pycache__",
    "*.pyc",
    "*.egg-info",
    "node_modules",
    "build",
    "dist",
    "venv",
    "contrasweep-runs",
    "mlruns",
    "mlartifacts",
    "mlflow.db*",
    "wandb",
    "data",
    "datasets",
    "shared",
    "docs",
    "tests",
    "*.parquet",
    "*.arrow",
    "*.npy",
    "*.npz",
    "*.pt",
    "*.pth",
    "*.ckpt",
    "*.safetensors",
    "*.zip",
    "*.tar",
    "*.gz",
    "*.whl",
    "id_rsa*",
    "*.pem",
    "*.key",
)
"""Names, of files or folders at any depth, that stay behind; everything hidden (.git, .venv, .env) is among them.
The package folder `contrasweep/data` is code and travels: see `_kept`."""
LIMIT_MIB = 50.0
"""More than this is no code. Ray itself refuses 512 MiB and is slow long before."""


def snapshot(
    root: Path, to: Path, *, excludes: Sequence[str] = EXCLUDES, files: Mapping[str, Path] | None = None
) -> float:
    """Copy the project at `root` into the folder `to`, and `files` (path in the copy -> file) beside it. MiB.

    `SubmissionError` if there is no such folder or if the copy would exceed `LIMIT_MIB`: it names the largest.
    """
    if not root.is_dir():
        raise SubmissionError(f"the folder to send, {root}, does not exist or is not a folder")
    chosen = {path.relative_to(root).as_posix(): path for path in _kept(root, excludes)} | dict(files or {})
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


def _kept(root: Path, excludes: Sequence[str]) -> Iterator[Path]:
    """Files below `root` that travel. Inside a Python package (a folder with `__init__.py`), a folder counts as
    code whatever its name, if it is a package too, and then a link to it is followed. Other links to folders are not:
    they lead to data, mostly."""
    for folder, names, files in os.walk(root, followlinks=True):
        here = Path(folder)
        inside = (here / "__init__.py").exists()
        packages = {name for name in names if inside and (here / name / "__init__.py").exists()}
        names[:] = sorted(
            name
            for name in names
            if (name in packages and not here.resolve().is_relative_to((here / name).resolve()))  # a link to above
            or not (_matches(name, excludes) or (here / name).is_symlink())
        )
        yield from (here / name for name in sorted(files) if not _matches(name, excludes) and (here / name).is_file())


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
