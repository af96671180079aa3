"""Images and texts in one space by two encoders: CLIP (Radford et al. 2021) and SigLIP (Zhai et al. 2023).

    list(train(trial))

Trained on images with captions, or on labelled images whose captions are made of their classes' names, and scored by
retrieval both ways and zero-shot classification.
"""

from collections.abc import Generator
from pathlib import Path

from contrasweep.cluster.memory import Workload
from contrasweep.config import Config
from contrasweep.data.manifest import Manifest
from contrasweep.trainables.images import resident_bytes, rows_to_train, view_shape
from contrasweep.trainables.pytorch import Tensor, torch
from contrasweep.trainables.two_tower.settings import Settings
from contrasweep.trial import Report, Trial

__all__ = ["Settings", "memory", "train"]
ASSUMED_VOCABULARY = 10_000
"""Different words of captions, as a plan assumes: a plan reads no captions."""


def train(trial: Trial, resume: Path | None = None) -> Generator[Report]:
    """Train `trial` and yield a report per epoch, the last of which has recall both ways and `zero_shot`.

    Args:
        trial: The trial; its config is that of `Settings`, its dataset holds images with captions or classes.
        resume: The checkpoint folder to continue from.

    Yields:
        Reports, whose `step` is the epoch, from 1.
    """
    from contrasweep.trainables.two_tower.method import TwoTower

    yield from TwoTower(trial, Settings(**trial.config)).reports(resume)


def memory(config: Config, data: Manifest) -> Workload:
    """Return the memory and the work of a trial with this config: a step in both towers, and the images as uint8."""
    settings = Settings(**config)
    shape = view_shape(data, settings.view_size)
    # The size of the vocabulary. Without captions, texts are prompts with the names of classes: a plan assumes that
    # each class brings ten different words.
    vocabulary = ASSUMED_VOCABULARY if data.kind == "image-text" else 10 * len(data.classes)

    def inputs() -> tuple[Tensor, Tensor]:
        """Return a batch as the network takes it: images and word indices."""
        words_of_texts = torch.ones(settings.batch_size, settings.max_words, dtype=torch.long)
        return torch.zeros(settings.batch_size, *shape), words_of_texts

    def loss(out: tuple[Tensor, Tensor]) -> Tensor:
        """Return the sum of all embeddings, in place of the loss: its gradient reaches the same tensors."""
        return out[0].sum() + out[1].sum()

    return Workload(
        architecture=f"two_tower {settings.encoder.name} {settings.text_encoder.name} {settings.precision}",
        shape=(shape, settings.batch_size, vocabulary, settings.max_words, settings.network_text),
        build=lambda: settings.build_network(shape, vocabulary),
        inputs=inputs,
        loss=loss,
        resident_bytes=resident_bytes(data, shape, settings),
        **settings.workload(rows_to_train(data)),
    )


train.settings = Settings  # type: ignore[attr-defined]
train.memory = memory  # type: ignore[attr-defined]
