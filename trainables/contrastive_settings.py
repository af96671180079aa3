"""All that can be set of a contrastive trial, checked before anything is spent."""

from typing import Annotated, Any, Literal

import pydantic

from contrasweep.errors import SpecError, choose_from
from contrasweep.schema import checked
from trainables import augmentations, losses
from trainables.encoders import ENCODERS

Positive = Annotated[float, pydantic.Field(gt=0)]
NotNegative = Annotated[float, pydantic.Field(ge=0)]
Count = Annotated[int, pydantic.Field(ge=1)]
MaybeCount = Annotated[int, pydantic.Field(ge=0)]


LOSS_PARAMETERS = (
    "temperature",
    "epsilon",
    "margin",
    "m_pos",
    "m_neg",
    "soft",
    "mining",
    "smooth",
    "squared",
    "reduction",
)
"""Settings that go to the loss where they are given."""


@checked
class Settings:
    """All settings of a contrastive trial.

    Loss: `loss` and `similarity` by name, and those parameters that the loss has (None: its default): `temperature`,
    `epsilon` (in logit units), `margin`, `m_pos` and `m_neg`, `soft`, `mining`, `smooth`, `squared`, `reduction`;
    any other goes by name into `loss_options`.
    Network: `encoder`, `encoder_width` (0: its own), `projection` head and its `projection_dim`.
    Optimisation: `optimizer`, `learning_rate`, `momentum` (SGD only), `weight_decay`, `schedule`, `warmup_epochs`
    (None: SupContrast's 10 where the batch is above 256 images and there are more than 50 epochs), `batch_size` in
    images (the loss sees twice as many rows), `sampling`, `augmentation` (`auto`: by dataset).
    Evaluation: `evaluate_on` features of the encoder or embeddings of the head; `classifier` says which one gives
    `accuracy` and `f1_macro`: `knn` (the nearest neighbour) or the linear `probe`; `evaluate_every` epochs (0: only
    at the end) where the trial has a fold: a dataset's own test split is looked at once, at the end. `retrieval`
    adds MAP@R, R-precision and recall@k, `figures` histograms of target and noise similarities.
    Running: `device`, `autocast` (bfloat16, for GPUs: a CPU without units for it is slower), `chunk_rows` views
    encoded at a time (0: the whole batch; see `gradcache`), torch `threads`, `checkpoint_every` epochs (0: only at
    the end). `order_seed` seeds the order of the data alone (None: the trial's seed does): as an axis of a study it
    tells what the order does from what the initial weights do.
    """

    loss: str = "supcon"
    similarity: str = "cosine"
    temperature: Positive | None = None
    epsilon: NotNegative | None = None
    margin: float | None = None
    m_pos: float | None = None
    m_neg: float | None = None
    soft: bool | None = None
    mining: str | None = None
    smooth: bool | None = None
    squared: bool | None = None
    reduction: str | None = None
    loss_options: dict[str, Any] = pydantic.Field(default_factory=dict)
    encoder: str = "cnn"
    encoder_width: MaybeCount = 0
    projection: Literal["mlp", "linear", "none"] = "mlp"
    projection_dim: Count = 128
    epochs: Count = 20
    batch_size: Annotated[int, pydantic.Field(ge=2)] = 128
    sampling: Literal["shuffled", "class_balanced"] = "shuffled"
    augmentation: str = "auto"
    optimizer: Literal["sgd", "adamw"] = "sgd"
    learning_rate: Positive = 0.1
    momentum: Annotated[float, pydantic.Field(ge=0, lt=1)] = 0.9
    weight_decay: NotNegative = 1e-4
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup_epochs: MaybeCount | None = None
    evaluate_on: Literal["features", "embeddings"] = "features"
    classifier: Literal["knn", "probe"] = "knn"
    evaluate_every: MaybeCount = 5
    retrieval: bool = True
    figures: bool = False
    device: Annotated[str, pydantic.Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")] = "auto"
    autocast: bool = False
    chunk_rows: MaybeCount = 0
    threads: Count = 1
    checkpoint_every: MaybeCount = 5
    order_seed: int | None = None

    def __post_init__(self) -> None:
        if self.encoder not in ENCODERS:
            raise SpecError(
                "there is no such encoder",
                place="encoder",
                value=self.encoder,
                hint=choose_from("encoders", list(ENCODERS), self.encoder),
            )
        augmentations.policy_for(self.augmentation, dataset="", channels=3)
        self.build_loss()

    def build_loss(self) -> Any:
        """The loss as a function of (embeddings, labels, instance_ids); `SpecError` if there is none such."""
        given = {name: getattr(self, name) for name in LOSS_PARAMETERS}
        options = {name: value for name, value in given.items() if value is not None}
        try:
            return losses.build(self.loss, self.similarity, **options, **self.loss_options)
        except SpecError:
            raise
        except (ValueError, TypeError) as error:
            raise SpecError(str(error), place="loss") from None
