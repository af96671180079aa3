"""Upkeep of a study in a storage: take trials out of it, and put them back. Nothing is deleted."""

from contrasweep.errors import SpecError, check_known
from contrasweep.planning import learned
from contrasweep.storage import compact
from contrasweep.storage.archive import (
    ArchivedTrials,
    archive_trials,
    find_archived,
    finish_move,
    list_archived,
    restore_trials,
)
from contrasweep.storage.lease import exclusive_driver
from contrasweep.storage.record import Status
from contrasweep.storage.records import StudyRecords


def removable(records: StudyRecords, arm: str | None = None, status: str | None = None) -> list[str]:
    """Return the ids of the trials of an arm, of a status, of both, or all.

    Trials without a record are `pending`. `SpecError` for an arm or status that there is not.
    """
    recorded = compact.read_records(records, records.etags())
    document = records.document()
    arms = list(dict.fromkeys([*(document.arms if document else ()), *(r.arm for r in recorded.values())]))
    if arm is not None:
        check_known(arm, "arms", arms, "there is no such arm in this study", place="--arm")
    if status is not None:
        check_known(status, "statuses", [s.value for s in Status], "there is no such status", place="--status")
    chosen = [
        r.trial_id
        for r in recorded.values()
        if (arm is None or r.arm == arm) and (status is None or r.status == status)
    ]
    begun = records.begun() if arm is None and (status is None or Status(status).pending) else set()
    return sorted({*chosen, *begun})


def remove(records: StudyRecords, trial_ids: list[str]) -> str:
    """Put trials aside; the name under which they can be restored. Raises `ContrasweepError` while the study runs."""
    with exclusive_driver(records):
        finish_move(records)
        learned.forget(records)
        return archive_trials(records, trial_ids, "removed")


def restore(records: StudyRecords, when: str | None = None) -> ArchivedTrials:
    """Put back what was archived last, or what has the name `when`.

    What was made in its place since is archived. Raises `SpecError` where there is nothing of that name,
    `ContrasweepError` while the study runs.
    """
    with exclusive_driver(records):
        finish_move(records)
        part = restorable(records, when)
        learned.forget(records)
        restore_trials(records, part, _replaced(records, part))
        return part


def _replaced(records: StudyRecords, part: ArchivedTrials) -> set[str]:
    """Return the trials of searches that have started anew since `part` was archived.

    The restored searches have not chosen them.
    """
    if not part.searches:
        return set()
    recorded = compact.read_records(records, records.etags())
    return {trial_id for trial_id, record in recorded.items() if record.arm in part.searches}


def restorable(records: StudyRecords, when: str | None = None) -> ArchivedTrials:
    """Return what `restore` would put back."""
    parts = list_archived(records)
    if not parts:
        raise SpecError("nothing of this study was archived", place="restore", value=records.study)
    return parts[-1] if when is None else find_archived(records, when)
