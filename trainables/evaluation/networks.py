"""The trainable of evaluations: it loads the network that another trial has trained, and scores it on more data."""

import importlib
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

from contrasweep.cluster.memory import Workload
from contrasweep.config import Config
from contrasweep.data.manifest import Manifest
from contrasweep.errors import DataError, SpecError
from contrasweep.imports import import_path
from contrasweep.storage.checkpoints import Checkpoints
from contrasweep.storage.record import StartRef
from contrasweep.storage.records import StudyRecords
from contrasweep.trainables.pytorch import torch
from contrasweep.trial import Report, Trial

ROWS = 1024
"""Images that go through a network at a time, and at most four batches of its training."""


def train(trial: Trial, resume: Path | None = None, *, storage: str = "") -> Generator[Report, None, None]:
    """Evaluate the network of another trial and yield one report.

    Args:
        trial: The trial. Its config has `study` and `source` (the other trial's id), `trainable` and `config` of that
            trial, `start` where it has one, `trained` (when it ended), `checkpoint` (its digest), `on` (datasets,
            `name#digest`) and `function` (a dotted path, or "").
        resume: Not used: an evaluation has no checkpoint.
        storage: Where the checkpoint lies.

    Yields:
        A report with `NAME/METRIC` for each dataset. Without `on`, METRIC of the function alone on the trial's data.

    Raises:
        SpecError: The checkpoint is deleted, or another one by now.
    """
    from contrasweep.trainables import seeding
    from contrasweep.trainables.contrastive import transfer

    config = dict(trial.config)
    start = StartRef(**config["start"]) if "start" in config else None
    source = Trial(
        config["study"], trial.arm, config["trainable"], config["config"], trial.data, trial.fold, trial.seed, start
    )
    device = seeding.pick_device(source.config.get("device", "auto"))
    seeding.prepare(device, source.config.get("threads", 1))
    seeding.reseed(trial.seed, trial.fold, "evaluation")
    model = _model(source, config, storage).to(device).eval()
    function = import_path(config["function"], kind="function") if config["function"] else None
    metrics = {"evaluated": 1.0}
    with torch.no_grad():
        for other in transfer.others(tuple(config["on"]), trial.data, trial.fold):
            if function is None:
                scores = _protocol(model, other, source, device)
            else:
                scores = function(model, other.dataset, source)
            metrics |= {f"{other.name}/{name}": value for name, value in _checked(scores, config["function"]).items()}
        if function is not None and not config["on"]:
            from contrasweep.data import open_dataset

            name = config["function"].rpartition(":")[2]
            scores = _checked(function(model, open_dataset(trial.data), source), config["function"])
            metrics |= {f"{name}/{metric}": value for metric, value in scores.items()}
    yield Report(1, metrics)


def memory(config: Config, data: Manifest) -> Workload | None:
    """Return what the network took in training, which an evaluation does not exceed; None where it says nothing."""
    hook = getattr(import_path(config["trainable"], kind="trainable"), "memory", None)
    return None if hook is None else hook(config["config"], data)


train.memory = memory  # type: ignore[attr-defined]
train.reads_storage = True  # type: ignore[attr-defined]


def _model(source: Trial, config: Config, storage: str) -> "torch.nn.Module":
    """The network in the checkpoint that the evaluation is of."""
    loader: Callable[[Path, Trial], Any] = importlib.import_module(source.trainable.partition(":")[0]).load_model
    records = StudyRecords(storage, source.study)
    with tempfile.TemporaryDirectory(prefix="contrasweep-") as folder:
        saved = Checkpoints(records.store, records.key(config["source"], "checkpoint")).fetch(Path(folder))
        if saved is None or saved.digest != config["checkpoint"]:
            raise SpecError(
                "the network's checkpoint is deleted or another one by now",
                place=source.study,
                value=config["source"],
                hint="evaluate the study again",
            )
        model: torch.nn.Module = loader(Path(folder), source)
    return model


def _protocol(model: "torch.nn.Module", other: Any, source: Trial, device: "torch.device") -> Mapping[str, float]:
    """Nearest neighbours, linear probe, retrieval and similarities of a network's output on another dataset.

    The same arithmetic as in the trial's own `transfer`, so that both come to the same numbers.
    """
    from contrasweep.trainables import evaluation
    from contrasweep.trainables.contrastive import transfer
    from contrasweep.trainables.images import view_shape

    if source.data.kind != "image":
        raise DataError(f"networks of images are scored, and {source.data.name} holds {source.data.kind}s")
    shape, settings = view_shape(source.data, source.config.get("view_size", 0)), source.config
    rows = min(ROWS, 4 * settings.get("batch_size", ROWS))

    def embed(blocks: Iterator[torch.Tensor]) -> torch.Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=settings.get("autocast", False)):
            chunks = [model(pixels.to(device)) for block in blocks for pixels in torch.split(block, rows)]
        return torch.cat(chunks).float()

    train_rows, test_rows = (embed(transfer.pixels(part, shape)) for part in (other.train, other.test))
    labels = [torch.as_tensor(part.labels).to(device) for part in (other.train, other.test)]
    return evaluation.evaluate(train_rows, labels[0], test_rows, labels[1], other.classes).metrics


def _checked(scores: Any, function: str) -> dict[str, float]:
    """Scores as numbers; `SpecError` where a function gives anything else."""
    if not isinstance(scores, Mapping) or not scores:
        raise SpecError("a function of an evaluation returns {metric: number}", place="--with", value=function)
    return {str(name): float(value) for name, value in scores.items()}
