"""Counts of negatives with a score below 0; where a batch has none, OCL equals SCL, since |s| = s."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from contrasweep.trainables.losses.composed import ComposedLoss
from contrasweep.trainables.losses.tiled import Counts, NegativeTally


def with_tally(loss: Any) -> tuple[Any, NegativeTally]:
    """Return a copy of `loss` that counts negatives in each call, and its counter.

    A loss whose scores have no sign, or one of the user's own, comes back as it is, with a counter that stays empty.
    """
    tally = NegativeTally()
    if has_signed_scores(loss):
        loss = replace(loss, tally=tally)
    return loss, tally


def has_signed_scores(loss: Any) -> bool:
    """Whether a score is negative where an angle is above 90 degrees, as of cosine and dot product."""
    return isinstance(loss, ComposedLoss) and loss.similarity.signed


def share_below(counts: Sequence[Counts]) -> float | None:
    """Return the share of negatives with a score below 0, from the counts of each step; None without negatives."""
    if not counts:
        return None
    below, number = torch.stack(list(counts)).sum(0).tolist()
    return below / number if number else None
