"""What trainables report: to the bit after a resumption, and about as it was when `trained.json` was written."""

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
import torch

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


STORED = Path(__file__).parents[1] / "trainables/trained.json"
NOT_STORED = re.compile(r".*(_s|seconds)|f1_class_.*")
SCORES = re.compile(r".*(accuracy|f1|knn|map|mrr|ndcg|recall|spearman|zero_shot).*")


def as_before(reports: list[Report]) -> None:
    """The metrics of a test's reports are about those that it had when `STORED` was written, on any machine.

    After a wanted change, `CONTRASWEEP_WRITE=1 pytest -n 0 tests/trainables` writes the file anew: read its diff.
    """
    test = os.environ["PYTEST_CURRENT_TEST"].removeprefix("tests/trainables/")
    values = [
        {k: float(f"{v:.4g}") for k, v in r.metrics.items() if not NOT_STORED.fullmatch(k)}
        for r in reports
    ]
    stored = json.loads(STORED.read_text())
    if os.environ.get("CONTRASWEEP_WRITE"):
        stored[test] = values
        lines = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(stored.items()))
        STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    for now, then in zip(values, stored[test], strict=True):
        assert now.keys() == then.keys()
        for name, value in then.items():
            # Of few test items one more or less may be right.
            wanted = pytest.approx(value, abs=0.12 if SCORES.fullmatch(name) else 0.003, rel=0.01)
            assert now[name] == wanted, f"{name}: see `as_before`"


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
    seeds = []
    for report in train(trial):
        seeds.append(torch.initial_seed())
        if report.checkpoint is not None:
            shutil.copytree(report.checkpoint, folder / str(report.step))
        reports.append(report)
    as_before(reports)
    assert len({*seeds}) == len(reports), "each part of training draws its own random numbers"
    for step in steps:
        assert numbers(train(again or trial, resume=folder / str(step))) == numbers(
            reports[step:]
        ), step
    return reports
