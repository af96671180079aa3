"""What a study comes to that nothing disturbs: each trial trained in this process, one after another, without Ray."""

from contextlib import contextmanager, nullcontext
from unittest.mock import patch

from tests.support.counting_trial import finish
from tests.support.made_up import declared

from contrasweep.cluster.hosts import Hosts
from contrasweep.cluster.inventory import Inventory, Node
from contrasweep.cluster.usage import Meter
from contrasweep.errors import ContrasweepError
from contrasweep.imports import import_path
from contrasweep.planning.planner import plan
from contrasweep.results.results import Results
from contrasweep.running.worker.execution import Execution
from contrasweep.tuning.source import Finished

HOST = Inventory((Node(4, 1000),))


def calm_run(study, storage):
    planned, records = declared(plan(study, storage=str(storage)), storage)
    finished = records.finished()  # where it goes on from a fault
    for trial in planned.trials:
        if trial.id in finished:
            continue
        execution = Execution(
            trial, import_path(trial.trainable, "trainable"), records, metric=study.metric
        )
        finish(execution)
    return Results.load(study.name, str(storage))


@contextmanager
def calm_engine():
    """Meanwhile `run` trains in this process, on one host of four cores: all else is as with Ray."""
    from contrasweep.running.engine import training

    parts = {
        "connected": lambda: nullcontext(HOST),
        "cluster_hosts": lambda missing, inventory, say: (inventory, Hosts()),
        "run_trials": _run_trials,
    }
    memory = patch.object(Meter, "peak_host_memory_gib", 0.5)  # not that of all tests so far
    with memory, patch.multiple(training, **parts):
        yield


def _run_trials(context, loop, **limits):
    while not isinstance(active := loop.next(), Finished):
        trial = active.trial
        loop.started(trial.id)
        execution = Execution(
            trial, context.function(trial.trainable), loop.records, metric=context.metric,
            notes=loop.notes(active), code=loop.code.of(trial), retention=context.retention,
        )  # fmt: skip
        going = True
        while going:
            try:
                step = execution.advance()
            except SystemExit:  # of a signal: here the worker is the driver
                raise KeyboardInterrupt from None
            loop.reported(trial.id, step.reports, execution.seconds)
            going = step.record is None and loop.goes_on(trial.id, step.reports)
        execution.close()
        loop.ended(trial.id)
    if loop.accounts.fault:
        raise ContrasweepError(loop.accounts.fault)
