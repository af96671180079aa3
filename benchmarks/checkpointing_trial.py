"""A trial that leaves a checkpoint and a score of each test item with every report, on almost no processor."""

import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import numpy as np

from contrasweep.schema import checked
from contrasweep.trial import Report, Trial


@checked
class Settings:
    """`steps` reports, `step_s` seconds apart, a checkpoint of `kib` KiB with each `every`-th; 0: none. `lr` is there
    to be varied."""

    lr: float = 0.1
    steps: int = 12
    step_s: float = 0.1
    every: int = 1
    kib: int = 256
    items: int = 100


def train(trial: Trial, resume: Path | None = None) -> Generator[Report, None, None]:
    """A walk whose every step follows from the last one's state, so that what is resumed wrongly ends elsewhere."""
    settings = Settings(**trial.config)
    state, done = np.random.default_rng(trial.seed).normal(size=128 * settings.kib), 0
    if resume is not None:
        with np.load(resume / "state.npz") as saved:
            state, done = saved["state"], int(saved["step"])
    with tempfile.TemporaryDirectory() as scratch:
        for step in range(done + 1, settings.steps + 1):
            time.sleep(settings.step_s)
            state = np.cos(state + settings.lr)
            kept = bool(settings.every) and step % settings.every == 0
            if kept:
                np.savez(Path(scratch) / "state.npz", state=state, step=step)
            hits = np.resize(state, settings.items) > 0
            metrics = {"accuracy": float(hits.mean()), "loss": float(abs(state.mean()))}
            yield Report(step, metrics, Path(scratch) if kept else None, items={"hits": hits})


train.settings = Settings  # type: ignore[attr-defined]
