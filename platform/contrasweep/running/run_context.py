"""Values that the driver, Ray Tune and the workers exchange: facts of the run, and trials as plain values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypedDict

import ray

from contrasweep.cluster.inventory import Inventory
from contrasweep.data.manifest import Manifest
from contrasweep.imports import import_path
from contrasweep.rows import Row
from contrasweep.storage.checkpoints import Retention
from contrasweep.storage.record import CodeRef, Record, TrialNotes
from contrasweep.study.trainables import as_generator
from contrasweep.trial import Trial

FAULT: Final = "contrasweep_fault"
"""The key of a result that says why no trial of this study may run in this process, which ends the run."""


class PlaceDescription(TypedDict):
    """What Ray reserves for a trial: `resources`, name -> amount, and the `labels` that the node must have.

    The names are Ray's own, such as `CPU` and `memory`. `limit_host_memory` says whether the trial may use no more host
    memory than was reserved.
    """

    resources: Mapping[str, float]
    labels: Mapping[str, str]
    limit_host_memory: bool


class TrialDescription(TypedDict):
    """A trial as Tune's config: its id, its place, and the notes and code of its record.

    `trial` is a pending record, which has the trial's settings. It has only the digest of the dataset, by which
    `RunContext.trial` finds the dataset.
    """

    id: str
    place: PlaceDescription
    notes: TrialNotes
    code: CodeRef
    trial: Record


class RayTrial(Protocol):
    """The attributes of Ray Tune's own trial object that are used here; Ray has no types for them."""

    config: TrialDescription
    status: str
    max_failures: int
    update_resources: Any


class StepResult(TypedDict, total=False):
    """What a worker returns to Tune after each step: the trial's `id` and its new `reports`, and perhaps more.

    `seconds` is the training time so far. At the trial's end, `done` is true, and `record` has the record as bytes.
    `FAULT` is a text that says why this process can run no trial of the study.
    """

    id: str
    reports: list[Row]
    seconds: float
    record: bytes
    done: bool
    contrasweep_fault: str


@dataclass
class RunContext:
    """What all trials of a run share. Each worker receives it once.

    Attributes:
        storage: The address of the storage.
        study: The name of the study.
        metric: The study's metric.
        datasets: The datasets by digest.
        functions: The trainables that the study declared as functions, by dotted path, pickled. A worker unpickles one
            when its trial begins, so that it sees what the imports of this function change in the process.
        chunk_s: Reports go to the driver in chunks of so many seconds; 0: one by one, because a pruner decides on each.
        inventory: The hosts.
        retention: Which checkpoints stay.
    """

    storage: str
    study: str
    metric: str
    datasets: Mapping[str, Manifest]
    functions: Mapping[str, object]
    chunk_s: float
    inventory: Inventory
    retention: Retention

    def __post_init__(self) -> None:
        self.functions = {
            path: ray.cloudpickle.dumps(function) for path, function in self.functions.items()
        }

    def trial(self, described: TrialDescription) -> Trial:
        """Return the trial that `described` describes, with its dataset, which is one of `datasets`."""
        pending = described["trial"]
        return Trial.of(pending, self.datasets[pending.data.digest])

    def function(self, path: str) -> Callable[..., Any]:
        """Return the trainable with this dotted path, as a function that yields reports.

        It is imported, unless the study declared it as a function. Raises `SpecError` where there is no trainable at
        the path.
        """
        pickled = self.functions.get(path)
        if pickled:
            return as_generator(ray.cloudpickle.loads(pickled))
        return as_generator(import_path(path, "trainable"))
