"""Several processes on one GPU: their memory limits, their meters, and what packing them gives."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from benchmarks.gpu.context import Context
from benchmarks.gpu.networks import graph, training_step
from benchmarks.gpu.results import Check, Section

from contrasweep.cluster import out_of_memory
from contrasweep.cluster.guard import CONTEXT_GIB, guard
from contrasweep.cluster.usage import Meter

ROOT = Path(__file__).resolve().parents[2]
PROCESSES = (1, 2, 4, 8)


def limits(context: Context) -> Iterator[Section]:
    """A process with a share of the GPU: where its allocations end, and what its meter says."""
    section = Section(
        "A share's limit and its meter",
        "A process that may take a share of the GPU allocates until it is refused; the meter's peak against what it "
        "had then.",
    )
    yield section
    if not context.cuda:
        section.unfinished = "there is no GPU"
        return
    total = torch.cuda.get_device_properties(0).total_memory / 2**30
    for share in (0.125, 0.25, 0.5):
        context.require(30)
        result = _child("allocate", share)
        section.rows.append({"share": share, "allowed GiB": share * total, **result})
        section.checks.append(
            Check(
                f"share {share}: allocated above the share, GiB",
                result["allocated GiB"] - share * total,
                0.0,
            )
        )
        section.checks.append(
            Check(
                f"share {share}: left unused, GiB",
                share * total - result["allocated GiB"],
                CONTEXT_GIB + 1.5,
            )
        )
        error = abs(result["metered GiB"] - result["allocated GiB"])
        section.checks.append(
            Check(f"share {share}: meter against allocator, GiB", error, CONTEXT_GIB + 0.5)
        )
        section.checks.append(
            Check(f"share {share}: not seen as out of memory", float(result["kind"] != "gpu"), 0.5)
        )


def packing(context: Context) -> Iterator[Section]:
    """Images a second of 1, 2, 4 and 8 processes at once, each with its fraction of the memory."""
    section = Section(
        "Processes packed on one GPU",
        "ResNet-18 at 32 px, batch 16, float32, eager; images a second of all processes together, each limited to its "
        "fraction of the memory. `graph`: the same in bfloat16, channels-last, as a CUDA graph.",
    )
    yield section
    seconds = 0.2 if context.small else 4.0
    alone: dict[str, float] = {}
    for mode in ("eager", "graph") if context.cuda else ("eager",):
        for processes in PROCESSES[:2] if context.small else PROCESSES:
            context.require(45 if not context.small else 5)
            rates = _together(context, mode, processes, seconds)
            alone.setdefault(mode, sum(rates))
            section.rows.append(
                {
                    "mode": mode,
                    "processes": processes,
                    "images a second": sum(rates),
                    "ratio to one": sum(rates) / alone[mode],
                    "slowest over fastest": min(rates) / max(rates),
                }
            )


def _together(context: Context, mode: str, processes: int, seconds: float) -> list[float]:
    arguments = json.dumps(
        {"device": context.device.type, "small": context.small, "mode": mode, "seconds": seconds}
    )
    command = [
        sys.executable,
        "-m",
        "benchmarks.gpu.sharing",
        "train",
        str(1 / processes),
        arguments,
    ]
    children = [
        subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(processes)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            if child.stdout.readline().strip() != "ready":
                raise RuntimeError(
                    "a process that was to train beside others ended before it began"
                )
        rates = []
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        for child in children:
            rates.append(float(json.loads(child.communicate()[0])))
        return rates
    finally:
        for child in children:
            child.kill()
            child.wait()


def _child(what: str, share: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.gpu.sharing", what, str(share)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _allocate(share: float) -> dict[str, float | str | None]:
    held = []
    kind = None
    with guard(gpu_share=share), Meter(interval_s=0.05) as meter:
        try:
            while True:
                # a quarter of a GiB
                held.append(torch.empty(2**28, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError as error:
            kind = out_of_memory.exhausted_memory(error)
        allocated = torch.cuda.memory_reserved() / 2**30
        time.sleep(0.3)
    return {
        "allocated GiB": allocated,
        "metered GiB": meter.peak_gpu_memory_gib or 0.0,
        "kind": kind,
    }


def _train(share: float, device: str, small: bool, mode: str, seconds: float) -> float:
    """Images a second of a process that trains beside others; it waits for a line before it begins."""
    context = Context(torch.device(device), small, 600.0)
    batch = 4 if small else 16
    with guard(gpu_share=share):
        tuned = mode == "graph"
        step = training_step(
            context, "cnn" if small else "resnet18", batch, channels_last=tuned, bf16=tuned
        )
        step = graph(step) if tuned else step
        step()
        context.synchronize()
        print("ready", flush=True)
        sys.stdin.readline()
        began = time.perf_counter()
        steps = 0
        while (took := time.perf_counter() - began) < seconds:
            for _ in range(5):
                step()
            context.synchronize()
            steps += 5
        return 2 * batch * steps / took


if __name__ == "__main__":
    if sys.argv[1] == "allocate":
        print(json.dumps(_allocate(float(sys.argv[2]))))
    else:
        print(json.dumps(_train(float(sys.argv[2]), **json.loads(sys.argv[3]))))
