"""Settings that every modality of the LOCAL family has: losses, weights, batches and optimisation."""

from collections.abc import Mapping
from typing import Annotated, Literal

import pydantic

from contrasweep.components import Component
from contrasweep.errors import SpecError, choose_from
from contrasweep.schema import OMIT_DEFAULT, checked
from contrasweep.trainables.encoders import HEADS
from contrasweep.trainables.fields import Count, Device, MaybeCount, NotNegative, Positive, Share
from contrasweep.trainables.losses import LOSSES, ComposedLoss, ComposedViewsLoss, ExternalLoss, compose
from contrasweep.trainables.optimisation import OPTIMIZERS
from contrasweep.trainables.paired.samplers import SAMPLERS
from contrasweep.trainables.paired.schedules import ALPHAS


@checked
class Latent:
    """How l is made of the differences of the encoder's stages (LOCAL, section 3.4)."""

    blocks: Literal["1-2-3-4", "2-3-4", "3-4", "4"] = "1-2-3-4"
    """The stages whose differences make l."""
    weighting: Literal["channel", "block"] = "channel"
    """A stage counts by its channels (`channel`, the paper's) or like any other (`block`)."""
    size: MaybeCount = 0
    """Side of the map that l is; D_L is its square for images, itself for texts. 0: that of stage 3."""


@checked
class CrossEntropy:
    """WCE, the weighted cross-entropy of the classifier."""

    class_weights: Literal["balanced", "root", "effective_number", "none"] = "balanced"
    """`balanced` N/(K n_k), `root` its square root, `effective_number` (Cui et al. 2019, .9999), or `none`; counted on
    the training fold."""
    reduction: Literal["torch_mean", "batch_mean"] = "torch_mean"
    """Divided by the batch's summed weights (`torch_mean`) or by its size (`batch_mean`)."""


@checked
class Classifier:
    """An MLP with one hidden layer on r of both sides."""

    hidden: Count = 512
    """Units of the hidden layer."""


@checked
class Recipe:
    """Losses, weights and optimisation: L = alpha_t [C(z) + beta C(l)] + (1 - alpha_t) WCE (LOCAL, equation 6).

    The paper's systems: SCL is `loss: supcon, beta: 0`; L-SCL `supcon` with beta > 0; OCL-pair `ocl, beta: 0`;
    LOCAL `ocl` with beta > 0.
    """

    loss: Component = LOSSES.setting("ocl", similarity="dot", temperature=0.5, reduction="all_anchors")
    """C, the contrastive loss, with its parameters. SCL and OCL differ by 2e-4 at their optima for temperature .1, by
    .18 for 1; reduction `all_anchors` is the paper's 1/|B|."""
    beta: NotNegative = 0.5
    """Weight of C(l) beside C(z); 0: there is no l."""
    z_norm: bool = True
    """Whether z is normalised; a raw z can fall below the loss that unit vectors allow."""
    latent: Latent = Latent()
    """How l is made."""
    alpha: Share = 1.0
    """alpha_0, the weight of the contrastive part in the first epoch; the rest is WCE's."""
    alpha_schedule: str = "parabolic"
    """How alpha falls with the epochs: parabolic, linear, inverse, cosine or const."""
    wce: CrossEntropy = CrossEntropy()
    """The classifier's loss."""
    projection: Component = HEADS.setting("mlp")
    """The head from r to the embedding e; its `dim` is D_E."""
    classifier: Classifier = Classifier()
    """From r of both sides to the classes."""
    batch_size: Annotated[int, pydantic.Field(ge=2)] = 16
    """Pairs (or single items) a batch."""
    sampler: str = "uniform"
    """Which rows form a batch: uniform, class_balanced or at_least_2_per_class."""
    n_views: Count = 1
    """Views of each item in a batch."""
    optimizer: Component = OPTIMIZERS.setting("adamw", weight_decay=1e-4)
    """What takes the steps, with its parameters."""
    learning_rate: Positive = 3e-4
    """The highest learning rate; it falls by a cosine to a thousandth."""
    epochs: Count = 50
    """How often the training part is seen."""
    warmup_epochs: MaybeCount = 2
    """Epochs in which the learning rate rises from a tenth."""
    clip: NotNegative = 1.0
    """Largest norm of all gradients together; 0: any."""
    device: Annotated[Device, OMIT_DEFAULT] = "auto"
    """Where it trains: `auto` (the GPU if there is one), `cpu`, `cuda` or `cuda:N`."""
    autocast: bool = False
    """Whether the network computes in bfloat16; faster on GPUs."""
    threads: Count = 1
    """Threads of torch on the CPU."""
    evaluate_every: MaybeCount = 5
    """Epochs from one evaluation to the next; 0: at the end only. A dataset's own test split is looked at once."""
    checkpoint_every: MaybeCount = 1
    """Epochs from one checkpoint to the next; 0: at the end only."""
    artifacts: Literal["none", "tables", "figures"] = "tables"
    """What the last report brings: `tables` (embeddings, t-SNE coordinates and class centres as Parquet), `figures`
    drawn from them too, or `none`."""

    def __post_init__(self) -> None:
        _require_known("alpha schedule", ALPHAS, "alpha_schedule", self.alpha_schedule)
        _require_known("sampler", SAMPLERS, "sampler", self.sampler)
        self.build_loss()

    def build_loss(self) -> ComposedLoss | ExternalLoss:
        """C as a function of (embeddings, labels); `SpecError` where its positives are not the rows of a class."""
        loss = compose(self.loss)
        if isinstance(loss, ComposedViewsLoss) or _of_instances(loss):
            raise SpecError(
                "positives are views of one image here, and this family's are the rows of a class",
                place="loss",
                value=self.loss.name,
                hint="take supcon, sincere or ocl",
            )
        return loss


def _of_instances(loss: ComposedLoss | ExternalLoss) -> bool:
    return isinstance(loss, ComposedLoss) and loss.loss.positives == "instances"


def _require_known(kind: str, table: Mapping[str, object], place: str, value: str) -> None:
    """`SpecError` that lists the known names unless `value` is one of them."""
    if value not in table:
        raise SpecError(
            f"there is no such {kind}", place=place, value=value, hint=choose_from(f"{kind}s", list(table), value)
        )
