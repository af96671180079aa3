"""The cross-entropy family for large batches: exact, a tile of anchors at a time, in memory linear in the batch.

The gradient is taken in the forward pass, tile by tile, so no [n n] matrix is ever held. Where scores are inner
products, the softmax of a tile is turned into its gradient in place, and a matrix product carries it to the embeddings.
Other similarities are differentiated by autograd within the tile.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from contrasweep.trainables.losses import distributed
from contrasweep.trainables.losses.batch import Ids, Mask, Scores, members
from contrasweep.trainables.pytorch import Bool, F, Float, Int, Matrix, Tensor, torch

Weights = Float[Tensor, " n"]
Tile = Float[Tensor, "t n"]
PerAnchor = Float[Tensor, " t"]

DENSE_ROWS = {"cpu": 256, "cuda": 4096}
"""Batches up to this many rows are computed at once, by device; larger ones in tiles."""
TILE_SCORES = {"cpu": 2**20, "cuda": 2**26}
"""Scores of a tile: on a CPU 4 MB of float32, which stays in its cache."""


def needs_tiles(z: Matrix) -> bool:
    """Whether a batch has more rows than its device computes at once, so that it is computed in tiles."""
    return len(z) > DENSE_ROWS.get(z.device.type, DENSE_ROWS["cuda"])


@dataclass(frozen=True)
class Anchors:
    """A tile of anchors: rows `start` to `stop` of a batch whose rows have `ids`."""

    ids: Ids
    start: int
    stop: int

    @property
    def rows(self) -> slice:
        """The anchors' rows in the batch."""
        return slice(self.start, self.stop)

    @property
    def same(self) -> Bool[Tensor, "t n"]:
        """Pairs with the same id, the anchor itself among them."""
        return self.ids[self.rows, None] == self.ids

    @property
    def positives(self) -> Bool[Tensor, "t n"]:
        """Pairs with the same id, without the anchor itself."""
        same = self.same
        same.diagonal(self.start).fill_(False)
        return same


def tiles_of_anchors(
    ids: Ids, rows: range | None = None, max_scores: int | None = None
) -> Iterator[Anchors]:
    """Divide the anchors `rows` (None: all) of a batch into tiles, and yield them.

    A tile has a score for each of its anchors with each row of the batch. It has at most `max_scores` of them (None: as
    many as suit the device), but at least one anchor.
    """
    rows = range(len(ids)) if rows is None else rows
    most = max_scores or TILE_SCORES.get(ids.device.type, TILE_SCORES["cuda"])
    step = max(1, most // max(1, len(ids)))
    for start in range(rows.start, rows.stop, step):
        yield Anchors(ids, start, min(start + step, rows.stop))


Counts = Int[Tensor, " 2"]
"""Negatives with a score below 0, and all of them."""


class NegativeTally:
    """Counts the negative pairs that a loss has seen in all its calls, and those of them with a score below 0.

    `counts` is a tensor [those below 0, all]; None before the first call. It stays on the device, so that no call waits
    for the device.
    """

    def __init__(self) -> None:
        self.counts: Counts | None = None

    def add(self, scores: Scores, negatives: Mask) -> None:
        """Count the pairs of the mask `negatives`, and those of them whose score is below 0."""
        with torch.no_grad():
            new_counts = torch.stack([((scores < 0) & negatives).sum(), negatives.sum()])
            self.counts = new_counts if self.counts is None else self.counts + new_counts

    def sum_up(self) -> None:
        """Replace the counts by their sums over all processes, each of which has counted its part of the batch."""
        if self.counts is not None:
            distributed.sum_up([self.counts])


TileGradient = Callable[[Tensor, Anchors, Tensor | None], Tensor]
"""(embeddings [n d], anchors, gradient [n d] to add to, or None) -> the weighted sum of the anchors' values."""


def by_autograd(
    similarity: Callable[[Tensor, Tensor], Tensor],
    values: Callable[..., Tensor],
    weights: Weights,
    tally: NegativeTally | None = None,
) -> TileGradient:
    """Return a function that computes one tile and its gradient by autograd, for any loss with a value for each anchor.

    `values(scores, positives, negatives)` gives the values [t] of a tile's anchors. `weights` [n] has the weight of
    each row's value in the loss. A `tally` counts the tile's negatives.
    """

    def tile(z: Tensor, anchors: Anchors, gradient: Tensor | None) -> Tensor:
        """Return the weighted sum of a tile's values, and add its gradient to `gradient` [n d] where that is given."""
        with torch.set_grad_enabled(gradient is not None):
            # The tile's anchors and all rows, as two leaves of a graph that ends with this tile.
            rows, columns = (
                part.detach().requires_grad_(gradient is not None) for part in (z[anchors.rows], z)
            )
            scores = similarity(rows, columns)
            negatives = ~anchors.same
            if tally is not None:
                tally.add(scores, negatives)
            total = values(scores, anchors.positives, negatives) @ weights[anchors.rows]
            if gradient is not None:
                row_gradient, column_gradient = torch.autograd.grad(total, (rows, columns))
                gradient[anchors.rows] += row_gradient
                gradient += column_gradient
        return total.detach()

    return tile


TileFunction = Callable[[Tile, Anchors, float], PerAnchor]
"""(logits [t n], anchors, epsilon) -> values [t]; leaves the gradient of each row's value in place of the logits."""


def of_inner_products(
    tile_function: TileFunction,
    weights: Weights,
    temperature: float,
    epsilon: float,
    tally: NegativeTally | None = None,
) -> TileGradient:
    """Return a function that computes one tile and its gradient in place, where scores are inner products z_i.z_j.

    `tile_function` gives the anchors' values from the logits, scores / `temperature`, and `epsilon`. `weights` [n] has
    the weight of each row's value in the loss. A `tally` counts the tile's negatives.
    """

    def tile(z: Tensor, anchors: Anchors, gradient: Tensor | None) -> Tensor:
        """Return the weighted sum of a tile's values, and add its gradient to `gradient` [n d] where that is given."""
        rows = z[anchors.rows]
        tile_weights = weights[anchors.rows]
        logits = (rows / temperature) @ z.T
        # Anchor k of the tile is row start + k of the batch: it is not compared with itself.
        logits.diagonal(anchors.start).fill_(-torch.inf)
        if tally is not None:
            tally.add(logits, ~anchors.same)
        # `tile_function` leaves the gradient of each row's value in place of the logits.
        total = tile_function(logits, anchors, epsilon) @ tile_weights
        if gradient is not None:
            logits.mul_(tile_weights[:, None] / temperature)
            # A score depends on both of its rows: the gradient goes to the columns, then to the tile's own rows.
            gradient.addmm_(logits.T, rows)
            gradient[anchors.rows].addmm_(logits, z)
        return total

    return tile


def softmax_(logits: Tile) -> PerAnchor:
    """Replace each row [t n] by its softmax, in place, and return its log-sum-exp [t]; both are 0 in a row of -inf."""
    # The largest logit is taken out first, so that no exponential overflows; in a row of -inf there is none.
    top = logits.amax(1, keepdim=True)
    top.masked_fill_(top == -torch.inf, 0)
    total = logits.sub_(top).exp_().sum(1, keepdim=True)
    # A row of -inf has a total of 0, which becomes 1, so that the row is not divided by 0.
    is_empty = total == 0
    logits.div_(total.masked_fill_(is_empty, 1))
    return torch.where(is_empty, 0, top + total.log()).squeeze(1)


def supcon_(logits: Tile, anchors: Anchors, epsilon: float) -> PerAnchor:
    """Return the log of SupCon's denominator, and leave its gradient in `logits` (as every `TileFunction` does)."""
    # `same` has the anchor itself too, whose logit is -inf already.
    if epsilon:
        logits.sub_(anchors.same.to(logits.dtype), alpha=epsilon)
    return softmax_(logits)


def ocl_(logits: Tile, anchors: Anchors, epsilon: float) -> PerAnchor:
    """Return the log of OCL's denominator, with the magnitude of negatives, and leave its gradient in `logits`."""
    # |s| = s sign(s), and its slope is sign(s), which is 0 at 0.
    sign = torch.where(anchors.same, 1, logits.sign())
    values = softmax_(logits.mul_(sign))
    logits.mul_(sign)
    return values


def sincere_(logits: Tile, anchors: Anchors, epsilon: float) -> PerAnchor:
    """Return SINCERE's whole value, positives included, and leave its gradient in `logits`.

    With logits x, A_i the log-sum-exp of row i's negatives, and lead_ip = x_ip - A_i - epsilon:

    - value_i = mean over the positives p of -logsigmoid(lead_ip) - epsilon;
    - its derivative by a positive's x_ip is -slope_ip, where slope_ip = sigmoid(-lead_ip) / |P(i)|;
    - its derivative by a negative's x_in is softmax_n(x_i) sum_p slope_ip.
    """
    # Each positive pair (row, column) of the tile: its logit, and its weight in its anchor's mean.
    row, column = anchors.positives.nonzero(as_tuple=True)
    positive = logits[row, column]
    weight = 1 / row.bincount(minlength=len(logits)).clamp(min=1).to(logits.dtype)[row]
    # With the positives taken out, a row has only negatives: it becomes their softmax, and `log_negatives` is A.
    logits[row, column] = -torch.inf
    has_negatives = (logits > -torch.inf).any(1)
    log_negatives = softmax_(logits).masked_fill_(~has_negatives, -torch.inf)
    lead = positive - log_negatives[row] - epsilon
    slope = torch.sigmoid(-lead) * weight
    # The derivatives by negatives, and then, where 0 stands, those by positives.
    logits.mul_(logits.new_zeros(len(logits)).index_add_(0, row, slope)[:, None])
    logits[row, column] = -slope
    values = (-F.logsigmoid(lead) - epsilon) * weight
    return logits.new_zeros(len(logits)).index_add_(0, row, values)


def mean_positive_logit(z: Matrix, ids: Ids, temperature: float) -> Float[Tensor, " n"]:
    """Return for each row i the mean of z_i.z_p / temperature over its positives p; 0 without positives.

    The time is linear in n, since it comes from a sum for each id and not from pairs.
    """
    # sum_p z_i.z_p = z_i.(the sum of all rows of the id, less z_i).
    member, counts = members(ids)
    sums = z.new_zeros(len(counts), z.shape[1]).index_add(0, member, z)
    positives = (counts[member] - 1).clamp(min=1).to(z.dtype)
    of_row: Tensor = (z * (sums[member] - z)).sum(1) / (positives * temperature)
    return of_row
