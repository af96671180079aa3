"""Adapted D&R-Net (Xu, Zeng and Mao 2020): decomposition into common and own parts, and cross-modal relations.

Reconstructed ("adapted D&R" in tables): the original is for sarcasm, relates adjective-noun pairs, and has no public
code. Here a review's regions query its own words, and the product's text.
"""

from typing import cast

import torch
from torch import Tensor, nn

from contrasweep.trainables.pytorch import Float
from contrasweep.trainables.review_helpfulness.batch import (
    Batch,
    HelpfulnessModel,
    Inputs,
    Output,
    Sequences,
)
from contrasweep.trainables.review_helpfulness.models import DRNetOptions
from contrasweep.trainables.review_helpfulness.networks.layers import (
    AttentionPool,
    Recurrent,
    WordEmbedding,
    masked_mean,
    masked_softmax,
)


class Relation(nn.Module):
    """Attention of regions q_i to words h_j, pooled over the regions to one vector of size `dim`.

    r_i = sum_j a_ij h_j, where a_i is the softmax over j of the scaled products of W q_i and V h_j. The result is sum_i
    pi_i r_i with pi = softmax(w . q_i).
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.query = nn.Linear(dim, dim, bias=False)
        self.key = nn.Linear(dim, dim, bias=False)
        self.pool = AttentionPool(dim)

    def forward(self, regions: Sequences, words: Sequences) -> Float[Tensor, "b d"]:
        """Map regions and words of common size d to one vector per row, [b d]."""
        scores = self.query(regions.x) @ self.key(words.x).mT / regions.x.shape[-1] ** 0.5
        related = masked_softmax(scores, words.mask[:, None, :], dim=-1) @ words.x
        return cast(Tensor, self.pool(Sequences(related, regions.mask), regions.x))


class DRNet(HelpfulnessModel):
    """Scores a review by features of its regions, compared with its own words and with the product's text."""

    def __init__(self, options: DRNetOptions, inputs: Inputs) -> None:
        super().__init__()
        self.orthogonality = options.orthogonality
        dim = options.dim
        self.product_words = WordEmbedding(inputs.product_words, options.dropout)
        self.review_words = WordEmbedding(inputs.review_words, options.dropout)
        self.product_lstm = Recurrent(self.product_words.dim, dim // 2, bidirectional=True)
        self.review_lstm = Recurrent(self.review_words.dim, dim // 2, bidirectional=True)
        self.regions = nn.Linear(inputs.roi_dim, dim)
        self.common, self.own_text, self.own_image = (
            nn.Linear(dim, dim, bias=False) for _ in range(3)
        )
        # The review's regions with its own words, and with the product's; 7 features of size `dim` are scored.
        self.within = Relation(dim)
        self.across = Relation(dim)
        self.score = nn.Sequential(
            nn.Linear(7 * dim, dim), nn.ReLU(), nn.Dropout(options.dropout), nn.Linear(dim, 1)
        )

    def forward(self, batch: Batch) -> Output:
        """Return scores [b]; in training also the overlap of the projections, as the loss `orthogonality`."""
        words = Sequences(
            self.review_lstm(self.review_words(batch.text_r), batch.mask_r), batch.mask_r
        )
        product = Sequences(
            self.product_lstm(self.product_words(batch.text_p), batch.mask_p), batch.mask_p
        )
        regions = Sequences(
            self.regions(batch.roi_r) * batch.roi_mask_r[..., None], batch.roi_mask_r
        )
        # What both modalities share and what each has alone, then the regions with the review's words and with the
        # product's text.
        features = [
            *self._decompose(masked_mean(*words), masked_mean(*regions)),
            self.within(regions, words),
            self.across(regions, product),
        ]
        output = self.scored(*features)
        if self.training and self.orthogonality:
            output.losses["orthogonality"] = self.orthogonality * self._overlap()
        return output

    def _decompose(self, text: Tensor, image: Tensor) -> list[Tensor]:
        """Return [c_t, c_v, u_t, u_v, |u_t - u_v|], each [b d], of the mean `text` and `image`, both [b d].

        c_t and c_v are the projections that both modalities share, u_t and u_v those of each alone.
        """
        own_text = torch.tanh(self.own_text(text))
        own_image = torch.tanh(self.own_image(image))
        common = [torch.tanh(self.common(text)), torch.tanh(self.common(image))]
        return [*common, own_text, own_image, (own_text - own_image).abs()]

    def _overlap(self) -> Tensor:
        """Return how far the common projection overlaps with those of text and of images alone; 0: they are orthogonal.

        It is ||W^T P_t||_F^2 + ||W^T P_v||_F^2, where W is the matrix of the common projection, P_t and P_v those of
        the two others.
        """
        common = self.common.weight
        overlaps = [
            (common.mT @ private.weight).square().sum()
            for private in (self.own_text, self.own_image)
        ]
        return overlaps[0] + overlaps[1]
