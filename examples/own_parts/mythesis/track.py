"""A tracker."""

import json
from pathlib import Path


class Lines:
    """A tracker: a line of JSON for each call."""

    def __init__(self, study):  # .name, .metric, .mode, .axes, .trials, .storage
        self.file = Path(f"{study.name}.jsonl").open("a")  # noqa: SIM115 until `close`

    def start(self, trial):  # a contrasweep.Trial
        self._write(event="start", trial=trial.id, arm=trial.arm, config=trial.config)

    def report(self, trial_id, step, metrics, time):
        self._write(event="report", trial=trial_id, step=step, **metrics)

    def finish(self, record):  # .trial_id, .status, .metrics, .error
        self._write(event="finish", trial=record.trial_id, status=record.status)

    def close(self, timeout_s=30.0):
        self.file.close()

    def _write(self, **line):
        self.file.write(json.dumps(line) + "\n")
