"""The git checkout of some code: its commit, and whether the code differs from that commit.

Git is only asked what it knows (`rev-parse`, `ls-tree`), so that no content filter runs either. Files are compared with
the commit by their contents.
"""

import functools
import hashlib
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from contrasweep.cluster.git import git


@dataclass(frozen=True)
class Checkout:
    """A commit, empty where there is none; `dirty` where the code differs from it."""

    commit: str = ""
    dirty: bool = False


def checkout_of(file: str, files: Mapping[str, bytes]) -> Checkout:
    """Return the checkout that holds `file`.

    It is dirty where `files` differ from the commit.

    `files` (path -> content) are compared, as far as they lie in the checkout. Without a checkout, a commit, or a git
    that answers here, the `Checkout` is empty.
    """
    try:
        folder = Path(file).resolve().parent
        top, commit = git(folder, "rev-parse", "--show-toplevel", "HEAD").decode().splitlines()
        inside = {}
        for path, data in files.items():
            real = Path(path).resolve()
            if real.is_relative_to(top):
                inside[real.relative_to(top).as_posix()] = data
        committed = _blobs(Path(top), sorted({name.partition("/")[0] for name in inside}))
    except (OSError, ValueError, subprocess.SubprocessError):
        return Checkout()
    return Checkout(commit, any(not _is_blob(committed.get(name, ""), data) for name, data in inside.items()))


def _blobs(top: Path, names: list[str]) -> dict[str, str]:
    """Path -> object id of the files below some names at the top of the commit's tree."""
    if not names:
        return {}
    listed = git(top, "--literal-pathspecs", "ls-tree", "-r", "-z", "--full-tree", "HEAD", "--", *names)
    entries = (entry.partition(b"\t") for entry in listed.split(b"\0") if entry)
    return {os.fsdecode(path): about.split()[2].decode() for about, _, path in entries}


def _is_blob(object_id: str, data: bytes) -> bool:
    """Whether a file is what the commit has, line ends aside (git may have written them for this system)."""
    algorithm = hashlib.sha256 if len(object_id) == 64 else hashlib.sha1
    texts = (data, data.replace(b"\r\n", b"\n"))
    return any(algorithm(b"blob %d\0" % len(text) + text).hexdigest() == object_id for text in texts)


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
