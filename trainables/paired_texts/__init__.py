"""LOCAL and its relatives on sentence pairs: premise and hypothesis take the places of pre and post.

    list(train(trial))

The encoder is small: word embeddings and three residual convolutions over positions. Its stages' outputs, resized to a
common length, give l as the stages of a ResNet do. Losses, weights and loop are those of image pairs.
Deviation from what inference models do: the sides meet only in z, l and the classifier, never word by word.
"""

import json
from collections.abc import Generator
from pathlib import Path

from contrasweep.cluster.memory import Workload
from contrasweep.config import Config
from contrasweep.data.manifest import Manifest
from contrasweep.schema import plain
from contrasweep.trainables.images import rows_to_train
from contrasweep.trainables.paired.settings import network_output_sum
from contrasweep.trainables.paired_texts.settings import Settings
from contrasweep.trainables.pytorch import nn, torch
from contrasweep.trial import Report, Trial

__all__ = ["Settings", "memory", "train"]


def train(trial: Trial, resume: Path | None = None) -> Generator[Report]:
    """Train `trial`, from the checkpoint folder `resume` if given; see `fitting.fit` for what is reported."""
    from contrasweep.trainables.paired.fitting import fit
    from contrasweep.trainables.paired_texts.inputs import TextInputs

    yield from fit(trial, TextInputs, Settings(**trial.config), resume)


def memory(config: Config, data: Manifest) -> Workload:
    """Return the memory and the work of a trial with this config: one step of a batch of pairs.

    Two numbers are guesses, since they are known only once the data is read. The vocabulary is taken to have as many
    words as there are rows, and there are three classes where the dataset names none.
    """
    settings = Settings(**config)
    words = data.rows("train")
    # Three as in entailment. The only layer whose size depends on it, the last, is a small part of the network.
    classes = len(data.classes) or 3
    # Networks with the same settings have the same size, which is measured once.
    network = [
        plain(part)
        for part in (settings.encoder, settings.latent, settings.projection, settings.classifier)
    ]

    def build() -> "nn.Module":
        """Build the network, where a plan counts what it takes."""
        from contrasweep.trainables.paired_texts.inputs import text_model

        return text_model(settings, words, classes)

    return Workload(
        architecture=f"paired_texts {settings.precision}",
        shape=(
            words,
            classes,
            settings.batch_size,
            settings.n_views,
            settings.max_words,
            json.dumps(network, sort_keys=True),
            settings.beta > 0,  # whether there is l
        ),
        build=build,
        inputs=lambda: tuple(
            torch.ones(settings.batch_size * settings.n_views, settings.max_words, dtype=torch.long)
            for _ in range(2)
        ),
        loss=network_output_sum,
        # Word indices of both sides, 8 bytes each.
        resident_bytes=8 * 2 * settings.max_words * data.rows("train", "test"),
        **settings.workload(rows_to_train(data)),
    )


train.settings = Settings  # type: ignore[attr-defined]
train.memory = memory  # type: ignore[attr-defined]
