"""The trainable of evaluations: it loads the network that another trial has trained, and scores it on more data."""

import tempfile
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

from contrasweep.cluster.memory import Workload
from contrasweep.commands.functions import loader_path
from contrasweep.config import Config
from contrasweep.data.manifest import Manifest
from contrasweep.errors import DataError, SpecError
from contrasweep.imports import import_path
from contrasweep.rows import ItemColumns
from contrasweep.storage.checkpoints import Checkpoints
from contrasweep.storage.record import StartRef
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import EVALUATED
from contrasweep.trainables.pytorch import torch
from contrasweep.trial import Report, Trial

ROWS = 1024
"""Images of a forward pass, at most; four batches of the network's training where these are fewer."""


def train(trial: Trial, resume: Path | None = None, *, storage: str = "") -> Generator[Report]:
    """Evaluate the network of another trial, or of a checkpoint from elsewhere, and yield one report.

    Args:
        trial: The trial of the evaluation. Its config has these keys:

            - `study`, `source`, `trainable`, `config`: the other trial's study, id, trainable and config;
            - `start`: the trial whose checkpoint the other trial started from, if there is one;
            - `trained`, `checkpoint`: when the other trial ended, and the digest of its checkpoint;
            - `on`: the datasets on which the network is scored, each as `name#digest`;
            - `function`: the dotted path of the function that scores it, or "" for our own scores;
            - `file`, of a checkpoint from elsewhere alone: the file that the loader is given ("": the folder). There
              `trainable` is the loader.
        resume: Not used: an evaluation has no checkpoint.
        storage: Where the checkpoint lies.

    Yields:
        A report with `DATASET/METRIC`, `FUNCTION/METRIC`, or with both `DATASET/FUNCTION/METRIC`, and scores of test
        items by the same names.

    Raises:
        SpecError: The checkpoint is deleted, or another one by now; or a function returns no scores.
    """
    from contrasweep.data import open_dataset
    from contrasweep.trainables import seeding
    from contrasweep.trainables.contrastive import transfer

    config = dict(trial.config)
    start = StartRef(**config["start"]) if "start" in config else None
    # The trial whose network is scored, as it was trained: its data and fold are this trial's own.
    source = Trial(
        study=config["study"],
        arm=trial.arm,
        trainable=config["trainable"],
        config=config["config"],
        data=trial.data,
        fold=trial.fold,
        seed=trial.seed,
        start=start,
    )
    device = seeding.prepare_device(
        source.config.get("device", "auto"), source.config.get("threads", 1)
    )
    seeding.reseed(trial.seed, trial.fold, "evaluation")
    model = _model(source, config, storage).to(device).eval()
    # Names of scores begin with those of the dataset and of the function, where there are such.
    path = config["function"]
    function = None
    function_prefix = ""
    if path:
        function = import_path(path, kind="function")
        function_prefix = f"{path.rpartition(':')[2]}/"
    # The metric of a study whose scores come from a user's function, and so may have any names.
    metrics = {EVALUATED: 1.0}
    items: dict[str, object] = {}
    with torch.no_grad():
        others = transfer.open_others(tuple(config["on"]), trial.data, trial.fold)
        # Prefix of the scores' names -> dataset of `on`.
        datasets: dict[str, transfer.OtherDataset | None] = {
            f"{other.name}/{function_prefix}": other for other in others
        }
        # Without `on` a function scores the trial's own dataset (None).
        if not datasets:
            datasets = {function_prefix: None}
        for prefix, other in datasets.items():
            if function is None:
                scored = _protocol(model, other, source, device, from_elsewhere="file" in config)
            else:
                dataset = other.dataset if other else open_dataset(trial.data)
                scored = function(model, dataset, source)
            scores, scores_of_items = _checked(scored, path, alone=len(others) < 2)
            metrics |= {f"{prefix}{name}": value for name, value in scores.items()}
            items |= {f"{prefix}{name}": values for name, values in scores_of_items.items()}
    yield Report(1, metrics, items=items)


def memory(config: Config, data: Manifest) -> Workload | None:
    """Return the memory that the trained network took in training, as its trainable tells; an evaluation takes no more.

    None where the trainable has no function `memory`.
    """
    hook = getattr(import_path(config["trainable"], kind="trainable"), "memory", None)
    return None if hook is None else hook(config["config"], data)


train.memory = memory  # type: ignore[attr-defined]
# A worker gives it the argument `storage`.
train.reads_storage = True  # type: ignore[attr-defined]


def _model(source: Trial, config: Config, storage: str) -> "torch.nn.Module":
    """Return the network that is evaluated, from the checkpoint that `config` names.

    `SpecError` where the checkpoint is not the one that was planned, or its loader returns no module.
    """
    records = StudyRecords(storage, source.study)
    with tempfile.TemporaryDirectory(prefix="contrasweep-") as folder:
        # A checkpoint from elsewhere was copied into the study's storage; another lies with its trial.
        from_elsewhere = "file" in config
        name = config["source"]
        place = (
            records.given_checkpoint_key(name)
            if from_elsewhere
            else records.key(name, "checkpoint")
        )
        saved = Checkpoints(records.store, place).fetch(Path(folder))
        if saved is None or saved.digest != config["checkpoint"]:
            raise SpecError(
                "the network's checkpoint was deleted or replaced",
                place=source.study,
                value=name,
                hint="evaluate the study again",
            )
        if from_elsewhere:
            loaded = import_path(source.trainable, kind="function")(Path(folder, config["file"]))
        else:
            load = import_path(loader_path(source.trainable, source.config), kind="loader")
            loaded = load(Path(folder), source)
    if not isinstance(loaded, torch.nn.Module):
        hint = f"it returned {type(loaded).__name__}"
        raise SpecError(
            "a loader returns a torch.nn.Module", place="--model", value=source.trainable, hint=hint
        )
    return loaded


def _protocol(
    model: "torch.nn.Module",
    other: Any,
    source: Trial,
    device: "torch.device",
    *,
    from_elsewhere: bool,
) -> tuple[Mapping[str, float], ItemColumns]:
    """Score a network's output on another dataset; return metrics, and scores of single test items.

    `other` is a `transfer.OtherDataset`, `source` the trial that trained the network.

    The scores are those of `evaluation.evaluate` by the same arithmetic as in the trial's own `transfer`, so that both
    come to the same numbers. Images are scaled as in training, but not for a network that comes `from_elsewhere`.
    """
    from contrasweep.trainables import evaluation
    from contrasweep.trainables.contrastive import transfer
    from contrasweep.trainables.images import view_shape

    if source.data.kind != "image":
        raise DataError(
            f"networks of images are scored, and {source.data.name} holds {source.data.kind}s"
        )
    settings = source.config
    # The images on which a network from elsewhere was trained are not known here.
    shape = view_shape(
        other.dataset.manifest if from_elsewhere else source.data, settings.get("view_size", 0)
    )
    rows = min(ROWS, 4 * settings.get("batch_size", ROWS))

    def embed(blocks: Iterator[torch.Tensor]) -> torch.Tensor:
        """Return the network's output [n d] for all images of `blocks` [b c h w], some rows at a time."""
        with torch.autocast(device.type, torch.bfloat16, enabled=settings.get("autocast", False)):
            chunks = [
                model(pixels.to(device)) for block in blocks for pixels in torch.split(block, rows)
            ]
        return torch.cat(chunks).float()

    data = transfer.embedded(other, embed, shape)
    if data[0].ndim != 2:
        raise SpecError("a network gives one row of numbers an image", value=tuple(data[0].shape))
    scored = evaluation.evaluate(*data)
    return scored.metrics, scored.items


def _checked(returned: Any, function: str, *, alone: bool) -> tuple[dict[str, float], ItemColumns]:
    """Return the scores and the scores per test item that the function of an evaluation has `returned`.

    A function returns {metric: number}, or a pair of that and {score: values of the items}. `function` is its dotted
    path, "" for our own protocol. Scores of items are kept only if one dataset is scored `alone`: those of several
    datasets have different lengths. `SpecError` where `returned` has neither form, or where a user's function gives
    scores of items for several datasets.
    """
    # A function may return scores alone, or a pair of scores and items.
    scores = returned
    items: ItemColumns = {}
    if isinstance(returned, tuple) and len(returned) == 2:
        scores, items = returned
    if not isinstance(scores, Mapping) or not scores or not isinstance(items, Mapping):
        raise SpecError(
            "a function of an evaluation returns {metric: number}, or that and {score: values of the items}",
            place="--with",
            value=function,
        )
    if items and function and not alone:
        raise SpecError(
            "scores of items are kept of one dataset",
            place="--on",
            value=function,
            hint="evaluate each by itself",
        )
    numbers = {str(name): float(value) for name, value in scores.items()}
    return numbers, dict(items) if alone else {}
