"""BiMPM (Wang, Hamza and Florian 2017): bilateral multi-perspective matching of product and review text."""

import torch
from torch import Tensor, nn

from contrasweep.trainables.pytorch import Float
from contrasweep.trainables.review_helpfulness.batch import (
    Batch,
    HelpfulnessModel,
    Inputs,
    Mask,
    OtherMask,
    OtherVectors,
    Output,
    Vectors,
)
from contrasweep.trainables.review_helpfulness.models import BiMPMOptions
from contrasweep.trainables.review_helpfulness.networks.layers import (
    Recurrent,
    WordEmbedding,
    cosine_matrix,
    last_valid,
)

EPS = 1e-8
"""The least norm, and the least sum of cosines, that anything is divided by."""


def perspective_cosine(
    a: Float[Tensor, "... d"], b: Float[Tensor, "... d"], weight: Float[Tensor, "l d"]
) -> Float[Tensor, "... l"]:
    """Return m_k = cos(W_k * a, W_k * b) for each of the l perspectives k, for vectors a and b paired one to one.

    Norms are taken to be 1e-8 at least. Squared weights are used, so that nothing of size [... l d] is computed.
    """
    # sum_d W_kd^2 a_d b_d, over the norms of W_k * a and W_k * b.
    squared = weight**2
    dot = (a * b) @ squared.mT
    norm_a = ((a * a) @ squared.mT).clamp(min=EPS**2).sqrt()
    norm_b = ((b * b) @ squared.mT).clamp(min=EPS**2).sqrt()
    return dot / (norm_a * norm_b)


def pairwise_perspective_max(
    a: Vectors,
    b: OtherVectors,
    mask: OtherMask,
    weight: Float[Tensor, "l d"],
) -> Float[Tensor, "b t l"]:
    """Return for each position of `a` the largest m_k (see `perspective_cosine`) over the valid positions of `b`.

    One perspective k is computed at a time, in memory of [b t s].
    """
    best = []
    for row in weight:
        cosines = cosine_matrix(a * row, b * row, EPS)
        best.append(cosines.masked_fill(~mask[:, None, :], -1).amax(-1))
    return torch.stack(best, dim=-1)


def attentive_mean(a: Vectors, b: OtherVectors, mask: OtherMask) -> Vectors:
    """Return sum_j cos_ij b_j / max(sum_j cos_ij, 1e-8) over valid positions of b, for each position of a."""
    cosines = cosine_matrix(a, b, EPS) * mask[:, None, :]
    return cosines @ b / cosines.sum(-1, keepdim=True).clamp(min=EPS)


def attentive_max(a: Vectors, b: OtherVectors, mask: OtherMask) -> Vectors:
    """Return the valid vector of b with the largest cosine, for each position of a."""
    # -2 is below every cosine.
    index = cosine_matrix(a, b, EPS).masked_fill(~mask[:, None, :], -2).argmax(-1)
    return b.gather(1, index[..., None].expand(-1, -1, b.shape[-1]))


class Matching(nn.Module):
    """Full, max-pooling, attentive and max-attentive matching, each in both directions of reading.

    These have eight weight matrices, and give 8 x `perspectives` values a position.
    """

    def __init__(self, perspectives: int, dim: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.empty(2, 4, perspectives, dim))
        for matrix in self.weights.data.flatten(0, 1):
            nn.init.kaiming_normal_(matrix)

    def forward(
        self,
        a: Float[Tensor, "b t e"],
        b: Float[Tensor, "b s e"],
        mask_a: Mask,
        mask_b: OtherMask,
    ) -> Float[Tensor, "b t m"]:
        """Match each state of `a` against those of `b`; m is 8 times the number of perspectives.

        A state has a half for each direction of reading. For the forward one, full matching compares with the last
        valid state of `b`, for the backward one with its first state.
        """
        matched = []
        # The halves of a state are those of the forward and of the backward direction. The state in which a direction
        # has read all of `b` is the last valid one forward, and the first one backward.
        forward, backward = b.chunk(2, -1)
        ends = (last_valid(forward, mask_b), backward[:, 0])
        for x, y, end, weights in zip(
            a.chunk(2, -1), (forward, backward), ends, self.weights, strict=True
        ):
            # The paper's four strategies: full, max-pooling, attentive and max-attentive matching.
            full, pooled, mean, best = weights
            matched += [
                perspective_cosine(x, end[:, None, :], full),
                pairwise_perspective_max(x, y, mask_b, pooled),
                perspective_cosine(x, attentive_mean(x, y, mask_b), mean),
                perspective_cosine(x, attentive_max(x, y, mask_b), best),
            ]
        return torch.cat(matched, dim=-1) * mask_a[..., None]


class BiMPM(HelpfulnessModel):
    """BiMPM: scores how the words of product text and review text match.

    A BiLSTM reads both texts. Each word is matched with the other text. A second BiLSTM reads the matches, and its last
    states are scored.
    """

    def __init__(self, options: BiMPMOptions, inputs: Inputs) -> None:
        super().__init__()
        self.product_words = WordEmbedding(inputs.product_words, options.dropout)
        self.review_words = WordEmbedding(inputs.review_words, options.dropout)
        self.dropout = nn.Dropout(options.dropout)
        self.context = Recurrent(self.review_words.dim, options.dim, bidirectional=True)
        self.matching = Matching(options.perspectives, options.dim)
        self.aggregation = Recurrent(8 * options.perspectives, options.dim, bidirectional=True)
        # Of both sides the last states of both directions.
        self.score = nn.Sequential(
            nn.Linear(4 * options.dim, 2 * options.dim),
            nn.Tanh(),
            nn.Dropout(options.dropout),
            nn.Linear(2 * options.dim, 1),
        )

    def forward(self, batch: Batch) -> Output:
        """Return scores [b] from matching each side's contextual words against the other's."""
        p = self.dropout(self.context(self.product_words(batch.text_p), batch.mask_p))
        r = self.dropout(self.context(self.review_words(batch.text_r), batch.mask_r))
        sides = [
            self._side(p, r, batch.mask_p, batch.mask_r),
            self._side(r, p, batch.mask_r, batch.mask_p),
        ]
        return self.scored(self.dropout(torch.cat(sides, dim=1)))

    def _side(self, a: Tensor, b: Tensor, mask_a: Tensor, mask_b: Tensor) -> Tensor:
        """Return one vector for each row's text a [b 2h]: a second LSTM reads how each word of a matches the text b.

        The vector is the LSTM's last state in each of the two directions.
        """
        states = self.aggregation(self.dropout(self.matching(a, b, mask_a, mask_b)), mask_a)
        forward, backward = states.chunk(2, -1)
        return torch.cat([last_valid(forward, mask_a), backward[:, 0]], dim=1)
