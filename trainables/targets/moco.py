"""MoCo: queries of the network against keys of its momentum encoder, of this step and of those before."""

from collections.abc import Mapping

from jaxtyping import Float

from contrasweep.trainables import checkpoint
from contrasweep.trainables.fields import BelowOne, Count
from contrasweep.trainables.losses import AnyLoss, ComposedLoss
from contrasweep.trainables.losses.ids import Ids
from contrasweep.trainables.pytorch import Tensor, nn, torch
from contrasweep.trainables.targets.protocol import Embedded, precise
from contrasweep.trainables.targets.queue import EmbeddingQueue


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
        from contrasweep.trainables.targets.momentum import MomentumEncoder

        self.model, self.momentum, self.trained = model, momentum, nn.Module()
        self.encoder, self.queue = MomentumEncoder(model), EmbeddingQueue(size)
        self.pending: tuple[Tensor, Ids, Ids] | None = None

    @property
    def parts(self) -> Mapping[str, checkpoint.Stateful]:
        """The momentum encoder and the queue."""
        return {"momentum_encoder": self.encoder, "queue": self.queue}

    def step(self, views: Float[Tensor, "n c h w"], labels: Ids, rows: Ids, loss: AnyLoss) -> Embedded:
        """The loss of the queries against keys and queue."""
        assert isinstance(loss, ComposedLoss)  # the settings were checked
        half = len(views) // 2
        labels, rows = labels[:half], rows[:half]
        queries, keys = self.model(views[:half]), self.encoder(views[half:])
        self.pending = keys, labels, rows
        self.queue.to(views.device)
        with torch.autocast(views.device.type, enabled=False):
            queries, keys = precise(queries), precise(keys)
            others = torch.cat([keys, self.queue.embeddings.to(keys)]) if len(self.queue) else keys
            value = loss.between(queries, others, *self._masks(loss, labels, rows))
        return Embedded(value, torch.cat([queries, keys]))

    def _masks(self, loss: ComposedLoss, labels: Ids, rows: Ids) -> tuple[Tensor, Tensor]:
        """Which of the step's keys and of the queue's are positives and negatives of each query."""
        own = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
        past = rows[:, None] == self.queue.rows
        if loss.loss.positives == "instances":
            nothing = torch.zeros_like(past)
            return torch.cat([own, nothing], 1), torch.cat([torch.zeros_like(own), ~past], 1)
        same = labels[:, None] == torch.cat([labels, self.queue.labels])
        again = torch.cat([(rows[:, None] == rows) & ~own, past], 1)
        return same & ~again, ~same & ~again

    def after_step(self, step: int) -> None:
        """The momentum encoder follows, and the step's keys enter the queue."""
        assert self.pending is not None
        self.encoder.update(self.model, self.momentum)
        self.queue.push(*self.pending)
