"""Out of memory: the real exceptions, the doubling rule, the guard that raises them, and the meter beside it."""

import errno
import pickle
import resource
import subprocess
import sys
import threading
import traceback
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contrasweep.cluster import guard as guards
from contrasweep.cluster import usage
from contrasweep.cluster.guard import CONTEXT_GIB, guard
from contrasweep.cluster.inventory import Gpu, Inventory, Node
from contrasweep.cluster.out_of_memory import doubled, exhausted_memory, larger_place
from contrasweep.cluster.packing import Placement
from contrasweep.cluster.usage import Meter

SMALL = Gpu("T4", 15.0)
LARGE = Gpu("H100", 80.0)
CLUSTER = Inventory((Node(16, 64, 2, SMALL), Node(64, 512, 4, LARGE)))
CUDA_TEXT = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 14.58 GiB"
)


def host_errors():
    import ray.exceptions

    return [
        MemoryError(),
        np._core._exceptions._ArrayMemoryError((2**40,), np.dtype("f8")),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory: you tried"
        ),
        ray.exceptions.OutOfMemoryError("Task was killed due to the node running low on memory."),
    ]


def gpu_errors():
    return [
        torch.OutOfMemoryError(CUDA_TEXT),
        torch.cuda.OutOfMemoryError("no word of it in the text"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ]


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        *(("gpu", error) for error in gpu_errors()),
        *(("host", error) for error in host_errors()),
        (None, None),
        (None, ValueError("CUDA out of memory is not what this is: a ValueError of the user's")),
        (None, RuntimeError("mat1 and mat2 shapes cannot be multiplied")),
        (None, RuntimeError("CUDA error: device-side assert triggered")),
        (None, OSError(errno.ENOSPC, "No space left on device")),
        (None, KeyboardInterrupt()),
        (None, "Traceback (most recent call last):\n  ...\nKeyError: 'memory'"),
        (None, ""),
        (None, "RuntimeError: could not create a primitive"),
        (None, RuntimeError("could not create a primitive")),
    ],
    ids=repr,
)
def test_of_errors_some_say_whose_memory_ran_out(kind, error):
    assert exhausted_memory(error) == kind


def test_the_error_behind_an_error_is_found():
    def fails(how):
        try:
            raise torch.OutOfMemoryError(CUDA_TEXT)
        except RuntimeError as error:
            if how == "from":
                raise ValueError("the loss failed") from error
            raise ValueError("the loss failed")  # noqa: B904  # the chain without `from` is what is tested

    for how in ("from", "during"):
        with pytest.raises(ValueError, match="the loss failed") as caught:
            fails(how)
        assert exhausted_memory(caught.value) == "gpu"


def test_a_chain_that_bites_its_tail_ends():
    one = ValueError("a")
    two = ValueError("b")
    one.__cause__ = two
    two.__cause__ = one
    assert exhausted_memory(one) is None


@pytest.mark.parametrize("error", [*gpu_errors()[:1], MemoryError()], ids=repr)
def test_tracebacks_as_ray_keeps_them_are_read(error):
    """Ray wraps the worker's error; what the driver sees is the text, and the wrapper with that text."""
    from ray.exceptions import RayTaskError

    text = "".join(traceback.format_exception(error))
    assert exhausted_memory(text) == exhausted_memory(error)
    assert exhausted_memory(RayTaskError("train", text, error)) == exhausted_memory(error)
    assert exhausted_memory(pickle.loads(pickle.dumps(error))) == exhausted_memory(error)


# ------------------------------------------------------------------------------------------- the rule


@given(st.integers(1, 16))
@settings(max_examples=16)
def test_doubling_at_least_doubles_and_ends(n):
    share = Fraction(1, n)
    assert doubled(share) >= min(2 * share, Fraction(1)) and doubled(share).numerator == 1


@pytest.mark.parametrize(
    ("place", "kind", "types", "ladder"),
    [
        ("T4 1/4 4", "gpu", (), ["T4 1/4 4", "T4 1/2 4", "T4 1 4", "H100 1 4"]),
        ("T4 1 4", "gpu", ["T4"], ["T4 1 4"]),
        ("T4 1 4", "gpu", ["T4", "H100"], ["T4 1 4", "H100 1 4"]),
        ("None 0 100", "host", (), ["None 0 100", "None 0 200", "None 0 400", "None 0 512"]),
        ("T4 1 40", "host", (), ["T4 1 40", "T4 1 64"]),
        ("None 0 1", "gpu", (), ["None 0 1"]),
    ],
)
def test_a_trial_that_ran_out_of_memory_gets_the_next_larger_place_until_there_is_none(
    place, kind, types, ladder
):
    """Twice the share or host memory of its type's hosts, then a larger type that its arm allows."""
    gpu, part, gib = place.split()
    placement = Placement(None if gpu == "None" else gpu, Fraction(part), 1, int(gib))
    places = []
    while placement is not None:
        places.append(f"{placement.gpu} {placement.share} {placement.host_memory_gib}")
        placement = larger_place(placement, kind, CLUSTER, types)
    assert places == ladder


# ------------------------------------------------------------------------------------------- the guard

LARGE_ARRAYS = [
    lambda: np.zeros(2**28),
    lambda: torch.empty(2**29),
]  # 2 GiB each, mapped and not touched


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts so on Linux alone")
@pytest.mark.parametrize("allocate", LARGE_ARRAYS, ids=["numpy", "torch"])
def test_the_guard_turns_an_overrun_into_an_error_of_this_trial_and_is_lifted_after(allocate):
    with pytest.raises((MemoryError, RuntimeError)) as caught, guard(host_memory_gib=0.5):
        allocate()
    assert exhausted_memory(caught.value) == "host"
    assert allocate().nbytes == 2**31  # outside the guard there is no limit
    with guard(host_memory_gib=usage._host_bytes() / 2**30 + 2.5):
        assert allocate().nbytes == 2**31  # nor within it for what was asked


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts so on Linux alone")
def test_a_process_that_holds_more_than_its_trial_may_take_keeps_the_slack(monkeypatch):
    """What imports hold is not counted against the trial twice: half a GiB is left in any case."""
    limits = []
    in_use = {"VmData": 8 * 2**30, "RssAnon": 6 * 2**30}
    monkeypatch.setattr(guards, "status_bytes", in_use.__getitem__)
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limit: limits.append(limit[0]))
    with guard(host_memory_gib=1.0):
        pass
    assert limits[0] == 8 * 2**30 + int(guards.SLACK_GIB * 2**30)


def test_the_gpu_guard_needs_no_gpu_and_sets_the_fraction_where_there_is_one(monkeypatch):
    with guard(gpu_share=0.25):
        pass
    fractions = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", fractions.append)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda index: SimpleNamespace(total_memory=80 * 2**30)
    )
    with pytest.raises(RuntimeError, match="inside"), guard(gpu_share=0.25):
        raise RuntimeError("inside")
    assert fractions == [0.25 - CONTEXT_GIB / 80, 1.0]


# ------------------------------------------------------------------------------------------- the meter


def test_the_meter_sees_what_the_process_takes():
    with Meter(interval_s=0.01) as meter:
        held = np.ones(2**26)  # 0.5 GiB
        meter.sample()
        assert held.nbytes == 2**29
    before = meter.peak_host_memory_gib
    del held
    with Meter() as after:
        pass
    assert before - after.peak_host_memory_gib == pytest.approx(0.5, abs=0.15)


@pytest.mark.skipif(
    not usage._reset_peak(), reason="this system keeps no peak that can be set back"
)
def test_a_peak_between_two_samples_is_seen_and_belongs_to_its_own_meter():
    with Meter(interval_s=3600) as meter:
        np.ones(2**26)  # 0.5 GiB, gone at once
    with Meter(interval_s=3600) as after:
        pass
    assert meter.peak_host_memory_gib - after.peak_host_memory_gib == pytest.approx(0.5, abs=0.1)


def test_the_meter_counts_children_started_from_any_thread():
    """A data-loader worker takes 0.4 GiB; it is the child of a thread that is not the main one."""
    code = "held = bytearray(400 * 2**20); held[::4096] = b'x' * len(held[::4096]); print('held', flush=True); input()"
    started = []

    def start():
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        )
        started[0].stdout.readline()
        done.wait()

    done = threading.Event()
    thread = threading.Thread(target=start)
    with Meter() as without:
        pass
    thread.start()
    while not started:
        threading.Event().wait(0.01)
    try:
        for _ in range(500):
            with Meter() as meter:
                pass
            if meter.peak_host_memory_gib - without.peak_host_memory_gib > 0.35:
                break
            threading.Event().wait(0.01)
        assert meter.peak_host_memory_gib - without.peak_host_memory_gib == pytest.approx(
            0.4, abs=0.1
        )
    finally:
        done.set()
        started[0].communicate(b"\n")
        thread.join()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_meter_says_so():
    with Meter() as meter:
        pass
    assert meter.peak_gpu_memory_gib is None and meter.gpu_utilisation is None


class FakeProcess:
    def __init__(self, pid, memory=0, busy=0, stamp=0):
        self.pid = pid
        self.usedGpuMemory = memory
        self.smUtil = busy
        self.timeStamp = stamp


class FakeNvml:
    """A driver with two GPUs; this process is on both, with memory on the first alone."""

    class NVMLError(Exception):
        pass

    def __init__(self, pid, knows_processes=True):
        self.pid = pid
        self.knows_processes = knows_processes
        self.asked_since = {}
        self.closed = False

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        if handle == 1:
            return [FakeProcess(self.pid)]
        return [FakeProcess(self.pid, 3 * 2**30), FakeProcess(1, 2**30)]

    def nvmlDeviceGetProcessUtilization(self, handle, since):
        self.asked_since.setdefault(handle, since)
        if not self.knows_processes:
            raise self.NVMLError("not supported")
        return [
            FakeProcess(self.pid, busy=40, stamp=since + 1),
            FakeProcess(self.pid, busy=60, stamp=since + 2),
        ]

    def nvmlDeviceGetUtilizationRates(self, handle):
        return type("Rates", (), {"gpu": 80})

    def nvmlShutdown(self):
        self.closed = True


@pytest.mark.parametrize(("knows_processes", "busy"), [(True, 0.5), (False, 0.8)])
def test_the_meter_reads_nvml_of_this_process_alone(monkeypatch, knows_processes, busy):
    import os

    nvml = FakeNvml(os.getpid(), knows_processes)
    monkeypatch.setattr(usage.Nvml, "open", classmethod(lambda cls: cls(nvml, [0, 1])))
    with Meter() as meter:
        pass
    assert meter.peak_gpu_memory_gib == 3.0 and meter.gpu_utilisation == pytest.approx(busy)
    # The samples of a GPU that were read do not hide those of another one.
    assert nvml.asked_since == {0: 0, 1: 0}
    assert nvml.closed


@pytest.mark.parametrize(
    "torch_so_far", [SimpleNamespace(), SimpleNamespace(cuda=SimpleNamespace())]
)
def test_a_meter_goes_on_while_another_thread_imports_torch(monkeypatch, torch_so_far):
    monkeypatch.setitem(sys.modules, "torch", torch_so_far)
    meter = Meter().start()
    meter.sample()
    meter.stop()
    assert meter.peak_host_memory_gib > 0
