"""What all trials of a run have in common, as every worker has it."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import ray

from contrasweep.cluster.inventory import Inventory
from contrasweep.data.manifest import Manifest
from contrasweep.imports import import_path
from contrasweep.running.trial_description import PlaceDescription, TrialDescription, TrialFields
from contrasweep.storage.record import CodeRef, TrialNotes
from contrasweep.trial import Trial


class RunContext:
    """What all trials of a run have in common; sent to every worker once.

    `chunk_s`: reports go to the driver in chunks of this many seconds (0: one by one, where a pruner decides).
    """

    def __init__(
        self,
        storage: str,
        study: str,
        metric: str,
        datasets: Mapping[str, Manifest],
        functions: Mapping[str, Callable[..., Any]],
        chunk_s: float,
        inventory: Inventory,
    ) -> None:
        self.storage, self.study, self.metric, self.inventory = storage, study, metric, inventory
        self.datasets, self.chunk_s = dict(datasets), chunk_s
        # Unpickled when they are called: a process whose trial trains elsewhere must not import what they import.
        self.functions = {path: ray.cloudpickle.dumps(function) for path, function in functions.items()}
        self.run = uuid.uuid4().hex[:8]
        """Names this run among those of one Ray."""

    def describe(
        self, trial: Trial, place: PlaceDescription, notes: TrialNotes, code: CodeRef, *, fresh: bool = False
    ) -> TrialDescription:
        """`trial` and its place as Tune's config: small and plain, because Tune copies and snapshots it often."""
        fields: TrialFields = {
            "arm": trial.arm,
            "trainable": trial.trainable,
            "config": dict(trial.config),
            "fold": trial.fold,
            "seed": trial.seed,
        }
        return {
            "id": trial.id,
            "data": trial.data.digest,
            "place": place,
            "notes": notes.to_dict(),
            "code": asdict(code),
            "trial": fields,
            "fresh": fresh,
        }

    def trial(self, described: TrialDescription) -> Trial:
        """The trial that `describe` described."""
        return Trial(study=self.study, data=self.datasets[described["data"]], **described["trial"])

    def function(self, path: str) -> Callable[..., Any]:
        """The trainable at a dotted path, or the function that the study declared in its place."""
        if path in self.functions:
            function: Callable[..., Any] = ray.cloudpickle.loads(self.functions[path])
            return function
        imported: Callable[..., Any] = import_path(path, "trainable")
        return imported
