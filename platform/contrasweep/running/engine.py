"""Ray Tune as the engine: it places trials on hosts, keeps workers alive and retries what a machine broke.

What is decided here: which trial is next (a `Source`), where it goes (`Placements`), and that a fault of Tune
itself ends nothing: `fit` runs again over what is still without a record.
"""

import logging
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.air._internal import usage

from contrasweep.planning.budget import Budget
from contrasweep.running.placement import Placements, bundles
from contrasweep.running.source import FixedSource, Listener, Source
from contrasweep.running.tune_hooks import Bridge, Decider, Events
from contrasweep.running.versions import versions
from contrasweep.running.worker import Job, TuneTrial
from contrasweep.storage.record import Record, Status, TrialNotes
from contrasweep.storage.records import StudyRecords
from contrasweep.trial import Trial

TUNE_ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # 40 ms a trial, for files that nobody reads
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # an interrupt is ours: see running.driver
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
MOST_WAITING = "16"
"""Trials of a plan that wait as placement groups, which is the demand that an autoscaler sees; not more, because a
trial is placed by what is known when it is handed out. Of a search one waits, or as many as `max_concurrent`: a
configuration that is asked for later knows more results."""
IDLE_S, IDLE_AGAIN_S = (
    30.0,
    300.0,
)  # after so long without a running trial, and again after that, say what is waited for


class Engine:
    """Runs all trials of a source on a connected Ray."""

    def __init__(
        self,
        job: Job,
        source: Source,
        records: StudyRecords,
        placements: Placements,
        listener: Listener,
        *,
        max_failures: int,
        budget: Budget,
        max_concurrent: int | None = None,
    ) -> None:
        self.job, self.source, self.records, self.placements = job, source, records, placements
        self.listener, self.max_failures, self.max_concurrent = listener, max_failures, max_concurrent
        self.budget = budget
        self.running: dict[str, tuple[Trial, TrialNotes]] = {}  # by trial id: handed out and without a record
        self.stopped: set[str] = set()  # stopped early because the source said so
        self.furthest: dict[str, int] = {}  # trial id -> last step that was reported
        self.ended = 0
        self.say_idle_at = time.monotonic() + IDLE_S
        self.seconds: dict[str, float] = {}  # trial id -> training time so far, as its worker last said

    def __reduce__(self) -> tuple[Any, ...]:
        """Tune pickles what it was configured with, for a restore that we never do; open files cannot be."""
        return object, ()

    def run(self) -> None:
        """Until the source is empty and every trial it gave has its record. A fault that ends Tune's own loop
        (a host whose memory ran out, say) leaves the finished alone; `max_failures` of them in a row, with no trial
        ended between, are survived."""
        faults = 0
        while faults <= self.max_failures:
            ended = self.ended
            try:
                self._fit()
                if not self.running:
                    return
            except (RuntimeError, ray.exceptions.RayError, tune.TuneError) as error:
                self.listener.said(
                    f"Ray Tune stopped and is started again ({str(error).splitlines()[0] if str(error) else error!r})"
                )
                self._collect()
            if self.out_of_time():
                return
            faults = 1 if self.ended > ended else faults + 1
        for trial_id in list(self.running):
            self.give_up(trial_id, "Ray Tune stopped each time this trial was running\n")

    def out_of_time(self) -> bool:
        return bool(self.budget.used_up())

    def _fit(self) -> None:
        os.environ.update(TUNE_ENVIRONMENT)
        usage.tag_callbacks = lambda callbacks: (
            False
        )  # usage statistics are off; counting callbacks imports MLflow, for seconds
        os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = MOST_WAITING if isinstance(self.source, FixedSource) else "auto"
        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # lost workers are said by `Events`, in one line each
        folder = Path(tempfile.mkdtemp(prefix="contrasweep-tune-"))
        bridge = Bridge(self, list(self.running.values()))
        try:
            tune.Tuner(
                tune.with_resources(tune.with_parameters(TuneTrial, job=self.job), bundles),
                tune_config=tune.TuneConfig(
                    search_alg=bridge,
                    scheduler=Decider(self),
                    num_samples=-1,
                    reuse_actors=True,
                    max_concurrent_trials=self.max_concurrent,
                    trial_dirname_creator=lambda trial: trial.trial_id,
                ),
                run_config=tune.RunConfig(
                    name="study",
                    storage_path=str(folder),
                    verbose=0,
                    callbacks=[Events(self)],
                    failure_config=tune.FailureConfig(max_failures=self.max_failures),
                    checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
                ),
            ).fit()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _collect(self) -> None:
        """Records that were written while nobody listened."""
        for trial_id in list(self.running):
            if (record := self.records.read_one(trial_id)) is not None:
                self.end(record)

    def end(self, record: Record) -> None:
        if self.running.pop(record.trial_id, None) is not None:
            self.ended += 1
            self.source.done(record)
            self.listener.ended(record)

    def watch(self, trials: list[Any]) -> None:
        """Say what is waited for where no trial has run for a while: hosts that went, or are not there yet."""
        now = time.monotonic()
        if any(trial.status == "RUNNING" for trial in trials):
            self.say_idle_at = now + IDLE_S
        elif now >= self.say_idle_at and (waiting := [trial for trial in trials if trial.status == "PENDING"]):
            self.say_idle_at = now + IDLE_AGAIN_S
            place = self.placements.of(waiting[0].config)
            gpu = f"{place.share} of a {place.gpu}, " if place.gpu else ""
            self.listener.said(
                f"no trial runs: {len(waiting)} wait for a host with {gpu}{place.cpus:g} cores and "
                f"{place.host_memory_gib:g} GiB free"
            )

    def give_up(self, trial_id: str, error: str, status: Status = Status.FAILED) -> None:
        """Write the record of a trial whose worker could not: its metrics are in the storage already. One that the
        worker wrote before it was lost stands."""
        if (known := self.records.read_one(trial_id)) is not None:
            self.end(known)
            return
        trial, notes = self.running[trial_id]
        rows = self.records.metrics(trial_id)
        now = time.time()
        record = Record.of(
            trial,
            status=status,
            rows=rows,
            seconds=self.seconds.get(trial_id, rows[-1]["time"] - rows[0]["time"] if rows else 0.0),
            started=rows[0]["time"] if rows else now,
            ended=now,
            error=error or None,
            notes=notes,
            versions=versions(),
        )
        self.records.write(record)
        self.end(record)
