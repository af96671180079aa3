"""Trials as members of a cohort, and how far their reports are from those alone."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from contrasweep.trainables.fusing.protocol import cohorts_of
from contrasweep.trial import Report, Trial


def fused(
    train: Callable[..., Any], trials: Sequence[Trial], slots: int = 0, engine: str = "grouped"
) -> dict[str, list[Report]]:
    """The reports of trials that all join at once, by id."""
    cohort, reports = cohorts_of(train).open(trials[0], slots or len(trials), engine), {t.id: [] for t in trials}
    for one in trials:
        cohort.join(one, None)
    while cohort.members:
        for event in cohort.advance():
            assert event.error is None, event.error
            if event.report is not None:
                reports[event.trial_id].append(event.report)
    return reports


def differ(one: Sequence[Report], other: Sequence[Report]) -> float:
    """The largest relative difference of two series of reports of one trial; their other content must be equal."""
    largest = 0.0
    for a, b in zip(one, other, strict=True):
        assert a.step == b.step and set(a.metrics) == set(b.metrics) and set(a.items) == set(b.items)
        assert (a.checkpoint is None) == (b.checkpoint is None)
        for name, value in a.metrics.items():
            largest = max(largest, abs(value - b.metrics[name]) / max(abs(value), 1e-3))
    return largest


def kept(report: Report, folder: Path) -> Path:
    """A copy of a report's checkpoint."""
    assert report.checkpoint is not None
    return Path(shutil.copytree(report.checkpoint, folder))


def back_and_forth(train: Callable[..., Any], one: Trial, other: Trial, folder: Path) -> list[Report]:
    """Five reports of `one`: two alone, two beside `other`, which trains already, and the last alone again. The
    checkpoints on its way are kept below `folder`."""
    running = train(one)
    first = [next(running), next(running)]
    checkpoint = kept(first[-1], folder / "alone")
    cohort, then = cohorts_of(train).open(one, 2), []
    cohort.join(other, None)
    cohort.advance()
    cohort.join(one, checkpoint)
    while len(then) < 2:
        then += [event.report for event in cohort.advance() if event.trial_id == one.id]
    checkpoint = kept(then[-1], folder / "fused")
    return [*first, *then, *train(one, checkpoint)]
