"""The adapter from a trial to Ray Tune. Its actors train many trials, so that torch is imported once."""

import functools
from collections.abc import Callable
from typing import Any

import ray
from ray import tune

from contrasweep.cluster.guard import guard
from contrasweep.cluster.inventory import ACCELERATOR_LABEL, Inventory
from contrasweep.errors import StorageDenied
from contrasweep.processes import sweep_scratch
from contrasweep.running.run_context import FAULT, RunContext, StepResult, TrialDescription
from contrasweep.running.stacks import answer_signal
from contrasweep.running.study_code import OtherCodeHere
from contrasweep.running.worker.execution import Execution, begin
from contrasweep.running.worker.isolation import Isolation
from contrasweep.running.worker.orphans import guard_children
from contrasweep.storage.record import TrialNotes
from contrasweep.storage.records import StudyRecords


def assigned_notes(inventory: Inventory) -> TrialNotes:
    """Return notes on what the calling actor has reserved: how many GPUs, their type, and the price per hour.

    The type is None without a GPU. The price is None where the inventory states no price.
    """
    context = ray.get_runtime_context()
    resources = context.get_assigned_resources()
    labels = context.get_node_labels()
    gpus = float(resources.get("GPU", 0.0))
    cpus = float(resources.get("CPU", 0.0))
    # The type is the node's label. A node without a label is taken to have the smallest type of the inventory.
    types = [gpu.type for gpu in inventory.gpu_types] or ["unknown"]
    gpu_type = str(labels.get(ACCELERATOR_LABEL) or types[0]) if gpus else None
    return TrialNotes(
        gpus=gpus,
        gpu_type=gpu_type,
        cost_per_hour=inventory.share_cost_per_hour(gpu_type, gpus, cpus) or None,
    )


class TuneTrial(tune.Trainable):  # type: ignore[misc]  # Ray is not typed
    """Trains one trial after another, each by an `Execution`.

    A failure of a trainable ends in a record, so that Tune sees only faults of the machine.
    """

    def setup(self, config: TrialDescription, context: RunContext | None = None) -> None:
        """Set up a new actor for its first trial, which `config` describes. `context` is what all trials share."""
        if context is None:
            raise ValueError("TuneTrial is started with its RunContext")
        # Once for this process: show its stacks on demand, let no child outlive it, and remove scratch folders of
        # killed processes.
        answer_signal()
        guard_children()
        sweep_scratch()
        self.context = context
        self.execution: Execution | None = None
        self.cuda_failed = False
        self.isolation = Isolation()
        self.described = config
        # The driver has reached the storage, so if it does not answer now, this waits until it does.
        self.records = StudyRecords(context.storage, context.study, patient=True)

    def reset(self, new_config: TrialDescription, storage: Any = None) -> bool | str:
        """Take the next trial in this actor; return True, or a text on why this process cannot take it.

        Ray Tune itself expects no text here: `ray_internals.replace_refusing_workers` makes it replace the worker.
        """
        self._close()
        reason = self.isolation.end(new_config["trial"].trainable)
        if self.cuda_failed:
            reason = "failed with an error of CUDA"
        if reason:
            return f"arm {self.described['trial'].arm} {reason}; its worker is replaced"
        return bool(super().reset(new_config, storage))

    def reset_config(self, new_config: TrialDescription) -> bool:
        """Keep the description of the next trial; see `reset`."""
        self.described = new_config
        return True

    def step(self) -> dict[str, object]:
        """Train on for a while; return the new reports as Tune's result, and the record once the trial has ended.

        Where no trial of the study may run in this process, the result has no reports, and says why under `FAULT`.
        """
        try:
            return {**self._step()}
        except (OtherCodeHere, StorageDenied) as error:
            return {"id": self.described["id"], "reports": [], FAULT: str(error)}

    def _step(self) -> StepResult:
        """Train on, about `chunk_s` seconds or up to the next report; return the result for Tune.

        The result has the new `reports`. It has `done` if the trial has its record, also where an earlier worker wrote
        it.
        """
        # A trial may have its record, because its worker was lost before it reported that. The storage is not asked
        # about a trial that trains in this actor already.
        record = self.records.read_one(self.described["id"]) if self.execution is None else None
        if record is not None:
            return {"id": record.trial_id, "reports": [], "done": True}
        execution = self.execution or self._begin()
        stepped = execution.advance(self.context.chunk_s)
        result: StepResult = {
            "id": self.described["id"],
            "reports": stepped.reports,
            "seconds": execution.seconds,
        }
        if stepped.record is not None:
            result["done"] = True
            result["record"] = stepped.record.to_json()
            # An error of CUDA leaves the process unusable for the next trial.
            self.cuda_failed = stepped.record.status.failed and "CUDA" in (
                stepped.record.error or ""
            )
        return result

    def cleanup(self) -> None:
        """Close the present trial, because the actor ends."""
        self._close()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Save nothing for Tune: checkpoints are in the storage, and `_begin` finds the newest one."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Load nothing: `_begin` finds the newest checkpoint in the storage."""

    def _begin(self) -> Execution:
        """Import the trial's code, and begin its execution with its log and its limits on memory."""
        trial = self.context.trial(self.described)
        assigned = assigned_notes(self.context.inventory)
        place = self.described["place"]
        # A trial on one GPU, or on a share of it, is kept to its share of the memory. A share of 1 is no limit, but the
        # memory is freed at the end. Several GPUs have no limit.
        share = assigned.gpus if assigned.gpus and assigned.gpus <= 1 else None
        memory_gib = place["resources"]["memory"] / 2**30 if place["limit_host_memory"] else None
        self.execution = begin(
            trial,
            self.described["code"],
            functools.partial(self._load, trial.trainable),
            self.isolation,
            self.records,
            metric=self.context.metric,
            notes=self.described["notes"].joined(assigned),
            limits=guard(gpu_share=share, host_memory_gib=memory_gib),
            retention=self.context.retention,
        )
        return self.execution

    def _load(self, path: str) -> Callable[..., Any]:
        """Import the trainable at a dotted path."""
        function = self.context.function(path)
        # An evaluation loads networks of other studies, so it is given the storage.
        reads = getattr(function, "reads_storage", False)
        return functools.partial(function, storage=self.context.storage) if reads else function

    def _close(self) -> None:
        """Close the present trial, if there is one."""
        if self.execution is not None and not self.execution.finished:
            self.execution.close()
        self.execution = None
