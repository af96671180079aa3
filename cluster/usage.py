"""The use of a trial: peak host memory, peak GPU memory, and how busy its GPU was."""

import contextlib
import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

GIB = 2**30
_PAGE = os.sysconf("SC_PAGE_SIZE")
"""Bytes of a page of memory."""
PEAK = "VmHWM"
"""Linux's name for the peak of a process's resident bytes."""


class Meter:
    """Samples this process (and its children, the data-loader workers) from a thread, within the `with` block.

        with Meter() as meter:
            ...
        meter.peak_host_memory_gib

    Host memory is the resident set. For this process it is the peak that Linux keeps, which a Meter resets when it
    starts; for the children it is sampled every `interval_s`. GPU memory is what NVML says of the process, or what
    torch's allocator reserved if that is more, since its peak is exact. GPU utilisation is the mean of NVML's figure
    for the process. Where the driver has no such figure, the figure of the GPUs counts, with their other processes. The
    same holds in a container with process numbers of its own, which NVML does not know. Without a GPU, memory and
    utilisation of the GPU are None. One Meter counts one trial. Several may be open at once, though Linux and torch
    keep one peak for a process, which begins with the last Meter.
    """

    def __init__(self, interval_s: float = 1.0, timeline_s: float = 10.0) -> None:
        """Make a meter: a sample is taken every `interval_s` seconds, a row added to `timeline` every `timeline_s`."""
        self.interval_s = interval_s
        self.timeline_s = timeline_s
        self.timeline: list[dict[str, float]] = []
        self._row_due = 0.0  # when the next row is added
        self._in_rows = 0  # how many of `_utilisations` are in rows already
        self._host_bytes = 0  # peak
        self._gpu_bytes = self._gpu_now = 0  # peak, and at the last sample
        self._utilisations: list[float] = []  # 0 to 1, of each sample that has one
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._nvml: Nvml | None = None
        self._exact = False  # whether Linux's peak of this process is that since `start`

    def start(self) -> "Meter":
        """Begin sampling; return this Meter. It is called once, because one Meter counts one trial."""
        # The peaks that Linux and torch keep begin anew, so that they are this trial's.
        self._nvml = Nvml.open()
        self._exact = _reset_peak()
        if (cuda := _torch_cuda()) is not None:
            cuda.reset_peak_memory_stats()
        self._thread = threading.Thread(target=self._run, name="usage-meter", daemon=True)
        self._row_due = time.monotonic() + self.timeline_s
        self.sample()
        self._thread.start()
        return self

    def stop(self) -> None:
        """Take the last sample and end; a second call does nothing."""
        if self._thread is None or self._stopping.is_set():
            return
        self._stopping.set()
        self._thread.join()
        self.sample()
        if self._nvml is not None:
            self._nvml.close()

    def sample(self) -> None:
        """Take one sample now: raise the peaks to it, and note how busy the GPU is."""
        host = _host_bytes(self._exact)
        gpu, busy = self._nvml.sample() if self._nvml else (0, None)
        self._gpu_now = gpu
        # Torch's peak is exact, also between two samples, but leaves out CUDA's own memory. NVML's figure has that, but
        # only for this moment. So the larger counts, and of several devices the fullest, by which trials are placed.
        if (cuda := _torch_cuda()) is not None:
            self._gpu_now = max(gpu, *(cuda.memory_reserved(i) for i in range(cuda.device_count())))
            gpu = max(gpu, *(cuda.max_memory_reserved(i) for i in range(cuda.device_count())))
            busy = _devices_busy(cuda) if busy is None else busy
        with self._lock:
            self._host_bytes = max(self._host_bytes, host)
            self._gpu_bytes = max(self._gpu_bytes, gpu)
            if busy is not None:
                self._utilisations.append(busy)

    @property
    def peak_host_memory_gib(self) -> float:
        """Peak resident set of the process and its children, in GiB."""
        return self._host_bytes / GIB

    @property
    def peak_gpu_memory_gib(self) -> float | None:
        """Peak GPU memory of the process, in GiB; None without a GPU."""
        return self._gpu_bytes / GIB if self._gpu_bytes else None

    @property
    def gpu_utilisation(self) -> float | None:
        """Mean fraction of the time for which the GPU computed, 0 to 1; None without a GPU."""
        with self._lock:
            return sum(self._utilisations) / len(self._utilisations) if self._utilisations else None

    def _run(self) -> None:
        """Take samples until the meter stops, and a row of the timeline whenever one is due."""
        _host_busy()  # the next call in this thread tells of the time since this one
        while not self._stopping.wait(self.interval_s):
            self.sample()
            if (now := time.monotonic()) >= self._row_due:
                self._row_due = now + self.timeline_s
                self._add_row()

    def _add_row(self) -> None:
        """Add a row to the timeline: how busy the cores and the GPU were since the last row, and the memory now.

        The cores are those of the whole host, memory (in GiB) and GPU those of this process. What is not known of a GPU
        is left out.
        """
        with self._lock:
            busy = self._utilisations[self._in_rows :]
            self._in_rows = len(self._utilisations)
        gpu = self._gpu_now
        row = {
            "time": time.time(),
            "cpu_utilization_percentage": _host_busy(),
            "process_memory_gib": _host_bytes() / GIB,
        }
        if gpu:
            row["gpu_memory_gib"] = gpu / GIB
        if busy:
            row["gpu_utilization_percentage"] = 100 * sum(busy) / len(busy)
        self.timeline.append(row)

    def __enter__(self) -> "Meter":
        return self.start()

    def __exit__(self, *raised: object) -> None:
        self.stop()


def _host_busy() -> float:
    """Return the percentage of the host's cores that were busy since the last call."""
    import psutil

    return float(psutil.cpu_percent(None))


def _host_bytes(peak: bool = False) -> int:
    """Return the resident bytes of this process (with `peak` its peak) and of all its descendants.

    Pages that processes share count in each of them.
    """
    total = status_bytes(PEAK) if peak else _resident_bytes(os.getpid())
    family = children(os.getpid())
    while family:
        pid = family.pop()
        with contextlib.suppress(OSError):  # a data-loader worker that ended meanwhile
            total += _resident_bytes(pid)
            family += children(pid)
    return total


def _resident_bytes(pid: int) -> int:
    """Return the resident bytes of a process; `OSError` where it has ended."""
    # Word 1 of `statm` is the number of resident pages.
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def _reset_peak() -> bool:
    """Reset Linux's record of this process's peak memory; return whether that record can be used.

    It cannot be used where the reset is not allowed, or where the kernel keeps no such record.
    """
    # A 5 in this file means that the peak is reset.
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    # Without a record this is 0.
    return status_bytes(PEAK) > 0


def status_bytes(field: str) -> int:
    """Return a field of Linux's account of this process, `VmData:  12345 kB`, in bytes; 0 where it is not there."""
    match = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(match[1]) * 1024 if match else 0


def children(pid: int) -> list[int]:
    """Return the process ids of the children of process `pid`; [] where the system does not tell.

    They are read from `/proc/PID/task/*/children`. psutil reads all processes of the host to find them, which takes
    longer the more trials there are.
    """
    pids: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread may end
            pids += map(int, file.read_bytes().split())
    return pids


def _torch_cuda() -> Any:
    """Return torch.cuda where this process has used it already, else None: a meter starts no CUDA context."""
    # While another thread still imports torch, neither attribute may be there.
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    initialized = getattr(cuda, "is_initialized", None)
    return cuda if initialized is not None and initialized() else None


def _devices_busy(cuda: Any) -> float | None:
    """Return how busy the GPUs are that this process may use, 0 to 1; None where the driver does not tell."""
    try:
        return float(
            sum(cuda.utilization(i) for i in range(cuda.device_count())) / cuda.device_count() / 100
        )
    except Exception:  # torch lets NVML's errors through
        return None


class Nvml:
    """What NVML tells of the GPUs of the machine, by their `handles`, and of this process on them."""

    def __init__(self, nvml: Any, handles: list[Any]) -> None:
        self.nvml = nvml
        self.handles = handles
        self.last_us = [0] * len(
            handles
        )  # of each GPU, when its newest sample was taken that was read so far

    @classmethod
    def open(cls) -> "Nvml | None":
        """Return NVML with a handle for each GPU; None where there is no driver or no library."""
        try:
            import pynvml

            pynvml.nvmlInit()
            return cls(
                pynvml,
                [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())],
            )
        except Exception:  # no driver, no library: both mean no GPU
            return None

    def close(self) -> None:
        """Shut NVML down."""
        self.nvml.nvmlShutdown()

    def sample(self) -> tuple[int, float | None]:
        """Return the GPU memory of this process in bytes, and how busy it kept its GPUs (0 to 1; None: no GPU).

        In a container with process numbers of its own, which NVML does not know, they are 0 and None.
        """
        memory = 0
        busy = []  # of each GPU that this process is on
        for number, handle in enumerate(self.handles):
            # What this process holds on the GPU: NVML lists all processes there.
            processes = self._query(self.nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
            contexts = [process for process in processes if process.pid == os.getpid()]
            if contexts:
                memory += sum(process.usedGpuMemory or 0 for process in contexts)
                busy.append(self._busy(number))
        return memory, sum(busy) / len(busy) if busy else None

    def _busy(self, number: int) -> float:
        """Return how busy this process kept the GPU with this index since the last call, 0 to 1.

        Where NVML does not tell that, how busy all processes keep it now; 0 where it does not tell that either.
        """
        handle = self.handles[number]
        # Samples since the last one seen, in microseconds, of all processes on the GPU.
        last_us = self.last_us[number]
        samples = self._query(self.nvml.nvmlDeviceGetProcessUtilization, handle, last_us) or []
        self.last_us[number] = max([last_us, *(sample.timeStamp for sample in samples)])
        mine = [sample.smUtil / 100 for sample in samples if sample.pid == os.getpid()]
        if mine:
            return float(sum(mine) / len(mine))
        device_busy = self._query(self.nvml.nvmlDeviceGetUtilizationRates, handle)
        return device_busy.gpu / 100 if device_busy else 0.0

    def _query(self, question: Any, *arguments: Any) -> Any:
        """Return NVML's answer to one of its functions; None where it refuses."""
        try:
            return question(*arguments)
        except self.nvml.NVMLError:  # not every driver and GPU answers every question
            return None
