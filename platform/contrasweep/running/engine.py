"""Ray Tune as the engine: it places trials on hosts, keeps workers alive and retries what a machine broke.

What is decided here: which trial is next (a `Source`), where it goes (`Placements`), and that a fault of Tune
itself ends nothing: `fit` runs again over what is still without a record.
"""

import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from contrasweep import records as rec
from contrasweep.records import Record, StudyRecords
from contrasweep.running.placement import Placements
from contrasweep.running.source import Finished, Listener, Source
from contrasweep.running.versions import versions
from contrasweep.running.worker import Job, TuneTrial

log = logging.getLogger(__name__)
TUNE_ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # 40 ms a trial, for files that nobody reads
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # an interrupt is ours: see running.driver
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # we never restore from Tune's snapshots
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_AIR_NEW_OUTPUT": "0",  # its new output prints a panel even when told to be silent
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # Ray's 15 starves training beside anything else that the host does
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


class Engine:
    """Runs all trials of a source on a connected Ray."""

    def __init__(self, job: Job, source: Source, records: StudyRecords, placements: Placements, listener: Listener,
                 *, max_failures: int, max_concurrent: int | None = None, deadline: float | None = None) -> None:  # fmt: skip
        self.job, self.source, self.records, self.placements = job, source, records, placements
        self.listener, self.max_failures, self.max_concurrent = listener, max_failures, max_concurrent
        self.deadline = deadline
        self.running: dict[str, Any] = {}  # trial id -> (Trial, notes); handed out and without a record
        self.stopped: set[str] = set()  # stopped early because the source said so
        self.seconds: dict[str, float] = {}  # trial id -> training time so far, as its worker last said

    def __reduce__(self) -> tuple[Any, ...]:
        """Tune pickles what it was configured with, for a restore that we never do; open files cannot be."""
        return object, ()

    def run(self) -> None:
        """Until the source is empty and every trial it gave has its record. A fault that ends Tune's own loop
        (a host whose memory ran out, say) costs one of `max_failures` tries and leaves the finished alone."""
        for attempt in range(self.max_failures + 1):
            try:
                self._fit()
                if not self.running:
                    return
            except (RuntimeError, ray.exceptions.RayError, tune.TuneError) as error:
                log.warning("Ray Tune stopped (attempt %d): %s", attempt + 1, str(error).splitlines()[0] if str(error) else error)
                self._collect()
            if self.out_of_time():
                return
        for trial_id in list(self.running):
            self._give_up(trial_id, "Ray Tune stopped each time this trial was running\n")

    def out_of_time(self) -> bool:
        return self.deadline is not None and time.time() >= self.deadline

    def _fit(self) -> None:
        os.environ.update(TUNE_ENVIRONMENT)
        logging.getLogger("ray.tune").setLevel(logging.ERROR)  # it warns of files that we told it not to write
        folder = Path(tempfile.mkdtemp(prefix="contrasweep-tune-"))
        bridge = _Bridge(self, list(self.running.values()))
        try:
            tune.Tuner(
                tune.with_resources(tune.with_parameters(TuneTrial, job=self.job), self.placements.bundles),
                tune_config=tune.TuneConfig(
                    search_alg=bridge, scheduler=_Decider(self), num_samples=-1, reuse_actors=True,
                    max_concurrent_trials=self.max_concurrent, trial_dirname_creator=lambda trial: trial.trial_id,
                ),
                run_config=tune.RunConfig(
                    name="study", storage_path=str(folder), verbose=0, callbacks=[_Events(self)],
                    failure_config=tune.FailureConfig(max_failures=self.max_failures),
                    checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
                ),
            ).fit()  # fmt: skip
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _collect(self) -> None:
        """Records that were written while nobody listened."""
        for trial_id in list(self.running):
            if (record := self.records.read_one(trial_id)) is not None:
                self._end(record)

    def _end(self, record: Record) -> None:
        if self.running.pop(record.trial_id, None) is not None:
            self.source.done(record)
            self.listener.ended(record)

    def _give_up(self, trial_id: str, error: str, status: str = rec.FAILED) -> None:
        """Write the record of a trial whose worker could not: its metrics are in the storage already."""
        trial, notes = self.running[trial_id]
        rows = self.records.metrics(trial_id)
        last = {k: v for k, v in (rows[-1] if rows else {}).items() if k not in ("step", "time")}
        record = Record(
            trial_id=trial.id, study=self.records.study, arm=trial.arm, trainable=trial.trainable, config=dict(trial.config),
            data={"name": trial.data.name, "digest": trial.data.digest, "synthetic": trial.data.synthetic}, fold=trial.fold,
            seed=trial.seed, status=status, metrics=last, step=rows[-1]["step"] if rows else 0, error=error or None,
            seconds=self.seconds.get(trial_id, rows[-1]["time"] - rows[0]["time"] if rows else 0.0), started=rows[0]["time"] if rows else time.time(),
            ended=time.time(), notes=dict(notes), versions=versions(),
        )  # fmt: skip
        self.records.write(record)
        self._end(record)


class _Bridge(Searcher):  # type: ignore[misc]
    """The source as Tune sees it."""

    def __init__(self, engine: Engine, again: list[Any]) -> None:
        super().__init__(metric=None, mode=None)
        self.engine, self.again = engine, again

    def suggest(self, trial_id: str) -> Any:
        engine = self.engine
        if engine.out_of_time():
            return Searcher.FINISHED
        if self.again:
            trial, notes = self.again.pop(0)
        else:
            found = engine.source.next()
            if found is None or isinstance(found, Finished):
                return None if found is None else Searcher.FINISHED
            trial, notes = found.trial, found.notes
        notes = {**notes, "gpus": engine.placements.gpus(trial)}
        engine.running[trial.id] = (trial, notes)
        engine.stopped.discard(trial.id)  # a search may let a stopped trial go on
        return engine.job.describe(trial, **notes)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Records tell the source; see `_Events`."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save: a source is rebuilt from the records."""

    def restore(self, checkpoint_path: str) -> None:
        """See `save`."""


class _Decider(FIFOScheduler):  # type: ignore[misc]
    """Stops what the source wants stopped, and gives a trial that ran out of memory more of it."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.engine = engine

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        reports = result.get("reports") or []
        trial_id = trial.config["id"]
        self.engine.seconds[trial_id] = result.get("seconds", 0.0)
        if not result.get("done") and not all(self.engine.source.keep_going(trial_id, [row]) for row in reports):
            self.engine.stopped.add(trial_id)
        going = trial_id not in self.engine.stopped and not self.engine.out_of_time()
        return TrialScheduler.CONTINUE if going else TrialScheduler.STOP  # type: ignore[no-any-return]

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        bundles = self.engine.placements.after_error(trial.config, _error_text(trial))
        if bundles is not None:
            trial.update_resources(bundles)
        super().on_trial_error(tune_controller, trial)


class _Events(tune.Callback):  # type: ignore[misc]
    """What Tune tells, passed on to the listener. Nothing here may raise: that would end the whole study."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        entry = self.engine.running.get(trial.config["id"])
        if entry is not None:
            self._safely(self.engine.listener.started, entry[0])

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any) -> None:
        if result.get("reports"):
            self._safely(self.engine.listener.reported, result["id"], result["reports"])

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._safely(self._complete, trial)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        text = _error_text(trial)
        status = rec.INFEASIBLE if self.engine.placements.is_infeasible(trial.config) else rec.FAILED
        self._safely(self.engine._give_up, trial.config["id"], text, status)

    def _complete(self, trial: Any) -> None:
        trial_id = trial.config["id"]
        record = self.engine.records.read_one(trial_id)
        if record is not None:
            self.engine._end(record)
        elif trial_id in self.engine.stopped:
            self.engine._give_up(trial_id, "", rec.PRUNED)

    def _safely(self, call: Callable[..., Any], *arguments: Any) -> None:
        try:
            call(*arguments)
        except Exception:
            log.exception("an event of a trial was lost; the records in the storage are whole")


def _error_text(trial: Any) -> str:
    path = getattr(trial, "error_file", None)
    return Path(path).read_text() if path and Path(path).exists() else "the trial's worker was lost\n"

