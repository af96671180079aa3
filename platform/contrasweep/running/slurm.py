"""A study on Slurm without Ray between hosts: one array, a trial a task, written and queued again by submitit.

Everything that a task needs travels as a pickle in a folder of the user's; results go to the study's storage, where a
task finds what an earlier attempt has left.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from contrasweep.code import CurrentCode
from contrasweep.config import Config
from contrasweep.data import resolve
from contrasweep.defaults import OF_STUDY
from contrasweep.errors import ContrasweepError, SpecError
from contrasweep.imports import import_path, install_command
from contrasweep.planning.grid import GridPlan
from contrasweep.planning.planner import plan
from contrasweep.processes import sweep_scratch
from contrasweep.running.prepare import Changed, declared_as_before_if_refused, prepare, run_flags
from contrasweep.running.study_code import checked_function
from contrasweep.running.worker.execution import Execution
from contrasweep.running.worker.output import Output
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

FOLDER = "contrasweep-slurm"
MOST_TASKS = 1000
"""Of an array, by Slurm's default; a task of a larger study trains several trials, one after the other."""
SCRIPT = Path(__file__).parents[1] / "cluster" / "files" / "slurm.sh"
ONE_TASK = (
    "export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1} OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}"
)
"""A step has one core otherwise, since Slurm 22.05."""


@dataclass(frozen=True)
class Task:
    """A task of the array: the trials that it trains one after the other, and what all tasks share.

    Each trial stands with its trainable as a function (None: it is imported by its dotted path) and its code.
    """

    trials: Sequence[tuple[Trial, Callable[..., Any] | None, CodeRef]]
    storage: str
    metric: str
    retention: Retention

    def __call__(self) -> str:
        """Train those of the trials that have no record, each from its newest checkpoint; return how they ended."""
        sweep_scratch()
        return ", ".join(
            f"{trial.id} {self._train(trial, train, code)}" for trial, train, code in self.trials
        )

    def _train(self, trial: Trial, function: Any, code: CodeRef) -> str:
        """Train one trial unless it has its record; return the status that it ended with.

        `function` is the trainable where it was declared as a function; None: it is imported by its dotted path.
        """
        records = StudyRecords(self.storage, trial.study, patient=True)
        if (record := records.read_one(trial.id)) is not None:
            return record.status
        loaded, packages = checked_function(
            self.storage,
            trial.study,
            code.digest,
            lambda: function or import_path(trial.trainable, "trainable"),
        )
        notes = TrialNotes(gpus=float(os.environ.get("SLURM_GPUS_ON_NODE") or 0))
        train = as_generator(loaded)
        with closing(Output(records, trial.id).open()) as output:
            execution = Execution(
                trial,
                train,
                records,
                metric=self.metric,
                notes=notes,
                code=code,
                packages=packages,
                output=output,
                retention=self.retention,
            )
            # Nobody decides on its reports, so that a second of them at a time is enough.
            while (record := execution.advance(1.0).record) is None:
                pass
        return record.status

    def checkpoint(self) -> Any:
        """Return what submitit sends again before the time is up, or where the task is preempted: the same task.

        It finds the records of the trials that it has ended, and the checkpoint of the one that was running.
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
    **again: Any,
) -> tuple[str, int]:
    """Send the trials of a study that have no record as one array; return its id and the number of its tasks.

    `options` are sbatch's, by their long names, for each task; at most `max_concurrent` tasks run at once. `again` are
    those of `prepare`. A study whose trials follow from results goes as a single job, which runs Ray within its
    allocation. ("", 0) where every trial has its record. `ContrasweepError` where the study is sent already, or Slurm
    refuses it, `SpecError` without a number of minutes.
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
    # Slurm keeps a comment beside a job: the storage tells this study from one of the same name elsewhere.
    waiting = _call("squeue", "--noheader", "--me", f"--name={name}", "--format=%A %k").splitlines()
    if mine := [line.split()[0] for line in waiting if line.split(maxsplit=1)[1:] == [storage]]:
        raise SpecError(
            "this study has been sent already",
            place=study,
            value=mine[0],
            hint=f"scancel {mine[0]}",
        )
    # Results decide what runs next, so one job runs the study with a driver of its own.
    if needs_driver(declared):
        words = [f"--{key}={value}" for key, value in {"nodes": "1", **options}.items()]
        run = [
            study,
            "--storage",
            storage,
            *(word for change in sets for word in ("--set", change)),
        ]
        run += ["--tracking", tracking] if tracking != OF_STUDY else []
        run += run_flags(changed, max_concurrent, again)
        job = _call(
            "sbatch",
            "--parsable",
            f"--job-name={name}",
            f"--comment={storage}",
            *words,
            str(SCRIPT),
            *run,
        )
        return job.strip(), 1
    tasks = _tasks(declared, storage, changed, again)
    return (_send(tasks, name, storage, options, max_concurrent), len(tasks)) if tasks else ("", 0)


def needs_driver(study: Study) -> bool:
    """Whether what runs next follows from results: of a search, looks, a budget, or networks that arms start from."""
    budgets = study.budget_hours or study.budget_gpu_hours
    starts = any(arm.start for arm in study.arms.values())
    return bool(not isinstance(study, AblationGrid) or study.replicates or budgets or starts)


def _tasks(study: Study, storage: str, changed: Changed, again: Config) -> list[Task]:
    """Claim the study as a driver does, keep its code in the storage, and return its tasks; [] where all has ended.

    `again` are those of `prepare`. The claim ends with this function, since tasks write records of their own trials.
    """
    from contrasweep.running.engine.loop import StudyCode

    planned = plan(study, storage=storage)
    records = StudyRecords(storage, study.name)
    assert isinstance(planned, GridPlan)
    records.store.check_writable()
    extend = bool(again.get("extend"))
    with exclusive_driver(records), declared_as_before_if_refused(records, extend=extend):
        code = CurrentCode(study.functions)
        prepared = prepare(planned, records, code, changed=changed, **again)
        planned = planned.relocated(
            partial(resolve, folds=study.folds, storage=storage, write=True)
        )
        codes = StudyCode(records, code, partial(print, file=sys.stderr))
        to_run = [
            (trial, study.functions.get(trial.trainable), codes.of(trial))
            for trial in planned.trials
            if trial.id not in prepared.finished
        ]
    # Task i has the trials i, i + count, i + 2 count, ...: of each arm about as many.
    count = min(len(to_run), MOST_TASKS)
    retention = Retention(study.keep, study.metric, study.mode)
    return [Task(to_run[i::count], storage, study.metric, retention) for i in range(count)]


def _send(
    tasks: Sequence[Task], name: str, storage: str, options: Mapping[str, str], most: int | None
) -> str:
    """Send the tasks as one array by submitit; return the array's id.

    `name` is the job's, `storage` its comment, `options` are sbatch's, and at most `most` tasks run at once (None:
    all). `SpecError` without submitit, and where others may write to its folder.
    """
    try:
        import submitit
    except ImportError:
        raise SpecError(
            "arrays need submitit", place="--slurm", hint=install_command("slurm")
        ) from None
    folder = Path(FOLDER)
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.lstat()  # of a link too
    if about.st_uid != os.getuid() or about.st_mode & 0o022:
        hint = f"chmod go-w {FOLDER}, or run the command elsewhere"
        raise SpecError(
            "tasks run what lies in a folder that you alone may write to",
            place=str(folder),
            hint=hint,
        )
    # A task that was out of time is queued again as often as it takes. Options that submitit has no name for go to
    # sbatch as they are.
    executor = submitit.SlurmExecutor(FOLDER, max_num_timeout=10**6)
    names = executor._valid_parameters()
    given = {key.replace("-", "_"): value for key, value in options.items() if key != "time"}
    further_options = {
        key.replace("_", "-"): value for key, value in given.items() if key not in names
    }
    executor.update_parameters(
        **{key: value for key, value in given.items() if key in names},
        time=int(options["time"]),
        job_name=name,
        comment=storage,
        array_parallelism=most or len(tasks),
        setup=[ONE_TASK],
        stderr_to_stdout=True,
        additional_parameters=further_options,
    )
    try:
        with executor.batch():
            jobs = [executor.submit(task) for task in tasks]
    except submitit.core.utils.FailedJobError as error:
        raise ContrasweepError(f"Slurm refuses the study: {' '.join(str(error).split())}") from None
    return str(jobs[0].job_id).partition("_")[0]


def _call(*words: str) -> str:
    """Return what a command of Slurm prints; `ContrasweepError` with what it says where it fails."""
    try:
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout
    except FileNotFoundError:
        raise ContrasweepError(
            f"there is no {words[0]} here; run the command on a host that submits to Slurm"
        ) from None
    except subprocess.CalledProcessError as error:
        raise ContrasweepError(f"{words[0]}: {' '.join(error.stderr.split())}") from None
