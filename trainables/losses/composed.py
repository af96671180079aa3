"""A loss, a similarity, a reduction and parameters, composed into one function of a batch."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from contrasweep.config import Config
from contrasweep.trainables.losses import distributed, tiled
from contrasweep.trainables.losses.batch import (
    BatchLoss,
    Ids,
    Mask,
    Scalar,
    masks,
    positives_of_each,
    require_instance_ids,
)
from contrasweep.trainables.losses.loss import REDUCTIONS, Loss, Terms
from contrasweep.trainables.pytorch import Float, Matrix, Tensor, torch
from contrasweep.trainables.similarities import Similarity

if TYPE_CHECKING:
    from contrasweep.trainables.losses.weights import LearnedNumbers


@dataclass(frozen=True)
class ComposedLoss(BatchLoss):
    """The loss that `build` returns: a function of embeddings [n d], labels [n] and, for InfoNCE, instance ids [n].

    It is computed in float32, or in float64 if the embeddings are float64, whatever the autocast. Call `backward`
    outside of autocast. Large batches of the cross-entropy family are computed in tiles. In a process group, the loss
    is that of the joined batch (see `distributed`). `definition` is its row of `LOSSES`, `reduction` a name of
    `REDUCTIONS`, and `params` are the parameters of its function.
    """

    definition: Loss
    similarity: Similarity
    reduction: str
    params: Config
    scale: Tensor | None = None
    """What scores are multiplied by, where it is learned (see `temperature`); batches are not tiled then."""
    tally: tiled.NegativeTally | None = None
    """Counts the scores of negatives (see `negatives`)."""
    weights: "LearnedNumbers | None" = None
    """Parameters that are learned with the network, in place of those in `params`."""

    @property
    def has_weights(self) -> bool:
        """Whether the loss has parameters that are learned with the network: its row has some, and `learned` is set."""
        return bool(self.definition.learned) and bool(self.params.get("learned"))

    def of_rows(self, z: Matrix, ids: Ids) -> Scalar:
        """Return the loss of rows `z` with each other, in tiles where one matrix of all scores is too large.

        Rows with the same of the `ids` [n] are positives. No rows give 0.
        """
        # Processes that share a batch divide its tiles, however small it is.
        shared = distributed.processes() > 1
        if not len(z):
            return z.sum()
        if self.can_tile and (shared or tiled.needs_tiles(z)):
            return self.in_tiles(z, ids, shared=shared)
        return self.dense(z, ids)

    def dense(self, z: Matrix, ids: Ids) -> Scalar:
        """Compute the loss of rows with each other from the matrix [n n] of all scores."""
        return self.between(z, z, *masks(ids))

    def between(
        self,
        anchors: Matrix,
        others: Float[Tensor, "m d"],
        positives: Mask,
        negatives: Mask,
    ) -> Scalar:
        """Return the loss of `anchors` against the rows of another matrix; pairs in neither mask count nowhere.

        Not for a loss whose values need the scores of other rows (`Loss.all_pairs`).
        """
        pairs = positives.sum(1).to(anchors.dtype)
        terms = self.terms(self.similarity(anchors, others), positives, negatives)
        return torch.stack([REDUCTIONS[self.reduction](part, pairs) for part in terms]).sum()

    @property
    def can_tile(self) -> bool:
        """Whether the loss can be computed in tiles: the value and the weight of an anchor need its own scores alone.

        So it is in the cross-entropy family. But with the reduction `mean_nonzero` a weight depends on the values of
        all anchors, and a learned `scale` needs a gradient that tiles do not give.
        """
        return (
            self.definition.tile_function is not None
            and self.reduction != "mean_nonzero"
            and self.scale is None
        )

    def in_tiles(
        self,
        z: Matrix,
        ids: Ids,
        *,
        max_scores: int | None = None,
        shared: bool = False,
    ) -> Scalar:
        """Return what `dense` does, with the same gradient, from tiles of at most `max_scores` scores.

        With `max_scores` None a tile has as many as suit the device. `shared`: the processes of a group divide the
        tiles among them.
        """
        weights = self._anchor_weights(ids, z.dtype)
        project = self.similarity.project
        tile_function = self.definition.tile_function
        # Autograd gives the gradient of each tile where scores are no inner products.
        if project is None or tile_function is None:
            values: Any = partial(self.definition.function, **self.params)
            tile = tiled.by_autograd(self.similarity, values, weights, self.tally)
            return self._summed(z, ids, tile, max_scores, shared)
        temperature = self.params["temperature"]
        # Scores are inner products of projected rows. SupCon's factor temperature / base is put into the weights.
        z = project(z)
        base = self.params.get("base_temperature")
        if base is not None:
            weights = weights * (temperature / base)
        tile = tiled.of_inner_products(
            tile_function, weights, temperature, self.params.get("epsilon", 0.0), self.tally
        )
        total = self._summed(z, ids, tile, max_scores, shared)
        # Where a tile's values are the log of the denominator alone, the log of the numerator is taken off here.
        if self.definition.tile_is_denominator:
            total = total - tiled.mean_positive_logit(z, ids, temperature) @ weights
        return total

    def _summed(
        self, z: Tensor, ids: Ids, tile: tiled.TileGradient, max_scores: int | None, shared: bool
    ) -> Scalar:
        """Return the sum of `tile` over all tiles (see `sum_of_tiles`).

        With `shared` each process computes some of the tiles. The numbers of negatives that the processes have counted
        are then added up as well.
        """
        from contrasweep.trainables.losses.autograd import sum_of_tiles

        total = sum_of_tiles(z, ids, tile, max_scores, shared)
        if shared and self.tally is not None:
            self.tally.sum_up()
        return total

    def _anchor_weights(self, ids: Ids, dtype: "torch.dtype") -> Float[Tensor, " n"]:
        """Return the weight of each anchor's value in the reduced loss: 0 for an anchor without positives.

        It is the derivative of the reduction with respect to the value.
        """
        # Reductions that can be tiled are linear in the values, so the derivative is the same at any values. An anchor
        # with positives has one term, its value, which counts as above zero.
        pairs = positives_of_each(ids).to(dtype)
        values = torch.zeros_like(pairs, requires_grad=True)
        valid = (pairs > 0).to(dtype)
        with torch.enable_grad():
            reduced = REDUCTIONS[self.reduction](Terms(values, valid, valid), pairs)
        (weights,) = torch.autograd.grad(reduced, values)
        return weights * valid

    def ids(self, labels: Ids, instance_ids: Ids | None) -> Ids:
        """Return the ids whose equality makes two rows positives: labels or instance ids, as the loss says."""
        if self.definition.positives == "labels":
            return labels
        return require_instance_ids(instance_ids, self.definition.name)

    def terms(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> tuple[Terms, ...]:
        """Return the loss's terms as a tuple of `Terms`, each of which is reduced by itself.

        `scores` and the masks `positives` and `negatives` are [n m]: n anchors with m rows.

        Most losses have one; `margin_contrastive` has one of positive and one of negative pairs.
        """
        # Counts the negatives, where a caller wants that (see `negatives.with_tally`).
        if self.tally is not None:
            self.tally.add(scores, negatives)
        scores = scores if self.scale is None else scores * self.scale
        # Learned numbers take the place of those that are set.
        params = self.params if self.weights is None else {**self.params, **self.weights.values()}
        values = self.definition.function(scores, positives, negatives, **params)
        # Where a loss gives a value for each anchor, each anchor with a positive is one term.
        if isinstance(values, Tensor):
            valid = positives.any(1)
            values = Terms(values, valid.to(values.dtype), (values.detach() > 0).to(values.dtype))
        # A `Terms` is a tuple itself, of tensors, so it is asked for before other tuples.
        return (values,) if isinstance(values, Terms) else tuple(values)
