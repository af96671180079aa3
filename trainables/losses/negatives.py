"""Counts of negatives with a score below 0; where a batch has none, OCL equals SCL, since |s| = s."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from contrasweep.trainables.losses.composed import ComposedLoss
from contrasweep.trainables.losses.tiled import Counts, NegativeTally


def with_tally(loss: Any) -> tuple[Any, NegativeTally | None]:
    """Return a copy of `loss` that counts negatives in each call, and its counter.

    A loss whose scores have no sign, or one of the user's own, comes back as it is, with None.
    """
    if not has_signed_scores(loss):
        return loss, None
    tally = NegativeTally()
    return replace(loss, tally=tally), tally


def counts_of(tally: NegativeTally | None) -> Counts | None:
    """Return the counts of a tally; None without a tally, or if the loss was not called."""
    return None if tally is None else tally.counts


def has_signed_scores(loss: Any) -> bool:
    """Return whether the sign of a score tells angles below and above 90 degrees apart: cosine and dot product."""
    return isinstance(loss, ComposedLoss) and loss.similarity.signed


def share_below(counts: Sequence[Counts]) -> float | None:
    """Return the share of negatives with a score below 0 over the steps; None where no step had negatives."""
    if not counts:
        return None
    below, number = torch.stack(list(counts)).sum(0).tolist()
    return below / number if number else None
