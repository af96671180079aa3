"""What a training step of the usual networks holds and computes, so that a plan of these does without PyTorch.

Both are linear in the rows of a batch. `step_counts.json` has intercepts and slopes of the networks in `ENCODERS` with
the default head, for the image sizes in `SHAPES`. `python -m benchmarks.step_counts` writes the file; a test counts
anew.
"""

import functools
import json
from pathlib import Path

from contrasweep.cluster.memory import Count, Precision, Work
from contrasweep.trainables.encoders import Shape

ENCODERS = ("cnn", "mlp", "resnet18", "resnet34", "resnet50")
SHAPES: tuple[Shape, ...] = ((1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 64, 64))
FILE = Path(__file__).with_suffix(".json")


def key_of(network: str, shape: Shape, precision: Precision) -> str:
    """Return the key under which `step_counts.json` has a network's counts: a text of all three arguments.

    `network` is encoder and head as text, `shape` that of an image.
    """
    return f"{network} {'x'.join(map(str, shape))} {precision}"


def step_lines(first: Count, second: Count, rows: int) -> list[float]:
    """Return a step's counts as linear functions of its rows, from the counts with `rows` and with `rows` + 1 rows.

    The list begins with the numbers of parameters and of kernels. Then it has an intercept and a slope for each of
    three counts: bytes kept, operations, and bytes moved.
    """
    numbers: list[float] = [first.parameters, first.work.kernels]
    # One row more adds the slope; the intercept is the count at no rows.
    for before, after in (
        (first.saved, second.saved),
        (first.work.operations, second.work.operations),
        (first.work.moved, second.work.moved),
    ):
        slope = after - before
        numbers += [before - rows * slope, slope]
    return numbers


def known_step(network: str, shape: Shape, rows: int, precision: Precision) -> Count | None:
    """Return what a step of `rows` images holds and computes; None where the file has no such network and shape.

    `network` is encoder and head as text, with their parameters.
    """
    numbers = _lines().get(key_of(network, shape, precision))
    if numbers is None:
        return None
    # In the order in which `step_lines` returned them: numbers, then pairs of intercept and slope.
    parameters, kernels, *lines = numbers
    saved, operations, moved = (
        intercept + rows * slope for intercept, slope in zip(lines[::2], lines[1::2], strict=True)
    )
    return Count(int(saved), int(parameters), work=Work(operations, moved, kernels))


@functools.cache
def _lines() -> dict[str, list[float]]:
    """Return the content of `step_counts.json`: key (see `key_of`) -> what `step_lines` returns."""
    lines: dict[str, list[float]] = json.loads(FILE.read_text())
    return lines
