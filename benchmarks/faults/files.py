"""What goes wrong with the files of a storage: broken ones, and a disk that is full."""

import contextlib
import errno
import os
import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.faults.injection import LIMIT_S, Process, inject
from benchmarks.faults.study import FaultStudy, Row, calm, declare, metrics_of
from tests.support.calm import calm_run

from contrasweep.errors import StorageError
from contrasweep.study.file import load_study

DAMAGES = {
    "truncated": lambda data, rng: data[: rng.randrange(len(data))],
    "emptied": lambda data, rng: b"",
    "a byte flipped": lambda data, rng: _flipped(data, rng.randrange(len(data))),
    "other JSON": lambda data, rng: b'["something else"]',
}


def broken_files(folder: Path, times: int, seed: int, limit_s: float = LIMIT_S) -> list[Row]:
    """Files of unfinished trials are broken while no driver runs; the next run goes on in spite of them."""
    rng = random.Random(f"{seed} files")
    number = iter(range(100))
    rows = {name: Row(f"file of an unfinished trial {name}") for name in DAMAGES}

    def new_study() -> FaultStudy:
        there = folder / str(next(number))
        return FaultStudy(there, seeds=2, storage=str(there / "runs"))

    until = time.monotonic() + limit_s
    while sum(row.injected for row in rows.values()) < times and time.monotonic() < until:
        study = new_study()
        seen = dict[str, str]()
        broken = Counter[str]()
        left = times - sum(row.injected for row in rows.values())
        while (
            time.monotonic() < until
            and broken.total() < left
            and len(study.recorded()) < study.trials - 2
        ):
            process = study.start()
            study.wait_for_epoch(process)
            time.sleep(rng.uniform(1.0, 4.0))
            process.kill()
            process.wait()
            seen = study.recorded()
            broken += _break(study, rng, left - broken.total())
        study.finish()
        judged = study.judge(seen)
        message = study.message()
        for name, count in broken.items():
            rows[name].add(Row("", count, message=message))
            rows[name].add(judged)
    return list(rows.values())


def _break(study: FaultStudy, rng: random.Random, most: int) -> Counter[str]:
    """Break some of the files of trials without a record, at most so many; how often what was done."""
    done = Counter[str]()
    recorded = study.records.finished()
    trials = [
        path for path in Path(study.storage, "faults/trials").iterdir() if path.name not in recorded
    ]
    for file in sorted(file for trial in trials for file in trial.rglob("*") if file.is_file()):
        # a worker may outlive its driver for a moment, and replace its log
        with contextlib.suppress(FileNotFoundError):
            if done.total() < most and (data := file.read_bytes()) and rng.random() < 0.7:
                name = rng.choice(list(DAMAGES))
                file.write_bytes(DAMAGES[name](data, rng))
                done[name] += 1
    return done


def full_disk(folder: Path, times: int, seed: int) -> list[Row]:
    """Fill the storage's own disk for a while, but for a random rest, again and again during a study."""
    folder.mkdir(parents=True)
    rng = random.Random(f"{seed} disk")
    number = iter(range(100))
    with contextlib.ExitStack() as stack:

        def new_study() -> FaultStudy:
            there = folder / str(next(number))
            disk = stack.enter_context(small_disk(folder / f"disk {there.name}"))
            return FaultStudy(there, seeds=2, storage=str(disk / "runs"))

        def fill(process: Process) -> bool:
            disk = sorted(folder.glob("disk *"))[-1]
            (disk / "filler").write_bytes(
                b"\0" * max(0, shutil.disk_usage(disk).free - rng.randrange(0, 200_000))
            )
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(2.0, 6.0))
            (disk / "filler").unlink()
            return True

        return inject(new_study, [("disk of the storage full for 2 to 6 s", fill)] * times, rng)


def full_at_each_write(folder: Path, times: int, seed: int) -> list[Row]:
    """The disk is full at one write of a study, at another one each time: half of the file is there. The study's trials
    are trained in this process, one after another, and the same study is begun again after the fault."""
    plain = os.fsync
    row = Row("disk full at one write of a study, in one process")
    expected = calm(1)
    writes = 0

    def failing(at: int) -> Any:
        def fsync(fd: int) -> None:
            nonlocal writes
            writes += 1
            if writes == at:
                os.ftruncate(fd, os.fstat(fd).st_size // 2)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            plain(fd)

        return fsync

    def run_through(number: int, at: int) -> Row:
        nonlocal writes
        there = folder / str(number)
        writes = 0
        runs = 0
        there.mkdir(parents=True)
        study = load_study(str(declare(there / "study.yaml", 1, 0.0, str(there / "trained"))))
        os.fsync = failing(at)
        message = ""
        results = None
        try:
            while results is None and runs < 3:
                runs += 1
                try:
                    results = calm_run(study, there / "runs")
                except StorageError as error:
                    message = message or str(error)
        finally:
            os.fsync = plain
        shown = {} if results is None else metrics_of(results)
        epochs = Counter((there / "trained").read_text().splitlines())
        lost = sum(shown.get(cell) != metrics for cell, metrics in expected.items())
        # a trial that has its record is trained by nobody: each of its epochs is there once, or again after the fault
        twice = sum(count > 2 for count in epochs.values())
        repeated = sum(count - 1 for count in epochs.values())
        return Row(
            "", int(bool(message)), lost, twice, repeated, runs=runs, studies=1, message=message
        )

    run_through(0, 0)
    every = sorted(random.Random(f"{seed} full").sample(range(1, writes + 1), min(times, writes)))
    for number, at in enumerate(every, start=1):
        row.add(run_through(number, at))
    return [row]


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A folder that is a disk of its own, of 16 MiB."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=False)


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x20]) + data[at + 1 :]
