"""Identities of processes, valid also after their end, and temporary folders that are removed afterwards."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "contrasweep-scratch-"
"""How the names of all temporary folders of ours begin."""


def machine() -> str:
    """Return an id of this boot and of this container's namespace of processes; "" where the system does not tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{os.readlink('/proc/self/ns/pid')}:"
    except OSError:
        return ""


def process_identity(pid: int) -> str:
    """Return this machine, `pid` and the start of that process as a text; "" where no such process is known."""
    began = began_at(pid)
    return f"{machine()}{pid}:{began}" if began and machine() else ""


def began_at(pid: int) -> str:
    """Return when the process `pid` began, in ticks since the boot, as text.

    "" where there is no such process, or the system has no `/proc`.
    """
    # Field 22 of the file, `starttime`: the 20th behind the name in brackets, which may hold spaces itself.
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def scratch_folder(purpose: str) -> Path:
    """Make a temporary folder and return its path; `purpose` is a word in its name.

    The name also has this process. `sweep_scratch` removes the folder once this process has ended.
    """
    return Path(tempfile.mkdtemp(prefix=scratch_prefix(purpose)))


def scratch_prefix(purpose: str) -> str:
    """Return the first part of the name of a temporary folder for this `purpose`, such as a cache.

    It has this process's container, number and start, by which `sweep_scratch` knows whether the process still runs.
    """
    pid = os.getpid()
    return f"{PREFIX}{_namespace()}-{pid}-{began_at(pid)}-{purpose}-"


def sweep_scratch() -> int:
    """Remove the temporary folders (see `scratch_folder`) of processes that have ended; return how many there were.

    A process that was killed leaves its folders. Folders of other users stay, and so do those of other containers,
    whose processes cannot be seen from here.
    """
    swept = 0
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}{_namespace()}-*-*-*"):
        pid, began = folder.name.removeprefix(f"{PREFIX}{_namespace()}-").split("-")[:2]
        with contextlib.suppress(OSError):
            # A process that has the number now and began at another time is another process.
            if (
                began
                and pid.isdecimal()
                and began_at(int(pid)) != began
                and folder.stat().st_uid == os.getuid()
            ):
                shutil.rmtree(folder)
                swept += 1
    return swept


def _namespace() -> str:
    """Return the digits of `pid:[4026531836]`, the name of this container's namespace of processes; "0": unknown."""
    return "".join(filter(str.isdecimal, machine().partition(":")[2])) or "0"
