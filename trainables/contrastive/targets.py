"""Targets: what the embeddings of a training step are compared with.

targets: batch                                    # the default: the rows of the batch with each other
targets: {name: moco, size: 4096, momentum: .999} # a momentum encoder's keys, and a queue of those of past steps
targets: {name: xbm, size: 8192}                  # the batch, and the embeddings of past steps
targets: {name: byol, momentum: .996}             # a momentum encoder's projections, predicted; no negatives
"""

import math
from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float

from contrasweep.components import Component, Table
from contrasweep.errors import SpecError
from contrasweep.trainables import checkpoint
from contrasweep.trainables.checkpoint import StateDict
from contrasweep.trainables.fields import BelowOne, Count, MaybeCount, NotNegative
from contrasweep.trainables.losses import AnyLoss, ComposedLoss
from contrasweep.trainables.losses.batch import Ids
from contrasweep.trainables.pytorch import F, Tensor, nn, torch


class Compared(NamedTuple):
    """The loss of a step with its graph, and the embeddings of both views [n d] that diagnostics look at."""

    loss: Float[Tensor, ""]
    embeddings: Float[Tensor, "n d"]


@runtime_checkable
class Targets(Protocol):
    """What a step compares embeddings with, built once a trial as `Class(model, steps, dim, **parameters)`.

    The keyword-only parameters of the class are what a study can set (`targets: {name: moco, size: 64}`).

    Args:
        model: The network that is trained, from images [n c h w] to embeddings [n dim].
        steps: The number of steps of the whole training.
        dim: The dimension of the embeddings; 0 for `batch`, which does not need it.

    Example:
        >>> import torch
        >>> from contrasweep.trainables.contrastive.targets import TARGETS
        >>> from contrasweep.trainables.losses import build
        >>> network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 5))
        >>> targets = TARGETS.choose({"name": "xbm", "size": 64}).build(network, 10, 5)
        >>> images, rows = torch.randn(8, 3, 2, 2), torch.arange(4).repeat(2)
        >>> targets.step(images, rows % 2, rows, build("supcon")).embeddings.shape
        torch.Size([8, 5])
        >>> targets.after_step(0)
    """

    @property
    def trained(self) -> "nn.Module":
        """The part that is trained beside the network, as a predictor is; it may be empty."""

    @property
    def parts(self) -> Mapping[str, checkpoint.Stateful]:
        """The parts that a checkpoint saves, by name."""

    def step(self, views: Float[Tensor, "n c h w"], labels: Ids, rows: Ids, loss: AnyLoss) -> Compared:
        """Compute the loss of a batch.

        Args:
            views: The first views of all images, then their second views.
            labels: The label of each view's image, in the same order.
            rows: The row of each view's image in the training part, in the same order.
            loss: The trial's loss, at the temperature as it is now.

        Returns:
            The loss with its graph, and the embeddings of the views.
        """

    def after_step(self, step: int) -> None:
        """Move averages on and keep what the next steps compare with.

        Args:
            step: The number of the step that the optimizer has just taken, from 0.
        """


class Batch:
    """The batch itself: all its views, by the network that is trained."""

    def __init__(self, model: "nn.Module", steps: int, dim: int) -> None:
        self.model, self.trained = model, nn.Module()

    @property
    def parts(self) -> Mapping[str, checkpoint.Stateful]:
        """Return nothing: there is no state."""
        return {}

    def step(self, views: Float[Tensor, "n c h w"], labels: Ids, rows: Ids, loss: AnyLoss) -> Compared:
        """Compute the loss of the embeddings of all views."""
        embeddings = self.model(views)
        with torch.autocast(views.device.type, enabled=False):
            return Compared(loss(_precise(embeddings), labels, rows), embeddings)

    def after_step(self, step: int) -> None:
        """Do nothing."""


class EmbeddingQueue:
    """The last `size` embeddings, oldest first, with the labels and the image numbers of their rows.

    It starts empty. Its length is the number of rows in it: a loss sees no row that was never an embedding.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.embeddings = torch.empty(0, 0)
        self.labels = torch.empty(0, dtype=torch.int64)
        self.rows = torch.empty(0, dtype=torch.int64)

    def __len__(self) -> int:
        return len(self.labels)

    def push(self, embeddings: Float[Tensor, "n d"], labels: Ids, rows: Ids) -> None:
        """Add rows at the end; the oldest leave where there are more than `size`."""
        new, old = [embeddings.detach(), labels, rows], [self.embeddings, self.labels, self.rows]
        if len(self):
            new = [torch.cat([before, after.to(before.device)]) for before, after in zip(old, new, strict=True)]
        self.embeddings, self.labels, self.rows = (values[-self.size :] for values in new)

    def to(self, device: "torch.device") -> None:
        """Move the queue to `device`, as after a restore."""
        self.embeddings, self.labels, self.rows = (x.to(device) for x in (self.embeddings, self.labels, self.rows))

    def state_dict(self) -> StateDict:
        """Return the rows of the queue."""
        return {"embeddings": self.embeddings, "labels": self.labels, "rows": self.rows}

    def load_state_dict(self, state: StateDict, /) -> None:
        """Take the rows that `state_dict` gave."""
        self.embeddings, self.labels, self.rows = state["embeddings"], state["labels"], state["rows"]


class Moco:
    """A momentum encoder's keys and a queue of those of past steps (MoCo: He et al. 2020, equations 1 and 2).

    A first view is the query, the second view of its image its key. With `infonce` the positive is that key and the
    negatives are the queue's, as in equation 1; with a loss of labels, positives and negatives are those of the step's
    keys and of the queue's together. Keys of the query's own image from earlier steps count nowhere. The queue starts
    empty, where the authors' starts with random vectors.
    """

    def __init__(
        self, model: "nn.Module", steps: int, dim: int, *, size: Count = 4096, momentum: BelowOne = 0.999
    ) -> None:
        from contrasweep.trainables.contrastive.averaging import MomentumEncoder

        self.model, self.momentum, self.trained = model, momentum, nn.Module()
        self.encoder, self.queue = MomentumEncoder(model), EmbeddingQueue(size)
        self.pending: tuple[Tensor, Ids, Ids] | None = None

    @property
    def parts(self) -> Mapping[str, checkpoint.Stateful]:
        """The momentum encoder and the queue."""
        return {"momentum_encoder": self.encoder, "queue": self.queue}

    def step(self, views: Float[Tensor, "n c h w"], labels: Ids, rows: Ids, loss: AnyLoss) -> Compared:
        """Compute the loss of the queries against keys and queue."""
        assert isinstance(loss, ComposedLoss)  # the settings were checked
        half = len(views) // 2
        labels, rows = labels[:half], rows[:half]
        queries, keys = self.model(views[:half]), self.encoder(views[half:])
        self.pending = keys, labels, rows
        self.queue.to(views.device)
        with torch.autocast(views.device.type, enabled=False):
            queries, keys = _precise(queries), _precise(keys)
            others = torch.cat([keys, self.queue.embeddings.to(keys)]) if len(self.queue) else keys
            value = loss.between(queries, others, *self._masks(loss, labels, rows))
        return Compared(value, torch.cat([queries, keys]))

    def _masks(self, loss: ComposedLoss, labels: Ids, rows: Ids) -> tuple[Tensor, Tensor]:
        """Return which of the step's keys and of the queue's are positives and negatives of each query."""
        own = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
        past = rows[:, None] == self.queue.rows
        if loss.loss.positives == "instances":
            nothing = torch.zeros_like(past)
            return torch.cat([own, nothing], 1), torch.cat([torch.zeros_like(own), ~past], 1)
        same = labels[:, None] == torch.cat([labels, self.queue.labels])
        again = torch.cat([(rows[:, None] == rows) & ~own, past], 1)
        return same & ~again, ~same & ~again

    def after_step(self, step: int) -> None:
        """Let the momentum encoder follow, and put the step's keys into the queue."""
        assert self.pending is not None
        self.encoder.update(self.model, self.momentum)
        self.queue.push(*self.pending)


class CrossBatchMemory:
    """A memory of the embeddings of past steps beside the batch (XBM: Wang et al. 2020, algorithm 1).

    L = loss(batch) + weight * loss(batch against memory), as in the authors' code; the memory holds the batch too, and
    a row never meets its own copy. It is used after `start` steps, since embeddings drift fast at first (section 3.1).
    """

    def __init__(
        self,
        model: "nn.Module",
        steps: int,
        dim: int,
        *,
        size: Count = 8192,
        weight: NotNegative = 1.0,
        start: MaybeCount = 0,
    ) -> None:
        self.model, self.weight, self.start, self.trained = model, weight, start, nn.Module()
        self.memory = EmbeddingQueue(size)
        self.pending: tuple[Tensor, Ids, Ids] | None = None

    @property
    def parts(self) -> Mapping[str, checkpoint.Stateful]:
        """The memory."""
        return {"memory": self.memory}

    def step(self, views: Float[Tensor, "n c h w"], labels: Ids, rows: Ids, loss: AnyLoss) -> Compared:
        """Compute the loss of all views with each other and against the memory."""
        assert isinstance(loss, ComposedLoss)  # the settings were checked
        embeddings = self.model(views)
        self.pending = embeddings.detach(), labels, rows
        self.memory.to(views.device)
        with torch.autocast(views.device.type, enabled=False):
            z = _precise(embeddings)
            value = loss(z, labels, rows)
            if len(self.memory):
                value = value + self.weight * self._against_memory(z, labels, rows, loss)
        return Compared(value, embeddings)

    def _against_memory(self, z: Tensor, labels: Ids, rows: Ids, loss: ComposedLoss) -> Tensor:
        of_batch, of_memory = (
            (rows, self.memory.rows) if loss.loss.positives == "instances" else (labels, self.memory.labels)
        )
        same = of_batch[:, None] == torch.cat([of_batch, of_memory])
        own = torch.zeros_like(same)
        own[:, : len(z)].fill_diagonal_(True)
        others = torch.cat([z.detach(), self.memory.embeddings.to(z)])
        return loss.between(z, others, same & ~own, ~same)

    def after_step(self, step: int) -> None:
        """Put the batch into the memory, once the first `start` steps are over."""
        assert self.pending is not None
        if step + 1 >= self.start:
            self.memory.push(*self.pending)


class Byol:
    """A momentum encoder's projections of the other view, which a predictor has to tell (BYOL: Grill et al. 2020).

    The loss is `regression` of first views on second ones plus that of second on first, whatever the trial's `loss`.
    There are no negatives. The momentum rises from `momentum` to 1 along a cosine.
    """

    def __init__(
        self, model: "nn.Module", steps: int, dim: int, *, momentum: BelowOne = 0.996, width: Count = 512
    ) -> None:
        from contrasweep.trainables.contrastive.averaging import MomentumEncoder

        self.model, self.momentum, self.steps = model, momentum, steps
        self.encoder = MomentumEncoder(model)
        self.trained = nn.Sequential(
            nn.Linear(dim, width), nn.BatchNorm1d(width), nn.ReLU(inplace=True), nn.Linear(width, dim)
        )

    @property
    def parts(self) -> Mapping[str, checkpoint.Stateful]:
        """The momentum encoder and the predictor."""
        return {"momentum_encoder": self.encoder, "predictor": self.trained}

    def step(self, views: Float[Tensor, "n c h w"], labels: Ids, rows: Ids, loss: AnyLoss) -> Compared:
        """Compute the symmetric loss of both views."""
        first, second = views.chunk(2)
        embeddings = [self.model(first), self.model(second)]
        predictions = [self.trained(z) for z in embeddings]
        projections = [self.encoder(first), self.encoder(second)]
        with torch.autocast(views.device.type, enabled=False):
            q, z = ([_precise(x) for x in each] for each in (predictions, projections))
            value = regression(q[0], z[1]) + regression(q[1], z[0])
        return Compared(value, torch.cat(embeddings))

    def after_step(self, step: int) -> None:
        """Let the momentum encoder follow."""
        self.encoder.update(self.model, rising(self.momentum, step, self.steps))


def regression(predictions: Float[Tensor, "n d"], projections: Float[Tensor, "n d"]) -> Float[Tensor, ""]:
    """|q/|q| - z/|z||^2 = 2 - 2 cos(q, z), the mean over rows (BYOL: Grill et al. 2020, equation 2)."""
    return (2 - 2 * F.cosine_similarity(predictions, projections, dim=1)).mean()


def rising(base: float, step: int, steps: int) -> float:
    """BYOL's momentum at step 0, 1, ..., `steps`: from `base` to 1 along a cosine (Grill et al. 2020, section 3.3)."""
    return 1 - (1 - base) * (math.cos(math.pi * min(step, steps) / steps) + 1) / 2


def _precise(embeddings: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Return the embeddings in float32 or more, which losses are computed in under autocast too."""
    return embeddings if embeddings.dtype.itemsize > 4 else embeddings.float()


TARGETS: Table[type[Targets]] = Table(
    "targets", {"batch": Batch, "moco": Moco, "xbm": CrossBatchMemory, "byol": Byol}, plural="targets"
)
"""name -> (network, number of steps, dimension of the embeddings, its own parameters) -> targets."""


def check_targets(targets: Component, loss: AnyLoss) -> None:
    """Raise `SpecError` where `loss` cannot be taken against rows of other matrices, as a queue needs it."""
    if targets.name not in ("moco", "xbm"):
        return
    if not isinstance(loss, ComposedLoss) or loss.loss.all_pairs:
        raise SpecError(
            f"targets {targets.name!r} need a loss whose value for an anchor comes from its own scores",
            place="loss",
            value=loss.name if hasattr(loss, "name") else loss.loss.name,
            hint="take one of infonce, supcon, sincere, ocl, margin_contrastive, triplet, batch_hard",
        )
