"""Ray Tune as the engine: it places trials on hosts, keeps workers alive and retries what a machine broke.

Ours is which trial is next (`ActiveTrials`), where it goes (`Placements`), and that a fault of Tune itself ends
nothing: `fit` runs again over what is still without a record.
"""

import logging
import os
import shutil
import time

import ray
from ray import tune

from contrasweep.errors import ContrasweepError
from contrasweep.processes import scratch_folder
from contrasweep.running.engine import ray_internals
from contrasweep.running.engine.active_trials import ActiveTrials
from contrasweep.running.engine.placement import bundles
from contrasweep.running.engine.tune_hooks import NoReporter, TuneCallback, TuneScheduler, TuneSearcher
from contrasweep.running.run_context import RunContext
from contrasweep.running.worker.worker import TuneTrial
from contrasweep.storage.record import Cause

TUNE_ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # 40 ms a trial, for files that nobody reads
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # an interrupt is ours: see running.signals
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # we never restore from Tune's snapshots
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_AIR_NEW_OUTPUT": "0",  # its new output prints a panel even when told to be silent
    "RAY_USAGE_STATS_ENABLED": "0",
    # Tune's actors have an environment of their own, so workers made before serve nobody
    "RAY_prestart_worker_first_driver": "0",
    "RAY_worker_niceness": "0",  # Ray's 15 starves training beside anything else that the host does
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
FAULT_PAUSE_S = 3.0  # in which a Ray that has died is seen, see `ray_watch`
MAX_PENDING_TRIALS = "16"
"""Trials of a plan that wait as placement groups, which is the demand that an autoscaler sees; not more, because a
trial is placed by what is known when it is handed out. Of a search one waits, or as many as `max_concurrent`: a
configuration that is suggested later knows more results."""


class Engine:
    """Runs all trials of a source on a connected Ray."""

    def __init__(
        self,
        context: RunContext,
        trials: ActiveTrials,
        *,
        max_failures: int,
        max_concurrent: int | None = None,
        own_process: bool = False,
    ) -> None:
        """`max_failures`: how often a trial, or Tune, may fail in a row without getting further. `own_process`: each
        trial has a process of its own, where otherwise one trains many, one after the other."""
        self.context, self.trials, self.own_process = context, trials, own_process
        self.max_failures, self.max_concurrent = max_failures, max_concurrent

    def run(self) -> None:
        """Until the source is empty and every trial it gave has its record, or a budget is used up. A fault that ends
        Tune's own loop (a host whose memory ran out, say) leaves the finished trials alone; `max_failures` of them in a
        row, with no trial ended between, are survived."""
        lanes = self.trials.placements.lanes
        lanes.start(self.context, self.trials.listener.on_message)
        for line in ray_internals.lacking():
            self.trials.listener.on_message(line)
        try:
            self._run()
        finally:
            lanes.close()

    def _run(self) -> None:
        faults = 0
        while faults <= self.max_failures:
            ended = self.trials.ended
            try:
                self._fit()
                if not self.trials.running:
                    return
            except (RuntimeError, ray.exceptions.RayError, tune.TuneError) as error:
                reason = [repr(error), *str(error).strip().splitlines()][-1]  # the last line of a traceback
                self.trials.listener.on_message(f"Ray Tune stopped and is started again ({reason})")
                for trial_id in self.trials.running:
                    self.trials.listener.on_lost(trial_id)
                time.sleep(FAULT_PAUSE_S)
                self.trials.end_recorded()
            if self.trials.fault:
                raise ContrasweepError(self.trials.fault)
            if self.trials.closing():
                return
            if not self.trials.returned:  # what is handed out again after a source has ended is no fault of Tune
                faults = 1 if self.trials.ended > ended else faults + 1
        for trial_id in list(self.trials.running):
            self.trials.give_up(trial_id, "Ray Tune stopped each time this trial was running\n", cause=Cause.HOST_LOST)

    def _fit(self) -> None:
        """Run Tune once, first over what an earlier fit left unfinished."""
        adaptive = self.trials.source.adaptive
        os.environ.update(TUNE_ENVIRONMENT)
        os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = "auto" if adaptive else MAX_PENDING_TRIALS
        ray_internals.leave_callbacks_alone()
        ray_internals.forgive_lost_hosts()
        ray_internals.replace_refusing_workers(self.trials.listener.on_message)
        ray_internals.keep_credentials()
        logging.getLogger("ray.tune").setLevel(
            logging.CRITICAL
        )  # `TuneCallback` reports lost workers, in one line each
        folder = scratch_folder("tune")
        try:
            tune.Tuner(
                tune.with_resources(tune.with_parameters(TuneTrial, context=self.context), bundles),
                tune_config=tune.TuneConfig(
                    search_alg=TuneSearcher(self.trials, self.context),
                    scheduler=TuneScheduler(self.trials),
                    num_samples=-1,
                    reuse_actors=not self.own_process,
                    max_concurrent_trials=self.max_concurrent,
                    trial_dirname_creator=lambda trial: trial.trial_id,
                ),
                run_config=tune.RunConfig(
                    name="study",
                    storage_path=str(folder),
                    verbose=0,
                    progress_reporter=NoReporter(),
                    callbacks=[TuneCallback(self.trials)],
                    failure_config=tune.FailureConfig(max_failures=self.max_failures),
                    checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
                ),
            ).fit()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
