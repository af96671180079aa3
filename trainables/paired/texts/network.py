"""The encoder of sentences: word embeddings and three residual convolutions over positions."""

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor, nn

from trainables.paired.network import Joint
from trainables.paired.texts.settings import Settings

PADDING, UNKNOWN = 0, 1
"""Word indices with a meaning of their own; those of the vocabulary follow."""


class Encoder(nn.Module):
    """Words [n w] to the outputs of four stages [n width w]: embeddings, then three residual convolutions. Places of
    padding are 0 in all of them, and the last stage is scaled so that its mean over places is that over words."""

    def __init__(self, words: int, width: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width, padding_idx=PADDING)
        nn.init.normal_(self.embedding.weight, std=0.1)
        with torch.no_grad():
            self.embedding.weight[PADDING] = 0
        self.convolutions = nn.ModuleList(nn.Conv1d(width, width, 3, padding=1) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def forward(self, words: Int[Tensor, "n w"]) -> list[Tensor]:
        there = (words != PADDING).float()[:, None]
        x = self.embedding(words).transpose(1, 2)
        maps = [x]
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            normal = norm(x.transpose(1, 2)).transpose(1, 2) * there
            x = (x + F.relu(convolution(self.dropout(normal)))) * there
            maps.append(x)
        maps[-1] = maps[-1] * (words.shape[1] / there.sum(2, keepdim=True).clamp(min=1))
        return maps


def text_model(settings: Settings, words: int, classes: int) -> Joint:
    """The network for `words` word indices, padding and the unknown word among them, initialised from torch's global
    generator."""
    encoder = Encoder(words, settings.width, settings.dropout)
    return Joint(encoder, settings, settings.width, classes, paired=True, lat_size=(settings.lat_size,))
