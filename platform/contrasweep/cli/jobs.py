"""Commands on jobs: submit a study to a cluster, ask for its status, read its log, stop it."""

import sys
from typing import Annotated

import typer

from contrasweep.cli.options import (
    AcceptCode,
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
    Tracking,
    changed_code,
    print_json,
)
from contrasweep.defaults import STORAGE, TRACKING

Job = Annotated[str, typer.Argument(metavar="JOB", help="A job's id, as `submit` printed it.")]
Address = Annotated[
    str, typer.Option(help="The cluster's dashboard, http://HEAD:8265.", envvar="RAY_API_SERVER_ADDRESS")
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
    tracking: Tracking = TRACKING,
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
        raise typer.Exit(EXIT.get(job.follow(sys.stdout.write), 1))


def status(job: Job, address: Address, json: Json = False) -> None:
    """Print PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED."""
    from cluster import submission

    state = submission.status(job, address=address)
    print_json({"job": job, "status": state}) if json else print(state)
    raise typer.Exit(EXIT.get(state, 1))


def logs(job: Job, address: Address, follow: Follow = False) -> None:
    """Print what a job has printed so far, or follow it; following attaches again when the connection breaks."""
    from cluster import submission

    if follow:
        raise typer.Exit(EXIT.get(submission.follow(job, address=address, write=sys.stdout.write), 1))
    sys.stdout.write(submission.logs(job, address=address))


def stop(job: Job, address: Address) -> None:
    """Stop a job: finished trials are kept, and submitting the study again goes on from there."""
    from cluster import submission

    print(submission.stop(job, address=address))
