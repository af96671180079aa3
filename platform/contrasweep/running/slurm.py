"""A study on Slurm without Ray between hosts: one job array, in which each task trains a trial.

submitit writes the tasks as pickles into a folder of the user, and queues a task again when its time is over. Results
go to the study's storage, where a task finds the checkpoint of an earlier attempt.
"""

import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from contrasweep.code import CurrentCode
from contrasweep.config import Config
from contrasweep.data import resolve
from contrasweep.defaults import OF_STUDY
from contrasweep.errors import BrokenFileError, ContrasweepError, SpecError, StorageError
from contrasweep.imports import import_path, install_command
from contrasweep.planning.grid import GridPlan
from contrasweep.planning.planner import plan
from contrasweep.processes import sweep_scratch
from contrasweep.running.prepare import Changed, declared_as_before_if_refused, prepare, run_flags
from contrasweep.running.worker.execution import begin
from contrasweep.running.worker.isolation import Isolation
from contrasweep.storage.checkpoints import Retention
from contrasweep.storage.lease import exclusive_driver
from contrasweep.storage.record import CodeRef, TrialNotes
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.store import open_store
from contrasweep.study.file import load_study
from contrasweep.study.grid import AblationGrid
from contrasweep.study.sweep import Study
from contrasweep.study.trainables import as_generator
from contrasweep.trial import Trial

TASK_FOLDER = "contrasweep-slurm"
"""The folder, within the current one, to which submitit writes the tasks."""
MOST_TASKS = 1000
"""Tasks that Slurm allows in an array by default. In a larger study a task trains several trials in turn."""
SCRIPT = Path(__file__).parents[1] / "cluster" / "files" / "slurm.sh"
"""The batch script of a study that needs a driver."""
TASK_SETUP = (
    "export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1} OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}"
)
"""A line of a task's shell script. It sets the cores of the task's step, which are one otherwise, since Slurm 22.05."""


class TaskTrial(NamedTuple):
    """A trial that a task of the array trains, with its trainable and its code.

    `function` is the trainable where the study declared it as a function. None: the trainable is imported by its dotted
    path.
    """

    trial: Trial
    function: Callable[..., Any] | None
    code: CodeRef


@dataclass(frozen=True)
class Task:
    """A task of the array: the trials that it trains one after the other, and what all tasks share."""

    trials: Sequence[TaskTrial]
    storage: str
    metric: str
    retention: Retention

    def __call__(self) -> str:
        """Train each trial that has no record, from its newest checkpoint; return a line `ID STATUS` for each trial.

        An error that only concerns one trial, such as memory that runs out, is raised after the others are trained.
        """
        sweep_scratch()  # temporary folders that killed processes have left on this host
        ended = []
        errors = []
        isolation = Isolation()
        for described in self.trials:
            trial = described.trial
            try:
                ended.append(f"{trial.id} {self._train(described, isolation)}")
            except Exception as error:
                if isinstance(error, StorageError) and not isinstance(error, BrokenFileError):
                    raise  # no other trial could be recorded either
                traceback.print_exc()
                errors.append(error)
            # With the trial's own trainable as the next one, `end` says only what the trial itself has left or changed.
            left = isolation.end(trial.trainable)
            if left:
                print(f"arm {trial.arm} {left}; this task's later trials may differ by it")
        if errors:
            raise errors[0]
        return ", ".join(ended)

    def _train(self, described: TaskTrial, isolation: Isolation) -> str:
        """Train a trial, unless it has its record already; return the status of its record.

        As under Ray, `isolation` restores the global states of the process, and seeds the random generators for the
        trial.
        """
        trial, function, code = described
        records = StudyRecords(self.storage, trial.study, patient=True)
        record = records.read_one(trial.id)
        if record is not None:
            return record.status
        attempt = begin(
            trial,
            code,
            lambda: as_generator(function or import_path(trial.trainable, "trainable")),
            isolation,
            records,
            metric=self.metric,
            notes=TrialNotes(gpus=float(os.environ.get("SLURM_GPUS_ON_NODE") or 0)),
            retention=self.retention,
        )
        # No pruner decides on the reports, so the trial advances by a second of training at a time.
        with closing(attempt) as execution:
            while record is None:
                record = execution.advance(1.0).record
        return record.status

    def checkpoint(self) -> Any:
        """Return the same task, which submitit queues again; submitit calls this shortly before it ends the task.

        That is before the task's time is up, and at a preemption. The queued task skips the trials that have their
        records, and resumes the interrupted one from its checkpoint.
        """
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def submit_slurm(
    study: str,
    *,
    storage: str,
    tracking: str = OF_STUDY,
    sets: Sequence[str] = (),
    options: Mapping[str, str],
    max_concurrent: int | None = None,
    changed: Changed = "stop",
    **prepare_options: Any,
) -> tuple[str, int]:
    """Send a study to Slurm; return the id of the job or array, and the number of its tasks.

    The trials without a record are one array. A study that needs a driver (`needs_driver`) is a single job instead,
    which runs Ray within its allocation.

    Args:
        study: The study, `module:NAME` or a YAML file.
        storage: The storage that all hosts reach.
        tracking: Passed to `contrasweep run` in a single job.
        sets: Changes of fields, `"path=value"` each.
        options: Options of sbatch for each task, by their long names; `time` is needed, in minutes.
        max_concurrent: Tasks that run at once, at most; None: all.
        changed: As in `prepare`.
        prepare_options: Other arguments of `prepare`: `extend`, `spend`, `retry_failed` and `rerun`.

    Returns:
        The id and the number of tasks; ("", 0) where every trial has its record.

    Raises:
        SpecError: `time` is no number of minutes, or the study is in the queue already.
        ContrasweepError: Slurm refuses the study.
    """
    declared = load_study(study, sets)
    storage = open_store(storage).uri
    name = f"contrasweep-{declared.name}"
    minutes = options.get("time", "")
    if not minutes.isdecimal():
        hint = "--sbatch time=240: it is queued again when they are over, and goes on"
        raise SpecError(
            "a job has a number of minutes", place="--sbatch time", value=minutes, hint=hint
        )
    # A line of the queue is the id of a job and its comment, which is the storage: a study of the same name in another
    # storage is another study.
    for line in _call(
        "squeue", "--noheader", "--me", f"--name={name}", "--format=%A %k"
    ).splitlines():
        job, *comment = line.split(maxsplit=1)
        if comment == [storage]:
            raise SpecError(
                "this study has been sent already", place=study, value=job, hint=f"scancel {job}"
            )
    # One job, in which `contrasweep run` is the driver.
    if needs_driver(declared):
        # Ray runs on one host here, unless the user's options ask for more.
        flags = [f"--{key}={value}" for key, value in {"nodes": "1", **options}.items()]
        run = [
            study,
            "--storage",
            storage,
            *(word for change in sets for word in ("--set", change)),
        ]
        run += ["--tracking", tracking] if tracking != OF_STUDY else []
        run += run_flags(changed, max_concurrent, prepare_options)
        job = _call(
            "sbatch",
            "--parsable",
            f"--job-name={name}",
            f"--comment={storage}",
            *flags,
            str(SCRIPT),
            *run,
        )
        return job.strip(), 1
    # An array.
    tasks = _tasks(declared, storage, changed, prepare_options)
    if not tasks:
        return "", 0
    return _send(tasks, name, storage, options, max_concurrent), len(tasks)


def needs_driver(study: Study) -> bool:
    """Return whether a driver must run as long as the study does, so that one job array is not enough.

    It must where results decide what runs next: in a search, with looks, and with arms that start from networks of
    other trials. It must, too, where time ends trials or the run: with a budget, and with limits on a trial's time.
    """
    searches = not isinstance(study, AblationGrid)
    budgets = study.budget_hours or study.budget_gpu_hours
    limits = study.trial_hours or study.report_minutes
    starts = any(arm.start for arm in study.arms.values())
    return bool(searches or study.replicates or budgets or limits or starts)


def _tasks(study: Study, storage: str, changed: Changed, prepare_options: Config) -> list[Task]:
    """Prepare the study as a driver does, write its code to the storage, and return its tasks; [] if none is left.

    `changed` and `prepare_options` are those of `prepare`. The lease is held only in here: the tasks need none, because
    each writes the records of its own trials alone.
    """
    from contrasweep.running.engine.loop import StudyCode

    planned = plan(study, storage=storage)
    records = StudyRecords(storage, study.name)
    assert isinstance(planned, GridPlan)
    records.store.check_writable()
    extend = bool(prepare_options.get("extend"))
    with exclusive_driver(records), declared_as_before_if_refused(records, extend=extend):
        code = CurrentCode(study.functions)
        prepared = prepare(planned, records, code, changed=changed, **prepare_options)
        planned = planned.relocated(
            partial(resolve, folds=study.folds, storage=storage, write=True)
        )
        codes = StudyCode(records, code, partial(print, file=sys.stderr))
        to_run = [
            TaskTrial(trial, study.functions.get(trial.trainable), codes.of(trial))
            for trial in planned.trials
            if trial.id not in prepared.finished
        ]
    # Task i has the trials i, i + count, i + 2 count, ..., so that all tasks have about as many trials of each arm.
    count = min(len(to_run), MOST_TASKS)
    retention = Retention(study.keep, study.metric, study.mode)
    return [Task(to_run[i::count], storage, study.metric, retention) for i in range(count)]


def _send(
    tasks: Sequence[Task],
    name: str,
    storage: str,
    options: Mapping[str, str],
    max_concurrent: int | None,
) -> str:
    """Send the tasks as one array by submitit; return the array's id.

    `name` is the job's name, `storage` its comment, and `options` are sbatch's options. At most `max_concurrent`
    tasks run at once (None: all). Raises `SpecError` without submitit and where others may write to its folder,
    `ContrasweepError` where Slurm refuses the tasks.
    """
    try:
        import submitit
    except ImportError:
        raise SpecError(
            "arrays need submitit", place="--slurm", hint=install_command("slurm")
        ) from None
    # Tasks unpickle files of this folder, so the group and others (0o022) must not be allowed to write to it. A link is
    # checked itself.
    folder = Path(TASK_FOLDER)
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        hint = f"chmod go-w {TASK_FOLDER}, or run the command elsewhere"
        raise SpecError(
            "tasks run what lies in a folder that you alone may write to",
            place=str(folder),
            hint=hint,
        )
    # A task whose time is over is queued again as often as it takes.
    executor = submitit.SlurmExecutor(TASK_FOLDER, max_num_timeout=10**6)
    # Options that submitit has a parameter for go to it, all others to sbatch as they are. `time` goes to submitit,
    # as a number.
    submitit_names = executor._valid_parameters()
    parameters = {key.replace("-", "_"): value for key, value in options.items() if key != "time"}
    further_options = {
        key.replace("_", "-"): value
        for key, value in parameters.items()
        if key not in submitit_names
    }
    executor.update_parameters(
        **{key: value for key, value in parameters.items() if key in submitit_names},
        time=int(options["time"]),
        job_name=name,
        comment=storage,
        array_parallelism=max_concurrent or len(tasks),
        setup=[TASK_SETUP],
        stderr_to_stdout=True,
        additional_parameters=further_options,
    )
    try:
        with executor.batch():
            jobs = [executor.submit(task) for task in tasks]
    except submitit.core.utils.FailedJobError as error:
        raise ContrasweepError(f"Slurm refuses the study: {' '.join(str(error).split())}") from None
    # The id of a task is ARRAY_NUMBER.
    return str(jobs[0].job_id).partition("_")[0]


def _call(*words: str) -> str:
    """Return what a command of Slurm prints; raise `ContrasweepError` with its error output where it fails."""
    try:
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout
    except FileNotFoundError:
        raise ContrasweepError(
            f"there is no {words[0]} here; run the command on a host that submits to Slurm"
        ) from None
    except subprocess.CalledProcessError as error:
        raise ContrasweepError(f"{words[0]}: {' '.join(error.stderr.split())}") from None
