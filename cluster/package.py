"""What of a project travels to a cluster: its code, without what is large, private or made by running it.

In a git work tree these are the files that git tracks, and those that it neither tracks nor ignores. There, and in a
project without git, files whose names are in one of the lists below are left out. Names are compared without case.
"""

import fnmatch
import functools
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from contrasweep.cluster.errors import SubmissionError
from contrasweep.cluster.git import git

LIMIT_MIB = 50.0
"""Size of a package above which it cannot be code alone. Ray itself refuses 512 MiB and is slow long before."""
EXCLUDES = (
    ".*",
    "__pycache__",
    "*.pyc",
    "*.egg-info",
    "node_modules",
    "build",
    "dist",
    "venv",
    "docs",
    "tests",
    "contrasweep-runs",
    "mlruns",
    "mlartifacts",
    "wandb",
    "data",
    "datasets",
    "shared",
    "events.out.tfevents.*",
    "*.parquet",
    "*.arrow",
    "*.npy",
    "*.npz",
    "*.pt",
    "*.pth",
    "*.ckpt",
    "*.safetensors",
    "*.h5",
    "*.hdf5",
    "*.onnx",
    "*.zip",
    "*.tar",
    "*.gz",
    "*.tgz",
    "*.bz2",
    "*.xz",
    "*.zst",
    "*.7z",
    "*.whl",
    "*.pkl",
    "*.pickle",
    "*.db",
    "*.db-*",
    "*.sqlite*",
)
"""Names of files and folders, at any depth, that are not sent; everything hidden (.git, .venv, .env) is among them.

A package inside a package is code, which is sent whatever its name, as `contrasweep/data` is.
"""
SECRETS = (
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    "*.pem",
    "*.key",
    "*.ppk",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "*.gpg",
    "*.pgp",
    "*.asc",
    "*.ovpn",
    "authorized_keys",
    "known_hosts",
    "netrc",
    "_netrc",
    "*htpasswd",
    "credentials",
    "*credentials*.json",
    "credentials.*",
    "*client_secret*",
    "*service[-_]account*",
    "secret",
    "secrets",
    "secret.*",
    "secrets.*",
    "*.secret",
    "*.secrets",
    "*[-_]secret.*",
    "*[-_]secrets.*",
    "password*",
    "passwd",
    "pgpass*",
    "token",
    "token.*",
    "*.token",
    "*_token",
    "*[-_]token.*",
    "api_key*",
    "apikey*",
    "kubeconfig*",
    "*.kubeconfig",
    "*.env",
    "env.*",
    "*.tfstate*",
    "*.tfvars",
    "rclone.conf",
)
"""Names of files that have passwords or keys; a module of Python is none of them."""
CORES = ("core", "core.[0-9]*", "*.core", "vgcore.*", "hs_err_pid*", "*.dmp")
"""Names of files with the memory of a process that died."""


def is_secret(name: str) -> bool:
    """Return whether a name says that its file has passwords or keys, as `id_rsa` does; never of a Python module."""
    return not name.casefold().endswith(".py") and _matches(name, SECRETS)


def contents(root: Path, files: Mapping[str, Path] | None = None) -> dict[str, Path]:
    """Return the files to send, as {path in the copy: file}: those of the project at `root`, and `files`.

    `files` have the same form, and replace files of the project at the same path. A link to what is sent is
    followed. Raises `SubmissionError` for a link that leads out of the project, for a folder that is not there,
    and for more than `LIMIT_MIB`; the message names the largest files.
    """
    if not root.is_dir():
        raise SubmissionError(f"the folder to send, {root}, does not exist or is not a folder")
    top = root.resolve()
    listed = set(_by_git(top) or _by_names(top))
    sent: dict[str, Path] = {}
    ordered = sorted(listed)
    for path in ordered:
        name = path.relative_to(top).as_posix()
        target = path.resolve()
        if not target.is_relative_to(top):
            raise SubmissionError(
                f"the link {name} leads out of the project, to {target}, and what lies there would be sent; put it "
                f"into the project, or name the link in .gitignore"
            )
        # What a link leads to is sent only if it is listed itself.
        if target in listed and target.is_file():
            sent[name] = target
        # A link to a folder stands for the files there, unless the folder is around the link.
        elif path.is_symlink() and target.is_dir() and not path.is_relative_to(target):
            for file in ordered:
                if file.is_relative_to(target) and file.is_file() and not file.is_symlink():
                    sent[f"{name}/{file.relative_to(target).as_posix()}"] = file
    sent |= files or {}
    sizes = {name: path.stat().st_size / 2**20 for name, path in sent.items()}
    total = sum(sizes.values())
    if total > LIMIT_MIB:
        names = sorted(sizes, key=lambda name: sizes[name], reverse=True)[:3]
        largest = ", ".join(f"{name} ({sizes[name]:.0f} MiB)" for name in names)
        raise SubmissionError(
            f"the folder to send, {root}, holds {total:.0f} MiB, more than {LIMIT_MIB:.0f}: {largest}; "
            "exclude them and stage data with `contrasweep data stage`"
        )
    return sent


def _by_git(top: Path) -> list[Path]:
    """Return the files and links of a work tree that are sent; [] where git does not answer or knows nothing here.

    A file that git tracks is sent whatever its name. For one that git neither tracks nor ignores, the lists of this
    module decide.
    """
    try:
        tracked = git(top, "ls-files", "-z", "--cached")
        others = git(top, "ls-files", "-z", "--others", "--exclude-standard")
    except (OSError, subprocess.SubprocessError):
        return []
    stays = functools.cache(_stays)  # many files have the same folders

    def stays_behind(path: Path) -> bool:
        """Whether the file `path` is not sent: because of itself, or because of a folder between it and `top`."""
        return stays(path) or (path.parent != top and stays_behind(path.parent))

    paths = [top / os.fsdecode(name) for name in tracked.split(b"\0") if name]
    untracked = [top / os.fsdecode(name) for name in others.split(b"\0") if name]
    paths += [path for path in untracked if not stays_behind(path)]
    # Git lists a submodule or another checkout as one folder, which is asked for its own files.
    for nested in [path for path in paths if path.is_dir() and not path.is_symlink()]:
        paths += _by_git(nested) or _by_names(nested)
    return paths


def _by_names(top: Path) -> Iterator[Path]:
    """Yield the files and links of a folder that are sent, by the lists of this module."""
    for folder, names, files in os.walk(top):
        # `os.walk` goes on into the folders that are left in `names`; a link to a folder is yielded like a file.
        paths = [Path(folder, name) for name in (*names, *files)]
        paths = [path for path in paths if not _stays(path)]
        names[:] = [path.name for path in paths if path.is_dir() and not path.is_symlink()]
        yield from (path for path in paths if path.name not in names)


def _stays(path: Path) -> bool:
    """Whether a file or folder is not sent: because of its name, or because of what a folder holds.

    These folders are not sent whatever their names: environments of Python, storages of studies, and folders that
    cannot be read.
    """
    is_folder = path.is_dir()
    # A package in a package is code, whatever its name.
    if is_folder and all((folder / "__init__.py").exists() for folder in (path, path.parent)):
        return False
    if _matches(path.name, EXCLUDES) or is_secret(path.name):
        return True
    if is_folder:
        is_environment = (path / "pyvenv.cfg").exists() or (path / "conda-meta").exists()
        if is_environment or not os.access(path, os.R_OK | os.X_OK):
            return True
        below = [Path(entry) for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]
        return any(map(_is_study, [path, *below]))
    return _matches(path.name, CORES)


def _is_study(folder: Path) -> bool:
    """Return whether this is the folder of a study or campaign in a storage."""
    study = (folder / "study.json").exists() and any(
        (folder / name).is_dir() for name in ("records", "trials", "lease")
    )
    return study or ((folder / "campaign.json").exists() and (folder / "ledger").is_dir())


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a name matches one of these patterns, without regard to case."""
    return any(fnmatch.fnmatchcase(name.casefold(), pattern) for pattern in patterns)
