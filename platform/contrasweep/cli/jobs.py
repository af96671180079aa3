"""Commands on jobs: submit a study to a cluster, ask for its status, read its log, stop it."""

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from contrasweep.cli import reports, watching
from contrasweep.cli.options import (
    AcceptCode,
    Address,
    Cluster,
    Extend,
    Json,
    MaxConcurrent,
    Rerun,
    RerunChanged,
    RetryFailed,
    Sets,
    Storage,
    Study,
    StudyTracking,
    changed_code,
    print_json,
)
from contrasweep.defaults import OF_STUDY, STORAGE
from contrasweep.errors import SpecError

JobId = Annotated[str, typer.Argument(metavar="JOB", help="A job's id, as `submit` printed it.")]
JobOrStudy = Annotated[
    str, typer.Argument(metavar="JOB|STUDY", help="A job's id, or a study: its name, module:NAME, or a .yaml file.")
]
Follow = Annotated[bool, typer.Option("--follow", help="Print what the job prints until it ends.")]
EXIT = {"SUCCEEDED": 0, "RUNNING": 0, "PENDING": 0}


def add_to(app: typer.Typer) -> None:
    """Add the commands on jobs to the main application."""
    for command in (submit, status, logs, stop):
        app.command()(command)


def submit(
    study: Study,
    address: Address,
    storage: Storage = STORAGE,
    tracking: StudyTracking = OF_STUDY,
    sets: Sets = None,
    follow: Follow = False,
    json: Json = False,
    max_concurrent: MaxConcurrent = None,
    extend: Extend = False,
    retry_failed: RetryFailed = False,
    rerun: Rerun = None,
    rerun_changed: RerunChanged = False,
    accept_code: AcceptCode = False,
    cluster: Cluster = None,
) -> None:
    """Run a study as a job on a Ray cluster; this machine may go away once it is accepted."""
    from contrasweep.running.submit import submit as send

    job = send(
        study,
        address=address,
        storage=storage,
        tracking=tracking,
        sets=sets or [],
        max_concurrent=max_concurrent,
        extend=extend,
        retry_failed=retry_failed,
        rerun=rerun or [],
        changed=changed_code(rerun_changed, accept_code),
        cluster=cluster,
    )
    if json:
        print_json({"job": job.id, "address": address})
    else:
        print(
            f"job:      {job.id}\nstatus:   contrasweep status {job.id} --address {address}\n"
            f"log:      contrasweep logs {job.id} --address {address} --follow"
        )
    if follow:
        raise typer.Exit(EXIT.get(job.follow(_write), 1))


def status(name: JobOrStudy, address: Address | None = None, storage: Storage = STORAGE, json: Json = False) -> None:
    """Print a job's status, PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED; or how far a study is, from its storage."""
    from contrasweep.storage.records import StudyRecords

    study = reports.name(name)
    if (document := StudyRecords(storage, study).document()) is not None:
        from contrasweep.live.overview import overview

        entry = overview(StudyRecords(storage, study), document)
        print_json(asdict(entry) | {"state": entry.state}) if json else watching.print_overview(entry)
        return
    if address is None:
        watching.known_study(study, storage)
    from contrasweep.cluster.jobs import Job

    state = Job(name, str(address)).status()
    print_json({"job": name, "status": state}) if json else print(state)
    raise typer.Exit(EXIT.get(state, 1))


def logs(
    name: JobOrStudy,
    trial: Annotated[str | None, typer.Argument(help="A trial's id, or its beginning: print that trial's log.")] = None,
    address: Address | None = None,
    storage: Storage = STORAGE,
    follow: Follow = False,
) -> None:
    """Print what a trial of a study has printed, with its traceback; or what a job has printed so far.

    Following a job attaches again when the connection breaks.
    """
    if trial is not None:
        from contrasweep.live import logs as trial_logs

        records = watching.known_study(reports.name(name), storage)
        trial_id = trial_logs.find_trial(records, trial)
        if follow:
            trial_logs.follow(records, trial_id, _write)
            return
        _write(trial_logs.read_log(records, trial_id))
        _write(trial_logs.ending(records, trial_id, records.read_one(trial_id)))
        return
    if address is None:
        raise SpecError(
            "the log of a job needs --address, that of a trial its id",
            place="logs",
            value=name,
            hint=f"contrasweep logs {name} TRIAL, or contrasweep logs {name} --address http://HEAD:8265",
        )
    from contrasweep.cluster.jobs import Job

    job = Job(name, address)
    if follow:
        raise typer.Exit(EXIT.get(job.follow(_write), 1))
    _write(job.logs())


def _write(text: str) -> None:
    """To standard output, at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def stop(job: JobId, address: Address) -> None:
    """Stop a job: finished trials are kept, and submitting the study again goes on from there."""
    from contrasweep.cluster.jobs import Job

    print(Job(job, address).stop())
