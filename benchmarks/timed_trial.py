"""A trial that takes a given time on almost no processor, and logs where it was and with which share of which GPU."""

import json
import os
import time
from collections.abc import Generator
from pathlib import Path

import ray

from cluster.inventory import ACCELERATOR_LABEL
from contrasweep.schema import checked
from contrasweep.trial import Report, Trial


@checked
class Settings:
    """`seconds` in so many equal `steps`; `log`: a file that all nodes can append lines to."""

    log: str
    seconds: float = 1.0
    steps: int = 2


def train(trial: Trial, resume: Path | None = None) -> Generator[Report, None, None]:
    """Wait step by step; the metric is a function of seed and step, so that a run can be checked against it."""
    settings = Settings(**trial.config)
    context = ray.get_runtime_context()
    where = {
        "trial": trial.id,
        "arm": trial.arm,
        "pid": os.getpid(),
        "node": context.get_node_id(),
        "type": context.get_node_labels().get(ACCELERATOR_LABEL),
        "gpus": context.get_accelerator_ids()["GPU"],
        "share": context.get_assigned_resources().get("GPU", 0.0),
    }
    _append(settings.log, where | {"what": "begin", "time": time.time()})
    for step in range(1, settings.steps + 1):
        time.sleep(settings.seconds / settings.steps)
        yield Report(step, {"accuracy": accuracy(trial.seed, step)})
    _append(settings.log, where | {"what": "end", "time": time.time()})


def accuracy(seed: int, step: int) -> float:
    """What a trial reports."""
    return 1.0 - 1.0 / (step + 1 + seed % 7)


train.settings = Settings  # type: ignore[attr-defined]


def _append(path: str, line: dict[str, object]) -> None:
    with Path(path).open("a") as log:  # one short write, which the system does not mix with others
        log.write(json.dumps(line) + "\n")
