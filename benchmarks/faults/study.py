"""The study that meets the faults, and what it lost by them."""

import atexit
import hashlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import yaml
from tests.support.calm import calm_run

from contrasweep.errors import StorageError
from contrasweep.results.results import Results
from contrasweep.storage.records import StudyRecords
from contrasweep.study.file import load_study

SUPPORT = Path(__file__).resolve().parents[2] / "tests" / "support"
EPOCHS = 6
PAUSE_S = 0.3
POLL_S = 0.2
sys.path.append(str(SUPPORT))  # the trainable, for the run that nothing disturbs
# and on all nodes
os.environ["PYTHONPATH"] = os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")])
Cell = tuple[str, int, int]
MESSAGES = (
    "contrasweep:",
    "again",
    "could not",
    "does not",
    "No space",
    "starts over",
    "broken",
    "takes over",
)
"""Words of the lines that say what happened, among those that show progress."""


@dataclass
class Row:
    """What one kind of fault did to the studies in which it was injected."""

    fault: str
    injected: int = 0
    lost: int = 0  # results that were recorded and are gone or others, or were never recorded
    twice: int = 0  # trials that were trained on, beyond the epoch that had begun, after they had their record
    repeated: int = 0  # epochs that were trained more than once
    recovery_s: list[float] = field(default_factory=list)  # from each fault to the next epoch
    runs: int = 0  # of the command, until all was done
    studies: int = 0
    message: str = ""

    def add(self, other: "Row") -> None:
        """Add what another study or run of the benchmark found out about the same fault."""
        for name in ("injected", "lost", "twice", "repeated", "runs", "studies"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.recovery_s += other.recovery_s
        self.message = self.message or other.message


class FaultStudy:
    """A grid of small trainings that log every epoch. The study is run by the command line."""

    def __init__(
        self,
        folder: Path,
        *,
        seeds: int,
        storage: str,
        tracking: str = "none",
        environment: Mapping[str, str] | None = None,
        prefix: tuple[str, ...] = (),
        max_concurrent: int = 2,
        command: tuple[str, ...] = ("run",),
    ) -> None:
        """`prefix` are words before the program's name, `command` its first; `max_concurrent` trials run at once."""
        folder.mkdir(parents=True)
        self.folder = folder
        self.log = folder / "trained"
        self.output = folder / "output"
        self.seeds = seeds
        self.storage = storage
        self.tracking = tracking
        self.prefix = prefix
        self.max_concurrent = max_concurrent
        self.command = command
        self.environment = os.environ | {
            "RAY_TMPDIR": f"/tmp/cs-f{os.getpid()}",
            "TMPDIR": str(folder),
        }
        self.environment |= environment or {}
        self.study = declare(folder / "study.yaml", seeds, PAUSE_S, str(self.log))
        self.runs = 0
        # trial id -> epochs that ended after it had its record
        self.after_record: Counter[str] = Counter()
        self._watching = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="fault-study", daemon=True)
        self._watcher.start()

    @property
    def trials(self) -> int:
        return 6 * self.seeds

    @property
    def records(self) -> StudyRecords:
        return StudyRecords(self.storage, "faults")

    def start(self) -> "subprocess.Popen[bytes]":
        """Start the command, which runs the study or goes on with it."""
        self.runs += 1
        words = [
            *self.command,
            str(self.study),
            "--storage",
            self.storage,
            "--tracking",
            self.tracking,
        ]
        words += ["--max-concurrent", str(self.max_concurrent)]
        with self.output.open("ab") as output:
            process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", "contrasweep", *words],
                cwd=self.folder,
                env=self.environment,
                stdout=output,
                stderr=output,
            )
        atexit.register(process.kill)  # where the benchmark is interrupted
        return process

    def epochs(self) -> list[tuple[str, int]]:
        """(trial, epoch) in the order they were trained."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [(line.split()[0], int(line.split()[1])) for line in lines if len(line.split()) == 2]

    def recorded(self) -> dict[str, str]:
        """Trial id -> digest of its record."""
        records = self.records
        return {
            i: hashlib.sha256(records.store.read(records.key(i, "record.json"))).hexdigest()
            for i in records.finished()
        }

    def wait_for_epoch(self, process: "subprocess.Popen[bytes]", before: int | None = None) -> bool:
        """Wait until an epoch more than `before` (default: those that there are) is trained; False where the command
        has ended without one, or nothing came for two minutes."""
        before = len(self.epochs()) if before is None else before
        until = time.monotonic() + 120
        while len(self.epochs()) <= before:
            if process.poll() is not None or time.monotonic() > until:
                return len(self.epochs()) > before
            time.sleep(0.05)
        return True

    def finish(self, tries: int = 12) -> None:
        """Run the command until it says that all is done."""
        for _ in range(tries):
            if self.start().wait() == 0:
                return

    def judge(self, seen: Mapping[str, str]) -> Row:
        """Count what is lost: against a run without faults, and against the records `seen` before the fault."""
        self._watching.set()
        self._watcher.join()
        now = self.recorded()
        shown = metrics_of(Results.load("faults", self.storage))
        lost = sum(shown.get(cell) != metrics for cell, metrics in calm(self.seeds).items())
        lost += sum(now.get(trial) != digest for trial, digest in seen.items())
        repeated = sum(n - 1 for n in Counter(self.epochs()).values())
        # an epoch in which a process is stopped ends before it can find out that it was given up, and leaves nothing
        twice = sum(epochs > 1 for epochs in self.after_record.values())
        return Row("", lost=lost, twice=twice, repeated=repeated, runs=self.runs, studies=1)

    def message(self, since: int = 0, words: Collection[str] = MESSAGES) -> str:
        """First line of the output, after `since` bytes, that contains one of `words`."""
        lines = self.output.read_bytes()[since:].decode(errors="replace").splitlines()
        return next((line.strip() for line in lines if any(word in line for word in words)), "")

    def _watch(self) -> None:
        """The thread: epochs that were logged since the last look, of trials that had their record by then."""
        known = 0
        recorded = set[str]()
        while not self._watching.wait(POLL_S):
            lines = self.epochs()
            self.after_record.update(trial for trial, _ in lines[known:] if trial in recorded)
            try:
                recorded = self.records.finished()
            except (StorageError, OSError):  # a fault of the storage
                continue
            known = len(self.epochs())


@cache
def calm(seeds: int) -> dict[Cell, dict[str, float]]:
    """The metrics of each cell when nothing disturbs the study."""
    with tempfile.TemporaryDirectory(prefix="cs-calm-") as folder:
        study = declare(Path(folder) / "calm.yaml", seeds, 0.0, "")
        return metrics_of(calm_run(load_study(str(study)), Path(folder) / "runs"))


def declare(file: Path, seeds: int, pause_s: float, log: str) -> Path:
    """Write the study as a file."""
    each = {"epochs": EPOCHS, "pause_s": pause_s, "log": log, "keep_every": 2}
    arms = {
        n: {"trainable": "toy:train", "config": each | {"lr": lr}}
        for n, lr in {"a": 0.1, "b": 0.5}.items()
    }
    fields = {
        "name": "faults",
        "data": "digits-lt",
        "folds": 3,
        "seeds": list(range(seeds)),
        "arms": arms,
    }
    file.write_text(yaml.safe_dump(fields | {"max_failures": 5}))
    return file


def metrics_of(results: Results) -> dict[Cell, dict[str, float]]:
    """The metrics of each cell that is done."""
    done = [record for record in results.trial_records.values() if record.status == "done"]
    return {(r.arm, r.fold or 0, r.seed): dict(r.metrics) for r in done}
