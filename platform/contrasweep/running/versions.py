"""Which code a trial ran: package versions, Python, and the commit where the source is a git checkout."""

import functools
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

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
    def git(*words: str) -> str:
        here = Path(__file__).resolve().parent
        done = subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) / "platform" not in Path(__file__).resolve().parents:
            return ""
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return ""
