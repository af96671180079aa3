"""What a study comes to that nothing disturbs: each trial trained in this process, one after another, without Ray."""

from pathlib import Path

from contrasweep.imports import import_path
from contrasweep.planning.planner import plan
from contrasweep.results.results import Results
from contrasweep.running.prepare import study_document
from contrasweep.running.worker.execution import Execution
from contrasweep.storage.planned import write_planned
from contrasweep.storage.records import StudyRecords
from contrasweep.study.grid import AblationGrid


def calm_run(study: AblationGrid, storage: Path) -> Results:
    planned, records = plan(study, storage=str(storage)), StudyRecords(str(storage), study.name)
    records.claim(study_document(planned))
    write_planned(records, planned.to_frame())
    finished = records.finished()  # where it goes on from a fault
    for trial in planned.trials:
        if trial.id in finished:
            continue
        execution = Execution(trial, import_path(trial.trainable, "trainable"), records, metric=study.metric)
        while execution.advance().record is None:
            pass
    return Results.load(study.name, str(storage))
