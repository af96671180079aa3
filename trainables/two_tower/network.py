"""Both towers as one network."""

from typing import Any

from torch import Tensor, nn

from contrasweep.trainables.pytorch import ImageBatch, Int, Matrix


class TwoTowers(nn.Module):
    """An encoder of images and one of texts, each with a linear layer to a space of `dim` dimensions."""

    def __init__(self, images: Any, texts: Any, dim: int) -> None:
        super().__init__()
        self.images = nn.Sequential(images, nn.Linear(images.dim, dim, bias=False))
        self.texts = nn.Sequential(texts, nn.Linear(texts.dim, dim, bias=False))

    def forward(self, images: ImageBatch, words: Int[Tensor, "n length"]) -> tuple[Matrix, Matrix]:
        """Return the embeddings of images and of texts, in the common space and not normalised."""
        return self.images(images), self.texts(words)
