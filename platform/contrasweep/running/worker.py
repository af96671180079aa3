"""The one adapter from a trainable generator to Ray Tune. Its actors are reused, so torch is imported once."""

from collections.abc import Callable, Mapping
from typing import Any

from ray import tune

from cluster.inventory import Inventory
from contrasweep.data.manifest import Manifest
from contrasweep.imports import import_path
from contrasweep.running.execution import Execution
from contrasweep.running.held import Held
from contrasweep.storage.record import Status, TrialNotes
from contrasweep.storage.records import StudyRecords
from contrasweep.trial import Trial

STATUS = "contrasweep_status"


class Job:
    """What all trials of a run have in common; goes to every worker once."""

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

    def describe(self, trial: Trial, place: Mapping[str, Any], notes: TrialNotes) -> dict[str, Any]:
        """`trial` and its place as Tune's config: small and plain, because Tune copies and snapshots it often."""
        fields = {
            "arm": trial.arm,
            "trainable": trial.trainable,
            "config": dict(trial.config),
            "fold": trial.fold,
            "seed": trial.seed,
        }
        return {"id": trial.id, "data": trial.data.digest, "place": place, "notes": notes.to_dict(), "trial": fields}

    def trial(self, described: Mapping[str, Any]) -> Trial:
        """The trial that `describe` described."""
        return Trial(study=self.study, data=self.datasets[described["data"]], **described["trial"])

    def function(self, path: str) -> Callable[..., Any]:
        return self.functions.get(path) or import_path(path, "trainable")


class TuneTrial(tune.Trainable):  # type: ignore[misc]  # Ray is not typed
    """Steps an `Execution`. Reports go to the driver in chunks of `chunk_s` seconds (0: one by one, where a
    scheduler decides); failures of the trainable end in a record, so Tune sees only faults of the machine."""

    def setup(self, config: dict[str, Any], job: Job | None = None) -> None:
        if job is None:
            raise ValueError("TuneTrial is started with its Job")
        self.job = job
        self.execution: Execution | None = None
        self.poisoned = False
        self.described = config
        self.records = StudyRecords(job.storage, job.study)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._drop()
        self.described = new_config
        return not self.poisoned

    def step(self) -> dict[str, Any]:
        if (known := self._finished_elsewhere()) is not None:
            return known
        execution = self.execution or self._begin()
        progress = execution.advance(self.job.chunk_s)
        result: dict[str, Any] = {"id": self.described["id"], "reports": progress.reports, "seconds": execution.seconds}
        if (value := _last(progress.reports, self.job.metric)) is not None:
            result[self.job.metric] = value
        if progress.record is not None:
            result |= {"done": True, STATUS: progress.record.status}
            # An error in CUDA leaves the process unusable for the next trial.
            self.poisoned = progress.record.status == Status.FAILED and "CUDA" in (progress.record.error or "")
        return result

    def cleanup(self) -> None:
        self._drop()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing of Tune's: our own checkpoints lie in the storage and `_begin` finds the newest."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """See `save_checkpoint`."""

    def _begin(self) -> Execution:
        trial, held = self.job.trial(self.described), Held.here(self.job.inventory)
        self.execution = Execution(
            trial,
            self.job.function(trial.trainable),
            self.records,
            metric=self.job.metric,
            notes=TrialNotes.from_dict(self.described["notes"]).joined(held.notes),
            limits=held.limits(host=self.described["place"]["hold_host"]),
        )
        return self.execution

    def _finished_elsewhere(self) -> dict[str, Any] | None:
        """A record may be there already: its worker died between writing it and saying so."""
        if self.execution is not None or (record := self.records.read_one(self.described["id"])) is None:
            return None
        return {"id": record.trial_id, "reports": [], "done": True, STATUS: record.status}

    def _drop(self) -> None:
        if self.execution is not None and not self.execution.finished:
            self.execution.close()
        self.execution = None


def _last(reports: list[dict[str, Any]], metric: str) -> float | None:
    return next((row[metric] for row in reversed(reports) if metric in row), None)
