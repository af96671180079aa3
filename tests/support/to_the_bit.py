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
    return [(r.step, dict(r.metrics), {k: np.asarray(v).tobytes() for k, v in r.items.items()}) for r in reports]


def trained_and_resumed(train: Train, trial: Trial, folder: Path, again: Trial | None = None) -> list[Report]:
    """The reports of a trial, which goes on from its first checkpoint, copied to `folder`, as it went on at first.

    `again` is the trial that goes on, where that is not to be `trial` itself.
    """
    running = train(trial)
    first = next(running)
    assert first.checkpoint is not None
    saved = Path(shutil.copytree(first.checkpoint, folder / "saved"))
    reports = [first, *running]
    assert numbers(train(again or trial, resume=saved)) == numbers(reports[1:])
    return reports
