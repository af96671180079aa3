"""Cross-batch memory: the batch against itself and against the embeddings of past steps."""

from collections.abc import Mapping

from jaxtyping import Float

from contrasweep.trainables import checkpoint
from contrasweep.trainables.fields import Count, MaybeCount, NotNegative
from contrasweep.trainables.losses import AnyLoss, ComposedLoss
from contrasweep.trainables.losses.ids import Ids
from contrasweep.trainables.pytorch import Tensor, nn, torch
from contrasweep.trainables.targets.protocol import Embedded, precise
from contrasweep.trainables.targets.queue import EmbeddingQueue


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

    def step(self, views: Float[Tensor, "n c h w"], labels: Ids, rows: Ids, loss: AnyLoss) -> Embedded:
        """The loss of all views with each other and against the memory."""
        assert isinstance(loss, ComposedLoss)  # the settings were checked
        embeddings = self.model(views)
        self.pending = embeddings.detach(), labels, rows
        self.memory.to(views.device)
        with torch.autocast(views.device.type, enabled=False):
            z = precise(embeddings)
            value = loss(z, labels, rows)
            if len(self.memory):
                value = value + self.weight * self._against_memory(z, labels, rows, loss)
        return Embedded(value, embeddings)

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
        """The batch enters the memory, once the first `start` steps are over."""
        assert self.pending is not None
        if step + 1 >= self.start:
            self.memory.push(*self.pending)
