"""A small real trainable for tests of the platform: softmax regression by SGD in numpy, on any image dataset."""

import dataclasses
import os
import signal
import tempfile
import time
from pathlib import Path

import numpy as np

from contrasweep.data import open_dataset
from contrasweep.schema import checked
from contrasweep.trial import Report


@checked
class Settings:
    """`fail_at`: raise after this epoch. `die_at`: the worker process ends there by the signal `die_of`, once per
    `once` file.
    `pause_s`: sleep in each epoch. `wait_at`: wait before this epoch as long as the file `gate` is there.
    `keep_every`: epochs between checkpoints. `log`: a file that gets a line "trial epoch" for each epoch trained."""

    lr: float = 0.1
    epochs: int = 4
    batch_size: int = 32
    fail_at: int = 0
    die_at: int = 0
    die_of: str = "SIGKILL"
    once: str = ""
    pause_s: float = 0.0
    wait_at: int = 0
    gate: str = ""
    keep_every: int = 1
    log: str = ""
    error: str = "RuntimeError"


def train(trial, resume: Path | None = None):
    settings = Settings(**trial.config)
    train_part, test_part = open_dataset(trial.data).parts(trial.fold)
    x = _features(train_part)
    y = train_part.labels
    classes = int(y.max()) + 1
    weights = np.random.default_rng([trial.seed, 7]).normal(0, 0.01, (x.shape[1], classes))
    first = 1
    if resume is not None:
        with np.load(resume / "weights.npz") as saved:
            weights = saved["weights"]
            first = int(saved["epoch"]) + 1
    with tempfile.TemporaryDirectory() as scratch:
        for epoch in range(first, settings.epochs + 1):
            while settings.wait_at == epoch and Path(settings.gate).exists():
                time.sleep(0.05)
            order = np.random.default_rng([trial.seed, epoch]).permutation(len(y))
            for start in range(0, len(y), settings.batch_size):
                rows = order[start : start + settings.batch_size]
                weights -= (
                    settings.lr
                    * x[rows].T
                    @ (_softmax(x[rows] @ weights) - np.eye(classes)[y[rows]])
                    / len(rows)
                )
            time.sleep(settings.pause_s)
            _misbehave(settings, epoch)
            if settings.log:
                with Path(settings.log).open("a") as log:
                    log.write(f"{trial.id} {epoch}\n")
            np.savez(Path(scratch) / "weights.npz", weights=weights, epoch=epoch)
            hits = (_features(test_part) @ weights).argmax(1) == test_part.labels
            kept = Path(scratch) if epoch % settings.keep_every == 0 else None
            yield Report(epoch, {"accuracy": float(hits.mean())}, kept, items={"hits": hits})


train.settings = Settings  # type: ignore[attr-defined]


@checked
class Coarse(Settings):
    """Settings in which 0.1 and 0.12 are one learning rate."""

    def resolve(self, data):
        return dataclasses.replace(self, lr=float(f"{self.lr:.0e}"))


def coarse(trial, resume: Path | None = None):
    yield from train(trial, resume)


coarse.settings = Coarse  # type: ignore[attr-defined]


def _misbehave(settings: Settings, epoch: int) -> None:
    if settings.fail_at == epoch:
        kind = {"RuntimeError": RuntimeError, "MemoryError": MemoryError}[settings.error]
        raise kind("this trial fails on purpose")
    if settings.die_at == epoch and not Path(settings.once).exists():
        Path(settings.once).touch()
        try:
            os.kill(os.getpid(), signal.Signals[settings.die_of])
        except SystemExit:  # as an import does that SIGTERM cuts short
            raise AttributeError("partially initialized module") from None


def _features(part) -> np.ndarray:
    flat = part.array("image").reshape(len(part), -1).astype(np.float64) / 255
    return np.concatenate([flat, np.ones((len(part), 1))], axis=1)


def _softmax(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    return shifted / shifted.sum(1, keepdims=True)
