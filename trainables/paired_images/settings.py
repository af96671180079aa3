"""Settings of the LOCAL family: `Recipe` (losses and optimisation, any modality) and `Settings` (images)."""

from typing import Annotated, Any, Literal

import pydantic

from contrasweep.errors import SpecError, choose_from
from contrasweep.schema import checked
from trainables import augmentations, losses
from trainables.exporting import Centre
from trainables.paired_images.latent import BLOCKS
from trainables.paired_images.samplers import SAMPLERS
from trainables.paired_images.schedules import ALPHAS

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
            if isinstance(built, losses.Composed) and built.loss.positives == "instances":
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


@checked
class Settings(Recipe):
    """Settings of paired images and, for the paper's Tables 6 and 7, of single ones.

    `input`: `pair`; `pre` or `post` (the same model fed one side twice: what knowing the change is worth);
    `single` for single images, `pre_single` or `post_single` for one side of pairs as if they were single (then
    z = e, the classifier sees r, and there is no l: beta must be 0).
    Network: `backbone`; `width` channels of its first stage; `stem`: `imagenet` (7x7, stride 2, max-pool), `small`
    (3x3, stride 1), or `auto`, which is small up to 64 pixels; `bn`: `train`, `frozen` (running statistics), or
    `groupnorm`; `pretrained`: `none` or the path of a torchvision state_dict; `lat_size` is the side of l's map
    (0: stage 3's); D_L is its square.
    `colour_units`: width of a layer that reads colour statistics of each image, its output beside the encoder's in r
    (0: none; see `trainables.paired_images.colours`).
    Views: `image_size` in pixels (0: as staged); `centre`, the colour that is subtracted: the training part's mean
    (`dataset`), the pair's own over both sides (`item`), which takes away the scene and leaves the change, or `both`,
    each in channels of its own. Pairs: `crop_area` the least share kept, `dihedral`, `jitter` the standard deviation of
    the light. Single images: the policy `augmentation`.
    """

    input: Literal["pair", "pre", "post", "single", "pre_single", "post_single"] = "pair"
    backbone: Literal["resnet10", "resnet18", "resnet34", "resnet50"] = "resnet18"
    width: Annotated[int, pydantic.Field(ge=4, multiple_of=4)] = 64
    stem: Literal["auto", "imagenet", "small"] = "auto"
    bn: Literal["train", "frozen", "groupnorm"] = "train"
    pretrained: str = "none"
    lat_size: MaybeCount = 0
    colour_units: MaybeCount = 0
    image_size: MaybeCount = 0
    centre: Centre = "dataset"
    crop_area: Annotated[float, pydantic.Field(gt=0, le=1)] = 0.5
    dihedral: bool = True
    jitter: NotNegative = 0.06
    augmentation: str = "auto"

    def __post_init__(self) -> None:
        Recipe.__post_init__(self)
        if not self.paired and self.beta > 0:
            raise SpecError("single images have no l", place="beta", value=self.beta, hint="set beta to 0")
        if self.bn == "groupnorm" and self.width < 16:
            # and torch 2.15's backward pass corrupts the heap for 4 channels on the CPU
            raise SpecError(
                "groupnorm needs a width of 16 or more",
                place="width",
                value=self.width,
                hint="widen the network, or set bn to 'train' or 'frozen'",
            )
        augmentations.policy_for(self.augmentation, dataset="", channels=3)

    @property
    def paired(self) -> bool:
        return self.input in ("pair", "pre", "post")

    @property
    def copies(self) -> int:
        """How often each channel of an image goes into the network: about each of the colours subtracted."""
        return 2 if self.centre == "both" else 1


def known(kind: str, table: Any, place: str, value: str) -> None:
    """`SpecError` that lists the known names unless `value` is one of them."""
    if value not in table:
        raise SpecError(
            f"there is no such {kind}", place=place, value=value, hint=choose_from(f"{kind}s", list(table), value)
        )
