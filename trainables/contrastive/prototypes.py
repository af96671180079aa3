"""Parts of targets with learned classes (DINO, SwAV)."""

import torch
from torch import Tensor, nn

from contrasweep.trainables.pytorch import Float, Matrix
from contrasweep.trainables.similarities import cosine


class Prototypes(nn.Module):
    """Cosines of embeddings [n dim] with `count` learned vectors: a linear layer of weights and inputs of length 1."""

    def __init__(self, count: int, dim: int) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.randn(count, dim))

    def forward(self, embeddings: Matrix) -> Float[Tensor, "n k"]:
        """Return the cosine of each embedding with each vector."""
        return cosine(embeddings, self.rows)


class Centre(nn.Module):
    """Running mean [count] of the teacher's scores of the classes, which DINO subtracts from them; 0 at the start."""

    value: Tensor

    def __init__(self, count: int) -> None:
        super().__init__()
        self.register_buffer("value", torch.zeros(count))
