"""Ray Tune as the engine: it places trials on hosts, keeps workers alive and retries what a machine broke.

What is decided here: which trial is next (a `Source`), where it goes (`Placements`), and that a fault of Tune
itself ends nothing: `fit` runs again over what is still without a record.
"""

import logging
import os
import re
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

from cluster import out_of_memory
from contrasweep import records as rec
from contrasweep.budget import Budget
from contrasweep.records import Record, StudyRecords
from contrasweep.running.placement import Placements, bundles
from contrasweep.running.source import Finished, FixedSource, Listener, Next, Source
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
MOST_WAITING = "200"
"""Trials of a plan that wait as placement groups, which is the demand that an autoscaler sees. A search hands out
none ahead, or as many as `max_concurrent`: a configuration that is asked for later knows more results."""
IDLE_S, IDLE_AGAIN_S = 30.0, 300.0  # after so long without a running trial, and again after that, say what is waited for


class Engine:
    """Runs all trials of a source on a connected Ray."""

    def __init__(self, job: Job, source: Source, records: StudyRecords, placements: Placements, listener: Listener,
                 *, max_failures: int, budget: Budget, max_concurrent: int | None = None) -> None:  # fmt: skip
        self.job, self.source, self.records, self.placements = job, source, records, placements
        self.listener, self.max_failures, self.max_concurrent = listener, max_failures, max_concurrent
        self.budget = budget
        self.running: dict[str, Any] = {}  # trial id -> (Trial, notes); handed out and without a record
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
                self.listener.said(f"Ray Tune stopped and is started again ({str(error).splitlines()[0] if str(error) else error!r})")
                self._collect()
            if self.out_of_time():
                return
            faults = 1 if self.ended > ended else faults + 1
        for trial_id in list(self.running):
            self._give_up(trial_id, "Ray Tune stopped each time this trial was running\n")

    def out_of_time(self) -> bool:
        return bool(self.budget.used_up())

    def _fit(self) -> None:
        os.environ.update(TUNE_ENVIRONMENT)
        os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = MOST_WAITING if isinstance(self.source, FixedSource) else "auto"
        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # lost workers are said by `_Events`, in one line each
        folder = Path(tempfile.mkdtemp(prefix="contrasweep-tune-"))
        bridge = _Bridge(self, list(self.running.values()))
        try:
            tune.Tuner(
                tune.with_resources(tune.with_parameters(TuneTrial, job=self.job), bundles),
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
            self.ended += 1
            self.source.done(record)
            self.listener.ended(record)

    def _watch(self, trials: list[Any]) -> None:
        """Say what is waited for where no trial has run for a while: hosts that went, or are not there yet."""
        now = time.monotonic()
        if any(trial.status == "RUNNING" for trial in trials):
            self.say_idle_at = now + IDLE_S
        elif now >= self.say_idle_at and (waiting := [trial for trial in trials if trial.status == "PENDING"]):
            self.say_idle_at = now + IDLE_AGAIN_S
            wanted = self.placements.of(waiting[0].config)
            self.listener.said(f"no trial runs: {len(waiting)} wait for room on a host, the first for {wanted}")

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
            found = self._next()
            if found is None or isinstance(found, Finished):
                return None if found is None else Searcher.FINISHED
            trial, notes = found.trial, found.notes
        notes = {**notes, **engine.placements.notes(trial)}
        engine.running[trial.id] = (trial, notes)
        engine.stopped.discard(trial.id)  # a search may let a stopped trial go on
        return engine.job.describe(trial, engine.placements.described(trial), **notes)

    def _next(self) -> Next | Finished | None:
        """The source's next trial that fits some host; the others end here, `infeasible`."""
        engine = self.engine
        while isinstance(found := engine.source.next(), Next) and not engine.placements.fits(found.trial):
            engine.running[found.trial.id] = (found.trial, found.notes)
            engine._give_up(found.trial.id, f"{engine.placements.why_not(found.trial)}\n", rec.INFEASIBLE)
        return found

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Records tell the source; see `_Events`."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save: a source is rebuilt from the records."""

    def restore(self, checkpoint_path: str) -> None:
        """See `save`."""


class _Decider(FIFOScheduler):  # type: ignore[misc]
    """Stops what the source wants stopped and what is out of time, and gives a trial that ran out of memory more of it."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.engine = engine

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        reports = result.get("reports") or []
        trial_id = trial.config["id"]
        self.engine.seconds[trial_id] = result.get("seconds", 0.0)
        if reports and reports[-1]["step"] > self.engine.furthest.get(trial_id, 0):
            self.engine.furthest[trial_id] = reports[-1]["step"]
            trial.run_metadata.num_failures = 0  # what counts is failing again and again without getting further
        if not result.get("done") and not all(self.engine.source.keep_going(trial_id, [row]) for row in reports):
            self.engine.stopped.add(trial_id)
        going = trial_id not in self.engine.stopped and not self.engine.out_of_time()
        return TrialScheduler.CONTINUE if going else TrialScheduler.STOP  # type: ignore[no-any-return]

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        bundles = self.engine.placements.after_error(trial.config, _error_text(trial))
        if bundles is not None:
            trial.update_resources(bundles)
        super().on_trial_error(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        if self.engine.out_of_time():
            for trial in [trial for trial in tune_controller.get_trials() if trial.status == "PENDING"]:
                tune_controller.stop_trial(trial)
        return super().choose_trial_to_run(tune_controller)


class _Events(tune.Callback):  # type: ignore[misc]
    """What Tune tells, passed on to the listener. Nothing here may raise: that would end the whole study."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self._safely(self.engine._watch, trials)

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        of = trial.config["trial"]
        why = "its memory ran out" if out_of_memory.which(_error_text(trial)) else "its worker or host was lost"
        text = f"again: {of['arm']} fold={of['fold']} seed={of['seed']}: {why}; it goes on from its checkpoint"
        self._safely(self.engine.listener.said, text)

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
    """Of the last failure; Tune's file has all of a trial."""
    path = getattr(trial, "error_file", None)
    if not path or not Path(path).exists():
        return "the trial's worker was lost\n"
    return re.split(r"^Failure # \d+ .*\n", Path(path).read_text(), flags=re.MULTILINE)[-1]
