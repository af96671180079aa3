"""The contrastive trainable with a clock: what a recipe costs, beside what it reaches.

    Arm("contrasweep.trainables.contrastive.timed:train", config={"loss": "supcon"})

It trains alone, never in a cohort of fused trials, so that the time is its own.
"""

import time
from collections.abc import Generator
from pathlib import Path

from contrasweep.trainables.contrastive import Settings, memory
from contrasweep.trial import Report, Trial


def train(trial: Trial, resume: Path | None = None) -> Generator[Report, None, None]:
    """Train as `contrastive` does, in one process; each report has `processor_seconds` too.

    They are those of the thread that trains, which is all with `threads: 1` on a CPU, over the epochs of this attempt:
    views, steps and diagnostics, without reading the data and without evaluations. Where cores are shared they vary
    less than the time on the wall.
    """
    from contrasweep.trainables import loop
    from contrasweep.trainables.contrastive.method import Contrastive

    class Timed(Contrastive):
        spent = 0.0

        def epoch(self, epoch: int) -> dict[str, float]:
            began = time.thread_time()
            metrics = super().epoch(epoch)
            self.spent += time.thread_time() - began
            return metrics | {"processor_seconds": self.spent}

    s = Settings(**trial.config)
    method = Timed(trial, s)
    yield from loop.run(method, trial, resume, evaluate_every=s.evaluate_every, checkpoint_every=s.checkpoint_every)


train.settings = Settings  # type: ignore[attr-defined]
train.memory = memory  # type: ignore[attr-defined]
