"""Trackers that write into a folder: TensorBoard's event files, and offline runs of Weights & Biases.

`--tracking tensorboard:FOLDER` writes what `tensorboard --logdir FOLDER` shows, `--tracking wandb:FOLDER` what
`wandb sync FOLDER/wandb/offline-run-*` uploads.
"""

import json
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING

from contrasweep.live.state import replicate_of
from contrasweep.storage.names import local_path
from contrasweep.storage.record import Record, TrialLike
from contrasweep.tracking.tracker import TrackedStudy

if TYPE_CHECKING:
    import wandb
    from tensorboardX import SummaryWriter

ORIGIN_DIGITS = 8
"""Digits of a study's origin that are written where a name has to tell two storages apart."""
MOST_BYTES = 200
"""The most bytes of a trial's name before its id: most file systems take 255 bytes in all."""


class TensorBoardTracker:
    """Writes an event file for each trial: `<folder>/<study>-<origin>/<arm>-<axes>-<fold>-<seed>-<id>/events...`.

    The file has each metric by step and the config as text.
    """

    def __init__(self, folder: str, study: TrackedStudy) -> None:
        # The same study in another storage has another origin, and so a folder of its own.
        name = f"{study.name}-{study.origin[:ORIGIN_DIGITS]}".rstrip("-")
        self.folder = local_path(folder, "tracking").resolve() / name
        self.study = study
        self.writers: dict[str, SummaryWriter] = {}

    def start(self, trial: Record) -> None:
        """Open the trial's event file; files that its folder has from before are deleted."""
        from tensorboardX import SummaryWriter

        self._drop(trial.id)
        folder = self.folder / trial_name(trial, self.study.axes)
        shutil.rmtree(folder, ignore_errors=True)
        writer = SummaryWriter(str(folder))
        writer.add_text("config", f"```\n{json.dumps(dict(trial.config), indent=1)}\n```")
        self.writers[trial.id] = writer

    def report(self, trial_id: str, step: int, metrics: Mapping[str, float], time: float) -> None:
        """Write each metric as a scalar at this step."""
        for name, value in metrics.items():
            self.writers[trial_id].add_scalar(name, value, step, walltime=time)

    def finish(self, record: Record) -> None:
        """Close the trial's file."""
        self._drop(record.trial_id)

    def close(self, timeout_s: float = 30.0) -> None:
        """Close all files."""
        for trial_id in list(self.writers):
            self._drop(trial_id)

    def _drop(self, trial_id: str) -> None:
        """Close the trial's event file, if one is open."""
        writer = self.writers.pop(trial_id, None)
        if writer is not None:
            writer.close()


class WandbTracker:
    """Writes an offline run of W&B for each trial: its project is the study, its group the arm."""

    def __init__(self, folder: str, study: TrackedStudy) -> None:
        self.folder = local_path(folder, "tracking").resolve()
        self.study = study
        self.folder.mkdir(parents=True, exist_ok=True)
        self.runs: dict[str, wandb.Run] = {}

    def start(self, trial: Record) -> None:
        """Begin the trial's run; a run that was begun for it before is deleted with its files."""
        import wandb

        earlier = self.runs.pop(trial.id, None)
        if earlier is not None:
            earlier.finish(exit_code=1)
        for folder in (self.folder / "wandb").glob(f"offline-run-*-{self._id(trial.id)}"):
            shutil.rmtree(folder, ignore_errors=True)
        run = wandb.init(
            mode="offline",
            dir=str(self.folder),
            project=self.study.name,
            group=trial.arm,
            id=self._id(trial.id),
            name=trial_name(trial, self.study.axes),
            config={
                "arm": trial.arm,
                "fold": trial.fold,
                "seed": trial.seed,
                "data": trial.data.name,
                **trial.config,
            },
            reinit="create_new",
            settings=wandb.Settings(
                silent=True, console="off", x_disable_stats=True, save_code=False
            ),
        )
        self.runs[trial.id] = run
        # Steps of reports are epochs, those of what the trial uses are seconds, and W&B drops a row whose step is below
        # the one before. So each kind of row has its step as a value, which the charts take as their x axis.
        run.define_metric("*", step_metric="step")
        run.define_metric("system/*", step_metric="system/seconds")

    def _id(self, trial_id: str) -> str:
        """Return the id of a trial's run: the trial's id, a hyphen, and the first digits of the study's origin.

        Without an origin it is the trial's id alone. The origin tells studies of the same name in two storages apart.
        """
        return f"{trial_id}-{self.study.origin[:ORIGIN_DIGITS]}".rstrip("-")

    def report(self, trial_id: str, step: int, metrics: Mapping[str, float], time: float) -> None:
        """Log the metrics of a report as a row of the trial's run. `time` is not kept.

        The row has the step, as W&B's x axis: `step`, or for rows of system use `system/seconds`.
        """
        is_use = any(name.startswith("system/") for name in metrics)
        self.runs[trial_id].log({"system/seconds" if is_use else "step": step, **metrics})

    def finish(self, record: Record) -> None:
        """End the run; with exit code 1 where the trial was not trained as far as it was meant to."""
        run = self.runs.pop(record.trial_id, None)
        if run is not None:
            run.summary["status"] = record.status.value
            run.finish(exit_code=0 if record.status.trained else 1)

    def close(self, timeout_s: float = 30.0) -> None:
        """End the runs that are open, as failed: their trials have no record."""
        for run in self.runs.values():
            run.finish(exit_code=1)
        self.runs.clear()


def trial_name(trial: TrialLike, axes: tuple[str, ...]) -> str:
    """Return a name for a trial's run, such as `supcon-lr=0.1-fold=0-seed=1-3f2a91c0`.

    It is the trial's name for people, cut to `MOST_BYTES`, and the first digits of its id. So names sort by arm and
    axes, and no other trial of the study has the same one.
    """
    name = replicate_of(trial, axes).replace(" ", "-").replace("/", "_")
    return f"{name.encode()[:MOST_BYTES].decode(errors='ignore')}-{trial.id[:8]}"
