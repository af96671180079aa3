"""Processes that are killed or stopped: the driver, workers, and Ray's own."""

import contextlib
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from benchmarks.faults.injection import Hit, Process, inject
from benchmarks.faults.study import FaultStudy, Row

Pick = Callable[[Process], list[psutil.Process]]


def children(process: Process, is_one: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    """Processes that the command has started and for which `is_one` is true."""
    chosen = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if is_one(child):
                    chosen.append(child)
    return chosen


def named(name: str) -> Pick:
    return lambda process: children(process, lambda p: p.name() == name)


def workers(process: Process) -> list[psutil.Process]:
    """Processes of the command that train."""
    return children(
        process, lambda p: bool(p.cmdline()) and p.cmdline()[0].startswith("ray::ResourceTrainable")
    )


def driver(process: Process) -> list[psutil.Process]:
    """The command itself."""
    return [psutil.Process(process.pid)] if process.poll() is None else []


VICTIMS: dict[str, Pick] = {
    "driver": driver,
    "worker": workers,
    "gcs_server": named("gcs_server"),
    "raylet": named("raylet"),
}


def on_processes(
    victim: str, folder: Path, times: int, seed: int, stop_s: float = 0.0
) -> list[Row]:
    """Kill (or stop, for `stop_s` seconds) one of the run's processes, at `times` random moments. One trial runs at
    once, so that the next epoch after a fault is the one that it held up."""
    kind = f"{victim} stopped for {stop_s:.0f} s" if stop_s else f"{victim} killed"
    rng = random.Random(f"{seed} {kind}")
    number = iter(range(100))

    def new_study() -> FaultStudy:
        there = folder / str(next(number))
        return FaultStudy(there, seeds=2, storage=str(there / "runs"), max_concurrent=1)

    return inject(new_study, [(kind, hit_one(VICTIMS[victim], rng, stop_s))] * times, rng)


def hit_one(pick: Pick, rng: random.Random, stop_s: float) -> Hit:
    """A fault that kills one of the processes that `pick` returns, or with `stop_s` stops it for so many seconds."""

    def hit(process: Process) -> bool:
        if not (victims := pick(process)):
            return False
        stop([rng.choice(victims)], stop_s) if stop_s else rng.choice(victims).kill()
        return True

    return hit


def stop(processes: list[psutil.Process], seconds: float) -> None:
    """Send SIGSTOP, and SIGCONT after so many `seconds`."""
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        time.sleep(seconds if number == signal.SIGSTOP else 0)
