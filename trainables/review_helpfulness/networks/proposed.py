"""The adaptive multimodal contrastive model of Nguyen et al., EMNLP 2022 (after the paper, not after its code).

Three things are reconstructed, because the paper leaves them open:

- the self-attention of the fusion has 4 heads, a residual, a layer norm and a dropout of .2;
- its convolution has kernel 3 and ReLU, and a gap of zeros between two sequences, so that padding cannot reach a score;
- queries and keys have layer norms of their own.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from contrasweep.trainables.pytorch import Float
from contrasweep.trainables.review_helpfulness.batch import (
    Batch,
    HelpfulnessModel,
    Inputs,
    OtherMask,
    OtherVectors,
    Output,
    Sequences,
    Vectors,
)
from contrasweep.trainables.review_helpfulness.losses import (
    adaptive_contrastive_loss,
    circle_contrastive_loss,
)
from contrasweep.trainables.review_helpfulness.models import ProposedOptions
from contrasweep.trainables.review_helpfulness.networks.layers import (
    Recurrent,
    RegionEncoder,
    SelfAttention,
    WordEmbedding,
    join,
    masked_max,
    masked_mean,
    score_mlp,
)

STREAMS = ("text_p", "roi_p", "text_r", "roi_r")
"""Sequences of states: text and image regions of the product and of the review."""


class CrossAttention(nn.Module):
    """One layer of Eq. 10-12: Q <- GELU(Linear(softmax(LN(Q) W_Q (LN(X) W_K)^T / sqrt(d)) LN(X) W_V + Q)).

    Q is the query, X the context that it reads, d the size `dim` of both.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm_query = nn.LayerNorm(dim)
        self.norm_key = nn.LayerNorm(dim)
        self.query, self.key, self.value = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.out = nn.Linear(dim, dim)

    def forward(
        self,
        query: Vectors,
        context: OtherVectors,
        mask: OtherMask,
    ) -> Vectors:
        """Return `query` after one layer that reads the valid positions of `context`."""
        # The attention divides by sqrt(d); the layer's residual is the query as it came, not normalised.
        normed = self.norm_key(context)
        attended = functional.scaled_dot_product_attention(
            self.query(self.norm_query(query)),
            self.key(normed),
            self.value(normed),
            attn_mask=mask[:, None, :],
        )
        return functional.gelu(self.out(attended + query))


class Interaction(nn.Module):
    """Cross-attention of a sequence to another (Eq. 5-14): `depth` layers that all read the original `context`."""

    def __init__(self, dim: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(CrossAttention(dim) for _ in range(depth))

    def forward(self, x: Vectors, context: OtherVectors, mask: OtherMask) -> Vectors:
        """Return `x` after all layers, each of which reads the valid positions of `context`."""
        for layer in self.layers:
            x = layer(x, context, mask)
        return x


class FusionAttention(nn.Module):
    """SelfAttn of the fusion: LN(x + dropout(self-attention(x))) over joined sequences."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = SelfAttention(dim, heads)
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(dim)

    def forward(self, *sequences: Sequences) -> Sequences:
        """Join the sequences end to end, after attention over all of them."""
        x, mask = join(*sequences)
        return Sequences(
            self.norm(x + self.dropout(self.attention(x, mask))) * mask[..., None], mask
        )


class Fusion(nn.Module):
    """The paper's Eq. 15-28, which make one vector of the four streams of features [b t d], d being `dim`.

    Its parts are intra-modal (convolution, maximum: d), inter-modal (means: 2d) and intra-review (means: 2d).
    """

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        # An attention for each pair of sequences that is joined: within modalities, across them, within each side.
        names = ("texts", "images", "text_p_roi_r", "roi_p_text_r", "product", "review")
        self.attention = nn.ModuleDict(
            {name: FusionAttention(dim, heads, dropout) for name in names}
        )
        self.convolution = nn.Conv1d(dim, dim, kernel_size=3, padding=1)

    def forward(self, streams: dict[str, Sequences]) -> Float[Tensor, "b z"]:
        """Return the fused features z [b 5d] of the four streams."""
        text_p, roi_p, text_r, roi_r = (streams[name] for name in STREAMS)
        attend = self.attention
        texts = attend["texts"](text_p, text_r)
        images = attend["images"](roi_p, roi_r)
        # Each attended pair is split again, so that `join` puts a gap between its two sequences too.
        joined = join(*_split(texts, text_p), *_split(images, roi_p), gap=True)
        intra = masked_max(functional.relu(self.convolution(joined.x.mT)).mT, joined.mask)
        means = [
            attend["text_p_roi_r"](text_p, roi_r),
            attend["roi_p_text_r"](roi_p, text_r),
            attend["product"](text_p, roi_p),
            attend["review"](text_r, roi_r),
        ]
        return torch.cat([intra, *(masked_mean(*pair) for pair in means)], dim=1)


def _split(joined: Sequences, first: Sequences) -> tuple[Sequences, Sequences]:
    """Return the two sequences that were joined, of which the first is as long as `first`."""
    x, mask = joined
    length = first.mask.shape[1]
    return Sequences(x[:, :length], mask[:, :length]), Sequences(x[:, length:], mask[:, length:])


class Proposed(HelpfulnessModel):
    """Text LSTMs and region encoders, cross-modal interaction, three-way fusion, linear score, contrastive loss."""

    def __init__(self, options: ProposedOptions, inputs: Inputs) -> None:
        super().__init__()
        self.options = options
        self.helpful_threshold = inputs.helpful_threshold
        dim = options.dim
        self.words = nn.ModuleDict(
            {
                "text_p": WordEmbedding(inputs.product_words, options.dropout),
                "text_r": WordEmbedding(inputs.review_words, options.dropout),
            }
        )
        width = inputs.review_words.shape[1]
        self.lstm = nn.ModuleDict(
            {name: Recurrent(width, dim, bidirectional=False) for name in ("text_p", "text_r")}
        )
        self.regions = nn.ModuleDict(
            {
                name: RegionEncoder(
                    inputs.roi_dim,
                    dim,
                    layers=options.region_layers,
                    heads=options.heads,
                    dropout=options.region_dropout,
                )
                for name in ("roi_p", "roi_r")
            }
        )
        # Without interaction there are no layers, and so no weights of any.
        depth = options.depth if options.interaction else 0
        self.interaction = nn.ModuleDict({name: Interaction(dim, depth) for name in STREAMS})
        self.fusion = Fusion(dim, options.heads, options.fusion_dropout)
        # Built for the linear head too, whose initial weights are drawn after these.
        mlp = score_mlp(5 * dim)
        self.score = nn.Linear(5 * dim, 1) if options.head == "linear" else mlp

    def encode(self, batch: Batch) -> dict[str, Sequences]:
        """Encode texts and images of products and reviews (Eq. 2-4); return name -> sequences of vectors.

        The names are `text_p` and `text_r` for the word states K_p, K_r, and `roi_p` and `roi_r` for the region states
        A_p, A_r.
        """
        texts = {"text_p": (batch.text_p, batch.mask_p), "text_r": (batch.text_r, batch.mask_r)}
        images = {
            "roi_p": (batch.roi_p, batch.roi_mask_p),
            "roi_r": (batch.roi_r, batch.roi_mask_r),
        }
        streams = {}
        for name, (words, mask) in texts.items():
            streams[name] = Sequences(self.lstm[name](self.words[name](words), mask), mask)
        for name, (regions, mask) in images.items():
            streams[name] = Sequences(self.regions[name](regions, mask), mask)
        return streams

    def interact(self, streams: dict[str, Sequences]) -> dict[str, Sequences]:
        """Return text states H_p, H_r and region states V_p, V_r after cross-modal attention, by name (Eq. 5-14).

        With `interaction` off they are `streams` unchanged.
        """
        if not self.options.interaction:
            return streams
        out = {}
        # Each stream reads the other three as they were before the interaction.
        for name in STREAMS:
            context = join(*(streams[other] for other in STREAMS if other != name))
            x, mask = streams[name]
            out[name] = Sequences(
                self.interaction[name](x, context.x, context.mask) * mask[..., None], mask
            )
        return out

    def forward(self, batch: Batch) -> Output:
        """Return scores [b] and the four streams; in training also the contrastive loss of the helpful rows.

        The log then has `contrastive_rows`, how many rows are helpful.
        """
        streams = self.interact(self.encode(batch))
        output = Output(self.score(self.fusion(streams))[:, 0], features=streams)
        if self.training and self.options.contrastive:
            helpful = batch.label >= self.helpful_threshold
            output.losses["contrastive"] = self.options.contrastive_weight * self._contrast(
                streams, batch, helpful
            )
            output.log["contrastive_rows"] = float(helpful.sum())
        return output

    def _contrast(self, streams: dict[str, Sequences], batch: Batch, rows: Tensor) -> Tensor:
        """Return the contrastive loss of `rows`, in the form that the options name ("code": that of the authors)."""
        o = self.options
        pooled = [
            masked_max(*streams[name])[rows] for name in ("text_p", "text_r", "roi_p", "roi_r")
        ]
        if o.contrastive_form == "code":
            return circle_contrastive_loss(*pooled)
        return adaptive_contrastive_loss(
            *pooled,
            o_pos=o.o_pos,
            o_neg=o.o_neg,
            adaptive=o.adaptive,
            clamp_weights=o.clamp_weights,
            detach_weights=o.detach_weights,
            reduction=o.contrastive_reduction,
            product_ids=batch.product[rows],
            mask_same_product=o.mask_same_product,
        )
