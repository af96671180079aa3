"""Logs a trained module with its trial's run. Trainables know nothing of MLflow: a loader beside them gives it."""

import importlib
import logging
import re
from pathlib import Path
from typing import Any

from contrasweep.commands.functions import loader_path
from contrasweep.live.state import replicate_of
from contrasweep.storage.record import Record
from contrasweep.tracking.mlflow.address import TrackingAddress
from contrasweep.tracking.mlflow.client import translate_errors
from contrasweep.tracking.mlflow.description import MAX_NAME_CHARACTERS
from contrasweep.tracking.mlflow.server import MODEL_TAG, Server
from contrasweep.trial import Trial


def load_checkpoint(trial: Trial, folder: Path) -> Any | None:
    """Return the network in a checkpoint, for MLflow: what the trainable's `load_model(folder, trial)` returns.

    `folder` has the checkpoint's files. The function stands in the module of the trainable. None where there is none.
    """
    module, _, name = loader_path(trial.trainable, trial.config).partition(":")
    loader = getattr(importlib.import_module(module), name, None)
    return None if loader is None else loader(folder, trial)


def log_model(server: Server, record: Record, module: Any, step: int) -> None:
    """Log `module`, as it was after `step`, as the model of a trial's run.

    Nothing is done where the trial has no run, or its run has the model of that step already. The model's name has the
    study, arm, axes and seed. The module is pickled by reference to its class, so whoever loads it needs the package of
    that class.
    """
    run = server.find(record.trial_id)
    if run is None or run.tags.get(MODEL_TAG) == str(step):
        return
    # MLflow refuses these signs in a name.
    name = f"{server.study.name} {replicate_of(record, server.study.axes)}"[:MAX_NAME_CHARACTERS]
    name = re.sub(r"[/:.%\"']", "_", name)
    entry = server.client.create_logged_model(server.experiment_id, name, run.run_id)
    translate_errors(_save, server.uri, module, entry.model_id, run.run_id, step)
    server.log(run, tags={MODEL_TAG: str(step)})


def _save(uri: TrackingAddress, module: Any, model_id: str, run_id: str, step: int) -> None:
    """Write `module` to MLflow's store `uri` as the model `model_id` of the run `run_id`, with its `step`.

    MLflow always writes to the store that is set for the process, so `uri` is set during the call.
    """
    import mlflow.pytorch
    import torch

    # MLflow warns of pickle, which is the choice made here.
    logging.getLogger("mlflow.pytorch").setLevel(logging.ERROR)
    # The requirements are stated here. Else MLflow would find them out by loading the model in another process.
    needs = [f"torch=={torch.__version__.split('+')[0]}"]
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(uri)  # `log_model` writes to the process's current store
    try:
        mlflow.pytorch.log_model(
            module,
            model_id=model_id,
            run_id=run_id,
            step=step,
            serialization_format="pickle",
            pip_requirements=needs,
        )
    finally:
        mlflow.set_tracking_uri(before)
