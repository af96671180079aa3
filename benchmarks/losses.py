"""Time and memory of the losses, forward and backward, against pytorch-metric-learning and against dense code.

    python benchmarks/losses.py [--repeats 5] [--output benchmarks/results]

One thread, float32, d = 128, 10 classes, cosine similarity. Repeats of the contestants are interleaved, and medians
and ratios come from one run, so that other work on the machine meets all of them. Memory is the most that tensors
held at once beyond the inputs, as PyTorch's profiler counts it. Writes losses.md, losses.csv and losses.png.
"""

import argparse
import csv
import datetime
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pytorch_metric_learning import losses as pml

from contrasweep.trainables.losses import build
from contrasweep.trainables.losses.composed import ComposedLoss

DIM, CLASSES = 128, 10
THEIR_LARGEST = 4096
"""pytorch-metric-learning and dense code hold several [n n] matrices: 14 GB and 6 GB at 16384 rows."""
Step = Callable[[torch.Tensor, torch.Tensor], Any]


def dense(loss: str) -> Step:
    built = build(loss, "cosine")
    assert isinstance(built, ComposedLoss)
    return lambda z, labels: built.dense(z, labels)


CONTESTANTS: dict[str, dict[str, tuple[Step, list[int]]]] = {
    "supcon": {
        "contrasweep": (build("supcon", "cosine"), [512, 1024, 2048, 4096, 8192, 16384]),
        "pytorch-metric-learning": (pml.SupConLoss(temperature=0.1), [512, 1024, 2048, THEIR_LARGEST]),
        "dense": (dense("supcon"), [512, 1024, 2048, THEIR_LARGEST]),
    },
    "sincere": {
        "contrasweep": (build("sincere", "cosine"), [512, 1024, 2048, 4096, 8192, 16384]),
        "dense": (dense("sincere"), [512, 1024, 2048, THEIR_LARGEST]),
    },
    "ocl": {
        "contrasweep": (build("ocl", "cosine"), [512, 1024, 2048, 4096, 8192, 16384]),
        "dense": (dense("ocl"), [512, 1024, 2048, THEIR_LARGEST]),
    },
    "triplet": {
        "contrasweep": (build("triplet", "neg_euclidean_unit", margin=0.05), [128, 256, 512]),
        "pytorch-metric-learning": (pml.TripletMarginLoss(margin=0.05), [128, 256, 512]),
    },
    "lifted_structured": {
        "contrasweep": (build("lifted_structured", "neg_euclidean_unit"), [64, 128, 512]),
        "pytorch-metric-learning": (pml.LiftedStructureLoss(neg_margin=1), [64, 128]),
    },
}
"""loss -> contestant -> (function, batch sizes)."""


def batch(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    z = torch.randn(rows, DIM, generator=generator).requires_grad_()
    return z, torch.randint(CLASSES, (rows,), generator=generator)


def milliseconds(step: Step, z: torch.Tensor, labels: torch.Tensor) -> float:
    start = time.perf_counter()
    torch.autograd.grad(step(z, labels), z)
    return 1e3 * (time.perf_counter() - start)


def peak_mib(step: Step, z: torch.Tensor, labels: torch.Tensor) -> float:
    """The largest sum of tensors' bytes during a forward and backward pass, beyond what there was before."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        torch.autograd.grad(step(z, labels), z)
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak / 2**20


def measure(repeats: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for loss, contestants in CONTESTANTS.items():
        for n in sorted({n for _, sizes in contestants.values() for n in sizes}):
            z, labels = batch(n)
            steps = {name: step for name, (step, sizes) in contestants.items() if n in sizes}
            memory = {name: peak_mib(step, z, labels) for name, step in steps.items()}
            times: dict[str, list[float]] = {name: [] for name in steps}
            for _ in range(repeats if n <= 4096 else 3):
                for name, step in steps.items():
                    times[name].append(milliseconds(step, z, labels))
            for name in steps:
                rows.append(
                    {
                        "loss": loss,
                        "contestant": name,
                        "n": n,
                        "median_ms": statistics.median(times[name]),
                        "min_ms": min(times[name]),
                        "peak_mib": memory[name],
                    }
                )
                print(f"{loss:18} {n:6} {name:24} {rows[-1]['median_ms']:10.1f} ms {memory[name]:9.1f} MiB", flush=True)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: a line per loss and batch size, each contestant's median time, least time and memory, and ratios."""
    lines = [
        "| loss | n | contestant | median ms | least ms | peak MiB | time, ours = 1 | memory, ours = 1 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    ours = {(r["loss"], r["n"]): r for r in rows if r["contestant"] == "contrasweep"}
    for r in rows:
        base = ours[r["loss"], r["n"]]
        lines.append(
            f"| {r['loss']} | {r['n']} | {r['contestant']} | {r['median_ms']:.1f} | {r['min_ms']:.1f} | "
            f"{r['peak_mib']:.1f} "
            f"| {r['median_ms'] / base['median_ms']:.1f} | {r['peak_mib'] / base['peak_mib']:.1f} |"
        )
    return "\n".join(lines)


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axis, key, label in (
        (axes[0], "median_ms", "forward + backward, ms"),
        (axes[1], "peak_mib", "peak memory, MiB"),
    ):
        for name in CONTESTANTS["supcon"]:
            points = [(r["n"], r[key]) for r in rows if r["loss"] == "supcon" and r["contestant"] == name]
            axis.plot(*zip(*points, strict=True), marker="o", label=name)
        axis.set(
            xscale="log", yscale="log", xlabel="rows of the batch", ylabel=label, title="SupCon, d = 128, one thread"
        )
        axis.set_xticks(
            [512, 1024, 2048, 4096, 8192, 16384], ["512", "1024", "2048", "4096", "8192", "16384"], minor=False
        )
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.legend()
    figure.savefig(path, dpi=110)


def processor() -> str:
    names = [
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return names[0] if names else platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    load = Path("/proc/loadavg").read_text().split()[0]
    rows = measure(options.repeats)
    options.output.mkdir(parents=True, exist_ok=True)
    with (options.output / "losses.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows({**r, **{k: round(r[k], 2) for k in ("median_ms", "min_ms", "peak_mib")}} for r in rows)
    plot(rows, options.output / "losses.png")
    head = (
        f"# Losses: time and memory\n\n{datetime.date.today()}, {processor()}, one thread, torch {torch.__version__}, "
        f"pytorch-metric-learning, float32, d = {DIM}, {CLASSES} classes; medians of {options.repeats} interleaved "
        f"repeats (3 above 4096 rows). Load average of the machine at the start: {load}; the ratios are of one "
        f"run, the "
        "times are not those of an idle machine unless that is below 1.\n\n"
    )
    (options.output / "losses.md").write_text(head + table(rows) + "\n\n![time and memory](losses.png)\n")


if __name__ == "__main__":
    main()
