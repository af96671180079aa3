"""An overview of a storage: its studies, how far each one is, and when its driver was last alive."""

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from contrasweep.errors import BrokenFileError, SpecError, choose_from
from contrasweep.live.state import COMPLETE, FAILURES, USED_UP, is_living, read_live
from contrasweep.shell import command_line
from contrasweep.storage import compact
from contrasweep.storage.archive import removed_trials
from contrasweep.storage.lease import living_holder
from contrasweep.storage.planned import planned_rows
from contrasweep.storage.record import Phase, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.store import open_store
from contrasweep.storage.study_document import StudyDocument

StudyState = Literal["running", "complete", "failures", "budget used up", "stopped"]


@dataclass(frozen=True)
class Overview:
    """A study as its storage has it. Times are unix seconds.

    `state` is `running`; `complete` or `failures` once every trial has ended; `budget used up`; or `stopped`. A trial
    of the table that failed or fits no host makes it `failures`, and so does an arm with nothing to confirm. `statuses`
    counts the trials that have ended by their status, without confirmations of configurations that the search found
    worse later. `running` counts the trials of a living driver, and `alive` says whether there is one. `waits` says
    which host it waits for, "" where a trial runs. `started` is when the study was declared. `best` is the best score
    of a trial and `best_arm` its arm; None and "" where no trial has a score. `codes` are the digests of the code that
    trials ran. `archived` counts the trials of a stopped study that were removed and are to run again.
    """

    study: str
    metric: str
    trials: int | None  # None: as many as its budget pays for
    statuses: dict[str, int]
    running: int
    alive: bool
    state: StudyState
    started: float
    last_sign: float
    best: float | None
    best_arm: str
    # What people read in place of declared names
    labels: dict[str, str] = field(default_factory=dict)
    codes: list[str] = field(default_factory=list)
    archived: int = 0
    waits: str = ""


def study_names(storage: str) -> list[str]:
    """Return the names of the studies of a storage, sorted."""
    return sorted(key.split("/")[0] for key in open_store(storage).etags("", "study.json"))


def none_there(storage: str) -> str:
    """Return a sentence for a storage without studies."""
    return f"there are no studies in {storage}"


def no_such_study(study: str, storage: str) -> SpecError:
    """Return the error for a study that was never run in the storage, with the names of those that were."""
    if open_store(storage).exists(f"{study}/campaign.json"):
        hint = command_line("ledger", study, storage=storage)
        return SpecError("this is a campaign, no study", place="STUDY", value=study, hint=hint)
    names = study_names(storage)
    known = choose_from("studies", names, study) if names else none_there(storage)
    jobs = command_line("jobs", address="http://HEAD:8265")
    hint = f"{known}; one that was submitted is here once its job has begun: {jobs}"
    rule = "there is no such study in this storage"
    return SpecError(rule, place="STUDY", value=study, hint=hint)


def overviews(storage: str) -> Iterator[Overview]:
    """Yield all studies of a storage, sorted by name; a line on standard error says which are broken."""
    for name in study_names(storage):
        records = StudyRecords(storage, name)
        try:
            if (document := records.document()) is not None:
                yield overview(records, document)
        except BrokenFileError as error:
            print(f"{name} is not listed: {error}", file=sys.stderr)


def overview(records: StudyRecords, document: StudyDocument) -> Overview:
    """Return one study as its records and the live state of its newest run show it.

    `last_sign` is the newest time that a record, the run or the declaration has.
    """
    # Trials of an earlier plan do not count: of a larger grid, or confirmations of what is no longer the best.
    planned = {row["trial_id"] for row in planned_rows(records)}
    broken = list[BrokenFileError]()
    recorded = [
        record
        for record in compact.read_records(records, broken).values()
        if not planned or record.trial_id in planned or record.notes.phase == Phase.SEARCH
    ]
    live = read_live(records)
    # A run that holds the study has no state yet while it starts Ray, which takes seconds.
    is_renewed = live is not None and is_living(live)
    alive = is_renewed or living_holder(records) is not None
    # Scores of a search were made on other rows and chosen as the best, so they are not compared with a confirmation's.
    confirmed = [record for record in recorded if record.notes.phase == Phase.CONFIRM]
    scored = [
        (value, record.arm)
        for record in confirmed or recorded
        if (value := record.value(document.metric)) is not None
    ]
    # Of several arms it is the first by name, as in `RunState.best`.
    pick = max if document.mode == "max" else min
    scored.sort(key=lambda entry: entry[1])
    best, best_arm = pick(scored, key=lambda entry: entry[0], default=(None, ""))
    # Under a budget or with looks, only the run knows that all has ended; a trial that was removed since is to run. A
    # run before the study grew knows nothing of what was added.
    ended = live.ended if live is not None else ""
    is_whole = document.trials is not None and len(recorded) >= document.trials
    if live is not None and ended in (COMPLETE, FAILURES) and live.total == document.trials:
        is_whole = is_whole or len(recorded) >= live.done
    state: StudyState = "stopped"
    if alive:
        state = "running"
    elif is_whole:
        table = [record for record in recorded if record.notes.phase != Phase.SEARCH]
        # Of an arm whose search found nothing to confirm the table has no trial.
        has_all = {record.arm for record in table} >= {*document.arms}
        trained = all(record.status.trained for record in table)
        state = "complete" if has_all and trained else "failures"
    elif ended == USED_UP:
        state = "budget used up"
    removed = removed_trials(records) if state == "stopped" else set()
    return Overview(
        study=document.name,
        metric=document.metric,
        trials=document.trials,
        statuses=dict(
            Counter(
                [record.status.value for record in recorded] + [Status.BROKEN.value] * len(broken)
            )
        ),
        running=len(live.running) if live is not None and is_renewed else 0,
        alive=alive,
        waits=live.waits if live is not None and is_renewed else "",
        archived=len(removed - {record.trial_id for record in recorded}),
        state=state,
        started=document.created,
        last_sign=max(
            [
                document.created,
                live.updated if live else 0.0,
                *(record.ended for record in recorded),
            ]
        ),
        best=best,
        best_arm=best_arm,
        labels=document.labels,
        codes=sorted(
            {d for record in recorded for d in (*record.code.earlier, record.code.digest)} - {""}
        ),
    )
