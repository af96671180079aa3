"""A host whose memory runs out: the run is in a control group of Linux (version 1), whose limit is lowered to what it
uses while another process in it takes memory, so that the kernel kills. As root."""

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.faults.injection import Process, inject
from benchmarks.faults.study import FaultStudy, Row

CONTROL = Path("/sys/fs/cgroup/memory")
UNLIMITED = 2**60
GREEDY = "import time; taken = bytearray({bytes}); time.sleep(1)"


def out_of_memory(folder: Path, times: int, seed: int) -> list[Row]:
    """Use up the host's memory, so that the kernel kills a process of the run; Ray marks its workers as the first to
    go.
    """
    rng = random.Random(f"{seed} memory")
    number = iter(range(100))
    with control_group() as group:

        def new_study() -> FaultStudy:
            there = folder / str(next(number))
            return FaultStudy(there, seeds=2, storage=str(there / "runs"), prefix=_inside(group))

        def starve(process: Process) -> bool:
            kills = _kills(group)
            used = int((group / "memory.usage_in_bytes").read_text())
            (group / "memory.limit_in_bytes").write_text(str(used + 50 * 2**20))
            greedy = subprocess.Popen(
                [*_inside(group), sys.executable, "-c", GREEDY.format(bytes=150 * 2**20)]
            )
            greedy.wait()
            (group / "memory.limit_in_bytes").write_text(str(UNLIMITED))
            return _kills(group) > kills

        return inject(
            new_study, [("memory of the host used up", starve)] * times, rng, between_s=(0.5, 3.0)
        )


@contextlib.contextmanager
def control_group() -> Iterator[Path]:
    """Path of a control group without a memory limit."""
    group = CONTROL / f"faults-{os.getpid()}"
    group.mkdir()
    try:
        yield group
    finally:
        until = time.monotonic() + 30
        while (group / "cgroup.procs").read_text() and time.monotonic() < until:
            time.sleep(0.2)
        group.rmdir()


def _inside(group: Path) -> tuple[str, ...]:
    """Words before a command that is to run in the group."""
    return ("/bin/sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$0" "$@"')


def _kills(group: Path) -> int:
    lines = (group / "memory.oom_control").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
