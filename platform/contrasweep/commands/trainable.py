"""The trainable that runs a command.

What the command is given, in environment variables, and where it names them as placeholders:

    CONTRASWEEP_TRIAL                       the trial as JSON: id, study, arm, config, fold, seed, data (name, digest,
                                            uri, classes)
    CONTRASWEEP_METRICS      {metrics}      the file that it may append its metrics to
    CONTRASWEEP_CHECKPOINTS  {checkpoints}  a folder for its checkpoints
    CONTRASWEEP_RESUME       {resume}       the folder of the checkpoint to go on from; not there in a first attempt
    CONTRASWEEP_FOLDER       {folder}       the trial's own folder, empty as the command starts

A line of metrics is a JSON object, `{"step": 1, "accuracy": 0.5}`. Besides numbers it may have `checkpoint` (the name
of a folder in CONTRASWEEP_CHECKPOINTS), `artifacts` (name -> file) and `items` (name -> a score for each test item).
Without such lines, metrics are read from its output and its files: `commands.metrics`.

The command runs in the trial's own folder; in the project's where it names `{folder}`. Status 0 ends its trial as done,
any other as failed. A trial that is stopped sends SIGTERM to the command, and SIGKILL half a minute later to all that
it has started.
"""

import json
import os
import tempfile
from collections.abc import Collection, Generator, Mapping
from pathlib import Path

from contrasweep.commands import COMMAND, OPTIONS, placeholders
from contrasweep.commands.metrics import Metrics
from contrasweep.commands.process import Process
from contrasweep.config import MutableConfig
from contrasweep.imports import project_folder
from contrasweep.trial import Report, Trial

POLL_S = 0.2


def train(trial: Trial, resume: Path | None = None) -> Generator[Report, None, None]:
    """Run the command of `trial` to its end, with a report for each row of its metrics."""
    command: list[str] = trial.config[COMMAND]
    options = placeholders.Options(**trial.config.get(OPTIONS, {}))
    config = {key: value for key, value in trial.config.items() if key not in (COMMAND, OPTIONS)}
    named = placeholders.fields(command)
    with tempfile.TemporaryDirectory(prefix="contrasweep-") as name:
        scratch = Path(name)
        folder = trial.folder or scratch / "folder"
        checkpoints = scratch / "checkpoints"
        for place in (folder, checkpoints):
            place.mkdir(parents=True, exist_ok=True)
        data = _data(trial, scratch, named)
        file = scratch / "metrics.jsonl"
        metrics = Metrics(options.metrics, folder, file, checkpoints)
        paths = {"metrics": file, "checkpoints": checkpoints, "resume": resume, "folder": folder}
        given = {key: None if path is None else str(path) for key, path in paths.items()}
        own = {"arm": trial.arm, "fold": trial.fold, "seed": trial.seed, "study": trial.study, "trial": trial.id}
        settings = _settings(config, scratch) if {"config", "config:yaml"} & set(named) else {}
        home = project_folder(command)
        in_project = "folder" in named
        values = {**own, **given, **settings, **data}
        words = placeholders.filled(command, config, values, options.names, None if in_project else home)
        environment = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",  # a pattern is looked for in each line as it is printed
            "PYTHONPATH": os.pathsep.join(filter(None, [str(home), os.environ.get("PYTHONPATH")])),
            "CONTRASWEEP_TRIAL": json.dumps(_described(trial, config, data)),
            **{f"CONTRASWEEP_{key.upper()}": path for key, path in given.items() if path is not None},
        }
        process = Process(words, home if in_project else folder, environment, keeps_lines=bool(metrics.patterns))
        try:
            while not process.ended(POLL_S):
                yield from metrics.reports(process.output())
            ended_well = process.returncode == 0
            yield from metrics.reports(process.output(), ended=ended_well)
            process.check()
        finally:
            process.stop()


def _settings(config: MutableConfig, folder: Path) -> dict[str, str]:
    """Write the settings to files, and return their paths by placeholder."""
    import yaml

    (as_json := folder / "config.json").write_text(json.dumps(config, indent=1))
    (as_yaml := folder / "config.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(config)), sort_keys=False))
    return {"config": str(as_json), "config:yaml": str(as_yaml)}


def _data(trial: Trial, folder: Path, named: Collection[str]) -> dict[str, str]:
    """Write the parts of the data in the forms that are `named`, and return their folders by placeholder."""
    from contrasweep.commands import dataset

    forms = {"data": dataset.export, "data:images": dataset.export_images}
    wanted = {name: export for name, export in forms.items() if name in named}
    return {name: str(export(trial.data, trial.fold, folder / name)) for name, export in wanted.items()}


def _described(trial: Trial, config: MutableConfig, data: Mapping[str, str]) -> MutableConfig:
    manifest = trial.data
    about = {"name": manifest.name, "digest": manifest.digest, "uri": manifest.uri, "classes": list(manifest.classes)}
    return {
        "id": trial.id,
        "study": trial.study,
        "arm": trial.arm,
        "config": config,
        "fold": trial.fold,
        "seed": trial.seed,
        "data": {**about, **({"folder": folder} if (folder := next(iter(data.values()), "")) else {})},
    }


train.settings = placeholders.CommandSettings  # type: ignore[attr-defined]
