"""The contrastive trainable with a clock: what a recipe costs, beside what it reaches.

Arm("contrasweep.trainables.contrastive.timed:train", config={"loss": "supcon"})
"""

import time
from collections.abc import Generator
from pathlib import Path

from contrasweep.errors import SpecError
from contrasweep.schema import checked
from contrasweep.trainables import checkpoint, contrastive
from contrasweep.trainables.contrastive import load_model, memory
from contrasweep.trial import Report, Trial

__all__ = ["load_model", "train"]


@checked
class Settings(contrastive.Settings):
    """Settings of a contrastive trial in one process."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resources.size > 1:
            rule = "the clock is that of one process"
            raise SpecError(rule, place="resources", value=self.resources.size)


class Clock(checkpoint.Attributes):
    """The processor seconds of a training so far; a checkpoint saves them, so that a resumed trial counts on."""

    seconds = 0.0


def train(trial: Trial, resume: Path | None = None) -> Generator[Report]:
    """Train as `contrastive` does, in one process; each report has `processor_seconds` too.

    These are the processor seconds of the training thread over all epochs so far. They include views, steps and
    diagnostics, but neither the reading of the data nor evaluations. With `threads: 1` on a CPU there is no other
    thread. Where trials share cores, they vary less than the elapsed time does.
    """
    from contrasweep.trainables.contrastive.method import Contrastive

    # Defined here, since a plan reads this module without importing PyTorch, which `Contrastive` needs.
    class Timed(Contrastive):
        clock = Clock()

        @property
        def parts(self) -> checkpoint.Parts:
            return {**super().parts, "clock": self.clock}

        def epoch(self, epoch: int) -> dict[str, float]:
            began = time.thread_time()
            metrics = super().epoch(epoch)
            self.clock.seconds += time.thread_time() - began
            return metrics | {"processor_seconds": self.clock.seconds}

    yield from Timed(trial, Settings(**trial.config)).reports(resume)


train.settings = Settings  # type: ignore[attr-defined]
train.memory = memory  # type: ignore[attr-defined]
# A trial that starts from another's checkpoint has its encoder.
train.start_settings = ("encoder",)  # type: ignore[attr-defined]
