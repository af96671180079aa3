"""What a sweep costs beside its training: the quickstart's trials by contrasweep and by five other ways to run them.

    python -m benchmarks.overhead [--trials 30 300] [--epochs 12] [--slots 2] [--only loop ours ...] [--output FILE]

All train the same trials (trainable, data, folds, seeds; more seeds where more trials are asked) with as many at once
as there are slots, each in a process of its own, one after the other; `--rounds` does so again, and the faster counts.
Wall time is that of the whole process, imports included; the plain loop has one slot. Cost is wall x slots over the
training that the trials timed themselves, less one. That all have trained the same is checked: the mean of the study's
metric must agree to the bit.
"""

import argparse
import csv
import datetime
import itertools
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from contrasweep import data
from contrasweep.data.manifest import Manifest
from contrasweep.imports import import_path
from contrasweep.planning.facade import plan
from contrasweep.study.file import load_study
from contrasweep.study.grid import AblationGrid
from contrasweep.trial import Trial

QUICKSTART = "search_spaces.quickstart:STUDY"
NAMES = {
    "loop": "plain loop, one process",
    "ours": "contrasweep, with MLflow",
    "untracked": "contrasweep, --tracking none",
    "reused": "Ray Tune, reused actors",
    "joblib": "Optuna with joblib (sqlite)",
    "tune": "Ray Tune, default actors",
}
Values = list[tuple[float, float]]
"""Of each trial: its metric, and the seconds that it trained."""


@dataclass(frozen=True)
class Task:
    """What one contestant is to do: `study` on `slots`, with everything that it writes below `folder`."""

    study: AblationGrid
    slots: int
    folder: str

    def trials(self) -> list[Trial]:
        """The study's trials, their data resolved to what lies here."""

        def resolved(name: str) -> Manifest:
            return data.resolve(name, folds=self.study.folds, storage=self.folder, write=True)

        return list(plan(self.study, storage=self.folder).relocated(resolved).trials)


def study_of(trials: int, epochs: int) -> AblationGrid:
    """The quickstart with enough seeds for `trials` of them, of so many epochs."""
    study = load_study(QUICKSTART)
    arms = {name: replace(arm, config={**arm.config, "epochs": epochs}) for name, arm in study.arms.items()}
    cell_trials = len(study.arms) * math.prod(len(values) for values in study.axes.values()) * study.folds
    return replace(study, arms=arms, seeds=list(range(math.ceil(trials / cell_trials))))


def train_whole(trial: Trial, metric: str) -> tuple[float, float]:
    """Train a trial to its end: its last value of `metric`, and the seconds."""
    began, value = time.perf_counter(), math.nan
    for report in import_path(trial.trainable, "")(trial):
        value = report.metrics.get(metric, value)
    return float(value), time.perf_counter() - began


def loop(task: Task) -> Values:
    """One after the other, a line of a CSV file for each."""
    with Path(task.folder, "results.csv").open("w", newline="") as file:
        values = []
        for trial in task.trials():
            values.append(train_whole(trial, task.study.metric))
            csv.writer(file).writerow([trial.id, *values[-1]])
            file.flush()
    return values


def ours(task: Task, *, tracked: bool = True) -> Values:
    """`contrasweep run`; with MLflow on a new sqlite file."""
    import ray

    from contrasweep.running.driver import run

    ray.init(num_cpus=task.slots, include_dashboard=False, log_to_driver=False)
    results = run(task.study, storage=task.folder, tracking=f"sqlite:///{task.folder}/mlflow.db" if tracked else None)
    ray.shutdown()
    assert results.complete, results.counts
    return [(float(record.metrics[task.study.metric]), record.seconds) for record in results.trial_records.values()]


def tune(task: Task, *, reused: bool = False) -> Values:
    """Ray Tune alone: a function as somebody writes it with the defaults, or a class whose actors take trial after
    trial."""
    import ray
    from ray import tune

    metric, trials = task.study.metric, task.trials()

    class Reused(tune.Trainable):  # type: ignore[misc]
        def setup(self, config: dict[str, Any], trials: list[Trial]) -> None:
            self.trials, self.trial = trials, trials[config["index"]]

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.trial = self.trials[new_config["index"]]
            return True

        def step(self) -> dict[str, Any]:
            value, seconds = train_whole(self.trial, metric)
            return {metric: value, "seconds": seconds, "done": True}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            """Nothing; without it, Tune counts each trial as failed at its end, and takes another actor."""

    def by_default(config: dict[str, Any], trials: list[Trial]) -> None:
        value, seconds = train_whole(trials[config["index"]], metric)
        tune.report({metric: value, "seconds": seconds})

    ray.init(num_cpus=task.slots, include_dashboard=False, log_to_driver=False)
    grid = tune.Tuner(
        tune.with_parameters(Reused if reused else by_default, trials=trials),
        param_space={"index": tune.grid_search(list(range(len(trials))))},
        tune_config=tune.TuneConfig(reuse_actors=reused),
        run_config=tune.RunConfig(storage_path=task.folder, verbose=0),
    ).fit()
    ray.shutdown()
    assert not grid.errors, grid.errors[0]
    return [(result.metrics[metric], result.metrics["seconds"]) for result in grid]


def with_joblib(task: Task) -> Values:
    """Optuna's way over processes: a study in sqlite, and as many workers as slots, each with its part of the trials.
    Of those that are put in line for all of them, sqlite now and then gives one to two workers."""
    import optuna
    from joblib import Parallel, delayed

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    trials, url = task.trials(), f"sqlite:///{task.folder}/optuna.db"
    study = optuna.create_study(storage=url, study_name=task.study.name, direction="maximize")
    parts = (trials[slot :: task.slots] for slot in range(task.slots))
    Parallel(n_jobs=task.slots)(delayed(_optimise)(url, task.study, part) for part in parts)
    return [(trial.value, trial.user_attrs["seconds"]) for trial in study.trials]


def _optimise(url: str, declared: AblationGrid, trials: list[Trial]) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study, left = optuna.load_study(study_name=declared.name, storage=url), iter(trials)

    def objective(asked: optuna.Trial) -> float:
        value, seconds = train_whole(next(left), declared.metric)
        asked.set_user_attr("seconds", seconds)
        return value

    study.optimize(objective, n_trials=len(trials))


CONTESTANTS: dict[str, Callable[[Task], Values]] = {
    "loop": loop,
    "ours": ours,
    "untracked": lambda task: ours(task, tracked=False),
    "reused": lambda task: tune(task, reused=True),
    "joblib": with_joblib,
    "tune": tune,
}


def measured(name: str, trials: int, epochs: int, slots: int) -> dict[str, float]:
    """One contestant in a process of its own, so that none warms another."""
    with tempfile.TemporaryDirectory() as folder:
        words = [f"--trials={trials}", f"--epochs={epochs}", f"--slots={slots}", "--one", name, "--folder", folder]
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.overhead", *words],
            capture_output=True,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "CONTRASWEEP_CACHE": f"{folder}/cache"},
        )
        wall_s = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found | {"wall_s": wall_s}


def row(name: str, figures: dict[str, float], loop_s: float | None, slots: int) -> str:
    """A line of the table."""
    used = figures["wall_s"] * (1 if name == "loop" else slots)
    cells = [
        f"{figures['trials']:.0f}",
        NAMES[name],
        f"{figures['wall_s']:.1f}",
        f"{figures['training_s']:.1f}",
        f"{used / figures['training_s'] - 1:.2f}",
        f"{1000 * (used - figures['training_s']) / figures['trials']:.0f}",
        "-" if loop_s is None else f"{figures['wall_s'] / loop_s:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def compared(counts: Sequence[int], names: Sequence[str], epochs: int, slots: int, rounds: int) -> list[str]:
    """Lines of the table; every contestant must have found the same mean."""
    lines = []
    for count in counts:
        best: dict[str, dict[str, float]] = {}
        for _, name in itertools.product(range(rounds), names):
            figures = measured(name, count, epochs, slots)
            print(name, figures, file=sys.stderr, flush=True)
            if name not in best or figures["wall_s"] < best[name]["wall_s"]:
                best[name] = figures
        if len(means := {figures["mean"] for figures in best.values()}) > 1:
            raise SystemExit(f"the contestants have not trained the same: means {sorted(means)}")
        loop_s = best["loop"]["wall_s"] if "loop" in best else None
        lines += [row(name, figures, loop_s, slots) for name, figures in best.items()]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, nargs="+", default=[30], help="multiples of 30")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", choices=CONTESTANTS, nargs="+", default=list(CONTESTANTS), metavar="CONTESTANT")
    parser.add_argument("--output", type=Path, help="a file to which the table is appended")
    parser.add_argument("--one", choices=CONTESTANTS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        task = Task(study_of(options.trials[0], options.epochs), options.slots, options.folder)
        values = sorted(CONTESTANTS[options.one](task))
        mean = math.fsum(value for value, _ in values) / len(values)
        training_s = math.fsum(seconds for _, seconds in values)
        print(json.dumps({"trials": len(values), "training_s": training_s, "mean": mean}))
        return
    load = os.getloadavg()[0]
    lines = compared(options.trials, options.only, options.epochs, options.slots, options.rounds)
    text = (
        f"{options.epochs} epochs a trial, {options.slots} slots, fastest of {options.rounds}; "
        f"{datetime.date.today()}, {platform.machine()}, {os.cpu_count()} shared cores, load {load:.1f} before, "
        f"{os.getloadavg()[0]:.1f} after.\n\n"
        "| trials | | wall s | training s | cost | ms of slots a trial | wall, loop = 1 |\n"
        "|---|---|---|---|---|---|---|\n" + "\n".join(lines) + "\n"
    )
    print(text)
    if options.output:
        with options.output.open("a") as file:
            file.write(("\n" if file.tell() else "") + text)


if __name__ == "__main__":
    main()
