"""An overview of a storage: its studies, how far each one is, and when its driver was last alive."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from contrasweep.errors import BrokenFileError, SpecError, choose_from
from contrasweep.live.state import COMPLETE, FAILURES, USED_UP, RunState, is_living, read_live
from contrasweep.shell import command_line
from contrasweep.storage import compact
from contrasweep.storage.archive import removed_trials
from contrasweep.storage.lease import living_holder
from contrasweep.storage.planned import planned_rows
from contrasweep.storage.record import Phase, Record, Status
from contrasweep.storage.records import StudyRecords, study_names
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


def none_there(storage: str) -> str:
    """Return a sentence for a storage without studies."""
    return f"there are no studies in {storage}"


def no_such_study(study: str, storage: str) -> SpecError:
    """Return the error for a study that was never run in the storage; its hint names the studies that were."""
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
            document = records.document()
            if document is not None:
                yield overview(records, document)
        except BrokenFileError as error:
            print(f"{name} is not listed: {error}", file=sys.stderr)


def overview(records: StudyRecords, document: StudyDocument) -> Overview:
    """Return one study as its records and the state of its newest run (`live.json`) show it.

    Its `last_sign` is the newest of the times in its records, in that state, and in its declaration.
    """
    # Trials of an earlier plan do not count: of a larger grid, or confirmations of what is no longer the best.
    planned = {row["trial_id"] for row in planned_rows(records)}
    broken = list[BrokenFileError]()
    recorded = [
        record
        for record in compact.read_records(records, broken).values()
        if not planned or record.trial_id in planned or record.notes.phase == Phase.SEARCH
    ]
    statuses = Counter(record.status.value for record in recorded)
    if broken:
        statuses[Status.BROKEN.value] += len(broken)
    live = read_live(records)
    # A run that holds the study has no state yet while it starts Ray, which takes seconds.
    is_renewed = live is not None and is_living(live)
    alive = is_renewed or living_holder(records) is not None
    state: StudyState = "stopped"
    if alive:
        state = "running"
    elif _is_whole(document, live, len(recorded)):
        table = [record for record in recorded if record.notes.phase != Phase.SEARCH]
        # Of an arm whose search found nothing to confirm the table has no trial.
        has_all = {record.arm for record in table} >= {*document.arms}
        trained = all(record.status.trained for record in table)
        state = "complete" if has_all and trained else "failures"
    elif live is not None and live.ended == USED_UP:
        state = "budget used up"
    removed = removed_trials(records) if state == "stopped" else set()

    best, best_arm = _best(recorded, document)
    # `last_sign` is the newest of these.
    times = [document.created, *(record.ended for record in recorded)]
    if live is not None:
        times.append(live.updated)
    # The code of a trial is "" where it was not recorded, which is left out below.
    codes = {""}
    for record in recorded:
        codes.update(record.code.earlier, [record.code.digest])
    return Overview(
        study=document.name,
        metric=document.metric,
        trials=document.trials,
        statuses=dict(statuses),
        running=len(live.running) if live is not None and is_renewed else 0,
        alive=alive,
        waits=live.waits if live is not None and is_renewed else "",
        archived=len(removed - {record.trial_id for record in recorded}),
        state=state,
        started=document.created,
        last_sign=max(times),
        best=best,
        best_arm=best_arm,
        labels=document.labels,
        codes=sorted(codes - {""}),
    )


def _best(recorded: Sequence[Record], document: StudyDocument) -> tuple[float | None, str]:
    """Return the best score of a `recorded` trial and its arm; None and "" where no trial has a score."""
    # Scores of a search were made on other rows and chosen as the best, so they are not compared with a confirmation's.
    confirmed = [record for record in recorded if record.notes.phase == Phase.CONFIRM]
    best: float | None = None
    best_arm = ""
    sign = 1 if document.mode == "max" else -1
    # Of several arms with the best score it is the first by name, as in `RunState.best`.
    for record in sorted(confirmed or recorded, key=lambda record: record.arm):
        score = record.value(document.metric)
        if score is not None and (best is None or sign * score > sign * best):
            best = score
            best_arm = record.arm
    return best, best_arm


def _is_whole(document: StudyDocument, live: RunState | None, recorded: int) -> bool:
    """Whether all trials of a study have ended; `recorded` is the number of its trials with a record.

    `live` is the state that its newest run left; None where no run left one.
    """
    if document.trials is not None and recorded >= document.trials:
        return True
    # Under a budget or with looks, only the run knows that all has ended; a trial that was removed since is to run. A
    # run before the study grew knows nothing of what was added.
    if live is None or live.ended not in (COMPLETE, FAILURES) or live.total != document.trials:
        return False
    return recorded >= live.done
