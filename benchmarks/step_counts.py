"""Write `trainables/step_counts.json`: python -m benchmarks.step_counts"""

import argparse
import functools
import json

from contrasweep.cluster.memory import Precision, count
from contrasweep.trainables.contrastive.settings import Settings
from contrasweep.trainables.encoders import Shape
from contrasweep.trainables.step_counts import ENCODERS, FILE, SHAPES, key_of, step_lines

ROWS = 4
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")


def counted(encoder: str, shape: Shape, precision: Precision) -> tuple[str, list[float]]:
    """Count a training step of an encoder with the default head: its key in the file of counts, and its numbers (see
    `trainables.step_counts.step_lines`).
    """
    settings = Settings(encoder=encoder)  # type: ignore[arg-type]
    build = functools.partial(settings.build_network, shape)
    first, second = (count(build, (rows, *shape), precision=precision) for rows in (ROWS, ROWS + 1))
    return key_of(settings.network_text, shape, precision), step_lines(first, second, ROWS)


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    lines = dict(counted(e, shape, p) for e in ENCODERS for shape in SHAPES for p in PRECISIONS)
    FILE.write_text(
        "{\n"
        + ",\n".join(f"{json.dumps(key)}: {json.dumps(lines[key])}" for key in lines)
        + "\n}\n"
    )


if __name__ == "__main__":
    main()
