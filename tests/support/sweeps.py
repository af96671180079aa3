"""A small sweep of the toy, and its source driven as an engine would, without training."""

from contrasweep import Arm, Float, Sweep
from contrasweep.planning.facade import plan
from contrasweep.storage.record import Phase, Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.tuning.source import Finished, Next
from contrasweep.tuning.sweep_source import SweepSource

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
    return Record.of(trial, status=Status(status), notes=notes, **{"step": 4} | metrics | fields)


def drive(study, storage, *, stop_after=10**9, statuses=lambda trial: "done", record=None):
    """What an engine does with a sweep's source, one trial at a time and without training. Returns the trials in
    their order with their notes, and the plans it confirmed."""
    record = record or record_of
    records = StudyRecords(str(storage), study.name)
    told, confirmed = [], []
    source = SweepSource(plan(study, storage=str(storage)), records, confirmed.append)
    while not isinstance(found := source.next(), Finished):
        assert found is not None, "one at a time, there is always a next"
        if len(told) == stop_after:
            break
        left = record(found.trial, found.notes, statuses(found.trial))
        records.write(left)
        source.done(left)
        told.append((found.trial, found.notes))
    return told, confirmed


def step_by_step(study, storage, *, stop_after=10**9):
    """What an engine does with a sweep's search, one report at a time in turns on three places. Killed after so many
    reports it leaves some written and not heard. Returns (trial id, step) of each report in its order."""
    records, told, places = StudyRecords(str(storage), study.name), [], []
    source = SweepSource(plan(study, storage=str(storage)), records, lambda _: None)
    while len(told) < stop_after:
        while len(places) < 3 and isinstance(found := source.next(), Next) and found.notes.phase == Phase.SEARCH:
            places.append(found)
        if not places:
            return told
        found = places.pop(0)
        trial, rows = found.trial, records.metrics(found.trial.id)
        rows.append({"step": len(rows) + 1, "time": 0.0, "accuracy": value_of(trial) + 0.01 * len(rows)})
        records.write_metrics(trial.id, rows)
        told.append((trial.id, len(rows)))
        last = len(rows) == trial.config["epochs"]
        if len(told) == stop_after or (not last and source.keep_going(trial.id, rows[-1:])):
            places.append(found)
            continue
        left = record_of(
            trial, found.notes, "done" if last else "pruned", metrics={"accuracy": rows[-1]["accuracy"]}, step=len(rows)
        )
        records.write(left)
        source.done(left)
    return told
