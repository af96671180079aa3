"""A loss, a similarity, a reduction and parameters, composed into one function of a batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from contrasweep.errors import SpecError
from trainables.losses import checks
from trainables.losses.reductions import REDUCTIONS, Terms
from trainables.losses.table import Loss
from trainables.similarities import Similarity

Ids = Int[Tensor, " n"]


@dataclass(frozen=True)
class Composed:
    """What `build` gives: a function of embeddings [n d], labels [n] and, for InfoNCE, instance ids [n].

    Computed in float32, or float64 if the embeddings are, whatever the autocast.
    """

    loss: Loss
    similarity: Similarity
    reduction: str
    params: Mapping[str, Any]

    def __call__(self, embeddings: Float[Tensor, "n d"], labels: Ids, instance_ids: Ids | None = None) -> Float[Tensor, ""]:
        checks.batch(embeddings, labels, instance_ids)
        with torch.autocast(embeddings.device.type, enabled=False):
            z = embeddings if embeddings.dtype == torch.float64 else embeddings.float()
            positives, negatives = masks(self.ids(labels, instance_ids))
            terms = self.terms(self.similarity(z, z), positives, negatives)
            pairs = positives.sum(1).to(z.dtype)
            return torch.stack([REDUCTIONS[self.reduction](part, pairs) for part in terms]).sum()

    def ids(self, labels: Ids, instance_ids: Ids | None) -> Ids:
        """What makes two rows a positive pair: labels, or the instance's id."""
        if self.loss.positives == "labels":
            return labels
        if instance_ids is None:
            raise SpecError(f"{self.loss.name} needs the ids of the instances whose views the rows are",
                            place="instance_ids", hint="views of one image have the same id")  # fmt: skip
        return instance_ids

    def terms(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> tuple[Terms, ...]:
        """The loss's terms; where it gives a value per anchor, an anchor with a positive is one term."""
        values = self.loss.function(scores, positives, negatives, **self.params)
        if isinstance(values, Terms):
            return (values,)
        if isinstance(values, tuple):
            return values
        valid = positives.any(1)
        return (Terms(values, valid.to(values.dtype), (values.detach() > 0).to(values.dtype)),)


def masks(ids: Ids) -> tuple[Bool[Tensor, "n n"], Bool[Tensor, "n n"]]:
    """Positives (same id, another row) and negatives (another id); the diagonal is in neither."""
    same = ids[:, None] == ids
    return same & ~torch.eye(len(ids), dtype=torch.bool, device=ids.device), ~same
