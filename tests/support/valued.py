"""A trainable that trains nothing: its value follows from its settings, and files say what it waits for."""

import hashlib
import os
import signal
import tempfile
import time
from pathlib import Path

from contrasweep.schema import checked
from contrasweep.trial import Report


@checked
class Settings:
    """`gate`: a trial waits before its first report as long as this file is there. `metric`: what it reports.
    `driver`: a file with the id of a process. A trial whose first value is not among the better half so far, which ASHA
    with `reduction: 2` stops, removes the file and stops that process (SIGSTOP) just before it reports."""

    lr: float = 0.1
    epochs: int = 1
    gate: str = ""
    metric: str = "accuracy"
    driver: str = ""


def train(trial, resume: Path | None = None):
    settings = Settings(**trial.config)
    while settings.gate and Path(settings.gate).exists():
        time.sleep(0.02)
    noise = int(hashlib.sha256(trial.id.encode()).hexdigest()[:8], 16) / 2**32
    value = 1 / (1 + abs(settings.lr - 0.3)) + 0.05 * noise
    first = 1 if resume is None else int((resume / "step").read_text()) + 1
    for step in range(first, settings.epochs + 1):
        if settings.driver and step == 1:
            _stop_driver(Path(settings.driver), value)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "step").write_text(str(step))
            yield Report(step, {settings.metric: value + 0.001 * step}, Path(folder))


train.settings = Settings  # type: ignore[attr-defined]


def _stop_driver(process: Path, value: float) -> None:
    seen = process.with_suffix(".values")
    with seen.open("a") as file:
        file.write(f"{value}\n")
    values = sorted(map(float, seen.read_text().split()), reverse=True)
    if len(values) > 1 and value < values[len(values) // 2 - 1] and process.exists():
        number = int(process.read_text())
        process.unlink()
        os.kill(number, signal.SIGSTOP)
