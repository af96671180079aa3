"""Before a study trains: its name in the storage is claimed for its plan, and what is finished already is known."""

import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from contrasweep.code import CurrentCode
from contrasweep.data.manifest import Manifest
from contrasweep.planning.plan import Plan
from contrasweep.planning.stages import check_log
from contrasweep.running.code_changes import Changed, decide, metric_was_mended
from contrasweep.running.versions import versions
from contrasweep.secrets import redacted
from contrasweep.storage.archive import finish_move
from contrasweep.storage.interim_log import read_looks, write_looks
from contrasweep.storage.planned import write_planned
from contrasweep.storage.record import DatasetRef, Record
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import StudyDocument
from contrasweep.study.file import to_plain
from contrasweep.tracking.tracker import TrackedStudy


@dataclass(frozen=True)
class Prepared:
    """What an earlier run has left of a plan.

    `finished` are the ids of trials with a record; `complete`: nothing is left to run. `infeasible` are the records of
    those that fitted no host so far, which are not `finished`.
    """

    finished: set[str]
    complete: bool
    infeasible: Mapping[str, Record]


def prepare(
    plan: Plan,
    records: StudyRecords,
    code: CurrentCode,
    *,
    extend: bool,
    retry_failed: bool,
    rerun: Sequence[str] = (),
    changed: Changed = "stop",
) -> Prepared:
    """Write study.json and the plan, and archive what runs again (see `code_changes.decide`).

    With `retry_failed`, failed trials lose their records and resume from their checkpoints, if their code has not
    changed. Raises `ContrasweepError` if another plan has the study's name, unless `extend`, and if recorded trials
    were made by other code and `changed` is "stop"; nothing has changed then.
    """
    goes_on = extend or metric_was_mended(plan, records)
    records.check_plan(plan.digest, extend=goes_on)
    finish_move(records)
    log = read_looks(records)
    check_log(plan.study.replicates, log)
    decision = decide(plan, records, code, changed=changed, rerun=rerun, retry_failed=retry_failed)
    if extend:
        from contrasweep.results.interim_analysis import (
            count_look,
        )  # brings pandas, which `plan` and `submit` do without

        count_look(plan, records)
    records.claim(study_document(plan), extend=goes_on)
    recorded = records.finished()
    archived = decision.carry_out(records)
    if log is not None and log.looks and (archived - decision.failed) & recorded:
        write_looks(records, log.begun_anew())
    finished = records.finished() - archived
    for note in decision.notes:
        print(note, file=sys.stderr)
    complete = plan.complete(records, finished)
    if (frame := plan.stored_frame(records, complete)) is not None:
        write_planned(records, frame, plan.digest)
    infeasible = {i: record for i, record in decision.infeasible.items() if i in finished}
    return Prepared(finished - infeasible.keys(), complete and not infeasible, infeasible)


def study_document(plan: Plan) -> StudyDocument:
    """Return what study.json holds of a plan."""
    study = plan.study
    spec = to_plain(study)
    for name, arm in study.arms.items():
        spec["arms"][name]["trainable"] = (
            arm.trainable if isinstance(arm.trainable, str) else arm.trainable.__qualname__
        )
    return StudyDocument(
        name=study.name,
        metric=study.metric,
        mode=study.mode,
        type=study.type,
        plan_digest=plan.digest,
        arms=tuple(study.arms),
        axes=tuple(study.axis_names),
        alpha=study.alpha,
        reference=study.reference,
        folds=plan.table_folds,
        trials=plan.total,
        search=plan.declared_search,
        description=study.description,
        datasets=tuple(DatasetRef.of(manifest) for manifest in plan.table_datasets),
        commands=_command(),
        created=time.time(),
        versions=versions(),
        spec=spec,
    )


def tracked_study(plan: Plan, storage: str) -> TrackedStudy:
    """Return what a tracker shows of a study."""
    study = plan.study
    return TrackedStudy(
        study.name,
        plan_digest=plan.digest,
        axes=tuple(plan.varied),
        keys=tuple(plan.keys),
        metric=study.metric,
        mode=study.mode,
        trials=plan.total,
        storage=storage,
        description=study.description,
        extra=plan.summary(),
        datasets={digest: {"uri": data.uri, "rows": _rows(data)} for digest, data in plan.datasets.items()},
    )


def _rows(data: Manifest) -> dict[str, int]:
    return {split: data.rows(split) for split in data.splits}


def _command() -> tuple[str, ...]:
    """The command that declared the study, for whoever runs it again; none where a program did."""
    ours = Path(sys.argv[0]).name == "contrasweep" or sys.argv[0].endswith("contrasweep/__main__.py")
    return (redacted(shlex.join(["contrasweep", *sys.argv[1:]])),) if ours else ()
