"""MCR (Liu et al. 2021): multi-perspective coherent reasoning within, across and around the modalities.

Two things are reconstructed. The text of the branches (c) to (e) is the mean of the three convolution channels. The
pair network of the coherent graph is split as ReLU(A x_i + B x_j). Its query nodes are taken in slices, which are
recomputed in the backward pass to bound memory.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from contrasweep.trainables.pytorch import Bool, Float
from contrasweep.trainables.review_helpfulness.batch import (
    Batch,
    HelpfulnessModel,
    Inputs,
    Mask,
    Output,
    Sequences,
    Vectors,
)
from contrasweep.trainables.review_helpfulness.models import HEADS, MCROptions
from contrasweep.trainables.review_helpfulness.networks.layers import (
    ProductAwareAttention,
    RegionEncoder,
    WordEmbedding,
    cosine_matrix,
    join,
    masked_mean,
    masked_softmax,
    score_mlp,
)

SLICE = 32
"""Query nodes whose pairs are in memory at once."""


class KernelMaxPooling(nn.Module):
    """Convolve matching matrices [b c t s], keep the `top` largest values of each filter, and normalise them.

    There are `filters` convolutions of each of `sizes`, the sides of squares.
    """

    def __init__(self, channels: int, sizes: tuple[int, ...], filters: int, top: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv2d(channels, filters, size) for size in sizes)
        self.sizes = sizes
        self.top = top
        self.dim = len(sizes) * filters * top
        self.norm = nn.LayerNorm(self.dim)

    def forward(
        self, matrices: Float[Tensor, "b c t s"], mask: Bool[Tensor, "b t s"]
    ) -> Float[Tensor, "b z"]:
        """Return the largest values of each matrix [b z], z = sizes x filters x top; 0 for values that are missing.

        `mask` is true at the valid entries of the matrices.
        """
        x = matrices * mask[:, None]
        largest = []
        for size, convolution in zip(self.sizes, self.convolutions, strict=True):
            # Padded behind both sides, so that there is a value for each entry of the matrix.
            values = torch.tanh(convolution(functional.pad(x, (0, size - 1, 0, size - 1))))
            values = values.masked_fill(~mask[:, None], float("-inf")).flatten(2)
            # A small matrix may have fewer than `top` values; what is missing comes out as 0.
            values = functional.pad(
                values, (0, max(0, self.top - values.shape[-1])), value=float("-inf")
            )
            best = values.topk(self.top, dim=-1).values
            largest.append(best.masked_fill(best == float("-inf"), 0).flatten(1))
        return cast(Tensor, self.norm(torch.cat(largest, dim=1)))


class CoherentGraph(nn.Module):
    """Layers on nodes x [b n d]: x_i <- sum_j w_ij x_j, where w_ij is the softmax over j of MLP([x_i; x_j])."""

    def __init__(self, dim: int, layers: int, hidden: int) -> None:
        super().__init__()
        self.query = nn.ModuleList(nn.Linear(dim, hidden) for _ in range(layers))
        self.key = nn.ModuleList(nn.Linear(dim, hidden, bias=False) for _ in range(layers))
        self.weight = nn.ModuleList(nn.Linear(hidden, 1, bias=False) for _ in range(layers))

    def forward(
        self, x: Float[Tensor, "b n d"], mask: Bool[Tensor, "b n"]
    ) -> Float[Tensor, "b n d"]:
        """Return nodes [b n d] after all layers; 0 at invalid ones."""
        for query, key, weight in zip(self.query, self.key, self.weight, strict=True):
            # MLP([x_i; x_j]) without its last layer is ReLU(A x_i + B x_j): A x_i are queries, B x_j keys.
            # `SLICE` queries at a time bound the memory of the pairs.
            keys = key(x)
            slices = [
                _Mix.apply(queries, keys, x, weight.weight, mask)
                for queries in query(x).split(SLICE, dim=1)
            ]
            x = torch.cat(slices, dim=1)
        return x * mask[..., None]


def _mix(queries: Tensor, keys: Tensor, x: Tensor, weight: Tensor, mask: Tensor) -> Tensor:
    """Return sum_j w_ij x_j, [b q d], for the nodes i of some `queries` [b q h], over all valid nodes j.

    `keys` are [b n h], `x` [b n d] and `mask` [b n]; `weight` [1 h] gives the score of a pair.
    """
    scores = functional.linear(functional.relu(queries[:, :, None] + keys[:, None]), weight)[..., 0]
    return masked_softmax(scores, mask[:, None, :], dim=-1) @ x


class _Mix(torch.autograd.Function):
    """The function `_mix`, which is computed a second time in the backward pass instead of keeping its tensors.

    So the pairs of only one slice of nodes are in memory at a time. torch.utils.checkpoint would do the same, but its
    first use imports torch._dynamo, which takes seconds.
    """

    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, keys: Tensor, x: Tensor, weight: Tensor, mask: Tensor
    ) -> Tensor:
        """Return the result of `_mix`; only its inputs, which are small, are kept for the backward pass."""
        ctx.save_for_backward(queries, keys, x, weight, mask)
        return _mix(queries, keys, x, weight, mask)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient of each input (None for the mask), for which `_mix` is computed again with a graph."""
        *differentiable, mask = ctx.saved_tensors
        inputs = [tensor.detach().requires_grad_() for tensor in differentiable]
        with torch.enable_grad():
            queries, keys, x, weight = inputs
            mixed = _mix(queries, keys, x, weight, mask)
        return (*torch.autograd.grad(mixed, inputs, gradients), None)


class ClaimPool(nn.Module):
    """Pools review nodes x_i with weights from MLP([claim; x_i]), where the claim is the product's vector."""

    def __init__(self, dim: int, hidden: int = 64) -> None:
        super().__init__()
        self.score = nn.Sequential(
            nn.Linear(2 * dim, hidden), nn.ReLU(), nn.Linear(hidden, 1, bias=False)
        )

    def forward(self, claim: Float[Tensor, "b d"], nodes: Sequences) -> Float[Tensor, "b d"]:
        """Map the claims [b d] and their nodes to one vector per row, [b d]."""
        pairs = torch.cat([claim[:, None].expand_as(nodes.x), nodes.x], dim=-1)
        weights = masked_softmax(self.score(pairs)[..., 0], nodes.mask, dim=1)
        return (weights[..., None] * nodes.x).sum(1)


def _to_common(dim: int, common: int) -> nn.Sequential:
    """Return the layers from a modality's vectors to the space that text and images share."""
    return nn.Sequential(nn.Linear(dim, common), nn.Tanh(), nn.Linear(common, common))


class TextChannels(nn.Module):
    """Convolutions of 1, 3 and 5 words with ReLU: three channels of [b t dim]."""

    def __init__(self, words: Float[Tensor, "v e"], dim: int, dropout: float) -> None:
        super().__init__()
        self.words = WordEmbedding(words, dropout)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(self.words.dim, dim, k, padding=k // 2) for k in (1, 3, 5)
        )

    def forward(self, text: Tensor, mask: Mask) -> list[Vectors]:
        """Map word indices [b t] to the three channels; 0 at invalid positions."""
        x = (self.words(text) * mask[..., None]).mT
        return [
            functional.relu(convolution(x)).mT * mask[..., None]
            for convolution in self.convolutions
        ]


class MCR(HelpfulnessModel):
    """MCR (Liu et al. 2021): matching, product-aware and graph features of texts and images, joined and scored."""

    def __init__(self, options: MCROptions, inputs: Inputs) -> None:
        super().__init__()
        dim = options.dim
        common = options.common_dim
        self.product_text = TextChannels(inputs.product_words, dim, options.dropout)
        self.review_text = TextChannels(inputs.review_words, dim, options.dropout)
        self.product_regions, self.review_regions = (
            RegionEncoder(
                inputs.roi_dim,
                dim,
                layers=options.region_layers,
                heads=HEADS,
                dropout=options.region_dropout,
            )
            for _ in range(2)
        )
        # Nine matrices: each of the product's three text channels with each of the review's. Images have one.
        self.text_match = KernelMaxPooling(9, (1, 2), options.filters, top=16)
        self.image_match = KernelMaxPooling(1, (1, 2, 3, 4), options.image_filters, top=8)
        self.aware = nn.ModuleDict(
            {
                "text": ProductAwareAttention(dim),
                "image": ProductAwareAttention(dim),
                "text_image": ProductAwareAttention(common),
                "image_text": ProductAwareAttention(common),
            }
        )
        # Across modalities text and images are compared in a common space, which is also that of the graphs.
        self.common_text = _to_common(dim, common)
        self.common_image = _to_common(dim, common)
        self.product_graph = CoherentGraph(common, options.graph_layers, options.graph_hidden)
        self.review_graph = CoherentGraph(common, options.graph_layers, options.graph_hidden)
        self.claim = ClaimPool(common)
        # Two matchings, two means within modalities (dim), two across and the graph's claim (common).
        total = self.text_match.dim + self.image_match.dim + 2 * dim + 3 * common
        self.score = score_mlp(total)

    def forward(self, batch: Batch) -> Output:
        """Return scores [b] from coherence between, within and across text and images."""
        channels_p = self.product_text(batch.text_p, batch.mask_p)
        channels_r = self.review_text(batch.text_r, batch.mask_r)
        # Texts are the means of their channels.
        text_p = Sequences(torch.stack(channels_p).mean(0), batch.mask_p)
        text_r = Sequences(torch.stack(channels_r).mean(0), batch.mask_r)
        roi_p = Sequences(self.product_regions(batch.roi_p, batch.roi_mask_p), batch.roi_mask_p)
        roi_r = Sequences(self.review_regions(batch.roi_r, batch.roi_mask_r), batch.roi_mask_r)
        texts = {"text_p": text_p, "text_r": text_r}
        regions = {"roi_p": roi_p, "roi_r": roi_r}
        common = {
            name: Sequences(project(x) * mask[..., None], mask)
            for project, streams in ((self.common_text, texts), (self.common_image, regions))
            for name, (x, mask) in streams.items()
        }
        # Matching matrices [b c t s]: of each text channel of the product with each of the review's, and of regions.
        of_texts = torch.stack([cosine_matrix(p, r) for p in channels_p for r in channels_r], dim=1)
        of_regions = cosine_matrix(roi_p.x, roi_r.x)[:, None]
        # Matching of texts and of images, product-aware means within and across modalities, and the coherent graph.
        features = [
            self.text_match(of_texts, batch.mask_p[:, :, None] & batch.mask_r[:, None, :]),
            self.image_match(
                of_regions, batch.roi_mask_p[:, :, None] & batch.roi_mask_r[:, None, :]
            ),
            masked_mean(self.aware["text"](text_p, text_r), text_r.mask),
            masked_mean(self.aware["image"](roi_p, roi_r), roi_r.mask),
            masked_mean(self.aware["image_text"](common["roi_p"], common["text_r"]), text_r.mask),
            masked_mean(self.aware["text_image"](common["text_p"], common["roi_r"]), roi_r.mask),
            self._coherence(common),
        ]
        output = self.scored(*features)
        output.features = common
        return output

    def _coherence(self, common: dict[str, Sequences]) -> Tensor:
        """Return the review's vectors pooled by attention from the product, [b d].

        Text and images of the product go through a graph; so do those of the review. The mean of the product's nodes is
        the claim, which weighs the review's nodes.
        """
        product = join(common["text_p"], common["roi_p"])
        review = join(common["text_r"], common["roi_r"])
        claim = masked_mean(self.product_graph(*product), product.mask)
        return cast(Tensor, self.claim(claim, Sequences(self.review_graph(*review), review.mask)))
