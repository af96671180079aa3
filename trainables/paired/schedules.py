"""How alpha, the weight of the contrastive part against the classification part, falls with time."""

import math
from collections.abc import Callable

ALPHAS: dict[str, Callable[[int, int], float]] = {
    "parabolic": lambda epoch, epochs: 1 - (epoch / epochs) ** 2,
    "linear": lambda epoch, epochs: 1 - epoch / epochs,
    "inverse": lambda epoch, epochs: 1 / (epoch + 1),
    "cosine": lambda epoch, epochs: (1 + math.cos(math.pi * epoch / epochs)) / 2,
    "const": lambda epoch, epochs: 1.0,
}
"""Name -> share of alpha_0 in an epoch, counted from 0. The paper says only "inversely proportional to the number
of epochs" (after equation 6); all but `const` start at 1 and fall."""


def alpha(schedule: str, epoch: int, epochs: int, start: float = 1.0) -> float:
    """alpha_t in [0, 1] of `epoch` (from 0) of `epochs`; `start` is alpha_0."""
    return start * ALPHAS[schedule](epoch, epochs)
