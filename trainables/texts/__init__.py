"""Sentence embeddings: SimCSE without and with labels, multiple-negatives ranking, and losses over labels.

    list(train(trial))

Trained on the sentences of a dataset of text pairs and scored, as STS is, by Spearman's correlation of cosines with
the pairs' scores.
"""

from collections.abc import Generator
from pathlib import Path

from contrasweep.cluster.memory import Workload
from contrasweep.config import Config
from contrasweep.data.manifest import Manifest
from contrasweep.trainables.images import rows_to_train
from contrasweep.trainables.pytorch import torch
from contrasweep.trainables.texts.settings import Settings
from contrasweep.trial import Report, Trial

__all__ = ["Settings", "memory", "train"]


def train(trial: Trial, resume: Path | None = None) -> Generator[Report]:
    """Train `trial` and yield a report per epoch, the last of which has `spearman` and `pearson`.

    Args:
        trial: The trial; its config is that of `Settings`, its dataset holds text pairs with scores.
        resume: The checkpoint folder to continue from.

    Yields:
        Reports, whose `step` is the epoch, from 1.
    """
    from contrasweep.trainables.texts.method import Texts

    yield from Texts(trial, Settings(**trial.config)).reports(resume)


def memory(config: Config, data: Manifest) -> Workload:
    """Return the memory and the work of a trial with this config: a step of both sides of a batch and hard negatives.

    The number of different words and the number of pairs of sentences that are alike are known only once the data is
    read. Each is guessed as the number of rows.
    """
    settings = Settings(**config)
    words = data.rows("train")
    # Two sides of each pair, and at most one hard negative.
    rows = settings.batch_size * (3 if settings.uses_hard_negatives else 2)
    return Workload(
        architecture=f"texts {settings.encoder.name} {settings.precision}",
        shape=(words, rows, settings.max_words, settings.network_text),
        build=lambda: settings.build_network(words),
        inputs=lambda: (torch.ones(rows, settings.max_words, dtype=torch.long),),
        # Word indices of both sides of each row, 8 bytes each.
        resident_bytes=8 * 2 * settings.max_words * words,
        **settings.workload(rows_to_train(data)),
    )


train.settings = Settings  # type: ignore[attr-defined]
train.memory = memory  # type: ignore[attr-defined]
