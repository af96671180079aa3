"""All settings of a review-helpfulness trial, checked before anything is spent."""

import dataclasses
from typing import Annotated, Any, Literal

import pydantic

from contrasweep.errors import SpecError, choose_from
from contrasweep.schema import checked
from trainables.review_helpfulness.models import MODELS

Positive = Annotated[float, pydantic.Field(gt=0)]
Count = Annotated[int, pydantic.Field(ge=1)]
MaybeCount = Annotated[int, pydantic.Field(ge=0)]
Label = Annotated[int, pydantic.Field(ge=0, le=4)]
Fraction = Annotated[float, pydantic.Field(ge=0, lt=1)]

DISTANCE_MODELS = ("proposed", "mcr")


@checked
class Settings:
    """`model` is one of `MODELS`; `use_text` and `use_images` off hide that modality from it.

    Training: `loss` is `hinge` (Eq. 34 with `margin` beta, or the difference of labels) on sampled groups or `bce` on
    the same rows; see `GroupSampler` for `interval`, `num_negatives` and `max_groups`; `groups` a step. Adam with
    `learning_rate`, multiplied by `plateau_factor` after more than `plateau_patience` epochs without a better
    validation MAP; training ends after `patience` such epochs (0: never), and the best epoch's weights are tested.
    Data: labels above `relevance_threshold` are relevant (Amazon 1, Lazada 0), at least `helpful_threshold` helpful;
    `min_word_count`, `max_tokens`, `max_regions` an item, `word_dim`, `word_vectors` (a GloVe or fastText text file).
    `distances` adds those of Tables 7-8 to the last report.

    Every other field is an option of the model, None for its own default; setting one that it lacks is an error.
    """

    model: str = "proposed"
    use_text: bool = True
    use_images: bool = True
    loss: Literal["hinge", "bce"] = "hinge"
    margin: Literal["fixed", "label_diff"] = "fixed"
    beta: Positive = 1.0
    interval: Annotated[int, pydantic.Field(ge=0, le=3)] = 1
    num_negatives: Count = 7
    groups: Count = 4
    max_groups: Count | None = None
    epochs: Count = 30
    learning_rate: Positive = 1e-4
    plateau_factor: Annotated[float, pydantic.Field(gt=0, le=1)] = 0.5
    plateau_patience: MaybeCount = 4
    patience: MaybeCount = 10
    relevance_threshold: Annotated[int, pydantic.Field(ge=0, le=3)] = 1
    helpful_threshold: Label = 2
    min_word_count: Count = 5
    max_tokens: Count = 128
    max_regions: Count = 128
    word_dim: Count = 300
    word_vectors: str | None = None
    distances: bool = False
    evaluation_rows: Count = 64
    device: Annotated[str, pydantic.Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")] = "auto"
    threads: Count = 1

    dim: Count | None = None
    dropout: Fraction | None = None
    # proposed
    depth: Count | None = None
    heads: Count | None = None
    head: Literal["linear", "mlp"] | None = None
    fusion_dropout: Fraction | None = None
    interaction: bool | None = None
    contrastive: bool | None = None
    contrastive_weight: Positive | None = None
    adaptive: bool | None = None
    o_pos: float | None = None
    o_neg: float | None = None
    clamp_weights: bool | None = None
    detach_weights: bool | None = None
    contrastive_reduction: Literal["sum", "mean_anchor", "balanced"] | None = None
    mask_same_product: bool | None = None
    # proposed and MCR
    region_layers: Count | None = None
    region_dropout: Fraction | None = None
    # BiMPM
    perspectives: Count | None = None
    # Conv-KNRM, EG-CNN, MCR
    filters: Count | None = None
    ngrams: Count | None = None
    kernels: Annotated[int, pydantic.Field(ge=2)] | None = None
    kernel_sigma: Positive | None = None
    pooling: Literal["dai2018", "mcr"] | None = None
    kernel: Count | None = None
    char_dim: Count | None = None
    char_filters: Count | None = None
    domain_weight: Annotated[float, pydantic.Field(ge=0)] | None = None
    private_weight: Annotated[float, pydantic.Field(ge=0)] | None = None
    # DR-Net, SSE-Cross, MCR
    orthogonality: Annotated[float, pydantic.Field(ge=0)] | None = None
    image_swap: Annotated[float, pydantic.Field(ge=0, le=1)] | None = None
    text_swap: Annotated[float, pydantic.Field(ge=0, le=1)] | None = None
    same_label_odds: Positive | None = None
    common_dim: Count | None = None
    image_filters: Count | None = None
    graph_layers: Count | None = None
    graph_hidden: Count | None = None

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise SpecError(
                "there is no such model",
                place="model",
                value=self.model,
                hint=choose_from("models", list(MODELS), self.model),
            )
        if not (self.use_text or self.use_images):
            raise SpecError("use_text and use_images cannot both be off", place="use_text")
        if self.distances and self.model not in DISTANCE_MODELS:
            raise SpecError(
                "distances are measured on post-interaction features, which this model has none of",
                place="distances",
                value=self.model,
                hint=f"known: {', '.join(DISTANCE_MODELS)}",
            )
        if self.kernel is not None and self.kernel % 2 == 0:
            raise SpecError("kernel must be odd", place="kernel", value=self.kernel)
        self.options()

    def options(self) -> Any:
        """The model's own `Options`, with what is set here; `SpecError` for one that the model lacks."""
        options = MODELS[self.model].options
        known = {f.name for f in dataclasses.fields(options)}
        chosen = {name: getattr(self, name) for name in MODEL_OPTIONS if getattr(self, name) is not None}
        for name in chosen:
            if name not in known:
                raise SpecError(
                    f"model {self.model!r} has no such option",
                    place=name,
                    hint=choose_from(f"options of {self.model}", sorted(known), name),
                )
        if "helpful_threshold" in known:
            chosen["helpful_threshold"] = self.helpful_threshold
        return options(**chosen)


MODEL_OPTIONS = tuple(
    field.name
    for field in dataclasses.fields(Settings)  # type: ignore[arg-type]
    if any(field.name in {f.name for f in dataclasses.fields(entry.options)} for entry in MODELS.values())
    and field.name != "helpful_threshold"
)
"""The fields of `Settings` that are options of one model or another."""
