"""Commands on what runs or has run: watch a study, list a storage's studies, list a cluster's jobs."""

import contextlib
import datetime
import re
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from contrasweep.cli import reports
from contrasweep.cli.documents import polled
from contrasweep.cli.options import (
    Address,
    AddressOrNone,
    Json,
    Since,
    Storage,
    StoredStudy,
    flag,
    print_json,
    print_table,
)
from contrasweep.defaults import STORAGE
from contrasweep.errors import duration, plural
from contrasweep.shell import command_line

ENDED_AS = {1: ": failures", 3: ": budget used up"}
"""Exit status of `run` -> what is shown behind Ray's status of the job, which is FAILED for any status but 0.

Behind any other failure is its reason."""
END_OF_RUN = re.compile("(records|report|MLflow): ")
"""How the last line begins that a run prints which has come to its end; Python that fails has the status 1 too."""

if TYPE_CHECKING:
    from contrasweep.live.overview import Overview
    from contrasweep.storage.records import StudyRecords


def watch(
    study: StoredStudy,
    storage: Storage = STORAGE,
    address: AddressOrNone = None,
    once: Annotated[bool, flag("--once", "Show how it stands and end.")] = False,
    json: Json = False,
    since: Since = None,
) -> None:
    """Watch a study that any machine runs, from its storage alone.

    Shows what `run` shows, until the study ends. With --address it waits for the study's job on that cluster.
    """
    from contrasweep.live import state as live
    from contrasweep.live.displays import display_here
    from contrasweep.live.overview import no_such_study
    from contrasweep.storage.records import StudyRecords

    records = StudyRecords(storage, reports.name(study))

    def awaited() -> str:
        """Return a line on a job of the study that has not ended yet; "" where the cluster has none."""
        job = living_job(records, address)  # `ID is STATUS`
        return job and f"job {job}; {command_line('logs', job.split()[0], address=address)}"

    if records.document() is None and not awaited():
        raise no_such_study(records.study, storage)
    if json:
        state = live.read_live(records)
        # The one member is `run`. The members of the run are compared with `since`.
        watched = {} if state is None else vars(state)
        print_polled("watch", {"run": state}, since, watched)
        return
    try:
        state = live.watch(records, display_here(), once=once, awaited=awaited)
    except KeyboardInterrupt:  # nothing but the watching ends
        return
    if state is None:
        line = command_line("status", records.study, storage=storage, address=address)
        print(f"no driver of {records.study} has begun to train; {line}", file=sys.stderr)
    elif state.ended:
        print(f"ended: {state.ended}; {command_line('report', records.study, storage=storage)}")


def studies(storage: Storage = STORAGE, json: Json = False) -> None:
    """List the studies of a storage, and how far each is.

    Each with its trials by status, when it began, its last sign of life, and its best score.
    """
    from contrasweep.live.overview import none_there, overviews

    listed = list(overviews(storage))
    if json:
        print_json("studies", {"studies": list(map(vars, listed))})
    elif not listed:
        print(none_there(storage))
    else:
        head = ["study", "state", "trials", "began", "last sign of life", "metric", "best trial"]
        rows = [
            [
                entry.study,
                entry.state,
                _trials(entry),
                date(entry.started),
                date(entry.last_sign),
                _metric(entry),
                _best(entry),
            ]
            for entry in listed
        ]
        print_table([head, *rows], rule=True)
        for entry in listed:
            if entry.waits:
                print(f"{entry.study}: {entry.waits}")


def jobs(address: Address, json: Json = False) -> None:
    """List the jobs that `submit` has sent, the newest first."""
    from contrasweep.cluster.jobs import Dashboard

    listed = Dashboard(address).jobs()
    if json:
        print_json("jobs", {"jobs": listed})
    elif not listed:
        print(f"no study was submitted to {address} since its head started")
    else:
        head = ["job", "study", "storage", "by", "status", "began", "ended"]
        rows = []
        for job in listed:
            # Behind Ray's status stands how `run` ended by its exit status, or else why the job failed.
            reason = job["reason"] and f": {job['reason']}"
            ended = ENDED_AS.get(job["exit_status"] or 0, reason)
            # Status 1 stands for failed trials only where the job's last line is one that `run` prints at its end:
            # Python ends with 1 too where the program itself has failed.
            if job["exit_status"] == 1 and reason and not END_OF_RUN.match(job["reason"]):
                ended = reason
            how = job["status"] + ended
            times = (date(job["start"]), date(job["end"]))
            rows.append([job["id"], job["study"], job["storage"], job["by"], how, *times])
        print_table([head, *rows], rule=True)


def living_job(records: "StudyRecords", address: str | None) -> str:
    """Return a job of the study, on its storage, that has not ended yet, as `ID is STATUS`.

    "" without an `address`, and where the cluster there has no such job or does not answer.
    """
    from contrasweep.cluster.errors import SubmissionError
    from contrasweep.cluster.jobs import ENDED, Dashboard

    if address is None:
        return ""
    with contextlib.suppress(SubmissionError):
        for job in Dashboard(address).jobs():
            is_its = (job["study"], job["storage"]) == (records.study, records.store.uri)
            if is_its and job["status"] not in ENDED:
                return f"{job['id']} is {job['status']}"
    return ""


def known_study(study: str, storage: str) -> "StudyRecords":
    """Return the records of the study of this name in the storage.

    Raises `SpecError`, with the names of existing studies, where this one was never run there.
    """
    from contrasweep.live.overview import no_such_study
    from contrasweep.storage.records import StudyRecords

    records = StudyRecords(storage, study)
    if records.document() is None:
        raise no_such_study(study, storage)
    return records


def print_polled(
    name: str,
    members: Mapping[str, object],
    since: str | None,
    watched: Mapping[str, object] | None = None,
) -> None:
    """Print the document `name`: its members, its token, and what has changed `since` an earlier token.

    `watched` are the members that are compared; None: `members` themselves. For the document `watch`, whose one member
    is `run`, they are the members of the run.
    """
    print_json(name, {**members, **polled(members if watched is None else watched, since)})


def print_overview(entry: "Overview") -> None:
    """Print a study in a few lines: its state, trials by status, when it began, its last sign of life, its best trial.

    A driver that was killed is shown as running for another minute. The time since the last sign of life tells the
    reader more.
    """
    ago = duration(max(0.0, time.time() - entry.last_sign))
    running = f", {plural(entry.running, 'trial')} running" if entry.alive else ""
    rows = [["state", entry.state + running]]
    if entry.waits:
        rows.append(["waits", entry.waits])
    rows += [
        ["trials", _trials(entry)],
        ["began", date(entry.started)],
        ["last sign of life", f"{date(entry.last_sign)}, {ago} ago"],
        ["best trial", f"{_metric(entry)} {_best(entry)}" if entry.best is not None else "–"],
    ]
    print_table(rows)


def _trials(entry: "Overview") -> str:
    """Return how many trials have ended and how, `12 of 30: 11 done, 1 failed`; no `of 30` if no number is planned."""
    text = str(sum(entry.statuses.values()))
    if entry.trials is not None:
        text += f" of {entry.trials}"
    counts = [f"{n} {status}" for status, n in sorted(entry.statuses.items())]
    if entry.archived:
        counts.append(f"{entry.archived} archived")
    return f"{text}: {', '.join(counts)}" if counts else text


def _metric(entry: "Overview") -> str:
    """Return the study's metric by its display name."""
    return entry.labels.get(entry.metric, entry.metric)


def _best(entry: "Overview") -> str:
    """Return the best value so far with its arm, `0.9312 (supcon)`; a dash where there is none."""
    if entry.best is None:
        return "–"
    return f"{entry.best:.4g} ({entry.labels.get(entry.best_arm, entry.best_arm)})"


def date(seconds: float | None) -> str:
    """Return a time in unix seconds as `2026-01-31 12:00`, in this machine's time zone; a dash for None or 0."""
    return "–" if not seconds else f"{datetime.datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M}"
