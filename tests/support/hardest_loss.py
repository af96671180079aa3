"""A loss of somebody's own."""

import torch
from torch import Tensor


def from_the_hardest(scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """An anchor's largest score with a negative, less its scores with positives: in a loop, as `torch.vmap` cannot."""
    hardest = [float(mask.any()) * row[mask].max() for row, mask in zip(scores, negatives, strict=True)]
    return torch.stack(hardest) - (scores * positives).sum(1)
