"""A trial on several GPUs, with one process for each GPU.

The trial's own process is rank 0, which alone reports, saves and evaluates.

    path = "contrasweep.trainables.contrastive.method:build"
    with start_group(trial, resume, size=4, build=path, device="auto") as group:
        yield from loop.run(group.method(build(trial)), trial, resume)

Every rank builds the same method and trains the same epochs on its part of each batch. Rank 0 says when an epoch
begins, so no rank waits inside a collective while another evaluates. The ranks end with rank 0, however it ends.
"""

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

# This module's functions keep the process group that exists when it is imported, as their default. Such a group would
# never end: its threads would run on, and might abort the process at its end. So it is imported here, before there is
# a group; torch.compile and DistributedDataParallel would import it later.
import torch.distributed.nn.functional

from contrasweep.errors import ProcessLostError, SpecError, plural
from contrasweep.imports import import_path, in_one_line
from contrasweep.trainables import checkpoint, loop, seeding
from contrasweep.trial import Trial

TIMEOUT = timedelta(minutes=10)
"""The limit on one collective, which waits for the slowest rank's step."""


@dataclass
class Group:
    """The group of processes that train one trial, as rank 0 sees it: `ranks` are the processes of rank 1, 2, ...

    A rank that ends by an error writes it to a file in the folder `errors`.
    """

    ranks: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    errors: Path = Path()

    def method(self, of_rank_0: loop.Method) -> loop.Method:
        """Return rank 0's method as one whose epochs all ranks train; without other ranks it stays as it is."""
        return JoinedMethod(of_rank_0, self) if self.ranks else of_rank_0

    def begin(self, epoch: int) -> None:
        """Tell the other ranks to train this epoch."""
        for rank in self.ranks:
            assert rank.stdin is not None
            rank.stdin.write(b"%d\n" % epoch)
            rank.stdin.flush()

    def ended_ranks(self) -> str:
        """Return which ranks have ended, with their exit codes, as text; "" while all run."""
        exit_codes = {i: rank.poll() for i, rank in enumerate(self.ranks, 1)}
        return ", ".join(
            f"rank {i} ended with exit code {code}"
            for i, code in exit_codes.items()
            if code is not None
        )

    def wait_for_ended_ranks(self) -> str:
        """Wait until all other ranks have ended, at most two seconds for each; return the text of `ended_ranks`.

        It is called after a failed collective: the rank that caused the failure may not have ended yet. A rank that
        goes on is not in the text.
        """
        # A rank that goes on is no fault here: the text then has the ranks that have ended.
        with contextlib.suppress(subprocess.TimeoutExpired):
            for rank in self.ranks:
                rank.wait(timeout=2)
        return self.ended_ranks()

    def first_error(self) -> str:
        """Return the error of the rank that raised one first, as text that begins with `rank 2: `, for example.

        "" if no rank has raised an error, or if a rank was killed by a signal: the errors of the others then follow
        from that.
        """
        # A negative exit code is a signal. Errors after a kill follow from it, so none of them is the cause. SIGABRT is
        # no kill: NCCL aborts a rank that has lost another.
        killed = any(
            (rank.poll() or 0) < 0 and rank.poll() != -signal.SIGABRT for rank in self.ranks
        )
        files = sorted(self.errors.glob("rank *"), key=lambda file: file.stat().st_mtime_ns)
        return f"{files[0].name}: {files[0].read_text()}" if files and not killed else ""


class JoinedMethod:
    """A method whose epochs are trained by all ranks; all else is done by rank 0's method alone."""

    def __init__(self, of_rank_0: loop.Method, group: Group) -> None:
        self.of_rank_0 = of_rank_0
        self.group = group

    @property
    def guard(self) -> loop.Guard:
        """Return the guard of rank 0; the other ranks come to the same decisions."""
        return self.of_rank_0.guard

    @property
    def parts(self) -> checkpoint.Parts:
        """Return the parts of rank 0, which equal those of the other ranks."""
        return self.of_rank_0.parts

    def epoch(self, epoch: int) -> dict[str, float]:
        """Train an epoch on all ranks, and return the metrics of rank 0.

        `RuntimeError` where a rank raised an error, whose text it has. `ProcessLostError` where a rank ended without
        one, as when it was killed. Any other error is that of rank 0.
        """
        try:
            self.group.begin(epoch)
            return self.of_rank_0.epoch(epoch)
        # A rank that has ended shows as a failed collective or a closed pipe; any other error is the trial's own.
        except (RuntimeError, OSError) as error:
            lost = self.group.wait_for_ended_ranks()
            if raised := self.group.first_error():
                raise RuntimeError(
                    f"a process of the trial failed in epoch {epoch}: {raised}"
                ) from error
            if lost:
                raise ProcessLostError(
                    f"a process of the trial was lost in epoch {epoch}: {lost}"
                ) from error
            raise

    def ends(self, epoch: int) -> bool:
        """Whether training ends after this epoch."""
        return self.of_rank_0.ends(epoch)

    def evaluate(self, final: bool, folder: Path) -> loop.Evaluation:
        """Return scores of the test part, after an epoch where they are due and after the last one (`final`).

        Files are written to `folder`. Rank 0 alone evaluates.
        """
        return self.of_rank_0.evaluate(final, folder)


@contextlib.contextmanager
def start_group(
    trial: Trial, resume: Path | None, *, size: int, build: str, device: str
) -> Iterator[Group]:
    """Start a group of `size` processes, of which this one is rank 0; with `size` 1 no process is started.

    `build` is the dotted path of the function by which the other processes build their method from `trial`. They begin
    where the checkpoint `resume` ends (None: at the beginning), and are ended with this context. `device` is the
    setting of the trial. `SpecError` where `device` is a GPU and a process would have none.
    """
    if size == 1:
        yield Group()
        return
    kind = seeding.pick_device(device).type
    if kind == "cuda" and torch.cuda.device_count() < size:
        raise SpecError(
            "a trial needs a GPU for each of its processes",
            place="resources",
            value=size,
            hint=f"this process sees {plural(torch.cuda.device_count(), 'GPU')}",
        )
    # The processes find each other by a file in this folder.
    with tempfile.TemporaryDirectory(prefix="contrasweep-group-") as folder:
        meet = str(Path(folder) / "meet")
        job = pickle.dumps((trial, resume, build, kind, meet, size))
        group = Group([_start(rank, job) for rank in range(1, size)], Path(folder))
        try:
            _join(kind, meet, 0, size)
            yield group
        finally:
            _end(group)


def device_of_rank(device: torch.device) -> torch.device:
    """Return `device`; in a group on GPUs, the GPU whose number is this process's rank."""
    if device.type == "cuda" and dist.is_initialized():
        return torch.device("cuda", dist.get_rank())
    return device


def average(gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    """Replace each gradient by its mean over the processes, in place, and return the list."""
    # Joined into one tensor, which one collective sums: each call waits for the slowest process.
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for gradient, mean in zip(
        gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True
    ):
        gradient.copy_(mean.view_as(gradient))
    return gradients


def _start(rank: int, job: bytes) -> "subprocess.Popen[bytes]":
    """Start the process of a rank, and send it its job: pickled, after 8 bytes with its length, for `work` to read."""
    command = [
        sys.executable,
        "-c",
        f"from contrasweep.trainables.process_group import work; work({rank})",
    ]
    # The new process finds the modules that this one finds, such as the user's own.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    assert process.stdin is not None
    process.stdin.write(len(job).to_bytes(8, "little") + job)
    process.stdin.flush()
    return process


def _join(kind: str, meet: str, rank: int, size: int) -> None:
    """Join the process group that meets at the file `meet`: NCCL's for devices of `kind` "cuda", else gloo's."""
    if kind == "cuda":
        torch.cuda.set_device(rank)
    backend = "nccl" if kind == "cuda" else "gloo"
    dist.init_process_group(
        backend, init_method=f"file://{meet}", rank=rank, world_size=size, timeout=TIMEOUT
    )


def _end(group: Group) -> None:
    """Kill the other ranks, and leave torch's process group, so that this process may train another trial."""
    # All are killed before one is awaited: they may be waiting for each other.
    for rank in group.ranks:
        rank.kill()
    for rank in group.ranks:
        rank.wait()
        if rank.stdin is not None:
            with contextlib.suppress(OSError):
                rank.stdin.close()
    if dist.is_initialized():
        dist.destroy_process_group()


def work(rank: int) -> None:
    """Train epochs as rank 0 asks for them by standard input, until that is closed; the main loop of other ranks."""
    # First what `start_group` has sent: its arguments, the file `meet` by which the processes find each other, and how
    # many there are.
    source = sys.stdin.buffer
    length = int.from_bytes(source.read(8), "little")
    trial, resume, build, kind, meet, size = pickle.loads(source.read(length))
    epochs: queue.Queue[int] = queue.Queue()

    def listen() -> None:
        """Take epochs from standard input, in a thread; end the process where rank 0 has closed it."""
        for line in source:
            epochs.put(int(line))
        os._exit(1)  # rank 0 is gone; this process may be in the middle of a step

    threading.Thread(target=listen, daemon=True).start()
    try:
        _join(kind, meet, rank, size)
        method: Any = import_path(build, "build")(trial)
        if resume is not None:
            loop.restore(resume, method)
        while True:
            method.epoch(epochs.get())
    except Exception as error:
        traceback.print_exc()
        Path(meet).with_name(f"rank {rank}").write_text(in_one_line(error))
        # At once, since the thread above still reads.
        os._exit(1)
