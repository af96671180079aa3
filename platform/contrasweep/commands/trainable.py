"""The trainable that runs a command. What the command is given, in environment variables:

    CONTRASWEEP_TRIAL        the trial as JSON: id, study, arm, config, fold, seed, data (name, digest, uri, classes)
    CONTRASWEEP_METRICS      the file that it appends its metrics to: see `commands.metrics`
    CONTRASWEEP_CHECKPOINTS  a folder for its checkpoints
    CONTRASWEEP_RESUME       the folder of the checkpoint to go on from; not set in a first attempt

It runs in the project's folder. Status 0 ends its trial as done, any other as failed; a trial that is stopped sends it
SIGTERM, and SIGKILL half a minute later.
"""

import json
import os
import tempfile
from collections.abc import Generator
from pathlib import Path

from contrasweep.commands import COMMAND, words
from contrasweep.commands.metrics import FILE, MetricsFile
from contrasweep.commands.process import Process
from contrasweep.config import MutableConfig
from contrasweep.imports import project_folder
from contrasweep.trial import Report, Trial

POLL_S = 0.2


def train(trial: Trial, resume: Path | None = None) -> Generator[Report, None, None]:
    """Run the command of `trial` to its end; a report for each line of its metrics."""
    command: list[str] = trial.config[COMMAND]
    config = {key: value for key, value in trial.config.items() if key != COMMAND}
    with tempfile.TemporaryDirectory(prefix="contrasweep-") as name:
        folder = Path(name)
        data = _data(trial, folder) if "data" in words.placeholders(command) else None
        own = {"arm": trial.arm, "fold": trial.fold, "seed": trial.seed, "study": trial.study, "trial": trial.id}
        filled = words.filled(command, {**config, **own, "data": str(data)})
        (checkpoints := folder / "checkpoints").mkdir()
        metrics = MetricsFile(folder / FILE, checkpoints)
        environment = {
            **os.environ,
            "CONTRASWEEP_TRIAL": json.dumps(_described(trial, config, data)),
            "CONTRASWEEP_METRICS": str(metrics.file),
            "CONTRASWEEP_CHECKPOINTS": str(checkpoints),
        }
        if resume is not None:
            environment["CONTRASWEEP_RESUME"] = str(resume)
        process = Process(filled, project_folder(command), environment)
        try:
            while not process.ended(POLL_S):
                yield from metrics.reports()
            yield from metrics.reports()
            process.check()
        finally:
            process.stop()


def _data(trial: Trial, folder: Path) -> Path:
    from contrasweep.commands.dataset import export

    return export(trial.data, trial.fold, folder / "data")


def _described(trial: Trial, config: MutableConfig, data: Path | None) -> MutableConfig:
    manifest = trial.data
    about = {"name": manifest.name, "digest": manifest.digest, "uri": manifest.uri, "classes": list(manifest.classes)}
    return {
        "id": trial.id,
        "study": trial.study,
        "arm": trial.arm,
        "config": config,
        "fold": trial.fold,
        "seed": trial.seed,
        "data": about if data is None else {**about, "folder": str(data)},
    }


train.settings = words.CommandSettings  # type: ignore[attr-defined]
