"""The one adapter from a trainable generator to Ray Tune. Its actors are reused, so torch is imported once."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from ray import tune

from cluster.inventory import Inventory
from contrasweep.data.manifest import Manifest
from contrasweep.imports import import_path
from contrasweep.running.assigned_resources import AssignedResources
from contrasweep.running.execution import Execution
from contrasweep.running.study_code import OtherCodeHere, checked_packages
from contrasweep.storage.record import CodeRef, Status, TrialNotes
from contrasweep.storage.records import StudyRecords
from contrasweep.trial import Trial

STATUS = "contrasweep_status"
FAULT = "contrasweep_fault"
"""In a result: why no trial of this study may run in this process, which ends the run."""


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
        self.datasets, self.functions, self.chunk_s = dict(datasets), dict(functions), chunk_s

    def describe(self, trial: Trial, place: Mapping[str, Any], notes: TrialNotes, code: CodeRef) -> dict[str, Any]:
        """`trial` and its place as Tune's config: small and plain, because Tune copies and snapshots it often."""
        fields = {
            "arm": trial.arm,
            "trainable": trial.trainable,
            "config": dict(trial.config),
            "fold": trial.fold,
            "seed": trial.seed,
        }
        plain = {"place": place, "notes": notes.to_dict(), "code": asdict(code), "trial": fields}
        return {"id": trial.id, "data": trial.data.digest, **plain}

    def trial(self, described: Mapping[str, Any]) -> Trial:
        """The trial that `describe` described."""
        return Trial(study=self.study, data=self.datasets[described["data"]], **described["trial"])

    def function(self, path: str) -> Callable[..., Any]:
        """The trainable at a dotted path, or the function that the study declared in its place."""
        return self.functions.get(path) or import_path(path, "trainable")


class TuneTrial(tune.Trainable):  # type: ignore[misc]  # Ray is not typed
    """Steps an `Execution`. Failures of the trainable end in a record, so Tune sees only faults of the machine."""

    def setup(self, config: dict[str, Any], context: RunContext | None = None) -> None:
        """A new actor, with its first trial."""
        if context is None:
            raise ValueError("TuneTrial is started with its RunContext")
        self.context = context
        self.execution: Execution | None = None
        self.cuda_failed = False
        self.described = config
        self.records = StudyRecords(context.storage, context.study)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """The next trial in this actor; False if the process cannot take one."""
        self._drop()
        self.described = new_config
        return not self.cuda_failed

    def step(self) -> dict[str, Any]:
        """Train on; the new reports, and the last result once the trial has its record."""
        if (recorded := self._recorded_already()) is not None:
            return recorded
        try:
            execution = self.execution or self._begin()
        except OtherCodeHere as error:
            return {"id": self.described["id"], "reports": [], FAULT: str(error)}
        stepped = execution.advance(self.context.chunk_s)
        result: dict[str, Any] = {"id": self.described["id"], "reports": stepped.reports, "seconds": execution.seconds}
        if (value := _last(stepped.reports, self.context.metric)) is not None:
            result[self.context.metric] = value
        if stepped.record is not None:
            result |= {"done": True, STATUS: stepped.record.status}
            # An error of CUDA leaves the process unusable for the next trial.
            self.cuda_failed = stepped.record.status == Status.FAILED and "CUDA" in (stepped.record.error or "")
        return result

    def cleanup(self) -> None:
        """The actor ends."""
        self._drop()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing of Tune's: our own checkpoints lie in the storage and `_begin` finds the newest."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """See `save_checkpoint`."""

    def _begin(self) -> Execution:
        trial = self.context.trial(self.described)
        code = CodeRef.from_dict(self.described["code"])
        packages = checked_packages(self.context.storage, self.context.study, code.digest)
        resources = AssignedResources.here(self.context.inventory)
        self.execution = Execution(
            trial,
            self.context.function(trial.trainable),
            self.records,
            metric=self.context.metric,
            notes=TrialNotes.from_dict(self.described["notes"]).joined(resources.notes),
            code=code,
            packages=packages,
            limits=resources.limits(host_memory=self.described["place"]["limit_host_memory"]),
        )
        return self.execution

    def _recorded_already(self) -> dict[str, Any] | None:
        """The last result of a trial whose worker died between writing the record and reporting it."""
        if self.execution is not None or (record := self.records.read_one(self.described["id"])) is None:
            return None
        return {"id": record.trial_id, "reports": [], "done": True, STATUS: record.status}

    def _drop(self) -> None:
        if self.execution is not None and not self.execution.finished:
            self.execution.close()
        self.execution = None


def _last(reports: list[dict[str, Any]], metric: str) -> float | None:
    return next((row[metric] for row in reversed(reports) if metric in row), None)
