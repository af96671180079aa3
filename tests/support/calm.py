"""What a study comes to that nothing disturbs: each trial trained in this process, one after another, without Ray."""

from tests.support.counting_trial import finish
from tests.support.made_up import declared

from contrasweep.imports import import_path
from contrasweep.planning.planner import plan
from contrasweep.results.results import Results
from contrasweep.running.worker.execution import Execution


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
