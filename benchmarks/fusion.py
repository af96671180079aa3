"""K small networks trained as one against each alone: time of a step on one core, by engine.

    python -m benchmarks.fusion [--encoders cnn-8 cnn-28 resnet18-32] [--members 1 4 8 16] [--batches 16 32 128]
        [--repeats 15] [--output benchmarks/results]

A step is two views of a batch through encoder and projection head, SupCon at each member's own temperature, gradients
and SGD with momentum. All contestants of a size take turns within one run, and ratios are of medians of the
processor's time, so that other work on the machine meets all of them. Writes fusion.md.
"""

import argparse
import datetime
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from benchmarks.losses import processor
from torch import Tensor, nn

from contrasweep.trainables import optimisation
from contrasweep.trainables.contrastive.settings import Settings
from contrasweep.trainables.fusing.cohorts.probing import Clock
from contrasweep.trainables.fusing.folding import ENGINES, FoldedLoss, Step, fold, fold_optimizer
from contrasweep.trainables.losses import build

SIZES = {"cnn-8": ("cnn", (1, 8, 8)), "cnn-28": ("cnn", (1, 28, 28)), "resnet18-32": ("resnet18", (3, 32, 32))}
"""name -> (encoder, shape of its images)."""


@dataclass
class Contestant:
    """A way to train `members` networks by one step each, and what its first step cost beyond the later ones."""

    engine: str
    members: int
    step: Callable[[], object]
    seconds: list[float]
    first: float = 0.0


def network(size: str) -> nn.Module:
    """Encoder and head, as trials have them."""
    encoder, shape = SIZES[size]
    return Settings(encoder=encoder).build_network(shape)


def batch(size: str, rows: int, members: int) -> tuple[Tensor, Tensor, Tensor]:
    """Two views of `rows` images of each member, labels and the images' numbers."""
    generator = torch.Generator().manual_seed(rows)
    images = torch.randn(members, 2 * rows, *SIZES[size][1], generator=generator)
    labels = torch.randint(10, (members, rows), generator=generator).repeat(1, 2)
    return images, labels, torch.arange(rows).repeat(members, 2)


def alone(size: str, rows: int) -> Callable[[], object]:
    """The step of a trial that runs alone."""
    model, loss = network(size), build("supcon", temperature=0.1)
    optimizer = optimisation.SGD(model.parameters(), 0.05, weight_decay=1e-4)
    images, labels, ids = (values[0] for values in batch(size, rows, 1))

    def step() -> None:
        optimizer.step(optimisation.gradients_of(optimizer, loss(model(images), labels, ids)))

    return step


def fused(size: str, rows: int, members: int, engine: str) -> Callable[[], object]:
    """The step of a cohort."""
    model, loss = network(size), build("supcon", temperature=0.1)
    folded = fold(model, members, engine)
    of_members = FoldedLoss(loss, folded.slots)
    optimizer = fold_optimizer(optimisation.SGD, folded.parameters(), folded.slots, folded.templates)
    for slot in range(members):
        of_members.put(slot, build("supcon", temperature=0.1 + 0.01 * slot))
        optimizer.put(slot, {"weight_decay": 1e-4})
        optimizer.lr[slot] = 0.05
    step, given = Step(folded, of_members, optimizer), batch(size, rows, members)
    return lambda: step(*given)


def measure(size: str, rows: int, members: list[int], engines: list[str], repeats: int) -> list[str]:
    """Lines of the table: an engine each, with its ratios to alone and what its first steps took."""
    contestants = [Contestant("alone", 1, alone(size, rows), [])]
    for engine in engines:
        contestants += [Contestant(engine, count, fused(size, rows, count, engine), []) for count in members]
    for contestant in contestants:
        start = time.perf_counter()
        contestant.step()
        contestant.first = time.perf_counter() - start
        contestant.step()
    clock = Clock(torch.device("cpu"))
    for _ in range(repeats):
        for contestant in contestants:
            contestant.seconds.append(clock.of(contestant.step))
    base = statistics.median(contestants[0].seconds)
    lines = []
    for engine in engines:
        own = [c for c in contestants if c.engine == engine]
        ratios = " | ".join(f"{base * c.members / statistics.median(c.seconds):.2f}" for c in own)
        first = " | ".join(f"{c.first:.0f}" if ENGINES[engine].compiled else "" for c in own)
        lines.append(f"| {size} | {rows} | {1e3 * base:.1f} | {engine} | {ratios} | {first} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--encoders", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--members", nargs="+", type=int, default=[1, 4, 8, 16])
    parser.add_argument("--batches", nargs="+", type=int, default=[16, 32, 128])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    load = Path("/proc/loadavg").read_text().split()[0]
    counts = " | ".join(f"K={k}" for k in options.members)
    first = " | ".join(f"first K={k}, s" for k in options.members)
    lines = [
        "# Networks trained as one: time of a step",
        "",
        f"{datetime.date.today()}, {processor()}, one thread, torch {torch.__version__}, float32, SupCon with SGD, two "
        f"views; load average of the machine at the start: {load}. Columns K: how many members' steps are taken in the "
        f"processor's time of one alone, per K; medians of {options.repeats} turns. The first step compiles, or reads "
        "what was compiled before; its seconds are the wall clock's, with all other work on the machine.",
        "",
        f"| encoder, pixels | batch | alone, ms | engine | {counts} | {first} |",
        "|" + "---|" * (4 + 2 * len(options.members)),
    ]
    for size in options.encoders:
        for rows in options.batches:
            lines += measure(size, rows, options.members, options.engines, options.repeats)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "fusion.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
