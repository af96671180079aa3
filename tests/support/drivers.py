"""`contrasweep` as a user starts it: a process of its own, on a Ray of its own."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import psutil
from places import SUPPORT, module_path
from raylets import wait_for

Driver = subprocess.Popen[str]


@contextmanager
def ray_folder():
    """A folder for one Ray, removed at the end. Short: a Unix socket's path has at most 107 characters."""
    folder = tempfile.mkdtemp(prefix="cs-", dir="/tmp")
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def start_driver(*words, folder, ray, environment=None, module="contrasweep"):
    """Start `python -m <module> *words` in `folder`, with Ray's files below `ray`. It imports this folder's trainables;
    `environment` is added to this process's. SIGHUP ends it, also where the tests are run under nohup."""
    own = {"PYTHONPATH": module_path(SUPPORT), "OMP_NUM_THREADS": "1", "RAY_TMPDIR": str(ray)}
    return subprocess.Popen(
        [sys.executable, "-m", module, *words],
        env=os.environ | own | dict(environment or {}),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_take_hangups,
    )


def _take_hangups():
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def has_ended(pid):
    """Whether the process has ended, whether or not anybody has waited for it."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_while_it_runs(driver, condition):
    """Wait for a condition; assert that the driver has not ended meanwhile."""
    wait_for(lambda: condition() or driver.poll() is not None)
    assert driver.poll() is None, driver.communicate()


def output_of(driver):
    """What a driver that ends well has printed, on standard output and the other."""
    printed, errors = driver.communicate()
    assert driver.returncode == 0, errors
    return printed, errors
