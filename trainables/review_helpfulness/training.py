"""Train one of the eight models to rank a product's reviews by helpfulness.

list(train(trial))

One report an epoch, with validation metrics; the last one has the metrics of the test part under the best epoch's
weights, and their values per product.
"""

from collections.abc import Generator
from pathlib import Path

from contrasweep.trainables.pytorch import nn
from contrasweep.trainables.review_helpfulness.settings import Settings
from contrasweep.trainables.review_helpfulness.workload import memory
from contrasweep.trial import Report, Trial


def train(trial: Trial, resume: Path | None = None) -> Generator[Report, None, None]:
    """Train `trial`, from the checkpoint folder `resume` if given. `step` is the epoch, from 1.

    Every report: `loss` and its parts, `grad_norm`, `learning_rate`, `contrastive_rows` (mean B of a step), and the
    validation part's `dev_map`, `dev_ndcg@3`, `dev_ndcg@5`, `dev_mrr`. The last one: `map`, `ndcg@3`, `ndcg@5` and
    `mrr` of the test part, the same under a random order (`random_map`) and longest first (`length_map`), and with
    `distances` those of Tables 7-8. Its items have one value per test product, in the order of the data.
    """
    from contrasweep.trainables import loop
    from contrasweep.trainables.review_helpfulness.corpora import load
    from contrasweep.trainables.review_helpfulness.trainer import Trainer

    settings, key = Settings(**trial.config).with_threshold(trial.data), (trial.seed, trial.fold)
    yield from loop.run(Trainer(settings, load(trial, settings, key), key), trial, resume)


train.settings = Settings  # type: ignore[attr-defined]
train.memory = memory  # type: ignore[attr-defined]


def load_model(folder: Path, trial: Trial) -> "nn.Module":
    """The ranker in a checkpoint of `trial`, with the weights of its best epoch: a `Batch` to an `Output`, whose
    `score` [b] ranks reviews."""
    from contrasweep.trainables import checkpoint
    from contrasweep.trainables.review_helpfulness.corpora import load
    from contrasweep.trainables.review_helpfulness.networks import build_model

    settings = Settings(**trial.config)
    model = build_model(settings, load(trial, settings, (trial.seed, trial.fold)).inputs)
    model.load_state_dict(checkpoint.part(folder, "best")["weights"])
    return model.cpu().eval()
