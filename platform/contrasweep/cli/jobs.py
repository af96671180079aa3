"""Commands on jobs: submit a study to a cluster, ask for its status, read its log, stop it."""

import sys
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from contrasweep.cli import reports, watching
from contrasweep.cli.options import (
    AcceptCode,
    AddressOrNone,
    Cluster,
    Extend,
    Json,
    MaxConcurrent,
    Rerun,
    RerunChanged,
    RetryFailed,
    Sets,
    Since,
    Spend,
    Storage,
    Study,
    StudyTracking,
    changed_code,
    flag,
    option,
    print_json,
)
from contrasweep.config import MutableConfig
from contrasweep.defaults import OF_STUDY, STORAGE
from contrasweep.errors import SpecError, plural
from contrasweep.shell import command_line

if TYPE_CHECKING:
    from contrasweep.cluster.jobs import Job
    from contrasweep.storage.records import StudyRecords

JobOrStudy = Annotated[
    str,
    typer.Argument(
        metavar="JOB|STUDY",
        help="A job's id, or a study of the storage: its name, module:NAME, or a .yaml file.",
    ),
]
Follow = Annotated[bool, flag("--follow", "Print what the job prints until it ends.")]
EXIT_STATUS = {"SUCCEEDED": 0, "RUNNING": 0, "PENDING": 0}
"""Status of a job -> exit status of the command that waits for it or asks; 1 for any other status."""


def submit(
    study: Study,
    address: AddressOrNone = None,
    storage: Storage = STORAGE,
    tracking: StudyTracking = OF_STUDY,
    sets: Sets = None,
    dry_run: Annotated[
        bool, flag("--dry-run", "List the files that would be sent; send none.")
    ] = False,
    follow: Follow = False,
    json: Json = False,
    max_concurrent: MaxConcurrent = None,
    extend: Extend = False,
    spend: Spend = False,
    retry_failed: RetryFailed = False,
    rerun: Rerun = None,
    rerun_changed: RerunChanged = False,
    accept_code: AcceptCode = False,
    cluster: Cluster = None,
    slurm: Annotated[
        bool, flag("--slurm", "Send it to Slurm: an array, a trial per task.")
    ] = False,
    sbatch: Annotated[
        list[str] | None,
        option("With --slurm: an option of sbatch; repeatable.", metavar="NAME=VALUE"),
    ] = None,
) -> None:
    """Run a study as a job on a Ray cluster, or on Slurm.

    This machine may go away once the job is accepted.
    """
    from contrasweep.running.submit import files_to_send
    from contrasweep.running.submit import submit as send
    from contrasweep.study.file import load_study

    # What the job's own `contrasweep run` is told.
    run_arguments: MutableConfig = {
        "storage": storage,
        "tracking": tracking,
        "sets": sets or [],
        "max_concurrent": max_concurrent,
        "changed": changed_code(rerun_changed, accept_code),
        "extend": extend,
        "spend": spend,
        "retry_failed": retry_failed,
        "rerun": rerun or [],
    }
    if slurm:
        if dry_run or follow or cluster:
            raise SpecError(
                "--slurm goes without --dry-run, --follow and --cluster", place="submit"
            )
        _submit_slurm(study, sbatch or [], run_arguments, json)
        return
    if dry_run:
        sizes = files_to_send(study, sets=sets or [], cluster=cluster)
        files = [{"file": name, "bytes": size} for name, size in sizes.items()]
        total = sum(sizes.values())
        if json:
            print_json("submit", {"files": files, "bytes": total})
            return
        # Sizes stand below each other, as wide as the largest.
        wide = len(f"{max(sizes.values(), default=0):,}")
        for name, size in sizes.items():
            print(f"{size:>{wide},}  {name}")
        print(f"{plural(len(sizes), 'file')} would be sent, {total / 2**20:.2f} MiB")
        return
    if address is None:
        hint = "--address http://HEAD:8265, or --dry-run to see what would be sent"
        raise SpecError("a job goes to the dashboard of a cluster", place="--address", hint=hint)
    job = send(study, address=address, cluster=cluster, **run_arguments)
    if json:
        print_json("submit", {"job": job.id, "address": address})
    else:
        name = load_study(study, run_arguments["sets"]).name
        print(
            f"job:      {job.id}\nstatus:   {command_line('status', job.id, address=address)}\n"
            f"log:      {command_line('logs', job.id, address=address, follow=True)}\n"
            f"watch:    {command_line('watch', name, storage=storage, address=address)}"
        )
    if follow:
        _follow(job)


def _submit_slurm(study: str, sbatch: list[str], run_arguments: MutableConfig, json: bool) -> None:
    """Send a study to Slurm as an array of jobs.

    Print its id, and the commands that show how far it is and that end it; with `json` a document. `sbatch` has options
    of sbatch as NAME=VALUE. `run_arguments` has the arguments of `contrasweep run` in the job, by name.
    """
    from contrasweep.running.slurm import submit_slurm
    from contrasweep.study.file import load_study

    # `partition` gives NAME, = and VALUE, of which the second is left out.
    options = dict(word.partition("=")[::2] for word in sbatch)
    array, tasks = submit_slurm(study, options=options, **run_arguments)
    if json:
        print_json("submit", {"job": array, "address": "slurm"})
    elif array:
        name = load_study(study, run_arguments["sets"]).name
        status_line = command_line("status", name, storage=run_arguments["storage"])
        print(f"job:      {array} ({plural(tasks, 'task')})")
        print(f"status:   {status_line}\nend:      scancel {array}")
    else:
        print("every trial has its record")


def status(
    name: JobOrStudy,
    address: AddressOrNone = None,
    storage: Storage = STORAGE,
    json: Json = False,
    since: Since = None,
) -> None:
    """Print how far a study is, or the status of a job.

    A job is PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED.
    """
    from contrasweep.storage.records import StudyRecords

    # A name that the storage has is a study; any other one is a job's id, which only a cluster can know.
    study = reports.name(name)
    records = StudyRecords(storage, study)
    document = records.document()
    if document is not None:
        from contrasweep.live.overview import overview

        entry = overview(records, document)
        if json:
            watching.print_polled("status", vars(entry), since)
        else:
            watching.print_overview(entry)
            job_of_study = "" if entry.alive else watching.living_job(records, address)
            if job_of_study:
                print(f"job {job_of_study}")
        return
    if address is None:  # raises, with the names of the studies that there are
        _stored(name, storage)
    job = _job(name, str(address), storage)
    state = job.status()
    if json:
        watching.print_polled("status", {"job": job.id, "status": state}, since)
    else:
        print(f"{job.id}: {state}\nlog: {command_line('logs', job.id, address=job.address)}")
    # So that a script sees a job that failed or was stopped.
    raise typer.Exit(EXIT_STATUS.get(state, 1))


def logs(
    name: JobOrStudy,
    trial: Annotated[
        str | None,
        typer.Argument(help="A trial's id, or its beginning; left out for a job, or to see ids."),
    ] = None,
    address: AddressOrNone = None,
    storage: Storage = STORAGE,
    follow: Follow = False,
) -> None:
    """Print what a trial or a job has printed so far.

    The log of a trial that failed ends with its traceback. Following a job attaches again when the connection breaks.
    """
    if trial is not None or address is None:
        from contrasweep.live import logs as trial_logs

        records = _stored(name, storage)
        trial_id = trial_logs.find_trial(records, trial or "")
        if follow:
            trial_logs.follow(records, trial_id, _write)
            return
        # What it has printed, then how it ended, if it has.
        _write(trial_logs.read_log(records, trial_id))
        _write(trial_logs.ending(records, trial_id, records.read_one(trial_id)))
        return
    job = _job(name, address, storage)
    if follow:
        _follow(job)  # which ends the command
    _write(job.logs())


def _follow(job: "Job") -> NoReturn:
    """Print what the job prints until it ends, and end this command with the exit status for the job's end.

    Ctrl-C ends this command alone, and the job goes on.
    """
    from contrasweep.running.signals import interruption

    interruption.then = f"the job goes on: {job.command('logs')} --follow"
    raise typer.Exit(EXIT_STATUS.get(job.follow(_write), 1))


def _stored(name: str, storage: str) -> "StudyRecords":
    """Return the records of the study that `name` means in the storage.

    `SpecError` where the storage has no such study, and where `name` is the id of a job, which only its cluster knows.
    """
    from contrasweep.cluster.jobs import JOB_ID
    from contrasweep.storage.records import study_names

    if JOB_ID.fullmatch(name) and name not in study_names(storage):
        raise SpecError("a job is known to its cluster", place="--address", hint="http://HEAD:8265")
    return watching.known_study(reports.name(name), storage)


def _write(text: str) -> None:
    """Write to standard output at once, without a line end of its own."""
    sys.stdout.write(text)
    sys.stdout.flush()


def stop(name: JobOrStudy, address: AddressOrNone = None, storage: Storage = STORAGE) -> None:
    """Stop a job, or the command that runs a study here.

    With --address it stops a job on that cluster. Without, it stops the process of this machine that runs the study, or
    that runs a study of the campaign of this name. Finished trials are kept, and the same command goes on from there.
    """
    if address is not None:
        from contrasweep.cluster.jobs import ENDED

        job = _job(name, address, storage)
        state = job.status()
        if state in ENDED:
            raise SpecError(f"this job has ended: {state}", place="stop", value=job.id)
        print(f"{job.id}: {job.stop()}")
        return
    from contrasweep.storage.lease import stop_driver, stop_listening
    from contrasweep.storage.records import StudyRecords

    study = reports.name(name)
    # A command listens from its start on, before it holds a study.
    holder = stop_listening(StudyRecords(storage, study))
    print(f"asked {holder or stop_driver(_stored(name, storage))} to stop")


def _job(name: str, address: str, storage: str) -> "Job":
    """Return the job with the id `name`; if `name` is a study's, the newest job of that study on this storage.

    `SpecError` where the cluster has jobs of a study of this name, but all of them on other storages: they may be
    another person's. Where it has none, `name` is taken as an id. Whether a job has this id is found at the first call
    of a method.
    """
    from contrasweep.cluster.jobs import JOB_ID, Dashboard, Job
    from contrasweep.storage.store import open_store

    if JOB_ID.fullmatch(name):
        return Job(name, address)
    study = reports.name(name)
    place = open_store(storage).uri
    others = []
    for job in Dashboard(address).jobs():
        if job["study"] == study:
            if job["storage"] == place:
                return Job(job["id"], address)
            others.append(f"{job['id']} on {job['storage']}")
    if others:
        raise SpecError(
            f"no job of study {study} is on this storage",
            place="--storage",
            value=place,
            hint=f"pass the job's storage or its id: {', '.join(others[:5])}",
        )
    return Job(name, address)
