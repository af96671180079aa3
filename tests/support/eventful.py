"""A trainable that trains nothing: what happens to a trial is a setting, and its numbers follow from its settings."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

from contrasweep.schema import checked
from contrasweep.trial import Report


@checked
class Settings:
    """`does` names what happens at the second epoch of the trial of seed `at` of the first fold."""

    lr: float = 0.1
    epochs: int = 3
    does: str = ""
    at: int = 0


def train(trial, resume: Path | None = None):
    settings = Settings(**trial.config)
    attempt = int(trial.folder.name)
    first = 1 if resume is None else int((resume / "epoch").read_text()) + 1
    print(f"attempt {attempt} of seed {trial.seed} begins at epoch {first}")
    for epoch in range(first, settings.epochs + 1):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "epoch").write_text(str(epoch))
            value = _value(trial, settings, epoch)
            metrics = {"accuracy": value, "loss": round(1 - value, 6)}
            if epoch == 2 and settings.does and not trial.fold and trial.seed == settings.at:
                EVENTS[settings.does](trial, metrics, attempt)
            items = {"accuracy": [0.0, 1.0, metrics["accuracy"]]}
            artifacts = {f"notes/{epoch}.txt": Path(folder) / "epoch"}
            yield Report(epoch, metrics, Path(folder), items, artifacts)


train.settings = Settings  # type: ignore[attr-defined]


def _value(trial, settings, epoch):
    """Better at a learning rate of 0.3, with each epoch, and of an arm with a longer name; folds and seeds differ."""
    far = abs(settings.lr - 0.3)
    chance = 0.02 * (trial.fold or 0) + 0.003 * (trial.seed * 7 % 5)
    return round(0.8 - far / 2 - 0.1 / epoch + chance + 0.004 * len(trial.arm), 6)


def _crash(trial, metrics, attempt):
    if attempt == 1:
        os._exit(7)


def _raise(trial, metrics, attempt):
    raise ValueError("https://me:hunter22@example.org/weights is away")


def _raise_once(trial, metrics, attempt):
    if attempt == 1:
        _raise(trial, metrics, attempt)


def _lose(trial, metrics, attempt):
    metrics["accuracy"] = float("nan")


def _warn(trial, metrics, attempt):
    warnings.warn("a layer is not used", stacklevel=1)
    print("on standard error", file=sys.stderr)
    os.write(2, b"below Python\n")
    subprocess.run(["echo", "of a subprocess"], check=True)


def _stop(trial, metrics, attempt):
    """The run is stopped by its own command, and this process ends after it."""
    if attempt > 1:
        return
    study = trial.folder.parents[3]
    lease = max(study.glob("lease/*.json"))
    words = ["-m", "contrasweep", "stop", trial.study, "--storage", str(study.parent)]
    subprocess.run([sys.executable, *words], check=True)
    with contextlib.suppress(FileNotFoundError):  # of the next run
        while '"released": false' in lease.read_text():
            time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGKILL)


EVENTS = {
    "crash": _crash,
    "raise": _raise,
    "raise once": _raise_once,
    "lose": _lose,
    "warn": _warn,
    "stop": _stop,
}
