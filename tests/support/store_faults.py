"""The whole life of a small study, from its command to its table, with a fault at one call of its storage.

A life is `contrasweep run` in a process that is forked from a warm one, so that it takes a second. Tune alone is left
out: its searcher, scheduler, callback and trainable are the real ones and are called as Tune calls them, in this
process, one trial after the other. So the storage sees the calls that it sees on a cluster.

On a folder a call is one that the kernel gets for a path of it, on S3 a request. They are counted from 1. What becomes
of the n-th one of a folder:

    error           it fails (EIO)
    half            the file is written to half, then the disk is full
    half and stop   so, and the process is killed
    wrong           a link is made, and said to have been there before, as NFS does
    stop            the process is killed before it

And of a request to S3:

    error           the answer is 500
    half            half of its body arrives
    cut             half of its answer arrives
    lost            it is done, and its answer is lost
    lost and again  so, and it is made again, as all requests are by default; but here, one that fails is not
    wrong           it is done, and its condition is said not to have held
    stop            the process is killed before it is done
"""

import contextlib
import errno
import json
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from places import SUPPORT

from contrasweep.trial import Report, Trial

WARM = [
    f"contrasweep.{name}" for name in ("cli.app", "running.engine.training", "report", "storage.s3")
]
"""What a life imports, but for Ray's and its own."""
EVENTS = {
    "open",
    "os.link",
    "os.rename",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "os.scandir",
    "os.truncate",
}
LIMIT_S = 120
HANGS = 1000
"""After so long a life is ended, with this exit status."""
STUDY = """
name: life
data: {data}
seeds: [0]
metric: accuracy
arms:
  a: {{trainable: 'store_faults:train', config: {{gain: 0.1}}}}
  b: {{trainable: 'store_faults:train', config: {{gain: 0.2}}}}
"""


def train(trial: Trial, resume: Path | None = None) -> Iterator[Report]:
    """Two epochs of arithmetic, a line in the log for each."""
    first = 1
    value = float(trial.seed)
    if resume is not None:
        first, value = json.loads((resume / "state.json").read_text())
    with tempfile.TemporaryDirectory() as scratch:
        for epoch in range(first, 3):
            value += trial.config["gain"]
            with Path(os.environ["LIFE_LOG"]).open("a") as log:
                log.write(f"{trial.id} {epoch}\n")
            (Path(scratch) / "state.json").write_text(json.dumps([epoch + 1, value]))
            yield Report(epoch, {"accuracy": value}, Path(scratch), items={"hits": [value, 1.0]})


@dataclass
class Ended:
    """How a command ended: its exit status (negative: killed by a signal), what it printed, and the calls it made."""

    status: int
    printed: str
    calls: list[str] = field(default_factory=list)


def live(folder, storage, n=0, fault="", environment=None, begun=lambda pid: None):
    """Run the command of the study in `folder`, with `fault` at the n-th call of a folder as its storage.

    `begun` is called with the process that does."""
    output = folder / "output"
    calls = folder / "calls"
    output.write_text("")
    calls.write_text("")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*WARM, "scipy.stats", "pandas"])
    process = context.Process(
        target=_life, args=(folder, storage, n, fault, dict(environment or {}))
    )
    process.start()
    begun(process.pid)
    process.join(LIMIT_S)
    if hangs := process.is_alive():
        process.kill()
        process.join()
    assert process.exitcode is not None
    return Ended(
        HANGS if hangs else process.exitcode, output.read_text(), calls.read_text().splitlines()
    )


def _life(folder, storage, n, fault, environment):
    """Become the command: this is the forked process."""
    file = os.open(folder / "output", os.O_WRONLY | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ.update(
        environment | {"TMPDIR": str(folder / "tmp"), "LIFE_LOG": str(folder / "log")}
    )
    tempfile.tempdir = None
    os.chdir(folder)
    sys.path.insert(0, str(SUPPORT))
    sys.argv = [
        "contrasweep",
        "run",
        str(folder / "study.yaml"),
        "--storage",
        storage,
        "--tracking",
        "none",
    ]
    from contrasweep.cli import main

    _without_tune()
    if "://" not in storage:
        FolderFaults(storage, folder / "calls", n, fault).begin()
    status = 1
    try:
        main()
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


class FolderFaults:
    """Counts the calls for a folder, and lets one of them meet a fault."""

    def __init__(self, folder, calls, n, fault):
        self.folder = folder
        self.n = n
        self.fault = fault
        self.count = 0
        self.calls = os.open(calls, os.O_WRONLY | os.O_APPEND)
        self.half = False  # the write that is under way ends half
        self.link = os.link
        self.fsync = os.fsync

    def begin(self):
        """Watch all calls of this process from now on."""
        os.fsync = self._fsync
        os.link = self._link
        sys.addaudithook(self._hook)

    def _hook(self, event, arguments):
        if event not in EVENTS or not isinstance(arguments[0], str | os.PathLike):
            return
        path = str(os.fspath(arguments[0]))
        if not f"{path}/".startswith(f"{self.folder}/"):
            return
        self.count += 1
        writes = event == "open" and bool(arguments[2] & (os.O_WRONLY | os.O_RDWR))
        what = f"{event} {'to write ' if writes else ''}{place(path.removeprefix(self.folder))}"
        os.write(self.calls, f"{what}\n".encode())
        if self.count != self.n:
            return
        if self.fault == "stop":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "error":
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        self.half = self.fault.startswith("half") and writes

    def _fsync(self, file):
        if not self.half:
            return self.fsync(file)
        self.half = False
        os.ftruncate(file, os.fstat(file).st_size // 2)
        if "stop" in self.fault:
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _link(self, source, target, **options):
        self.link(source, target, **options)
        if self.count == self.n and self.fault == "wrong":
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))


class RequestFaults:
    """The same of the requests to S3: the plan of a proxy on their way (see `benchmarks.fault_proxy`)."""

    def __init__(self, n, fault):
        self.n = n
        self.fault = fault
        self.calls = list[str]()
        self.pid = 0
        self.begun = threading.Event()
        self.lock = threading.Lock()

    @property
    def environment(self):
        """What the process needs for a request that fails to be a call that fails."""
        return {} if self.fault == "lost and again" else {"CONTRASWEEP_S3_ATTEMPTS": "1"}

    def begin(self, pid):
        """Make the requests those of this process."""
        self.pid = pid
        self.begun.set()

    def __call__(self, method, path, _):
        self.begun.wait()
        with self.lock:
            self.calls.append(f"{method} {place(path)}")
            if len(self.calls) != self.n:
                return None
        if self.fault == "stop":
            os.kill(self.pid, signal.SIGKILL)
            return "reset"
        return {"error": "500", "lost and again": "lost"}.get(self.fault, self.fault)


def place(path):
    """A path without what is random in it."""
    return re.sub(r"[0-9a-f]{32}|(?<=\.tmp-)\w{8}\b", "RANDOM", path)


def _without_tune():
    """Train in this process, on a host of one core; see the module."""
    from contrasweep.cluster.inventory import Inventory, Node
    from contrasweep.running.engine import training
    from contrasweep.running.worker import worker
    from contrasweep.storage.record import TrialNotes

    host = Inventory((Node(cpus=1.0, memory_gib=4.0),))
    training.REPORT_INTERVAL_S = (
        0.0  # a report at a time, so that calls have the same numbers in each life
    )
    training.connected = lambda: contextlib.nullcontext(host)  # type: ignore[attr-defined]
    training.run_trials = lambda context, loop, **options: EngineHere(  # type: ignore[attr-defined]
        context, loop, **options
    ).run()
    worker.guard_children = lambda: None  # type: ignore[attr-defined]
    worker.assigned_notes = lambda inventory: TrialNotes(gpus=0.0)


class EngineHere:
    """Calls what Tune calls, in its order."""

    def __init__(self, context, loop, *, max_failures, **options):
        from contrasweep.running.engine import tune_engine
        from contrasweep.running.engine.watchdog import Watchdog

        self.context = context
        self.loop = loop
        self.max_failures = max_failures
        self.searcher = tune_engine.TuneSearcher(loop)
        self.scheduler = tune_engine.TuneScheduler(loop)
        self.callback = tune_engine.TuneCallback(loop, Watchdog(loop))

    def run(self):
        """Run the trials of the loop, as `run_trials` does."""
        from ray.tune.search import Searcher

        from contrasweep.errors import ContrasweepError

        while (config := self.searcher.suggest("")) not in (None, Searcher.FINISHED):
            self._run_trial(config)
            if self.loop.accounts.fault:
                raise ContrasweepError(self.loop.accounts.fault)
        if self.loop.accounts.fault:
            raise ContrasweepError(self.loop.accounts.fault)

    def _run_trial(self, config):
        trial = SimpleNamespace(
            config=config,
            trial_id=config["id"],
            status="RUNNING",
            error_file="",
            run_metadata=SimpleNamespace(),
        )
        for attempt in range(self.max_failures + 1):
            self.callback.on_step_begin(trials=[trial])
            worker = self._worker(dict(config))
            self.callback.on_trial_start(trial=trial)
            try:
                while not self._step(worker, trial):
                    self.callback.on_step_begin(trials=[trial])
            except Exception:
                trial.error_file = tempfile.mkstemp()[1]
                Path(trial.error_file).write_text(
                    f"ray::TuneTrial.train()\n{traceback.format_exc()}"
                )
                worker.stop()
                if attempt < self.max_failures:
                    self.callback.on_trial_recover(trial=trial)
                continue
            worker.stop()
            self.callback.on_trial_complete(trial=trial)
            return
        self.callback.on_trial_error(trial=trial)

    def _worker(self, config):
        from contrasweep.running.worker.worker import TuneTrial

        context = self.context

        class Here(TuneTrial):
            def setup(self, config, _=None):
                super().setup(config, context)

        return Here(config)

    def _step(self, worker, trial):
        """Whether the trial has ended with this step."""
        from ray.tune.schedulers import TrialScheduler

        result = worker.train()
        goes_on = self.scheduler.on_trial_result(None, trial, result)
        ended = bool(result.get("done"))
        self.callback.on_trial_result(trial=trial, result=result)
        return ended or goes_on == TrialScheduler.STOP
