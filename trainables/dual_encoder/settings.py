"""Settings that dual encoders of any modality have."""

from typing import Annotated

from contrasweep.components import Component
from contrasweep.errors import SpecError
from contrasweep.imports import errors_named
from contrasweep.schema import OMIT_DEFAULT, checked
from contrasweep.trainables import losses
from contrasweep.trainables.dual_encoder.losses import LOSSES
from contrasweep.trainables.fields import Count, Device, MaybeCount, NotNegative, Positive, Several
from contrasweep.trainables.losses import Loss
from contrasweep.trainables.optimisation import OPTIMIZERS, TrainingSettings, check_optimizer
from contrasweep.trainables.pytorch import torch


@checked
class DualEncoderSettings(TrainingSettings):
    """Settings of loss, batches and optimisation, which all dual encoders have."""

    loss: Component = LOSSES.setting("clip")
    """What compares the two sides of a batch, with its parameters."""
    learnable_temperature: bool = False
    """Whether the loss's temperature, and SigLIP's bias, are learned, from the given ones on. Logits are scaled by 100
    at most, as in CLIP."""
    batch_size: Several = 64
    """Pairs of a step; the other pairs are the negatives."""
    epochs: Count = 10
    """How often the training part is seen."""
    optimizer: Component = OPTIMIZERS.setting("adamw", weight_decay=1e-4)
    """What takes the steps, with its parameters."""
    learning_rate: Positive = 1e-3
    """The highest learning rate; it falls by a cosine to a thousandth."""
    warmup_epochs: MaybeCount = 0
    """Epochs in which the learning rate rises from a tenth."""
    clip: NotNegative = 1.0
    """Largest norm of all gradients together; 0: any."""
    max_words: Count = 32
    """Words of a text that are read, at most."""
    min_count: Count = 2
    """Words seen less often in the training part are unknown; a Hugging Face model has its own."""
    evaluate_every: MaybeCount = 0
    """Epochs between evaluations (0: only at the end) where the trial has a fold."""
    checkpoint_every: MaybeCount = 5
    """Epochs between checkpoints (0: only at the end)."""
    device: Annotated[Device, OMIT_DEFAULT] = "auto"
    """Where it trains: `auto` (the GPU if there is one), `cpu`, `cuda` or `cuda:N`."""
    autocast: bool = False
    """Whether the networks compute in bfloat16; faster on GPUs."""
    threads: Count = 1
    """Threads of torch on the CPU."""

    def __post_init__(self) -> None:
        if self.learnable_temperature and self.loss.name not in LOSSES:
            raise SpecError(
                "the temperature is learned of a loss of two sides",
                place="learnable_temperature",
                value=self.loss.name,
                hint=f"take {', '.join(LOSSES)}, or learnable_temperature: false",
            )

    @property
    def of_two_sides(self) -> bool:
        """Whether the loss compares the two sides, and not all rows stacked."""
        return not isinstance(self.loss.entry, Loss)

    def check_parts(self) -> None:
        """Raise `SpecError` where the user's own optimizer cannot take a step, or the user's own loss fails."""
        check_optimizer(self.optimizer, self.learning_rate)
        if not self.of_two_sides:
            losses.check_loss(self.loss)
        # A user's loss of two sides is tried on two anchors with three candidates; those in `LOSSES` are ours.
        elif self.loss.name not in LOSSES:
            scores = torch.eye(2, 3).requires_grad_()
            with errors_named(f"{self.loss.name} fails on scores [2, 3]", "loss"):
                value = self.loss.build(scores)
            losses.require_number(value, "two sides", self.loss.name)
