"""Values that the driver, Ray Tune and the workers exchange: facts of the run, and trials as plain values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypedDict

import ray

from contrasweep.cluster.inventory import Inventory
from contrasweep.data.manifest import Manifest
from contrasweep.imports import import_path
from contrasweep.rows import Row
from contrasweep.storage.attempts import BegunTrial
from contrasweep.storage.checkpoints import Retention
from contrasweep.storage.record import CodeRef, TrialNotes
from contrasweep.study.trainables import as_generator
from contrasweep.trial import Trial

STATUS: Final = "contrasweep_status"
FAULT: Final = "contrasweep_fault"
"""The key of a result that says why no trial of this study may run in this process, which ends the run."""


class PlaceDescription(TypedDict, total=False):
    """What Ray reserves for a trial: resources and node labels, as Ray names them.

    `limit_host_memory`: the trial is kept to its host memory. The description is {} for a trial that only lends its
    settings.
    """

    resources: Mapping[str, float]
    labels: Mapping[str, str]
    limit_host_memory: bool


class TrialDescription(TypedDict):
    """A trial as Tune's config: its id, its place, and the notes and code of its record.

    `no_prior_state`: the storage has nothing of the trial yet, so that its worker need not ask.
    """

    id: str
    place: PlaceDescription
    notes: TrialNotes
    code: CodeRef
    trial: BegunTrial
    no_prior_state: bool


class RayTrial(Protocol):
    """The part of Ray Tune's own account of a trial that is used here; Ray is not typed."""

    config: TrialDescription
    status: str
    max_failures: int
    update_resources: Any


class StepResult(TypedDict, total=False):
    """The answer of a worker to Tune after a step: always `id` and `reports`, other keys where there is news.

    `seconds` are those of training so far. With the trial's end come `done`, its status and its `record` as bytes. The
    last key says why no trial of this study may run in the process.
    """

    id: str
    reports: list[Row]
    seconds: float
    record: bytes
    done: bool
    contrasweep_status: str
    contrasweep_fault: str


@dataclass
class RunContext:
    """What all trials of a run share. Each worker receives it once.

    `study` is its name, `datasets` are by digest, and `retention` says which checkpoints stay. Reports go to the driver
    in chunks of `chunk_s` seconds (0: one by one, where a pruner decides). `functions`, by dotted path, are trainables
    that the study declared as functions; they are unpickled only when they are called, so that a worker sees which
    modules an arm's function imports.
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

    def describe(
        self,
        trial: Trial,
        place: PlaceDescription,
        notes: TrialNotes,
        code: CodeRef,
        *,
        no_prior_state: bool = False,
    ) -> TrialDescription:
        """Return `trial` and its place as Tune's config: small, because Tune often copies it.

        Of the dataset it holds the digest alone, by which `trial` finds it again. `notes` and `code` go into the
        record.
        """
        return {
            "id": trial.id,
            "place": place,
            "notes": notes,
            "code": code,
            "trial": BegunTrial.of(trial),
            "no_prior_state": no_prior_state,
        }

    def trial(self, described: TrialDescription) -> Trial:
        """Return the trial that `describe` described, with its dataset among those of this run."""
        begun = described["trial"]
        fields = {name: value for name, value in vars(begun).items() if name != "id"}
        return Trial(**{**fields, "data": self.datasets[begun.data.digest]})

    def function(self, path: str) -> Callable[..., Any]:
        """Return the trainable at a dotted path, or the function that the study declared in its place.

        It is a generator of reports, whatever form it was declared in. `SpecError` where there is none.
        """
        declared = self.functions.get(path)
        return as_generator(
            ray.cloudpickle.loads(declared) if declared else import_path(path, "trainable")
        )
