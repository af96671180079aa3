"""A study with looks, driven as an engine would without training: each trial ends at once with a made-up value."""

import hashlib

from contrasweep import AblationGrid, Arm, Replicates
from contrasweep.code import CurrentCode
from contrasweep.planning.planner import plan
from contrasweep.running.engine.interim_source import InterimSource
from contrasweep.running.prepare import prepare
from contrasweep.storage.record import CodeRef, Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.tuning.source import Finished


def noise(*parts):
    """About standard normal, and the same on every machine."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return sum(byte / 255 for byte in digest[:12]) - 6


def three_arms():
    """A study with looks of which one arm is better."""
    arms = {arm: Arm("toy:train", config={"epochs": 1}) for arm in "abc"}
    return AblationGrid(
        "looked-at", arms, "digits-lt", replicates=Replicates(first=4, step=4, most=12)
    )


def value_of(trial):
    """What its trials come to."""
    return 0.5 + 0.06 * (trial.arm == "c") + 0.03 * noise(trial.arm, trial.seed)


def drive_looks(
    study,
    storage,
    value,
    *,
    stop_after=10**9,
    extend=False,
    failed=lambda trial: False,
    metric="accuracy",
    **options,
):
    """Run `study`; what its looks said, and how many trials ended. Stopped after so many, as if killed. A trial's
    value may be a mapping of several metrics."""
    planned = plan(study, storage=str(storage))
    records = StudyRecords(str(storage), study.name)
    said = []
    ended = 0
    code = CurrentCode(planned.study.functions)
    prepared = prepare(
        planned, records, code, **{"extend": extend, "retry_failed": False} | options
    )
    if prepared.complete:
        return said, 0
    source = InterimSource(
        planned, planned.source(records, prepared.finished), records, said.append
    )
    while ended < stop_after and not isinstance(answer := source.next(), Finished):
        trial = answer.trial
        lost = failed(answer.trial)
        values = {} if lost else value(trial)
        values = values if isinstance(values, dict) else {metric: values}
        record = Record.of(
            trial,
            status=Status.FAILED if lost else Status.DONE,
            rows=[] if lost else [{"step": 1, "time": 0.0, **values}],
            error="lost\n" if lost else None,
            notes=answer.notes,
            code=CodeRef(code.of(trial.trainable, trial.config).version.digest),
        )
        records.write(record)
        source.done(record)
        ended += 1
    return said, ended
