"""Counts of negatives with a score below 0; where a batch has none, OCL equals SCL, since |s| = s."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from contrasweep.trainables.losses import tiled
from contrasweep.trainables.losses.composed import ComposedLoss
from contrasweep.trainables.losses.tiled import Counts, NegativeTally
from contrasweep.trainables.pytorch import Float, Int


def counted(loss: Any) -> tuple[Any, NegativeTally | None]:
    """Return `loss` with a counter of negatives in its calls.

    A loss whose scores have no sign, or one of the user's own, gets no counter.
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


@torch.no_grad()
def count_members(
    loss: ComposedLoss, embeddings: Float[Tensor, "k n d"], ids: Int[Tensor, "k n"]
) -> Int[Tensor, "k 2"]:
    """The counts of each member of a cohort, from its batch and what makes two rows positives."""
    z = embeddings if embeddings.dtype == torch.float64 else embeddings.float()
    assert loss.similarity.project is not None
    z = loss.similarity.project(z.flatten(0, 1)).view_as(z)
    members, rows, _ = z.shape
    most = tiled.TILE_SCORES.get(z.device.type, tiled.TILE_SCORES["cuda"])
    step = max(1, most // max(1, members * rows))
    counts = torch.zeros(members, 2, dtype=torch.int64, device=z.device)
    for start in range(0, rows, step):
        at = slice(start, start + step)
        negatives = ids[:, at, None] != ids[:, None, :]
        below = (z[:, at] @ z.mT < 0) & negatives
        counts += torch.stack([below.flatten(1).sum(1), negatives.flatten(1).sum(1)], 1)
    return counts


def share_below(counts: Sequence[Counts]) -> float | None:
    """Return the share of negatives with a score below 0 over the steps; None where no step had negatives."""
    below, all_ = torch.stack(list(counts)).sum(0).tolist() if counts else (0, 0)
    return below / all_ if all_ else None
