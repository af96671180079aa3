"""What can be wrong with a batch that is given to a loss, checked before anything is computed."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from contrasweep.errors import SpecError


class NotFiniteError(ValueError):
    """Embeddings hold NaN or infinite values."""


def check_batch(
    embeddings: Float[Tensor, "n d"], labels: Int[Tensor, " n"], instance_ids: Int[Tensor, " n"] | None
) -> None:
    """Shapes and values of a batch; `NotFiniteError` if embeddings hold NaN or infinite values."""
    if embeddings.ndim != 2 or not embeddings.is_floating_point():
        raise SpecError(
            "embeddings must be floating-point [n d]",
            place="embeddings",
            value=f"{embeddings.dtype} {list(embeddings.shape)}",
        )
    for name, ids in (("labels", labels), ("instance_ids", instance_ids)):
        if ids is not None and ids.shape != embeddings.shape[:1]:
            raise SpecError(
                f"must hold one value per embedding, which are {len(embeddings)}", place=name, value=list(ids.shape)
            )
    if not torch.isfinite(embeddings.detach()).all():
        bad = (~torch.isfinite(embeddings.detach())).any(1).nonzero().flatten()
        raise NotFiniteError(
            f"embeddings: must be finite, got NaN or infinite values in {len(bad)} of {len(embeddings)} rows, "
            f"the first at row {int(bad[0])}"
        )
