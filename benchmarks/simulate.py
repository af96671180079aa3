"""The scheduler without a cluster: what packing gains on a mix of trials, and how fast it decides.

    python -m benchmarks.simulate --record   # counts the mix anew (a minute) into results/mix.csv, then simulates
    python -m benchmarks.simulate            # simulates the recorded mix; writes results/simulate.md

The mix is the cells of the LOCAL paper's tables and of long-tail CIFAR at small batches. GPU memory is the memory
model's (calibrated on the paper's Table 1). Seconds and the busy fraction are estimates too, from the operations,
FLOPs and bytes of a step: no GPU was measured. A step takes the longest of its launches (15 us each), its
arithmetic and its memory traffic; the GPU is busy for the longer of the last two.
"""

import argparse
import csv
import functools
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from contrasweep.cluster.inventory import Gpu, Inventory, Node
from contrasweep.cluster.memory import count
from contrasweep.cluster.packing import Footprint, place
from contrasweep.cluster.simulate import simulate
from contrasweep.planning.learned import Calibration

RESULTS = Path(__file__).parent / "results"
# A100, what kernels reach of its peaks
FLOPS_PER_S = 0.4 * 312e12
BYTES_PER_S = 0.7 * 2.0e12
LAUNCH_S = 15e-6
CELLS = [  # encoder, pixels, images of a batch (both of a pair, both views), images an epoch, epochs
    *[("resnet18", 32, 2 * b, 12406, 200) for b in (4, 8, 12, 64)],
    *[("resnet18", 32, 2 * b, 10847, 200) for b in (32, 64, 80)],
    *[("resnet50", p, 2 * b, 2 * 1037, 100) for p in (256, 512) for b in (8, 16)],
    *[("resnet50", p, 2 * b, 2 * 2799, 100) for p in (128, 224) for b in (8, 16, 64)],
    *[("resnet18", 224, 2 * b, 2 * 2799, 100) for b in (8, 16)],
    *[("resnet34", 224, 2 * b, 2 * 2799, 100) for b in (8, 16)],
]


def record() -> list[dict[str, Any]]:
    import torchvision

    learned = Calibration()
    for batch, mib in ((8, 4303), (16, 6153)):
        learned.observe(
            "a100", count(torchvision.models.resnet50, (2 * batch, 3, 256, 256)).gib, mib / 1024
        )
    rows = []
    for encoder, pixels, images, per_epoch, epochs in CELLS:
        build = functools.partial(build_encoder, encoder, pixels)
        gib = learned.predict("a100", count(build, (images, 3, pixels, pixels)).gib)
        launches, arithmetic, traffic = step_seconds(build, (images, 3, pixels, pixels))
        step = max(launches, arithmetic, traffic)
        rows.append(
            {
                "encoder": encoder,
                "pixels": pixels,
                "images": images,
                "gpu_memory_gib": round(gib, 3),
                "gpu_busy": round(max(arithmetic, traffic) / step, 3),
                "seconds": round(step * per_epoch / images * epochs, 1),
            }
        )
    return rows


def build_encoder(name: str, pixels: int) -> Any:
    """The torchvision ResNet; for small images with the 3 x 3 stem and without pooling, as is usual for CIFAR."""
    import torchvision
    from torch import nn

    model = getattr(torchvision.models, name)()
    if pixels <= 64:
        model.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        model.maxpool = nn.Identity()
    return model


def step_seconds(build: Any, shape: Sequence[int]) -> tuple[float, float, float]:
    """Seconds of one training step by its launches, its arithmetic, and its memory traffic."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    from torch.utils.flop_counter import FlopCounterMode

    class Traffic(TorchDispatchMode):
        operations = 0
        bytes_moved = 0

        def __torch_dispatch__(
            self, op: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            output = op(*args, **(kwargs or {}))
            if not op.is_view and "empty" not in op.__name__ and "detach" not in op.__name__:
                tensors = [
                    t for t in tree_leaves((args, kwargs, output)) if isinstance(t, torch.Tensor)
                ]
                self.operations += 1
                self.bytes_moved += sum(t.numel() * t.element_size() for t in tensors)
            return output

    with FakeTensorMode():
        model = build().train()
        batch = torch.empty(*shape)
        optimizer = torch.optim.Adam(model.parameters(), foreach=True)

        def step() -> None:
            model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        step()  # the first makes the optimiser's states
        with FlopCounterMode(display=False) as flops:
            step()
        with Traffic() as traffic:
            step()
    return (
        traffic.operations * LAUNCH_S,
        flops.get_total_flops() / FLOPS_PER_S,
        traffic.bytes_moved / BYTES_PER_S,
    )


def read_mix(path: Path = RESULTS / "mix.csv") -> tuple[list[Footprint], list[float]]:
    """The recorded mix of trials: footprint and seconds of each cell."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    footprints = [
        Footprint(
            gpu_memory_gib=float(r["gpu_memory_gib"]),
            gpu_busy=float(r["gpu_busy"]),
            cpus=1,
            host_memory_gib=3,
        )
        for r in rows
    ]
    return footprints, [float(r["seconds"]) for r in rows]


def whole_gpus(trials: Sequence[Footprint]) -> list[Footprint]:
    """Return the trials as other sweep systems place them: a whole GPU for each that wants one."""
    return [replace(f, gpus=max(f.gpus, 1.0)) if f.wants_gpu else f for f in trials]


def expected_factor(
    footprints: Sequence[Footprint], seconds: Sequence[float], inventory: Inventory
) -> float:
    """What packing gains if no GPU ever waits: GPU-seconds on whole GPUs over GPU-seconds on shares."""
    placements = place(footprints, inventory)
    return sum(seconds) / sum(
        s * float(p.share) for s, p in zip(seconds, placements, strict=True) if p
    )


STEP_S = 16
PLACES = 200
HOST = 8


def seconds_to_grow(waiting: int, join_s: int) -> int:
    """Simulate how many seconds a cluster without hosts takes to have `PLACES` places, while `waiting` trials wait.

    Each `STEP_S` seconds an autoscaler starts hosts with `HOST` places for the trials that wait, less the places that
    are starting already. A host joins after `join_s`.
    """
    now = places = 0
    starting: list[tuple[int, int]] = []  # time of joining, places
    while places < PLACES:
        missing = min(waiting, PLACES - places) - sum(count for _, count in starting)
        if missing > 0:
            starting.append((now + join_s, HOST * math.ceil(missing / HOST)))
        now += STEP_S
        places += sum(count for when, count in starting if when <= now)
        starting = [entry for entry in starting if entry[0] > now]
    return now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true")
    if parser.parse_args().record:
        rows = record()
        with (RESULTS / "mix.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    cells, each = read_mix()
    gpu = Gpu("A100-80G", 79.2)
    text = [
        f"# Simulator ({date.today()})",
        "",
        f"{len(cells)} cells of results/mix.csv, on hosts of 8 A100-80G, 128 cores, 1,000 GiB, 20 a host-hour.",
        "The mix is estimated, not measured; the factors are the simulator's.",
        "",
        "| trials | GPUs | hours packed | cost | GPUs given | hours, one a GPU | factor | expected | seconds to "
        "decide |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for replicates, hosts in ((10, 1), (100, 8), (100_000 // len(cells) + 1, 125)):
        inventory = Inventory((Node(128, 1000, 8, gpu, count=hosts, cost_per_hour=20.0),))
        trials = cells * replicates
        seconds = each * replicates
        start = time.perf_counter()
        packed = simulate(trials, seconds, inventory)
        took = time.perf_counter() - start
        whole = simulate(whole_gpus(trials), seconds, inventory)
        text.append(
            f"| {len(trials):,} | {inventory.gpus:,} | {packed.hours:.1f} | {packed.cost:,.0f} | "
            f"{packed.utilisation:.0%} "
            f"| {whole.hours:.1f} | {whole.hours / packed.hours:.2f} | "
            f"{expected_factor(trials, seconds, inventory):.2f} | {took:.1f} |"
        )
    text += [
        "",
        f"Seconds until an autoscaler that looks each {STEP_S} s has started {PLACES} places on hosts of {HOST}, by "
        "how many trials wait as its demand and how long a host takes to join.",
        "",
        "| a host joins after, s | 16 wait | 200 wait |",
        "|---|---|---|",
        *(
            f"| {join_s} | {seconds_to_grow(16, join_s)} | {seconds_to_grow(200, join_s)} |"
            for join_s in (16, 64, 128)
        ),
    ]
    (RESULTS / "simulate.md").write_text("\n".join(text) + "\n")
    print("\n".join(text))


if __name__ == "__main__":
    main()
