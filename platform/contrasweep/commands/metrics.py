"""What a command reports: one JSON object a line, `{"step": 1, "accuracy": 0.5}`, in the file CONTRASWEEP_METRICS.

`step` counts up from 1. Besides numbers a line may have `checkpoint` (the name of a folder in CONTRASWEEP_CHECKPOINTS),
`artifacts` (name -> file) and `items` (name -> one score for each test item).
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from contrasweep.errors import SpecError
from contrasweep.trial import Report

FILE = "metrics.jsonl"
NO_METRICS = ("step", "checkpoint", "artifacts", "items")


class MetricsFile:
    """Reads the lines of a file as they are added; `folder` is where checkpoints and artifacts with relative paths
    lie."""

    def __init__(self, file: Path, folder: Path) -> None:
        self.file, self.folder = file, folder
        self.lines, self._position = 0, 0
        file.touch()

    def reports(self) -> Iterator[Report]:
        """The reports whose lines are complete and were not read yet. A report's checkpoint is deleted when the next
        report is asked for: it is stored by then."""
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
            row = json.loads(line)
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
