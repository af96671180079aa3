"""Trackers that write into a folder: TensorBoard's event files, and offline runs of Weights & Biases.

`--tracking tensorboard:FOLDER` writes what `tensorboard --logdir FOLDER` shows, `--tracking wandb:FOLDER` what
`wandb sync FOLDER/wandb/offline-run-*` uploads.
"""

import contextlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from contrasweep.live.state import replicate_of
from contrasweep.storage.attempts import BegunTrial
from contrasweep.storage.names import local_path
from contrasweep.storage.record import Record, TrialLike
from contrasweep.study import dotted
from contrasweep.tracking.tracker import TrackedStudy

if TYPE_CHECKING:
    import wandb
    from tensorboardX import SummaryWriter

ORIGIN_DIGITS = 8
"""Of a study's origin, where it tells two storages apart."""


class TensorBoardTracker:
    """Event files `<folder>/<study>/<arm>-<axes>-<fold>-<seed>-<id>/events...`.

    They have each metric by step, the config as text and, at the end, as hyperparameters.
    """

    def __init__(self, folder: str, study: TrackedStudy) -> None:
        self.folder = _own_folder(local_path(folder, "tracking").resolve(), study)
        self.study = study
        self.writers: dict[str, SummaryWriter] = {}

    def start(self, trial: BegunTrial) -> None:
        """Open the trial's event file; what its folder has from before goes."""
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
        """Write the config as hyperparameters beside the last metrics, where there are any, and close the file."""
        writer = self.writers.get(record.trial_id)
        if writer is not None and record.metrics:
            flat = {
                "arm": record.arm,
                "seed": record.seed,
                "fold": record.fold,
                **dotted.flatten(record.config),
            }
            # TensorBoard takes no lists, mappings or None as hyperparameters: these become JSON.
            plain = {
                k: v if isinstance(v, bool | int | float | str) else json.dumps(v)
                for k, v in flat.items()
            }
            writer.add_hparams(
                plain, {name: float(v) for name, v in record.metrics.items()}, name="hparams"
            )
        self._drop(record.trial_id)

    def close(self, timeout_s: float = 30.0) -> None:
        """Close all files."""
        for trial_id in list(self.writers):
            self._drop(trial_id)

    def _drop(self, trial_id: str) -> None:
        """Close the trial's event file, if one is open."""
        if (writer := self.writers.pop(trial_id, None)) is not None:
            writer.close()


class WandbTracker:
    """One offline run a trial: the project is the study, the group the arm, the id the trial's and its storage's."""

    def __init__(self, folder: str, study: TrackedStudy) -> None:
        self.folder = local_path(folder, "tracking").resolve()
        self.study = study
        self.folder.mkdir(parents=True, exist_ok=True)
        self.runs: dict[str, wandb.Run] = {}

    def start(self, trial: BegunTrial) -> None:
        """Begin the trial's run; one that was begun before goes, with its files."""
        import wandb

        if (earlier := self.runs.pop(trial.id, None)) is not None:
            earlier.finish(exit_code=1)
        for folder in (self.folder / "wandb").glob(f"offline-run-*-{self._id(trial.id)}"):
            shutil.rmtree(folder, ignore_errors=True)
        self.runs[trial.id] = wandb.init(
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

    def _id(self, trial_id: str) -> str:
        """Return the id of a trial's run: the trial's, and the first digits of its study's origin if that is known."""
        return f"{trial_id}-{self.study.origin[:ORIGIN_DIGITS]}".rstrip("-")

    def report(self, trial_id: str, step: int, metrics: Mapping[str, float], time: float) -> None:
        """Log the metrics as one step of the run; the time is not kept."""
        self.runs[trial_id].log(dict(metrics), step=step)

    def finish(self, record: Record) -> None:
        """End the run; with exit code 1 where the trial was not trained as far as it was meant to."""
        if (run := self.runs.pop(record.trial_id, None)) is not None:
            run.summary["status"] = record.status.value
            run.finish(exit_code=0 if record.status.trained else 1)

    def close(self, timeout_s: float = 30.0) -> None:
        """End the runs that are open, as failed: their trials have no record."""
        for run in self.runs.values():
            run.finish(exit_code=1)
        self.runs.clear()


def _own_folder(folder: Path, study: TrackedStudy) -> Path:
    """Return the folder of the study's name below `folder`, made where it is missing.

    Where the study of this name in another storage has it, the name gets digits of this study's origin as a suffix.
    Whose folder it is stands in its file `.origin`.
    """
    for name in (study.name, f"{study.name}-{study.origin[:ORIGIN_DIGITS]}"):
        (mine := folder / name).mkdir(parents=True, exist_ok=True)
        mark = mine / ".origin"
        # Two trackers may start at once: only one can create the file, and both read whose it is.
        with contextlib.suppress(FileExistsError), mark.open("x") as new:
            new.write(study.origin)
        if mark.read_text() == study.origin:
            break
    return mine


def trial_name(trial: TrialLike, axes: tuple[str, ...]) -> str:
    """Return a name that sorts by arm and axes, and that no other trial of the study has.

    For example `supcon-8-f0-s1-3f2a91c0`: as the replicate is called, and the beginning of the id.
    """
    return f"{replicate_of(trial, axes)} {trial.id[:8]}".replace(" ", "-").replace("/", "_")
