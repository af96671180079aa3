"""Settings that every modality of the LOCAL family has: losses, weights, batches and optimisation."""

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from contrasweep.components import Component
from contrasweep.data.manifest import Manifest
from contrasweep.errors import DataError, SpecError, check_known
from contrasweep.schema import OMIT_DEFAULT, checked
from contrasweep.trainables.encoders import HEADS
from contrasweep.trainables.fields import (
    Count,
    Device,
    MaybeCount,
    NotNegative,
    Positive,
    Several,
    Share,
)
from contrasweep.trainables.images import rows_to_train
from contrasweep.trainables.losses import (
    LOSSES,
    ComposedLoss,
    ComposedProxyLoss,
    ComposedViewsLoss,
    ExternalLoss,
    compose,
)
from contrasweep.trainables.optimisation import OPTIMIZERS, TrainingSettings
from contrasweep.trainables.pytorch import Int, Integers, Tensor, torch

ALPHAS: dict[str, Callable[[int, int], float]] = {
    "parabolic": lambda epoch, epochs: 1 - (epoch / epochs) ** 2,
    "linear": lambda epoch, epochs: 1 - epoch / epochs,
    "inverse": lambda epoch, epochs: 1 / (epoch + 1),
    "cosine": lambda epoch, epochs: (1 + math.cos(math.pi * epoch / epochs)) / 2,
    "const": lambda epoch, epochs: 1.0,
}
"""Name -> share of alpha_0 in an epoch, counted from 0; all but `const` start at 1 and fall. The paper has `inverse`:
"inversely proportional to the number of epochs" (after equation 6)."""


Batches = Int[Tensor, "batches b"]
"""The rows of an epoch, a batch in each line."""


def uniform(labels: Integers, size: int, generator: "torch.Generator") -> Batches:
    """Draw batches of `size` distinct rows for one epoch.

    A smaller last batch is left out, as it disturbs BatchNorm.
    """
    count = len(labels) // size
    return torch.randperm(len(labels), generator=generator)[: count * size].reshape(count, size)


def class_balanced(labels: Integers, size: int, generator: "torch.Generator") -> Batches:
    """Draw batches of `size` rows so that every class is equally likely.

    Within a class, no row repeats before all have come.
    """
    # First the class of each place of the epoch, then rows for each class's places.
    count = len(labels) // size
    present = torch.unique(labels)
    drawn = present[torch.randint(len(present), (count * size,), generator=generator)]
    rows = torch.empty(count * size, dtype=torch.int64)
    for label in present:
        of_class = drawn == label
        rows[of_class] = _cycled((labels == label).nonzero()[:, 0], int(of_class.sum()), generator)
    return rows.reshape(count, size)


def at_least_two(labels: Integers, size: int, generator: "torch.Generator") -> Batches:
    """Draw batches of `size` rows in which every row has another of its class, so that no anchor lacks a positive.

    Rows are drawn in couples of one class; a class has couples in proportion to its rows. In a class with an odd number
    of rows, the last row is coupled with an earlier one. A single row is coupled with itself, so that its two views
    differ by augmentation alone. An odd batch size adds one more row, of the class of one of the couples.
    """
    # All couples [couples 2] of all classes, in random order; a batch has half as many couples as rows.
    count = len(labels) // size
    couples = torch.cat(
        [_couples((labels == label).nonzero()[:, 0], generator) for label in torch.unique(labels)]
    )
    couples = couples[_cycled(torch.arange(len(couples)), count * (size // 2), generator)]
    rows = couples.reshape(count, -1)
    if size % 2:
        rows = torch.cat([rows, _one_more(labels, rows, generator)], dim=1)
    return rows


SAMPLERS: dict[str, Callable[[Tensor, int, Any], Tensor]] = {
    "uniform": uniform,
    "class_balanced": class_balanced,
    "at_least_2_per_class": at_least_two,
}
"""name -> (labels [n], rows of a batch, generator) -> the batches of one epoch."""


def _cycled(rows: Tensor, count: int, generator: "torch.Generator") -> Tensor:
    """Draw `count` of `rows` [n] in random order; no row comes again before all have come."""
    # As many shuffles as are needed, rounded up, but one at least.
    rounds = -(-count // len(rows))
    return torch.cat(
        [rows[torch.randperm(len(rows), generator=generator)] for _ in range(max(1, rounds))]
    )[:count]


def _couples(rows: Tensor, generator: "torch.Generator") -> Tensor:
    """Return the rows of a class in random couples [couples 2]; of an odd number the last one joins the first again."""
    shuffled = rows[torch.randperm(len(rows), generator=generator)]
    if len(rows) % 2:
        shuffled = torch.cat([shuffled, shuffled[:1]])
    return shuffled.reshape(-1, 2)


def _one_more(labels: Tensor, rows: Tensor, generator: "torch.Generator") -> Tensor:
    """Draw one more row for each batch, of the class of its first couple, [batches 1]."""
    drawn = []
    for first in rows[:, 0]:
        of_class = (labels == labels[first]).nonzero()[:, 0]
        drawn.append(of_class[torch.randint(len(of_class), (1,), generator=generator)])
    return torch.stack(drawn)


@checked
class Latent:
    """How l, the latent difference of a pair, is made of its sides' encoder stages (LOCAL, section 3.4)."""

    blocks: Literal["1-2-3-4", "2-3-4", "3-4", "4"] = "1-2-3-4"
    """The stages whose differences make l."""
    weighting: Literal["channel", "block"] = "channel"
    """A stage counts by its channels (`channel`, the paper's) or like any other (`block`)."""
    size: MaybeCount = 0
    """Side of the map that l is; D_L is its square for images, itself for texts. 0: that of stage 3."""


@checked
class CrossEntropy:
    """Settings of WCE, the weighted cross-entropy of the classifier."""

    class_weights: Literal["balanced", "root", "effective_number", "none"] = "balanced"
    """`balanced` N/(K n_k), `root` its square root, `effective_number` (Cui et al. 2019, .9999), or `none`; counted on
    the training fold."""
    reduction: Literal["torch_mean", "batch_mean"] = "torch_mean"
    """Divided by the batch's summed weights (`torch_mean`) or by its size (`batch_mean`)."""


@checked
class Classifier:
    """An MLP with one hidden layer on the features r of both sides."""

    hidden: Count = 512
    """Units of the hidden layer."""


@checked
class PairedSettings(TrainingSettings):
    """Losses, weights and optimisation: L = alpha_t [C(z) + beta C(l)] + (1 - alpha_t) WCE (LOCAL, equation 6).

    C is the contrastive `loss` of the differences z and l of the pairs, WCE the classifier's weighted cross-entropy.
    The paper's systems: SCL is `loss: supcon, beta: 0`; L-SCL `supcon` with beta > 0; OCL-pair `ocl, beta: 0`;
    LOCAL `ocl` with beta > 0.
    """

    loss: Component = LOSSES.setting(
        "ocl", similarity="dot", temperature=0.5, reduction="all_anchors"
    )
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
    alpha_schedule: str = "inverse"
    """How alpha falls with the epochs: inverse (the paper's), parabolic, linear, cosine or const. Parabolic and linear
    leave the classifier little weight for half of the epochs, which costs accuracy where there are few."""
    wce: CrossEntropy = CrossEntropy()
    """The classifier's loss."""
    projection: Component = HEADS.setting("mlp")
    """The head from r to the embedding e; its `dim` is D_E."""
    classifier: Classifier = Classifier()
    """From r of both sides to the classes."""
    batch_size: Several = 16
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
        check_known(
            self.alpha_schedule,
            "alpha schedules",
            ALPHAS,
            "there is no such alpha schedule",
            place="alpha_schedule",
        )
        check_known(self.sampler, "samplers", SAMPLERS, "there is no such sampler", place="sampler")
        # Wrong parameters of the loss are errors of its construction.
        self.build_loss()

    def alpha_in(self, epoch: int) -> float:
        """Return alpha_t, the weight of the contrastive part, in epoch t = 0, 1, ..."""
        return self.alpha * ALPHAS[self.alpha_schedule](epoch, self.epochs)

    def check_data(self, data: Manifest) -> None:
        """Raise `DataError` where `data` has no labels, `SpecError` where a batch is larger than its training part."""
        if not data.labelled:
            raise DataError(f"{data.name} has no labels, which this method learns")
        self.check_batch(rows_to_train(data))

    def check_latent(self, size: Sequence[int], classes: int) -> None:
        """Raise `SpecError` where l, of this `size`, has fewer dimensions than classes: these cannot all be orthogonal.

        Without `beta` there is no l.
        """
        if self.beta > 0 and math.prod(size) < classes:
            raise SpecError(
                f"l needs a dimension for each of the {classes} classes",
                place="latent.size",
                value=math.prod(size),
                hint="use larger images, a larger latent.size, or beta 0",
            )

    def build_loss(self) -> ComposedLoss | ExternalLoss:
        """Return C, the contrastive loss, as a function of (embeddings, labels).

        `SpecError` where it has weights of its own, or its positives are not the rows of a class.
        """
        loss = compose(self.loss)
        if loss.has_weights:
            raise SpecError(
                "a loss with weights of its own is trained by contrastive alone",
                place="loss",
                value=self.loss.name,
                hint="take supcon, sincere or ocl",
            )
        # Losses of two views, and those whose positives are views. A `ComposedProxyLoss` has weights, which are refused
        # above; it is named for the type checker alone.
        by_instance = isinstance(loss, ComposedLoss) and loss.definition.positives == "instances"
        if isinstance(loss, ComposedViewsLoss | ComposedProxyLoss) or by_instance:
            raise SpecError(
                "positives are views of one image here, and this family's are the rows of a class",
                place="loss",
                value=self.loss.name,
                hint="take supcon, sincere or ocl",
            )
        return loss


TYPICAL_CLASSES = 10
"""How many classes a plan assumes where the dataset names none; its memory hardly depends on the last layer."""


def network_output_sum(out: Any) -> Tensor:
    """Return the sum of z, l and the logits of `Outputs`; a plan that counts a step's memory takes it for the loss.

    The gradient of this sum keeps the same tensors of the network as the gradient of the loss does. What the loss
    itself keeps, matrices [B B], is not counted.
    """
    total: Tensor = (
        out.z.sum() + out.logits.sum() + (0.0 if out.latent is None else out.latent.sum())
    )
    return total
