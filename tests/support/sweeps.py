"""A small sweep of the toy, and its source driven as an engine would, without training."""

import contrasweep as cs
from contrasweep import Arm, Float, Sweep
from contrasweep.code import CurrentCode
from contrasweep.planning.planner import plan
from contrasweep.running.prepare import study_document
from contrasweep.storage.planned import write_planned
from contrasweep.storage.record import CodeRef, Phase, Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.tuning.source import Finished, NextTrial
from contrasweep.tuning.sweep_source import SweepSource

CODE = CurrentCode({})
LR = {"lr": Float(0.003, 3.0, log=True)}
ARMS = {
    "short": Arm("toy:train", config={"epochs": 2}, space=LR),
    "long": Arm("toy:train", config={"epochs": 4}, space=LR),
}


def sweep(**fields):
    base = {
        "name": "toy-sweep",
        "arms": ARMS,
        "data": "digits-lt",
        "folds": 3,
        "trials_per_arm": 5,
        "confirm_seeds": [1000],
        "searcher": "tpe",
    }
    return Sweep(**base | fields)


def value_of(trial):
    """A made-up value: best at lr 0.1, a little different on each fold and seed."""
    return 1 - abs(trial.config["lr"] - 0.1) + 0.01 * (trial.fold or 0) + 0.001 * (trial.seed % 7)


def record_of(trial, notes, status="done", **fields):
    metrics = {} if "metrics" in fields else {"metrics": {"accuracy": value_of(trial)}}
    code = {"code": CodeRef(CODE.of(trial.trainable, trial.config).version.digest)}
    return Record.of(
        trial, status=Status(status), notes=notes, **{"step": 4} | code | metrics | fields
    )


def drive(study, storage, *, stop_after=10**9, statuses=lambda trial: "done", record=None):
    """What an engine does with a sweep's source, one trial at a time and without training. Returns the trials in
    their order with their notes, and the plans it confirmed."""
    record = record or record_of
    records = StudyRecords(str(storage), study.name)
    collected = []
    confirmed = []
    source = SweepSource(plan(study, storage=str(storage)), records, confirmed.append)
    while not isinstance(answer := source.next(), Finished):
        assert answer is not None, "one at a time, there is always a next"
        if len(collected) == stop_after:
            break
        left = record(answer.trial, answer.notes, statuses(answer.trial))
        records.write(left)
        source.done(left)
        collected.append((answer.trial, answer.notes))
    return collected, confirmed


def step_by_step(study, storage, *, stop_after=10**9):
    """What an engine does with a sweep's search, one report at a time in turns on three places. Killed after so many
    reports it leaves some written and not heard. Returns (trial id, step) of each report in its order."""
    records = StudyRecords(str(storage), study.name)
    created = []
    places = []
    source = SweepSource(plan(study, storage=str(storage)), records, lambda _: None)
    while len(created) < stop_after:
        while (
            len(places) < 3
            and isinstance(answer := source.next(), NextTrial)
            and answer.notes.phase == Phase.SEARCH
        ):
            if not answer.stopped:
                places.append(answer)
                continue
            reports = records.metrics(answer.trial.id)
            last = {"metrics": {"accuracy": reports[-1]["accuracy"]}, "step": len(reports)}
            records.write(left := record_of(answer.trial, answer.notes, "pruned", **last))
            source.done(left)
        if not places:
            return created
        answer = places.pop(0)
        trial = answer.trial
        rows = records.metrics(answer.trial.id)
        if len(rows) < trial.config["epochs"]:  # else it was killed before its record
            rows.append(
                {"step": len(rows) + 1, "time": 0.0, "accuracy": value_of(trial) + 0.01 * len(rows)}
            )
            records.write_metrics(trial.id, rows)
            created.append((trial.id, len(rows)))
        last = len(rows) == trial.config["epochs"]
        if len(created) == stop_after or (not last and source.keep_going(trial.id, rows[-1:])):
            places.append(answer)
            continue
        left = record_of(
            trial,
            answer.notes,
            "done" if last else "pruned",
            metrics={"accuracy": rows[-1]["accuracy"]},
            step=len(rows),
        )
        records.write(left)
        source.done(left)
    return created


def finished(study, storage, **options):
    """A sweep whose trials were driven without training, as its results."""
    records = StudyRecords(str(storage), study.name)
    records.claim(study_document(plan(study, storage=str(storage))))
    trials, confirmed = drive(study, storage, **options)
    write_planned(
        records, (confirmed[-1] if confirmed else plan(study, storage=str(storage))).to_frame()
    )
    return cs.load(study.name, storage=str(storage)), [trial for trial, _ in trials]
