"""The batch that a loss is computed of: which rows belong together, checked values, joined over processes.

Rows belong together that have equal ids, be they labels or instances.
"""

from collections.abc import Callable

from jaxtyping import Bool, Float, Int

from contrasweep.errors import SpecError
from contrasweep.trainables.losses import distributed
from contrasweep.trainables.pytorch import Tensor, torch

Ids = Int[Tensor, " n"]
Square = Bool[Tensor, "n n"]


def masks(ids: Ids) -> tuple[Square, Square]:
    """Positives (same id, another row) and negatives (another id); the diagonal is in neither."""
    same = ids[:, None] == ids
    return same & ~torch.eye(len(ids), dtype=torch.bool, device=ids.device), ~same


def members(ids: Ids) -> tuple[Ids, Int[Tensor, " k"]]:
    """The place of each row's id among the k ids there are, and how many rows each of these has."""
    _, member, counts = torch.unique(ids, return_inverse=True, return_counts=True)
    return member, counts


def others(ids: Ids) -> Ids:
    """Return how many other rows have the id of each row: |P(i)|."""
    member, counts = members(ids)
    return counts[member] - 1


def valid_anchors(ids: Ids) -> int:
    """Rows that share their id with another row."""
    return int((others(ids) > 0).sum())


class NotFiniteError(ValueError):
    """The embeddings hold NaN or infinite values."""


def joined(
    embeddings: Float[Tensor, "n d"], labels: Ids, instance_ids: Ids | None, ids_of: Callable[[Ids, Ids | None], Ids]
) -> tuple[Float[Tensor, "N d"], Int[Tensor, " N"]]:
    """Return embeddings in float32 (float64 stays), and what `ids_of` makes of labels and instance ids.

    In a process group these are the rows of all its processes. Raises as `check_batch` does: processes check what
    they have gathered, so that all of them come to the same end.
    """
    shared = distributed.processes() > 1
    if not shared:
        check_batch(embeddings, labels, instance_ids)
    z = embeddings if embeddings.dtype == torch.float64 else embeddings.float()
    ids = ids_of(labels, instance_ids)
    if shared:
        from contrasweep.trainables.joined_batch import gather_with_gradient

        z, ids = gather_with_gradient(z), distributed.gather(ids)
        check_batch(z, ids, None)
    return z, ids


def check_batch(
    embeddings: Float[Tensor, "n d"], labels: Int[Tensor, " n"], instance_ids: Int[Tensor, " n"] | None
) -> None:
    """Check shapes and values of a batch; `NotFiniteError` if embeddings hold NaN or infinite values."""
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
