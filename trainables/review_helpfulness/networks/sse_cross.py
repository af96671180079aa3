"""SSE-Cross (Abavisani et al. 2020), adapted: cross-attended modalities and stochastic shared embeddings.

The product that is sold and its review have encoders of their own. The score comes from the two vectors that they give,
and from the element-wise multiple of these vectors. In training, a review's text or images are now and then replaced by
those of another training review, mostly one of the same label.
"""

from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from contrasweep.data.column_files import Ints
from contrasweep.trainables.pytorch import Bool, Float
from contrasweep.trainables.review_helpfulness.batch import (
    Batch,
    Corpus,
    HelpfulnessModel,
    Inputs,
    Output,
)
from contrasweep.trainables.review_helpfulness.models import SSECrossOptions
from contrasweep.trainables.review_helpfulness.networks.layers import (
    Recurrent,
    WordEmbedding,
    masked_mean,
)


class ItemEncoder(nn.Module):
    """Encodes text and images of an item as one vector; each modality is gated by the other."""

    def __init__(self, words: Float[Tensor, "v e"], roi_dim: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.words = WordEmbedding(words, dropout)
        self.lstm = Recurrent(self.words.dim, dim, bidirectional=True)
        self.image = nn.Sequential(nn.Linear(roi_dim, dim), nn.BatchNorm1d(dim), nn.ReLU())
        self.text = nn.Sequential(nn.Linear(2 * dim, dim), nn.BatchNorm1d(dim), nn.ReLU())
        self.gate_image = nn.Linear(2 * dim, dim)
        self.gate_text = nn.Linear(roi_dim, dim)
        self.joint = nn.Sequential(
            nn.Linear(2 * dim, 2 * dim), nn.BatchNorm1d(2 * dim), nn.ReLU(), nn.Dropout(dropout)
        )

    def forward(
        self,
        text: Tensor,
        mask: Bool[Tensor, "b t"],
        roi: Float[Tensor, "b m f"],
        roi_mask: Bool[Tensor, "b m"],
    ) -> Float[Tensor, "b j"]:
        """Map words and regions of each item to its joint vector [b j]."""
        # Mean vectors of text (e) and images (v); each modality is gated by the other.
        e = masked_mean(self.lstm(self.words(text), mask), mask)
        v = masked_mean(roi, roi_mask)
        gated = [
            torch.sigmoid(self.gate_image(e)) * self.image(v),
            torch.sigmoid(self.gate_text(v)) * self.text(e),
        ]
        return cast(Tensor, self.joint(torch.cat(gated, dim=1)))


def swap_partners(labels: Ints, rows: Ints, odds: float, rng: np.random.Generator) -> Ints:
    """Return for each of `rows` another row of the part to swap with; `labels` are those of the whole part.

    With probability odds / (1 + odds) it is drawn from the other rows with the same label, else from all rows with
    another label. Where there is no such row, the row itself is returned.
    """
    partners = np.empty_like(rows)
    draws = rng.random(len(rows))
    from_same_label = rng.random(len(rows)) < odds / (1 + odds)
    for i, row in enumerate(rows):
        # The rows to choose from: the other rows of the same label, or all rows of other labels.
        fits = (labels == labels[row]) == from_same_label[i]
        fits[row] = False
        pool = np.flatnonzero(fits)
        partners[i] = pool[int(draws[i] * len(pool))] if len(pool) else row
    return partners


class SSECross(HelpfulnessModel):
    """SSE-Cross: scores the vector of a product (p), that of its review (r), and p * r, element by element."""

    def __init__(self, options: SSECrossOptions, inputs: Inputs) -> None:
        super().__init__()
        self.options = options
        self.product = ItemEncoder(
            inputs.product_words, inputs.roi_dim, options.dim, options.dropout
        )
        self.review = ItemEncoder(inputs.review_words, inputs.roi_dim, options.dim, options.dropout)
        self.score = nn.Linear(6 * options.dim, 1)

    def augment(self, batch: Batch, corpus: Corpus, rows: Ints, rng: np.random.Generator) -> Batch:
        """Return the batch with text or images of some reviews replaced by those of other reviews of `corpus`.

        This is the method's stochastic shared embeddings. `rows` are the batch's reviews in `corpus`; all choices are
        drawn from `rng`.
        """
        # Images and text are swapped independently, with partners of their own.
        o = self.options
        for modality, probability in (("images", o.image_swap), ("text", o.text_swap)):
            chosen = torch.from_numpy(rng.random(len(rows)) < probability)
            other = corpus.batch(swap_partners(corpus.label, rows, o.same_label_odds, rng))
            # The other modality is swapped in no row.
            swapped = dict.fromkeys(("text", "images"), torch.zeros_like(chosen))
            swapped[modality] = chosen
            batch = batch.with_review(other, **swapped)
        return batch

    def forward(self, batch: Batch) -> Output:
        """Return scores [b] from the vectors p of the products, r of their reviews, and p * r, element by element."""
        p = self.product(batch.text_p, batch.mask_p, batch.roi_p, batch.roi_mask_p)
        r = self.review(batch.text_r, batch.mask_r, batch.roi_r, batch.roi_mask_r)
        return self.scored(p, r, p * r)
