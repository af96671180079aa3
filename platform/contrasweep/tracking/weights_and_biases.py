"""Weights & Biases, offline: `--tracking wandb:FOLDER` writes runs for `wandb sync FOLDER/wandb/offline-run-*`."""

import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING

from contrasweep.errors import SpecError
from contrasweep.storage.attempts import BegunTrial
from contrasweep.storage.names import local_path
from contrasweep.storage.record import Record
from contrasweep.tracking.event_files import trial_name
from contrasweep.tracking.tracked_study import TrackedStudy

if TYPE_CHECKING:
    import wandb


class WandbTracker:
    """One offline run a trial: the project is the study, the group the arm, the id the trial's."""

    def __init__(self, folder: str, study: TrackedStudy) -> None:
        self.folder, self.study = local_path(folder, "tracking").resolve(), study
        self.folder.mkdir(parents=True, exist_ok=True)
        self.runs: dict[str, wandb.Run] = {}

    def start(self, trial: BegunTrial) -> None:
        """Begin the trial's run; one that was begun before goes."""
        import wandb

        if (earlier := self.runs.pop(trial.id, None)) is not None:
            earlier.finish(exit_code=1)
        for folder in (self.folder / "wandb").glob(f"offline-run-*-{trial.id}"):
            shutil.rmtree(folder, ignore_errors=True)
        self.runs[trial.id] = wandb.init(
            mode="offline",
            dir=str(self.folder),
            project=self.study.name,
            group=trial.arm,
            id=trial.id,
            name=trial_name(trial, self.study.axes),
            config={"arm": trial.arm, "fold": trial.fold, "seed": trial.seed, "data": trial.data.name, **trial.config},
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True, save_code=False),
        )

    def report(self, trial_id: str, step: int, metrics: Mapping[str, float], time: float) -> None:
        """One step of the run."""
        self.runs[trial_id].log(dict(metrics), step=step)

    def finish(self, record: Record) -> None:
        """End the run; with exit code 1 where the trial failed."""
        if (run := self.runs.pop(record.trial_id, None)) is not None:
            run.summary["status"] = record.status.value
            run.finish(exit_code=0 if record.status.trained else 1)

    def close(self, timeout_s: float = 30.0) -> None:
        """End the runs that are open."""
        for run in self.runs.values():
            run.finish(exit_code=1)
        self.runs.clear()


def check_installed(place: str) -> None:
    """`SpecError` where the package is missing."""
    import importlib.util

    if importlib.util.find_spec("wandb") is None:
        raise SpecError("the package wandb is not installed", place="tracking", value=place, hint="pip install wandb")
