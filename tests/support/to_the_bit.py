"""What trainables report, compared to the bit."""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from contrasweep.trial import Report, Trial


class Train(Protocol):
    """A trainable."""

    def __call__(self, trial: Trial, resume: Path | None = None) -> Iterator[Report]: ...


def numbers(reports: Iterable[Report]) -> list[tuple[Any, ...]]:
    """Everything that reports say, in a form that compares to the bit."""
    return [
        (r.step, dict(r.metrics), {k: np.asarray(v).tobytes() for k, v in r.items.items()})
        for r in reports
    ]


def trained_and_resumed(
    train: Train,
    trial: Trial,
    folder: Path,
    again: Trial | None = None,
    steps: Iterable[int] = (1,),
) -> list[Report]:
    """The reports of a trial, which goes on from its checkpoints at these steps as it went on at first.

    `again` is the trial that goes on, where that is not to be `trial` itself. Checkpoints are copied to `folder`/STEP.
    """
    reports = []
    for report in train(trial):
        if report.checkpoint is not None:
            shutil.copytree(report.checkpoint, folder / str(report.step))
        reports.append(report)
    for step in steps:
        assert numbers(train(again or trial, resume=folder / str(step))) == numbers(
            reports[step:]
        ), step
    return reports
