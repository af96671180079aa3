"""What every encoder of single images is: a network that knows how many features it gives."""

from jaxtyping import Float
from torch import Tensor, nn


class Encoder(nn.Module):
    """A network from images to features; `dim` is their number."""

    def __init__(self, body: nn.Module, dim: int) -> None:
        super().__init__()
        self.body, self.dim = body, dim

    def forward(self, images: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
        """Images [n c h w] to feature vectors [n d]."""
        features: Tensor = self.body(images)
        return features
