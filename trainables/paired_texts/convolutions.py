"""The convolutional encoder of sentences."""

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor, nn

PADDING, UNKNOWN = 0, 1
"""Word indices with a meaning of their own; those of the vocabulary follow."""


class ConvolutionEncoder(nn.Module):
    """Words [n w] to the outputs of four stages [n width w]: embeddings, then three residual convolutions. Places of
    padding are 0 in all of them, and the last stage is scaled so that its mean over places is that over words.

    `words` is the number of word indices, `width` the features of a word and of each stage, `dropout` that in stages.
    """

    def __init__(self, words: int, width: int, dropout: float) -> None:
        super().__init__()
        self.dim = width
        self.embedding = nn.Embedding(words, width, padding_idx=PADDING)
        nn.init.normal_(self.embedding.weight, std=0.1)
        with torch.no_grad():
            self.embedding.weight[PADDING] = 0
        self.convolutions = nn.ModuleList(nn.Conv1d(width, width, 3, padding=1) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def forward(self, words: Int[Tensor, "n w"]) -> list[Tensor]:
        """Word indices [n w], 0 for padding, to the outputs of four stages, [n width w] each."""
        there = (words != PADDING).float()[:, None]
        x = self.embedding(words).transpose(1, 2)
        maps = [x]
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            normal = norm(x.transpose(1, 2)).transpose(1, 2) * there
            x = (x + F.relu(convolution(self.dropout(normal)))) * there
            maps.append(x)
        maps[-1] = maps[-1] * (words.shape[1] / there.sum(2, keepdim=True).clamp(min=1))
        return maps
