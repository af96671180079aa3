"""Settings of the LOCAL family: `Recipe` (losses and optimisation, any modality) and `Settings` (images)."""

from typing import Annotated, Any, Literal

import pydantic

from contrasweep.errors import SpecError, choose_from
from contrasweep.schema import checked
from trainables import losses
from trainables.paired.latent import BLOCKS
from trainables.paired.samplers import SAMPLERS
from trainables.paired.schedules import ALPHAS

Positive = Annotated[float, pydantic.Field(gt=0)]
NotNegative = Annotated[float, pydantic.Field(ge=0)]
Share = Annotated[float, pydantic.Field(ge=0, le=1)]
Count = Annotated[int, pydantic.Field(ge=1)]
MaybeCount = Annotated[int, pydantic.Field(ge=0)]


@checked
class Recipe:
    """Losses, weights and optimisation: L = alpha_t [C(z) + beta C(l)] + (1 - alpha_t) WCE (LOCAL, equation 6).

    The paper's systems: SCL is `loss: supcon, beta: 0`; L-SCL `supcon` with beta > 0; OCL-pair `ocl, beta: 0`;
    LOCAL `ocl` with beta > 0.

    Contrastive: `loss` C with `similarity` and `temperature` tau (SCL and OCL differ by 2e-4 at their optima for
    tau .1, by .18 for tau 1); `reduction` over anchors (`all_anchors`: the paper's 1/|B|); `beta` weighs l;
    `z_norm` normalises z (raw z can fall below the loss that unit vectors allow).
    Weights: `alpha` is alpha_0 and `alpha_schedule` its course. `class_weights`: `balanced` N/(K n_k), `root` its
    square root, `effective_number` (Cui et al. 2019, .9999) or `none`, always counted on the training fold;
    `wce_reduction` divides by the batch's summed weights (`torch_mean`) or by its size (`batch_mean`). Network:
    `projection_dim` D_E, `classifier_hidden` units, `blocks` whose differences make l, `lat_weighting`. Batches:
    `batch_size` in pairs, `sampler`, `n_views` of each. Optimisation: `optimizer` with `learning_rate`, `weight_decay`,
    `momentum` (SGD only), `epochs`,
    `warmup_epochs`, cosine to a thousandth; gradients are clipped to the norm `clip` (0: not).
    Running: `device`, `autocast` (bfloat16), torch `threads`, `evaluate_every` epochs (0: at the end only; a
    dataset's own test split is looked at once), `checkpoint_every` epochs, and whether the last report brings
    `artifacts`: `tables` (embeddings, t-SNE coordinates and class centres as Parquet), `figures` drawn from them too.
    """

    loss: str = "ocl"
    similarity: str = "dot"
    temperature: Positive = 0.5
    reduction: str = "all_anchors"
    beta: NotNegative = 0.5
    z_norm: bool = True
    alpha: Share = 1.0
    alpha_schedule: str = "parabolic"
    class_weights: Literal["balanced", "root", "effective_number", "none"] = "balanced"
    wce_reduction: Literal["torch_mean", "batch_mean"] = "torch_mean"
    projection_dim: Count = 128
    classifier_hidden: Count = 512
    blocks: str = "1-2-3-4"
    lat_weighting: Literal["channel", "block"] = "channel"
    batch_size: Annotated[int, pydantic.Field(ge=2)] = 16
    sampler: str = "uniform"
    n_views: Count = 1
    optimizer: Literal["adamw", "sgd"] = "adamw"
    learning_rate: Positive = 3e-4
    weight_decay: NotNegative = 1e-4
    momentum: Annotated[float, pydantic.Field(ge=0, lt=1)] = 0.9
    epochs: Count = 50
    warmup_epochs: MaybeCount = 2
    clip: NotNegative = 1.0
    device: Annotated[str, pydantic.Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")] = "auto"
    autocast: bool = False
    threads: Count = 1
    evaluate_every: MaybeCount = 5
    checkpoint_every: MaybeCount = 1
    artifacts: Literal["none", "tables", "figures"] = "tables"

    def __post_init__(self) -> None:
        known("alpha schedule", ALPHAS, "alpha_schedule", self.alpha_schedule)
        known("sampler", SAMPLERS, "sampler", self.sampler)
        known("choice of blocks", dict.fromkeys(BLOCKS), "blocks", self.blocks)
        self.build_loss()

    def build_loss(self) -> Any:
        """C as a function of (embeddings, labels); `SpecError` if there is none such."""
        try:
            built = losses.build(self.loss, self.similarity, reduction=self.reduction, temperature=self.temperature)
            if isinstance(built, losses.ComposedLoss) and built.loss.positives == "instances":
                raise SpecError(
                    "positives are views of one image here, and this family's are the rows of a class",
                    place="loss",
                    value=self.loss,
                    hint="take supcon, sincere or ocl",
                )
            return built
        except SpecError:
            raise
        except (ValueError, TypeError) as error:
            raise SpecError(str(error), place="loss") from None


def known(kind: str, table: Any, place: str, value: str) -> None:
    """`SpecError` that lists the known names unless `value` is one of them."""
    if value not in table:
        raise SpecError(
            f"there is no such {kind}", place=place, value=value, hint=choose_from(f"{kind}s", list(table), value)
        )
