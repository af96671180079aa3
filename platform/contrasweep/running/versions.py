"""Which code a trial ran: package versions, Python, and the commit where the source is a git checkout."""

import functools
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from contrasweep.cluster.git import git

PACKAGES = (
    "contrasweep",
    "torch",
    "torchvision",
    "numpy",
    "ray",
    "optuna",
    "mlflow",
    "pyarrow",
    "scipy",
    "scikit-learn",
)


@functools.cache
def versions() -> dict[str, str]:
    """Name -> version; `commit` with `+` at its end where the checkout has uncommitted changes."""
    installed = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    commit = _commit()
    return installed | ({"commit": commit} if commit else {})


def _commit() -> str:
    here = Path(__file__).resolve().parent
    try:
        top, commit = git(here, "rev-parse", "--show-toplevel", "HEAD").decode().splitlines()
        if Path(top) / "platform" not in here.parents:
            return ""
        return commit + "+" * bool(git(here, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return ""
