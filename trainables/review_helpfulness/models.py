"""The eight models by name, and what can be set of each.

To add one: its settings and a line in `MODELS` here, its class and a line in `networks`. A class of someone else's
package is named by its dotted path (`package.module:Class`).
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pydantic

from contrasweep.components import Table
from contrasweep.errors import SpecError
from contrasweep.schema import OMIT_DEFAULT, checked
from contrasweep.trainables.fields import Count, Dropout, NotNegative, Positive, Several, Share
from contrasweep.trainables.review_helpfulness.losses import ContrastiveReduction

HEADS = 4
"""Attention heads of MCR's region encoders."""
Even = Annotated[int, pydantic.Field(ge=2, multiple_of=2)]


@checked
class BiMPMOptions:
    """Settings of BiMPM, bilateral multi-perspective matching."""

    dim: Count = 128
    """Size h of the context and aggregation BiLSTMs, per direction."""
    perspectives: Count = 8
    """Perspectives l of each matching."""
    dropout: Dropout = 0.5
    """Dropout of word embeddings and between all layers."""


@checked
class ConvKNRMOptions:
    """Settings of Conv-KNRM, which matches n-grams by kernels."""

    filters: Count = 128
    """Number of filters of each convolution."""
    ngrams: Count = 3
    """N-grams of 1 to this many words are matched."""
    kernels: Several = 11
    """One for exact matches, the others spread over [-1, 1]."""
    kernel_sigma: Positive = 0.1
    """Width of a kernel."""
    pooling: Literal["dai2018", "mcr"] = "dai2018"
    """Dai et al.'s, or the one in MCR's code, masked here: log(1 + count), unscaled, the exact kernel as wide as the
    others (their sigma is 1)."""
    dropout: Dropout = 0.5
    """Dropout of word embeddings."""


@checked
class EGCNNOptions:
    """Settings of EG-CNN. Its two domain losses are not used where products have one category only."""

    filters: Count = 64
    """Number of filters of the word convolutions."""
    kernel: Count = 5
    """Words that a convolution sees; odd."""
    char_dim: Count = 16
    """Size of a character's embedding."""
    char_filters: Count = 50
    """Number of filters of the character convolution."""
    dropout: Dropout = 0.5
    """Dropout of word and character embeddings."""
    domain_weight: NotNegative = 0.1
    """Weight alpha of the adversarial domain loss on the shared features."""
    private_weight: NotNegative = 0.1
    """Weight beta_d of the domain loss on the private features."""

    def __post_init__(self) -> None:
        if self.kernel % 2 == 0:
            raise SpecError("kernel must be odd", place="kernel", value=self.kernel)


@checked
class PRHNetOptions:
    """Settings of PRH-Net, whose review attends to the product."""

    dim: Even = 128
    """Size of the BiLSTM states, both directions together."""
    dropout: Dropout = 0.1
    """Dropout of word embeddings."""


@checked
class DRNetOptions:
    """Settings of the adapted D&R-Net."""

    dim: Even = 128
    """Size d of all features."""
    orthogonality: NotNegative = 1e-2
    """Weight lambda_o of the overlap of common and own projections."""
    dropout: Dropout = 0.5
    """Dropout of word embeddings and before the score."""


@checked
class SSECrossOptions:
    """Settings of SSE-Cross, which swaps texts and images of reviews in training."""

    dim: Count = 100
    """Size of each modality's vector."""
    dropout: Dropout = 0.5
    """Dropout of word embeddings and joint vectors."""
    image_swap: Share = 0.3
    """Chance that a training review's images are replaced by another review's."""
    text_swap: Share = 0.7
    """Chance that a training review's text is replaced by another review's."""
    same_label_odds: Positive = 1000.0
    """Odds that the other review has the same label."""


@checked
class MCROptions:
    """Settings of MCR, which scores coherence within and between text and images."""

    dim: Count = 128
    """Size of the encoders' features; a multiple of 4."""
    common_dim: Count = 128
    """Size h of the common space and of the graph's nodes."""
    dropout: Dropout = 0.5
    """Dropout of word embeddings."""
    filters: Count = 4
    """Number of filters of the text matching's convolutions."""
    image_filters: Count = 8
    """Number of filters of the image matching's convolutions."""
    region_layers: Count = 3
    """Self-attention layers over an item's image regions."""
    region_dropout: Dropout = 0.5
    """Dropout within the region encoder."""
    graph_layers: Count = 2
    """Layers of the coherent graph."""
    graph_hidden: Count = 64
    """Width of the graph's pair networks."""

    def __post_init__(self) -> None:
        if self.dim % HEADS:
            raise SpecError(
                f"dim must be a multiple of the {HEADS} heads", place="dim", value=self.dim
            )


OPTIONS_OF_PAPER_FORM = (
    "adaptive",
    "o_pos",
    "o_neg",
    "clamp_weights",
    "detach_weights",
    "contrastive_reduction",
    "mask_same_product",
)
"""Options that the contrastive form `code` does not use, so that they must stay at their defaults with it."""


@checked
class ProposedOptions:
    """Settings of the adaptive contrastive model. Its contrastive options are those of `adaptive_contrastive_loss`."""

    dim: Count = 128
    """Size d of all features; a multiple of `heads`."""
    depth: Count = 5
    """Layers D of the cross-modal interaction."""
    heads: Count = 4
    """Heads of the self-attentions."""
    dropout: Dropout = 0.5
    """Dropout of word embeddings."""
    region_layers: Count = 3
    """Self-attention layers over an item's image regions."""
    region_dropout: Dropout = 0.5
    """Dropout within the region encoder."""
    fusion_dropout: Dropout = 0.2
    """Dropout within the fusion's attentions."""
    head: Literal["linear", "mlp"] = "linear"
    """What scores the fused vector."""
    interaction: bool = True
    """Off: the encoders' features are fused as they are (Table 6)."""
    contrastive: bool = True
    """Off: the ranking loss alone (Table 6)."""
    contrastive_weight: Positive = 1.0
    """Lambda, the weight of the contrastive loss."""
    contrastive_form: Annotated[Literal["paper", "code"], OMIT_DEFAULT] = "paper"
    """`code`: the circle loss of the authors' code in place of Eq. 33; of what follows it uses nothing."""
    adaptive: bool = True
    """Weigh each pair by its distance from its optimum; off: all alike (Table 6)."""
    o_pos: float = 2.0
    """o+, twice the similarity that a positive pair is drawn to (Theorem 1): 2.0, the paper's, draws it to 1."""
    o_neg: float = 0.0
    """o-, twice the similarity that a negative pair is drawn to: 0.0, the paper's, draws it to 0."""
    clamp_weights: bool = False
    """Keep the adaptive weights from going below 0."""
    detach_weights: bool = False
    """Keep gradients out of the adaptive weights."""
    contrastive_reduction: ContrastiveReduction = "balanced"
    """`sum` is the paper's and grows with the square of the batch."""
    mask_same_product: bool = False
    """Pairs of rows of one product are no negatives."""

    def __post_init__(self) -> None:
        if self.dim % self.heads:
            raise SpecError(
                f"dim must be a multiple of the {self.heads} heads", place="dim", value=self.dim
            )
        if self.contrastive_form == "code":
            for name in OPTIONS_OF_PAPER_FORM:
                if getattr(self, name) != getattr(type(self), name):
                    raise SpecError(
                        "the authors' contrastive term does not use it",
                        place=name,
                        value=getattr(self, name),
                    )


@dataclass(frozen=True)
class Model:
    """A row of the table `MODELS`.

    `settings` is the class of what can be set of the model. `gives_features`: whether its outputs have post-interaction
    features.
    """

    settings: type
    gives_features: bool = False


MODELS: Table[Any] = Table(
    "model",
    {
        "bimpm": Model(BiMPMOptions),
        "conv_knrm": Model(ConvKNRMOptions),
        "eg_cnn": Model(EGCNNOptions),
        "prh_net": Model(PRHNetOptions),
        "dr_net": Model(DRNetOptions),
        "sse_cross": Model(SSECrossOptions),
        "mcr": Model(MCROptions, gives_features=True),
        "proposed": Model(ProposedOptions, gives_features=True),
    },
)
"""name -> what can be set of a model; `networks.NETWORKS` has its class."""
