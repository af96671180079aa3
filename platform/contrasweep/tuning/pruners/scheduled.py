"""Training under a schedule of settings, as population based training finds them: a trainable around a trainable.

A schedule is a config like any other, so a trial says by its id what it trained with at which step, and replaying
one on another seed is a trial too.
"""

import contextlib
import dataclasses
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

from contrasweep import canonical
from contrasweep.config import Config, MutableConfig
from contrasweep.data.manifest import Manifest
from contrasweep.errors import SpecError
from contrasweep.imports import import_path
from contrasweep.schema import checked
from contrasweep.study.trainables import resolved
from contrasweep.trial import Report, Trial

PATH = "contrasweep.tuning.pruners.scheduled:train"
STEP = "scheduled_step"


@checked
class Settings:
    """Settings of a schedule: `trainable` (a dotted path) is trained up to the step `until`.

    Each entry of `schedule` is the step after which its settings hold, from 0, and all the settings.
    """

    trainable: str
    schedule: list[tuple[int, MutableConfig]]
    until: int

    def resolve(self, data: Manifest) -> "Settings":
        """Return each entry with all its settings, resolved for `data`."""
        function = import_path(self.trainable, "trainable")
        entries = [(step, dict(resolved(function, canonical.Config(config), data))) for step, config in self.schedule]
        return dataclasses.replace(self, schedule=entries)

    def segments(self, done: int) -> Iterator[tuple[int, MutableConfig]]:
        """Return (last step, settings) of each segment after the step `done`."""
        ends = [first for first, _ in self.schedule[1:]] + [self.until]
        yield from ((end, config) for end, (_, config) in zip(ends, self.schedule, strict=True) if end > done)


def last_settings(config: Config) -> Config:
    """Return the settings at the end of a schedule; another config is returned unchanged."""
    return config["schedule"][-1][1] if {"trainable", "schedule", "until"} == set(config) else config


def train(trial: Trial, resume: Path | None = None) -> Generator[Report, None, None]:
    """Train the schedule. Where the settings change, the next ones go on from the checkpoint of that step."""
    settings = Settings(**trial.config)
    function = import_path(settings.trainable, "trainable")
    done = int((resume / STEP).read_text()) if resume else 0
    with tempfile.TemporaryDirectory(prefix="contrasweep-") as scratch:
        for end, config in settings.segments(done):
            part = dataclasses.replace(trial, trainable=settings.trainable, config=config)
            with contextlib.closing(function(part, resume=resume)) as reports:
                for report in reports:
                    if report.checkpoint is not None:
                        (report.checkpoint / STEP).write_text(str(report.step))
                    elif report.step >= end:
                        raise SpecError(
                            "settings change only where there is a checkpoint",
                            place="pruner_options.interval",
                            value=report.step,
                            hint="let the trainable's checkpoints and evaluations divide it",
                        )
                    yield report
                    if report.step >= end:
                        resume = Path(shutil.copytree(report.checkpoint or scratch, Path(scratch) / str(end)))
                        break


train.settings = Settings  # type: ignore[attr-defined]
