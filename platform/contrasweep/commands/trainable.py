"""The trainable that runs a command.

What the command is given, in environment variables:

    CONTRASWEEP_TRIAL        the trial as JSON: id, study, arm, config, fold, seed, data (name, digest, uri, classes)
    CONTRASWEEP_METRICS      the file that it appends its metrics to
    CONTRASWEEP_CHECKPOINTS  a folder for its checkpoints
    CONTRASWEEP_RESUME       the folder of the checkpoint to go on from; not set in a first attempt

A command reports one JSON object a line, `{"step": 1, "accuracy": 0.5}`, whose `step` counts up from 1. Besides numbers
a line may have `checkpoint` (the name of a folder in CONTRASWEEP_CHECKPOINTS), `artifacts` (name -> file) and `items`
(name -> one score for each test item).

The command runs in the project's folder. Status 0 ends its trial as done, any other as failed. A trial that is stopped
sends SIGTERM to the command, and SIGKILL half a minute later.
"""

import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from contrasweep.commands import COMMAND, placeholders
from contrasweep.commands.process import Process
from contrasweep.config import MutableConfig
from contrasweep.errors import SpecError
from contrasweep.imports import project_folder
from contrasweep.trial import Report, Trial

POLL_S = 0.2
FILE = "metrics.jsonl"
NO_METRICS = ("step", "checkpoint", "artifacts", "items")


def train(trial: Trial, resume: Path | None = None) -> Generator[Report, None, None]:
    """Run the command of `trial` to its end, with a report for each line of its metrics."""
    command: list[str] = trial.config[COMMAND]
    config = {key: value for key, value in trial.config.items() if key != COMMAND}
    with tempfile.TemporaryDirectory(prefix="contrasweep-") as name:
        folder = Path(name)
        data = _data(trial, folder) if "data" in placeholders.names(command) else None
        own = {"arm": trial.arm, "fold": trial.fold, "seed": trial.seed, "study": trial.study, "trial": trial.id}
        filled = placeholders.filled(command, {**config, **own, "data": str(data)})
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


class MetricsFile:
    """The file that a command appends its metrics to, read as it grows.

    Checkpoints and artifacts with relative paths lie in `folder`.
    """

    def __init__(self, file: Path, folder: Path) -> None:
        self.file, self.folder = file, folder
        self.lines, self._position = 0, 0
        file.touch()

    def reports(self) -> Iterator[Report]:
        """Yield the reports whose lines are complete and were not read yet.

        A report's checkpoint is deleted when the next report is asked for: it is stored by then.
        """
        with self.file.open("rb") as opened:
            opened.seek(self._position)
            new = opened.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._position += len(whole)
        for line in whole.splitlines():
            self.lines += 1
            if line.strip():
                report = self._report(line)
                yield report
                if report.checkpoint is not None:
                    shutil.rmtree(report.checkpoint, ignore_errors=True)

    def _report(self, line: bytes) -> Report:
        try:
            row = json.loads(line, object_pairs_hook=_each_once)
        except ValueError as error:
            raise self._wrong(
                "a line of metrics is a JSON object", line.decode("utf-8", "replace"), str(error)
            ) from None
        if not isinstance(row, dict) or type(row.get("step")) is not int:
            example = 'for example {"step": 1, "accuracy": 0.5}'
            raise self._wrong("a line of metrics is a JSON object with a whole number `step`", row, example)
        metrics = {name: value for name, value in row.items() if name not in NO_METRICS}
        for name, value in metrics.items():
            if not isinstance(value, int | float):
                raise self._wrong(f"the metric {name!r} must be a number", value, "text is not kept")
        artifacts = {name: self._existing(path) for name, path in row.get("artifacts", {}).items()}
        return Report(row["step"], metrics, self._checkpoint(row.get("checkpoint")), row.get("items", {}), artifacts)

    def _checkpoint(self, name: Any) -> Path | None:
        if name is None:
            return None
        folder = self._existing(name)
        if not folder.is_dir() or folder == self.folder:
            hint = "write a folder of its own for each checkpoint into CONTRASWEEP_CHECKPOINTS, and name it"
            raise self._wrong("a checkpoint is a folder", name, hint)
        return folder

    def _existing(self, name: Any) -> Path:
        path = self.folder / str(name)
        if not path.exists():
            raise self._wrong("a line of metrics names a file that is not there", name, f"looked for {path}")
        return path

    def _wrong(self, rule: str, value: object, hint: str) -> SpecError:
        return SpecError(rule, place=f"CONTRASWEEP_METRICS, line {self.lines}", value=value, hint=hint)


def _each_once(members: list[tuple[str, Any]]) -> MutableConfig:
    """Return the members of a JSON object as a mapping. Raises `ValueError` where a key stands twice."""
    if twice := [key for key, count in Counter(key for key, _ in members).items() if count > 1]:
        raise ValueError(f"the key {twice[0]!r} stands twice")
    return dict(members)


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


train.settings = placeholders.CommandSettings  # type: ignore[attr-defined]
