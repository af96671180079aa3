"""What several of the eight models share: masked pooling, recurrent and attention layers that padding cannot reach."""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from contrasweep.trainables.pytorch import Bool, Float, Int
from contrasweep.trainables.review_helpfulness.batch import Mask, Sequences, Vectors


def masked_mean(x: Vectors, mask: Mask) -> Float[Tensor, "b d"]:
    """Return the mean over valid positions; 0 where there are none."""
    weights = mask.to(x.dtype)[..., None]
    return (x * weights).sum(1) / weights.sum(1).clamp(min=1)


def masked_max(x: Vectors, mask: Mask) -> Float[Tensor, "b d"]:
    """Return the maximum over valid positions; 0 where there are none."""
    filled = x.masked_fill(~mask[..., None], float("-inf")).amax(1)
    return filled.masked_fill(~mask.any(1)[:, None], 0)


def masked_softmax(
    scores: Float[Tensor, "..."], mask: Bool[Tensor, "..."], dim: int
) -> Float[Tensor, "..."]:
    """Return the softmax over valid entries; all 0 where there are none. `mask` broadcasts against `scores`."""
    # The least finite number, since a row of -inf would give NaN.
    filled = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return torch.softmax(filled, dim).masked_fill(~mask, 0)


def join(*sequences: Sequences, gap: bool = False) -> Sequences:
    """Join sequences of vectors [b t_i d] one after another on the time axis: [b t d], where t is the sum of all t_i.

    Each keeps its padding, which then stands between valid positions; its vectors are made 0, and the mask [b t] says
    that it is invalid. With `gap`, one invalid position of zeros more goes between two sequences. So a convolution sees
    a zero at every border, also where the longest sequence of a batch has no padding.
    """
    # Vectors at invalid positions are made 0; a gap stands before each sequence but the first.
    parts: list[Sequences] = []
    for i, (x, mask) in enumerate(sequences):
        if gap and i:
            parts.append(
                Sequences(x.new_zeros(len(x), 1, x.shape[2]), mask.new_zeros(len(mask), 1))
            )
        parts.append(Sequences(x * mask[..., None], mask))
    return Sequences(
        torch.cat([part.x for part in parts], 1), torch.cat([part.mask for part in parts], 1)
    )


def score_mlp(features: int) -> nn.Sequential:
    """Return the network from a vector of so many features to a score, with hidden layers of 128 and 64 units."""
    return nn.Sequential(
        nn.Linear(features, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1)
    )


class WordEmbedding(nn.Module):
    """Trainable word vectors from their initial values, the pad row fixed at zero, then dropout."""

    def __init__(self, initial: Float[Tensor, "v e"], dropout: float) -> None:
        super().__init__()
        self.words = nn.Embedding(
            len(initial), initial.shape[1], padding_idx=0, _weight=initial.clone()
        )
        self.dropout = nn.Dropout(dropout)
        self.dim = initial.shape[1]

    def forward(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b t e"]:
        """Map word indices [b t] to vectors [b t e]."""
        return cast(Tensor, self.dropout(self.words(tokens)))


class Recurrent(nn.Module):
    """One layer of LSTM over the valid positions, which come first in each row; outputs at the others are 0."""

    def __init__(self, dim: int, hidden: int, *, bidirectional: bool) -> None:
        super().__init__()
        self.lstm = nn.LSTM(dim, hidden, batch_first=True, bidirectional=bidirectional)
        self.hidden = hidden
        self.dim = hidden * (2 if bidirectional else 1)

    def forward(self, x: Vectors, mask: Mask) -> Float[Tensor, "b t h"]:
        """Map vectors [b t d] to hidden states [b t h], h twice as wide where bidirectional."""
        # Padding stands behind the words. A forward LSTM reads it last, so that it changes no state of a word. A
        # backward one would read it first: the sequences are packed, without their padding.
        if not self.lstm.bidirectional:
            return cast(Tensor, self.lstm(x)[0]) * mask[..., None]
        lengths = mask.sum(1).clamp(min=1).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(
            x, lengths, batch_first=True, enforce_sorted=False
        )
        states, _ = nn.utils.rnn.pad_packed_sequence(
            self.lstm(packed)[0], batch_first=True, total_length=x.shape[1]
        )
        return states * mask[..., None]


def last_valid(x: Vectors, mask: Mask) -> Float[Tensor, "b d"]:
    """Return the vector at each row's last valid position, or at its first position where none is valid."""
    index = (mask.sum(1) - 1).clamp(min=0)
    return x[torch.arange(len(x), device=x.device), index]


def cosine_matrix(
    a: Float[Tensor, "... t d"], b: Float[Tensor, "... s d"], eps: float = 1e-8
) -> Float[Tensor, "... t s"]:
    """Return the cosines of all pairs of rows; a norm counts as `eps` at least, so a zero vector has cosines of 0."""
    return functional.normalize(a, dim=-1, eps=eps) @ functional.normalize(b, dim=-1, eps=eps).mT


class SelfAttention(nn.Module):
    """Multi-head self-attention over the valid positions; outputs at invalid ones are 0."""

    def __init__(self, dim: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.project = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Vectors, mask: Mask) -> Vectors:
        """Return `x` after each position has attended to the valid positions; 0 at invalid ones."""
        # Queries, keys and values [b heads t d/heads] from one projection, as `permute` puts them.
        rows, length, dim = x.shape
        q, k, v = (
            self.project(x)
            .view(rows, length, 3, self.heads, dim // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        # softmax(q k^T / sqrt(d of a head)) [b heads t t], in which invalid positions get no weight.
        weights = masked_softmax(
            q @ k.mT / (dim // self.heads) ** 0.5, mask[:, None, None, :], dim=-1
        )
        mixed = functional.dropout(weights, self.dropout, self.training) @ v
        # The heads side by side again, [b t d].
        return cast(
            Tensor, self.out(mixed.transpose(1, 2).reshape(rows, length, dim)) * mask[..., None]
        )


class _EncoderLayer(nn.Module):
    """Pre-LN transformer layer with the dropouts of MCR: attention .3, ReLU .3, residual .5 where `dropout` is .5."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        inner_dropout = 0.6 * dropout  # .3 where `dropout` is .5, as in MCR
        self.norm_attention = nn.LayerNorm(dim)
        self.norm_feed = nn.LayerNorm(dim)
        self.attention = SelfAttention(dim, heads, inner_dropout)
        self.feed = nn.Sequential(
            nn.Linear(dim, 4 * dim), nn.ReLU(), nn.Dropout(inner_dropout), nn.Linear(4 * dim, dim)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm_attention(x), mask))
        return cast(Tensor, x + self.dropout(self.feed(self.norm_feed(x))))


class RegionEncoder(nn.Module):
    """Encodes the regions of an item's images as vectors of size `dim`.

    Its layers are a projection, dropout, `layers` of pre-LN self-attention, and a final LN. `dropout` is used after the
    projection and in residual branches, .6 of it for attention weights and within feed-forward layers. There are no
    encodings of positions, since an image's regions are a set.
    """

    def __init__(self, roi_dim: int, dim: int, *, layers: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.project = nn.Sequential(nn.Linear(roi_dim, dim), nn.Dropout(dropout))
        self.layers = nn.ModuleList(_EncoderLayer(dim, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)

    def forward(
        self, roi: Float[Tensor, "b m f"], mask: Bool[Tensor, "b m"]
    ) -> Float[Tensor, "b m d"]:
        """Map region features [b m f] to vectors [b m d]; 0 where there is no region."""
        x = self.project(roi)
        for layer in self.layers:
            x = layer(x, mask)
        return cast(Tensor, self.norm(x) * mask[..., None])


class ProductAwareAttention(nn.Module):
    """Fan et al. 2019: each review position takes up what it attends to in the product.

    H_p and H_r are the vectors of product and review. P = ReLU(H_p W + b), A = softmax over product positions of
    P H_r^T, R = H_r + A^T H_p (H_p unprojected).
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.project = nn.Linear(dim, dim)

    def forward(self, product: Sequences, review: Sequences) -> Float[Tensor, "b s d"]:
        """Return the review's vectors with what they take up from the product (R), [b s d]; 0 at invalid positions."""
        scores = functional.relu(self.project(product.x)) @ review.x.mT
        attention = masked_softmax(scores, product.mask[:, :, None], dim=1)
        return (review.x + attention.mT @ product.x) * review.mask[..., None]


class AttentionPool(nn.Module):
    """The sum of pi_i x_i over vectors x_i; pi is the softmax, over valid positions, of learned scores of queries."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.score = nn.Linear(dim, 1, bias=False)

    def forward(self, values: Sequences, queries: Float[Tensor, "b t q"]) -> Float[Tensor, "b d"]:
        """Return the weighted sum of the values [b d]; each value has a query, whose score gives its weight."""
        weights = masked_softmax(self.score(queries)[..., 0], values.mask, dim=1)
        return (weights[..., None] * values.x).sum(1)
