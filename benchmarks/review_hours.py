"""Counted work of steps of the eight review models beside what they take here: python -m benchmarks.review_hours

A step is at the paper's sizes, 32 reviews of 128 words and 128 regions, in one thread. Processor seconds, so that what
else runs matters less. The count becomes seconds by what a product of matrices and an addition reach here.
"""

import argparse
import functools
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

from contrasweep.cluster.memory import PLAIN_UTILISATION
from contrasweep.planning.planner import plan_staged
from contrasweep.trainables.review_helpfulness import training
from contrasweep.trainables.review_helpfulness.models import MODELS
from contrasweep.trainables.review_helpfulness.studies.tables import MAIN_TABLE

REPEATS = 3
SIDE = 1024
FLOATS = 2**24


def processor_seconds(run: Callable[[], object], repeats: int = REPEATS) -> float:
    """Fewest processor seconds of several runs of `run`; a first run is not counted."""
    run()
    seconds = []
    for _ in range(repeats):
        begun = time.process_time()
        run()
        seconds.append(time.process_time() - begun)
    return min(seconds)


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> None:
    """Train once."""
    optimizer.zero_grad()
    training._loss(model(batch)).backward()
    optimizer.step()


def main() -> None:
    """Print the table of processor hours by model."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.set_num_threads(1)
    matrix = torch.randn(SIDE, SIDE)
    vector = torch.randn(FLOATS)
    out = torch.empty(FLOATS)
    peak = 2 * SIDE**3 / processor_seconds(lambda: matrix @ matrix, 10)
    moved = 8 * FLOATS / processor_seconds(lambda: torch.add(vector, 1.0, out=out), 10)
    print(f"{peak / 1e9:.0f} GFLOP/s, {moved / 1e9:.1f} GB/s, load {os.getloadavg()[0]:.0f}\n")
    print(
        "| model | GFLOP | GB moved | counted | timed | counted / timed |\n|---|---|---|---|---|---|"
    )
    planned, _ = plan_staged(MAIN_TABLE, storage=tempfile.mkdtemp())
    assert planned is not None
    data = next(iter(planned.datasets.values()))
    for name in MODELS:
        workload = training.memory({"model": {"name": name}}, data)
        work = workload.count().work
        torch.manual_seed(0)
        model = workload.build().train()
        optimizer = torch.optim.Adam(model.parameters(), 1e-4)
        batch = training._batch(round(workload.parts * training.COUNTED_PAIRS), 128, 128, 2048)
        timed = processor_seconds(functools.partial(step, model, optimizer, batch))
        counted = work.operations / (PLAIN_UTILISATION * peak) + work.moved / moved
        print(
            f"| {name} | {work.operations / 1e9:.1f} | {work.moved / 1e9:.1f} | {counted:.2f} | {timed:.2f} "
            f"| {counted / timed:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
