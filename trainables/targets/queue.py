"""A queue of embeddings of past steps with what their rows are."""

from jaxtyping import Float

from contrasweep.trainables.checkpoint import StateDict
from contrasweep.trainables.losses.ids import Ids
from contrasweep.trainables.pytorch import Tensor, torch


class EmbeddingQueue:
    """The last `size` embeddings, oldest first, with the labels and the image numbers of their rows. It starts empty.

    Its length is the number of rows in it: a loss sees no row that was never an embedding.
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
        embeddings = embeddings.detach()
        if not len(self):
            self.embeddings, self.labels, self.rows = embeddings[-self.size :], labels[-self.size :], rows[-self.size :]
            return
        here = self.embeddings.device
        self.embeddings = torch.cat([self.embeddings, embeddings.to(here)])[-self.size :]
        self.labels = torch.cat([self.labels, labels.to(here)])[-self.size :]
        self.rows = torch.cat([self.rows, rows.to(here)])[-self.size :]

    def to(self, device: "torch.device") -> None:
        """Move the queue to `device`, as after a restore."""
        self.embeddings, self.labels, self.rows = (x.to(device) for x in (self.embeddings, self.labels, self.rows))

    def state_dict(self) -> StateDict:
        """The rows of the queue."""
        return {"embeddings": self.embeddings, "labels": self.labels, "rows": self.rows}

    def load_state_dict(self, state: StateDict, /) -> None:
        """Take the rows that `state_dict` gave."""
        self.embeddings, self.labels, self.rows = state["embeddings"], state["labels"], state["rows"]
