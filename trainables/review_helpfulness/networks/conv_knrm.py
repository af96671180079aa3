"""Conv-KNRM (Dai et al. 2018): soft matches of n-grams of product and review, counted by kernels."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from contrasweep.trainables.pytorch import Float
from contrasweep.trainables.review_helpfulness.batch import (
    Batch,
    HelpfulnessModel,
    Inputs,
    Mask,
    OtherMask,
    Output,
)
from contrasweep.trainables.review_helpfulness.models import ConvKNRMOptions
from contrasweep.trainables.review_helpfulness.networks.layers import WordEmbedding, cosine_matrix


def kernel_centres(count: int) -> list[float]:
    """Return mu = 1 for exact matches, then the middles of count - 1 equal bins of [-1, 1], falling.

    11 kernels give 1, .9, .7, ... -.9.
    """
    width = 2 / (count - 1)
    return [1.0] + [1 - width * (i + 0.5) for i in range(count - 1)]


def kernel_pooling(
    similarity: Float[Tensor, "b t s"],
    query_mask: Mask,
    document_mask: OtherMask,
    mus: Float[Tensor, " k"] | Sequence[float],
    sigmas: Float[Tensor, " k"] | Sequence[float],
    *,
    pooling: Literal["dai2018", "mcr"] = "dai2018",
) -> Float[Tensor, "b k"]:
    """Return phi_k = sum over valid i of .01 log(max(n_ik, 1e-10)), [b k] (Dai et al. 2018).

    n_ik is the sum over valid j of exp(-(s_ij - mu_k)^2 / 2 sigma_k^2). It is about how many words of the document have
    the similarity mu_k to word i of the query. With `mcr`, phi_k is the sum of log(1 + n_ik).
    """
    counted = []
    for mu, sigma in zip(
        torch.as_tensor(mus, dtype=similarity.dtype),
        torch.as_tensor(sigmas, dtype=similarity.dtype),
        strict=True,
    ):
        # n_k for each word of the query, [b t]; then phi_k, [b].
        near = torch.exp(-((similarity - mu) ** 2) / (2 * sigma**2)) * document_mask[:, None, :]
        count = near.sum(-1)
        logs = count.log1p() if pooling == "mcr" else 0.01 * count.clamp(min=1e-10).log()
        counted.append((logs * query_mask).sum(-1))
    return torch.stack(counted, dim=-1)


class ConvKNRM(HelpfulnessModel):
    """Matches of product and review n-grams of all sizes, kernel-pooled and scored linearly (Dai et al. 2018)."""

    mus: Tensor
    sigmas: Tensor

    def __init__(self, options: ConvKNRMOptions, inputs: Inputs) -> None:
        super().__init__()
        self.product_words = WordEmbedding(inputs.product_words, options.dropout)
        self.review_words = WordEmbedding(inputs.review_words, options.dropout)
        self.sizes = range(1, options.ngrams + 1)
        self.ngrams = nn.ModuleList(
            nn.Conv1d(self.review_words.dim, options.filters, kernel_size=n) for n in self.sizes
        )
        self.pooling = options.pooling
        # The first kernel, at 1, is for exact matches: narrow in Conv-KNRM, like the others in MCR's form.
        exact = 1e-3 if options.pooling == "dai2018" else options.kernel_sigma
        self.register_buffer("mus", torch.tensor(kernel_centres(options.kernels)))
        self.register_buffer(
            "sigmas", torch.tensor([exact] + [options.kernel_sigma] * (options.kernels - 1))
        )
        self.score = nn.Linear(options.ngrams**2 * options.kernels, 1)

    def forward(self, batch: Batch) -> Output:
        """Return scores [b] from the kernel-pooled cosines of all pairs of n-gram lengths."""
        product = self._grams(self.product_words(batch.text_p), batch.mask_p)
        review = self._grams(self.review_words(batch.text_r), batch.mask_r)
        # Each length of the product's n-grams with each of the review's. The product is the query of the pooling, the
        # review the document.
        pooled = [
            kernel_pooling(
                cosine_matrix(p, r),
                batch.mask_p,
                batch.mask_r,
                self.mus,
                self.sigmas,
                pooling=self.pooling,
            )
            for p in product
            for r in review
        ]
        return self.scored(*pooled)

    def _grams(self, words: Tensor, mask: Tensor) -> list[Tensor]:
        """Return a list with, for each n-gram size, the vectors [b t filters] of the n-grams that begin at each word.

        N-grams that reach beyond the last word are filled up with zeros.
        """
        # Padded behind the last word, so that there is an n-gram for each word.
        channels = (words * mask[..., None]).mT
        return [
            functional.relu(convolution(functional.pad(channels, (0, size - 1)))).mT
            for size, convolution in zip(self.sizes, self.ngrams, strict=True)
        ]
