"""The one adapter from a trainable generator to Ray Tune. Its actors are reused, so torch is imported once."""

import functools
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

import ray
from ray import tune

from contrasweep.cluster.guard import guard
from contrasweep.cluster.inventory import ACCELERATOR_LABEL, Inventory
from contrasweep.errors import StorageDenied
from contrasweep.processes import sweep_scratch
from contrasweep.running.run_context import FAULT, STATUS, RunContext, StepResult, TrialDescription
from contrasweep.running.stacks import answer_signal
from contrasweep.running.study_code import OtherCodeHere, checked_function
from contrasweep.running.worker.execution import Execution
from contrasweep.running.worker.isolation import Isolation
from contrasweep.running.worker.orphans import guard_children
from contrasweep.running.worker.output import Output
from contrasweep.storage.record import TrialNotes
from contrasweep.storage.records import StudyRecords


def assigned_notes(inventory: Inventory) -> TrialNotes:
    """Return the GPUs and their type that the actor which calls this was given, with the prices of `inventory`.

    The type is None without a GPU, the price None where the inventory has none.
    """
    context = ray.get_runtime_context()
    resources = context.get_assigned_resources()
    labels = context.get_node_labels()
    gpus = float(resources.get("GPU", 0.0))
    cpus = float(resources.get("CPU", 0.0))
    # The node's label; on a node without one the smallest type of the inventory.
    label = labels.get(ACCELERATOR_LABEL) or next(
        (gpu.type for gpu in inventory.gpu_types), "unknown"
    )
    gpu = str(label) if gpus else None
    return TrialNotes(
        gpus=gpus,
        gpu_type=gpu,
        cost_per_hour=inventory.share_cost_per_hour(gpu, gpus, cpus) or None,
    )


class TuneTrial(tune.Trainable):  # type: ignore[misc]  # Ray is not typed
    """Steps an `Execution`. Failures of the trainable end in a record, so Tune sees only faults of the machine."""

    def setup(self, config: TrialDescription, context: RunContext | None = None) -> None:
        """Set up a new actor for its first trial, which `config` describes. `context` is what all trials share."""
        if context is None:
            raise ValueError("TuneTrial is started with its RunContext")
        # Once for this process: stacks on demand, an end for its children, and scratch folders of killed ones removed.
        answer_signal()
        guard_children()
        sweep_scratch()
        self.context = context
        self.execution: Execution | None = None
        self.cuda_failed = False
        self.isolation = Isolation()
        self.described = config
        # The driver has reached the storage, so an outage is waited out.
        self.records = StudyRecords(context.storage, context.study, patient=True)

    def reset(self, new_config: TrialDescription, storage: Any = None) -> bool | str:
        """Take the next trial in this actor; return True, or why this process cannot take it and must be stopped.

        Ray Tune knows no such text: `ray_internals.replace_refusing_workers` makes it replace the worker.
        """
        self._drop()
        leftover = self.isolation.end(new_config["trial"].trainable)
        if self.cuda_failed:
            leftover = "failed with an error of CUDA"
        if leftover:
            return f"arm {self.described['trial'].arm} {leftover}; its worker is replaced"
        return bool(super().reset(new_config, storage))

    def reset_config(self, new_config: TrialDescription) -> bool:
        """Keep the description of the next trial; see `reset`."""
        self.described = new_config
        return True

    def step(self) -> dict[str, object]:
        """Train on; return the new reports, and the last result once the trial has its record.

        The study's metric, as it was reported last, stands beside them, where Tune looks for it. Where no trial of the
        study may run in this process, the result has no reports and says why (`FAULT`).
        """
        try:
            result = self._step()
        except (OtherCodeHere, StorageDenied) as error:
            return {"id": self.described["id"], "reports": [], FAULT: str(error)}
        metric = self.context.metric
        value = next((row[metric] for row in reversed(result["reports"]) if metric in row), None)
        return {**result} if value is None else {**result, self.context.metric: value}

    def _step(self) -> StepResult:
        """Train on for a while; return Tune's result, which is the last one once the trial has its record."""
        if (recorded := self._recorded_already()) is not None:
            return recorded
        execution = self.execution or self._begin()
        stepped = execution.advance(self.context.chunk_s)
        result: StepResult = {
            "id": self.described["id"],
            "reports": stepped.reports,
            "seconds": execution.seconds,
        }
        if stepped.record is not None:
            result["done"] = True
            result[STATUS] = stepped.record.status
            result["record"] = stepped.record.to_json()
            # An error of CUDA leaves the process unusable for the next trial.
            self.cuda_failed = stepped.record.status.failed and "CUDA" in (
                stepped.record.error or ""
            )
        return result

    def cleanup(self) -> None:
        """Close what is open: the actor ends."""
        self._drop()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Save nothing for Tune: checkpoints are in the storage, and `_begin` finds the newest one."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """See `save_checkpoint`."""

    def _begin(self) -> Execution:
        """Claim the trial and open what it needs: log, limits on memory, code, checkpoint."""
        trial = self.context.trial(self.described)
        code = self.described["code"]
        function, packages = checked_function(
            self.context.storage,
            self.context.study,
            code.digest,
            lambda: self._function(trial.trainable),
        )
        assigned = assigned_notes(self.context.inventory)
        place = self.described["place"]
        # Several GPUs are whole ones, of which a trial may take all memory.
        share = assigned.gpus if assigned.gpus and assigned.gpus <= 1 else None
        memory_gib = place["resources"]["memory"] / 2**30 if place["limit_host_memory"] else None
        no_prior_state = self.described["no_prior_state"]
        with ExitStack() as opened:
            output = opened.enter_context(
                closing(Output(self.records, trial.id, no_prior_state=no_prior_state).open())
            )
            self.execution = Execution(
                trial,
                function,
                self.records,
                metric=self.context.metric,
                notes=self.described["notes"].joined(assigned),
                code=code,
                packages=packages,
                limits=guard(gpu_share=share, host_memory_gib=memory_gib),
                output=output,
                no_prior_state=no_prior_state,
                retention=self.context.retention,
            )
            opened.pop_all()  # from here on the execution closes it
        return self.execution

    def _function(self, path: str) -> Callable[..., Any]:
        """Return the trainable at the dotted `path`, and leave the process as `Isolation.begin` does."""

        def load() -> Callable[..., Any]:
            function = self.context.function(path)
            # An evaluation loads what other studies have trained: it is given the storage.
            reads = getattr(function, "reads_storage", False)
            return functools.partial(function, storage=self.context.storage) if reads else function

        return self.isolation.begin(self.described["id"], path, load)

    def _recorded_already(self) -> StepResult | None:
        """Return the last result of a trial whose worker died between writing the record and reporting it.

        None for a trial without a record. A trial that trains in this actor already, or of which the storage is known
        to have nothing, is not looked up.
        """
        if self.execution is not None or self.described["no_prior_state"]:
            return None
        if (record := self.records.read_one(self.described["id"])) is None:
            return None
        return {"id": record.trial_id, "reports": [], "done": True, STATUS: record.status}

    def _drop(self) -> None:
        if self.execution is not None and not self.execution.finished:
            self.execution.close()
        self.execution = None
