"""Settings that dual encoders of any modality have."""

from typing import Annotated

import pydantic

from contrasweep.components import Component
from contrasweep.config import MutableConfig
from contrasweep.errors import SpecError
from contrasweep.schema import OMIT_DEFAULT, checked
from contrasweep.trainables.dual_encoder.losses import LOSSES
from contrasweep.trainables.fields import Count, Device, MaybeCount, NotNegative, Positive
from contrasweep.trainables.optimisation import OPTIMIZERS, check_optimizer, optimizer_states


@checked
class DualEncoderSettings:
    """Settings of loss, batches and optimisation, which all dual encoders have."""

    loss: Component = LOSSES.setting("clip")
    """What compares the two sides of a batch, with its parameters."""
    learnable_temperature: bool = False
    """Whether the loss's temperature, and SigLIP's bias, are learned, from the given ones on. Logits are scaled by 100
    at most, as in CLIP."""
    batch_size: Annotated[int, pydantic.Field(ge=2)] = 64
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
        if self.learnable_temperature and self.loss.entry not in LOSSES.values():
            raise SpecError(
                "the temperature is learned of a loss of two sides",
                place="learnable_temperature",
                value=self.loss.name,
                hint=f"take {', '.join(LOSSES)}",
            )

    def check_parts(self) -> None:
        """Raise `SpecError` where the user's own optimizer cannot take a step."""
        check_optimizer(self.optimizer, self.learning_rate)

    def workload(self, rows: int) -> MutableConfig:
        """Return the fields of a `Workload` that follow from these settings, for a training part of so many `rows`."""
        return {
            "optimizer_states": optimizer_states(self.optimizer),
            "precision": "bf16" if self.autocast else "fp32",
            "device": self.device,
            "cpus": float(self.threads),
            "steps": float(self.epochs * (rows // self.batch_size)),
        }
