"""The batch that a loss is computed of: which rows belong together, checked values, joined over processes.

Rows belong together that have equal ids, be they labels or instances.
"""

import abc
from collections.abc import Callable

from contrasweep.errors import SpecError
from contrasweep.trainables.losses import distributed
from contrasweep.trainables.precision import full_precision, widened
from contrasweep.trainables.pytorch import Bool, Float, Int, Integers, Matrix, Tensor, nn, torch

Ids = Integers
Square = Bool[Tensor, "n n"]
Scalar = Float[Tensor, ""]
Scores = Float[Tensor, "n m"]
Mask = Bool[Tensor, "n m"]
PerAnchor = Float[Tensor, " n"]


def masks(ids: Ids) -> tuple[Square, Square]:
    """Return which pairs of rows are positives (same id, another row) and negatives (another id), [n n] each.

    The diagonal, a row with itself, is in neither.
    """
    same = ids[:, None] == ids
    return same & ~torch.eye(len(ids), dtype=torch.bool, device=ids.device), ~same


def members(ids: Ids) -> tuple[Ids, Int[Tensor, " k"]]:
    """Return, for each row, the index of its id among the k distinct ids, and the number of rows of each id [k]."""
    _, member, counts = torch.unique(ids, return_inverse=True, return_counts=True)
    return member, counts


def positives_of_each(ids: Ids) -> Ids:
    """Return how many other rows have the id of each row: |P(i)|."""
    member, counts = members(ids)
    return counts[member] - 1


def valid_anchors(ids: Ids) -> int:
    """Return how many rows have a positive: another row with their id."""
    return int((positives_of_each(ids) > 0).sum())


class NotFiniteError(ValueError):
    """The embeddings that a loss was called with hold NaN or infinite values."""


def checked_rows_and_ids(
    embeddings: Matrix,
    labels: Ids,
    instance_ids: Ids | None,
    ids_of: Callable[[Ids, Ids | None], Ids],
) -> tuple[Float[Tensor, "N d"], Int[Tensor, " N"]]:
    """Return embeddings in float32 (float64 stays), and the ids that `ids_of` chooses from labels and instance ids.

    In a process group these are the rows of all its processes. Raises what `check_batch` raises; in a group either all
    processes raise it or none, since each checks the rows of all.
    """
    # A process that raised before the gathering, because of its own rows, would leave the others waiting there.
    shared = distributed.processes() > 1
    if not shared:
        check_batch(embeddings, labels, instance_ids)
    z = widened(embeddings)
    ids = ids_of(labels, instance_ids)
    if shared:
        from contrasweep.trainables.joined_batch import gather_with_gradient

        z = gather_with_gradient(z)
        ids = distributed.gather(ids)
        check_batch(z, ids, None)
    return z, ids


class BatchLoss(abc.ABC):
    """A loss of a batch, computed in float32 or float64 after the shapes and values of the batch were checked.

    In a process group the loss is that of the batches of all ranks, joined.
    """

    weights: "nn.Module | None"
    """The module with the loss's own state: parameters that are learned with the network, and buffers. None without
    any, or before it is built."""

    def __call__(self, embeddings: Matrix, labels: Ids, instance_ids: Ids | None = None) -> Scalar:
        """Return the loss of a batch.

        Args:
            embeddings: One row for each view, [n d].
            labels: The class of each row, [n].
            instance_ids: The number of the image whose view each row is, [n].

        Raises:
            NotFiniteError: The embeddings hold NaN or infinite values.
            SpecError: A shape does not fit, or the loss needs instance ids.
        """
        with full_precision(embeddings):
            return self.of_rows(*checked_rows_and_ids(embeddings, labels, instance_ids, self.ids))

    @abc.abstractmethod
    def of_rows(self, z: Matrix, ids: Ids) -> Scalar:
        """Return the loss of checked embeddings [n d], whose positives are rows with equal `ids` [n]."""

    def ids(self, labels: Ids, instance_ids: Ids | None) -> Ids:
        """Return the ids [n] whose equality makes two rows positives: the labels, unless a loss overrides this."""
        return labels

    @property
    def has_weights(self) -> bool:
        """Whether the loss has parameters that are learned with the network."""
        return self.weights is not None and bool(list(self.weights.parameters()))


def require_instance_ids(instance_ids: Ids | None, loss: str) -> Ids:
    """Return the instance ids; `SpecError` with the name of the loss where there are none."""
    if instance_ids is None:
        raise SpecError(
            f"{loss} needs the ids of the instances whose views the rows are",
            place="instance_ids",
            hint="views of one image have the same id",
        )
    return instance_ids


def check_batch(
    embeddings: Matrix,
    labels: Integers,
    instance_ids: Integers | None,
) -> None:
    """Check shapes (`SpecError`) and values of a batch (`NotFiniteError` where embeddings are NaN or infinite)."""
    if embeddings.ndim != 2 or not embeddings.is_floating_point():
        raise SpecError(
            "embeddings must be floating-point [n d]",
            place="embeddings",
            value=f"{embeddings.dtype} {list(embeddings.shape)}",
        )
    for name, ids in (("labels", labels), ("instance_ids", instance_ids)):
        if ids is not None and ids.shape != embeddings.shape[:1]:
            raise SpecError(
                f"must hold one value per embedding, which are {len(embeddings)}",
                place=name,
                value=list(ids.shape),
            )
    # Which rows have such values is looked for only if there are any: it costs a GPU another wait.
    if not torch.isfinite(embeddings.detach()).all():
        bad_rows = (~torch.isfinite(embeddings.detach())).any(1).nonzero().flatten()
        raise NotFiniteError(
            f"embeddings: must be finite, got NaN or infinite values in {len(bad_rows)} of {len(embeddings)} rows, "
            f"the first at row {int(bad_rows[0])}"
        )
