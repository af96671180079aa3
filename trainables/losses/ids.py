"""Which rows belong together: equal ids, be they labels or instances."""

from jaxtyping import Bool, Int

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
    """How many other rows have a row's id: |P(i)|."""
    member, counts = members(ids)
    return counts[member] - 1


def valid_anchors(ids: Ids) -> int:
    """Rows that share their id with another row."""
    return int((others(ids) > 0).sum())
