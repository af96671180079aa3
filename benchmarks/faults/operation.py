"""What an unlucky operator meets: kills while a run starts and ends, two drivers at once, limits, floods of output."""

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import yaml
from benchmarks.faults.files import small_disk
from benchmarks.faults.injection import Process, inject
from benchmarks.faults.processes import stop
from benchmarks.faults.servers import s3
from benchmarks.faults.study import FaultStudy, Row
from benchmarks.tracking_services import S3_ENV, mlflow_server, postgres
from tests.support.raylets import RayCluster

from contrasweep.storage.records import StudyRecords
from contrasweep.tracking.kinds import checked_tracking
from contrasweep.tracking.sync import sync

ROOT = Path(__file__).resolve().parents[2]
AS_POSTGRES = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
REFUSED = 2
"""The exit status of a command that is told that its input is wrong."""


def at_start_and_end(folder: Path, times: int, seed: int) -> list[Row]:
    """A driver that tracks to a sqlite file is killed in its first seconds, and in the two around its last record;
    the same command is given again. A command that is refused counts as lost."""
    rng = random.Random(f"{seed} start and end")
    rows = [Row("driver killed as it starts"), Row("driver killed as it ends")]
    for number in range(max(1, times // 10)):
        there = folder / str(number)
        study = FaultStudy(
            there,
            seeds=2,
            storage=str(there / "runs"),
            tracking=f"sqlite:///{there}/mlflow.db",
            max_concurrent=2,
        )
        refused = 0
        counts = [0, 0]
        seen = dict[str, str]()
        for turn in range(10):
            process = study.start()
            ends = turn >= 5
            if ends and not _wait_for_last(study, process):
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0.0, 2.0) if ends else rng.uniform(0.2, 8.0))
            if process.poll() is None:
                process.kill()
                counts[ends] += 1
            refused += process.wait() == REFUSED
            seen |= study.recorded()
        refused += study.start().wait() == REFUSED
        judged = study.judge(seen)
        judged.lost += refused + _missing(study.storage, study.tracking)
        for row, count in zip(rows, counts, strict=True):
            row.injected += count
            row.add(judged)
            row.message = row.message or study.message(words=["takes over"])
    return rows


def two_drivers(folder: Path, times: int, seed: int) -> list[Row]:
    """The same command is given twice within a second, on a folder and on S3: one runs the study, the other is refused
    in one line or waits for it."""
    rng = random.Random(f"{seed} two")
    rows = [Row("two drivers at once, folder"), Row("two drivers at once, S3")]
    with s3(folder.with_name(f"{folder.name}-s3")) as (_, endpoint):
        for number in range(times):
            there = folder / str(number)
            on_s3 = number % 2 == 1
            storage = f"s3://faults/{seed}-{number}" if on_s3 else str(there / "runs")
            keys = S3_ENV | {"AWS_ENDPOINT_URL": endpoint} if on_s3 else {}
            with _environment(keys):
                study = FaultStudy(there, seeds=1, storage=storage, environment=keys)
                judged = _twice(study, rng.uniform(0.0, 1.0))
            rows[on_s3].add(Row("", 1, message=study.message(words=["runs", "running"])))
            rows[on_s3].add(judged)
    return rows


def _twice(study: FaultStudy, wait_s: float) -> Row:
    """What came of a study whose command is given twice; that neither call runs it counts as a loss."""
    first = study.start()
    time.sleep(wait_s)
    statuses = [process.wait() for process in (first, study.start())]
    if all(statuses):
        study.finish()
    judged = study.judge({})
    judged.lost += all(status != 0 for status in statuses)
    return judged


def submitted_twice(folder: Path, times: int, seed: int) -> list[Row]:
    """The same study is submitted twice within a second to a cluster: one job runs it, the other is refused, before it
    is queued or by the storage, or finds all done."""
    folder.mkdir(parents=True)
    rng = random.Random(f"{seed} submit")
    row = Row("study submitted twice at once")
    cluster = RayCluster()
    try:
        cluster.add_node("a", "T4", cpus=2)
        cluster.wait_for_nodes(2)
        for number in range(times):
            storage = str(folder / f"runs {number}")
            command = ("submit", "--address", cluster.address, "--follow")
            environment = {"RAY_AUTH_MODE": "disabled"}
            study = FaultStudy(
                folder / str(number),
                seeds=1,
                storage=storage,
                environment=environment,
                command=command,
            )
            judged = _twice(study, rng.uniform(0.0, 1.0))
            row.add(
                Row("", 1, message=study.message(words=["is running", "being run", "takes over"]))
            )
            row.add(judged)
    finally:
        cluster.close()
    return [row]


def read_only(folder: Path, times: int, seed: int) -> list[Row]:
    """The storage's disk is mounted read-only for a while in the middle of a run."""
    folder.mkdir(parents=True)
    rng = random.Random(f"{seed} read-only")
    number = iter(range(100))
    with contextlib.ExitStack() as stack:

        def new_study() -> FaultStudy:
            there = folder / str(next(number))
            disk = stack.enter_context(small_disk(folder / f"disk {there.name}"))
            return FaultStudy(there, seeds=2, storage=str(disk / "runs"))

        def forbid(process: Process) -> bool:
            disk = sorted(folder.glob("disk *"))[-1]
            if not _remount(disk, "ro"):  # a file is being written just now
                return False
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(rng.uniform(1.0, 6.0))
            return _remount(disk, "rw")

        return inject(
            new_study,
            [("storage read-only for 1 to 6 s", forbid)] * times,
            rng,
            between_s=(0.05, 1.0),
        )


LIMITS = {
    "256 file descriptors": ("prlimit", "--nofile=256:256"),
    "64 file descriptors": ("prlimit", "--nofile=64:64"),
    "address space of 4 GiB": ("prlimit", f"--as={4 * 2**30}"),
    "files of at most 1 MiB": ("prlimit", f"--fsize={2**20}"),
}


def under_limits(folder: Path, times: int, seed: int) -> list[Row]:
    """A run within limits of its process: it ends with all trials, or says in a line what it lacks; the same command
    without the limit completes it."""
    rows = {name: Row(f"run within {name}") for name in LIMITS}
    for number in range(times):
        name = list(LIMITS)[number % len(LIMITS)]
        there = folder / str(number)
        study = FaultStudy(there, seeds=1, storage=str(there / "runs"), prefix=LIMITS[name])
        status = study.start().wait()
        printed = study.output.read_text(errors="replace")
        seen = study.recorded()
        study.prefix = ()
        study.finish()
        judged = study.judge(seen)
        ours = "contrasweep/" in printed and "Traceback" in printed
        if status and ours:  # a traceback of ours in place of a line
            judged.lost += 1
        rows[name].add(Row("", 1, message=f"exit {status}: {study.message()}" if status else ""))
        rows[name].add(judged)
    return list(rows.values())


def database_stopped(folder: Path, times: int, seed: int) -> list[Row]:
    """MLflow's PostgreSQL is stopped and started, and at other times every process of it sleeps for a while."""
    rng = random.Random(f"{seed} database")
    folder.mkdir(parents=True)
    kinds = ["PostgreSQL of MLflow stopped for 3 s", "PostgreSQL of MLflow asleep for 5 s"]
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(postgres())
        server = stack.enter_context(mlflow_server(database, str(folder / "artifacts"), folder))
        number = iter(range(100))

        def new_study() -> FaultStudy:
            there = folder / str(next(number))
            return FaultStudy(there, seeds=2, storage=str(there / "runs"), tracking=server.uri)

        def restarted(process: Process) -> bool:
            words = _servers_of(database)[0].cmdline()
            program = [
                *AS_POSTGRES,
                str(Path(words[0]).with_name("pg_ctl")),
                "-D",
                words[words.index("-D") + 1],
            ]
            subprocess.run(
                [*program, "-m", "immediate", "-w", "stop"],
                check=True,
                capture_output=True,
                cwd="/",
            )
            time.sleep(3.0)
            options = " ".join(words[words.index("-D") + 2 :])
            log = ["-l", str(Path(words[words.index("-D") + 1]).parent / "log")]
            subprocess.run(
                [*program, "-o", options, *log, "-w", "start"],
                check=True,
                capture_output=True,
                cwd="/",
            )
            return True

        def asleep(process: Process) -> bool:
            stop(_servers_of(database), 5.0)
            return True

        faults = [(kinds[0], restarted), (kinds[1], asleep)] * (times // 2)
        rows = inject(new_study, faults, rng)
        missing = sum(_missing(str(there / "runs"), server.uri) for there in folder.glob("[0-9]*"))
        for row in rows:
            row.lost += missing
        return rows


FLOODS = {
    "a trial makes 1,000,000 reports": {"epochs": 1_000_000},
    "a trial prints 100 MB": {"prints_mb": 100},
    "a trial makes 100,000 reports": {"epochs": 100_000},
    "a trial raises an error of 70 MB": {"error_mb": 70},
    "an arm's name of 100 characters": {},
}


def floods(folder: Path, times: int, seed: int) -> list[Row]:
    """Trials that print, report or raise without measure: the study ends, and its storage can be read."""
    rows = {name: Row(name) for name in FLOODS}
    for number in range(times):
        name = list(FLOODS)[number % len(FLOODS)]
        there = folder / str(number)
        there.mkdir(parents=True)
        arm = "a" * 100 if "name" in name else "a"
        arms = {arm: {"trainable": "flooding:train", "config": FLOODS[name]}}
        declared: dict[str, Any] = {"name": "floods", "data": "digits-lt", "seeds": [0]}
        declared |= {"arms": arms} | ({"folds": 3} if "1,000,000" not in name else {})
        (there / "study.yaml").write_text(yaml.safe_dump(declared))
        program = [sys.executable, "-m", "contrasweep"]
        words = [*program, "run", "study.yaml", "--storage", "runs", "--tracking", "none"]
        done = subprocess.run(
            words, cwd=there, capture_output=True, text=True, errors="replace", timeout=3600
        )
        report = subprocess.run(
            [*program, "report", "floods", "--storage", "runs", "--json"],
            cwd=there,
            capture_output=True,
            text=True,
        )
        wrong = done.returncode not in (0, 1) or report.returncode != 0
        kib = (
            sum(file.stat().st_size for file in (there / "runs").rglob("*") if file.is_file())
            // 1024
        )
        rows[name].add(
            Row(
                "",
                1,
                lost=wrong,
                studies=1,
                runs=1,
                message=f"exit {done.returncode}, {kib} KiB kept",
            )
        )
    return list(rows.values())


def _wait_for_last(study: FaultStudy, process: Process) -> bool:
    """Wait until at most one trial has no record; False where the command has ended before."""
    while len(study.recorded()) < study.trials - 1:
        if process.poll() is not None:
            return False
        time.sleep(0.1)
    return True


def _missing(storage: str, tracking: str) -> int:
    """How many runs MLflow still lacks, or has with other values, once `sync` has brought it up to the storage."""
    records = StudyRecords(storage, "faults")
    sync(records, checked_tracking(tracking))
    (again,) = sync(records, checked_tracking(tracking))
    return again.added + again.mended


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """This process reads the storage with the same variables as the command."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _remount(disk: Path, how: str) -> bool:
    return not subprocess.run(
        ["mount", "-o", f"remount,{how}", str(disk)], capture_output=True
    ).returncode


def _servers_of(database: str) -> list[psutil.Process]:
    """The server of a database's address, and its processes."""
    port = database.rsplit(":", 1)[1].partition("/")[0]
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if port in words and "-D" in words:
            return [process, *process.children(recursive=True)]
    return []
