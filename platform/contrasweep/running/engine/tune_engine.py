"""Ray Tune as the engine: it places trials on hosts, keeps workers alive and retries what a machine broke.

`TuneEngine` runs Tune. Tune asks a searcher which trial is next and a scheduler which trial goes on, and tells a
callback what became of each: all three ask `TrialLoop`. A fault of Tune itself ends nothing, because Tune is started
again over the trials without a record.
"""

import logging
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.progress_reporter import ProgressReporter, TrialProgressCallback
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from contrasweep.cluster import out_of_memory
from contrasweep.errors import ContrasweepError, StorageError, plural
from contrasweep.live.logs import read_log
from contrasweep.processes import scratch_folder
from contrasweep.running.engine import ray_internals
from contrasweep.running.engine.accounts import ActiveTrial
from contrasweep.running.engine.loop import TrialLoop
from contrasweep.running.engine.placement import bundles
from contrasweep.running.engine.watchdog import Watchdog
from contrasweep.running.run_context import FAULT, RayTrial, RunContext, StepResult
from contrasweep.running.signals import interruption
from contrasweep.running.worker.output import EXIT_CALLED
from contrasweep.running.worker.worker import TuneTrial
from contrasweep.storage.record import Cause, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.store import LocalStore
from contrasweep.tuning.source import Finished

log = logging.getLogger(__name__)

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
FAULT_PAUSE_S = 3.0  # in which a Ray that has died is seen, see `RayWatch`
MAX_PENDING_TRIALS = "16"
"""Trials of a plan that wait as placement groups, on hosts that stay as they are.

Of a search one waits, or as many as `max_concurrent`: a configuration that is suggested later knows more results.
"""
DEMANDED_TRIALS = "200"
"""Trials that wait where an autoscaler starts hosts: as many as it is to start places for at once."""
WATCH_S = 1.0
"""How often it is looked whether any trial runs, which asks all trials so far."""
PLACE_AGAIN_S = 2.0
"""How often trials that wait are placed anew, where many do."""
LOST = (
    "its process was lost each time: it called os._exit, crashed in compiled code, or was killed from outside, as the "
    "kernel does where memory runs out; its log has what it printed"
)
NEVER_BEGAN = (
    "its process never began: Ray gave it up before that, each time. Ray also does this if RAY_AUTH_MODE=token is set "
    "here and the cluster asks for no token"
)
OUR_ERROR = re.compile(r"^contrasweep\.(?:\w+\.)+(\w+): ", re.MULTILINE)
RAISED_CAUSES = {
    **dict.fromkeys(("StorageError", "StorageDenied", "BrokenFileError"), Cause.STORAGE),
    "ProcessLostError": Cause.SIGNAL,
}
"""Causes of the errors that a worker raises and that are no fault of its trial."""
CRASHED = ("Fatal Python error: ", EXIT_CALLED)
"""Last words, in its log, of a process that ended itself: Python's own on a crash in compiled code, and ours."""
LAST_WORDS = 2**16
IDLE_S = 30.0
"""After so long without a running trial a message says what is waited for."""
IDLE_REPEAT_S = 300.0
"""After so long the message is repeated."""


class TuneEngine:
    """Runs all trials of a loop on a connected Ray."""

    def __init__(
        self,
        context: RunContext,
        loop: TrialLoop,
        *,
        max_failures: int,
        max_concurrent: int | None = None,
        own_process: bool = False,
    ) -> None:
        """Make the engine of one run.

        `context` is what each worker receives. `max_failures`: how often a trial, or Tune, may fail in a row without
        getting further. `max_concurrent`: trials at once, at most (None: as many as fit). `own_process`: each trial has
        a process of its own, where otherwise one trains many, one after the other.
        """
        self.context = context
        self.loop = loop
        self.own_process = own_process
        self.max_failures = max_failures
        self.max_concurrent = max_concurrent

    def run(self) -> None:
        """Run until the source is empty and every trial has its record, or nothing more may run.

        Tune's own loop may end by a fault, such as a host whose memory ran out. `max_failures` of these in a row, with
        no trial ended between, are survived. `ContrasweepError` where the loop has a fault.
        """
        faults = 0  # in a row, with no trial ended between
        accounts = self.loop.accounts
        queue = self.loop.queue
        say = self.loop.progress.say
        while faults <= self.max_failures:
            ended = accounts.ended
            try:
                self._fit()
            except (RuntimeError, ray.exceptions.RayError, tune.TuneError) as error:
                # the last line of a traceback
                reason = [repr(error), *str(error).strip().splitlines()][-1]
                say(f"Ray Tune stopped and is started again ({reason})")
                time.sleep(FAULT_PAUSE_S)
            # Tune has ended, by itself or by a fault: what has no record yet is handed out again.
            requeued = bool(queue.requeued)
            self.loop.begin_again()
            if accounts.fault:
                raise ContrasweepError(accounts.fault)
            if not accounts.active or accounts.closing():
                return
            # Tune ends once the source has no more. What was queued again only then is no fault of Tune.
            # A trial that has ended since begins the count anew.
            if not requeued:
                faults = 1 if accounts.ended > ended else faults + 1
        for trial_id in list(accounts.active):
            self.loop.give_up(
                trial_id,
                "Ray Tune stopped each time this trial was running\n",
                cause=Cause.HOST_LOST,
            )

    def _fit(self) -> None:
        """Run Tune once, until it has no trial left; raises what Tune raises."""
        # Tune reads from the environment how many trials it asks for ahead of free resources.
        os.environ.update(TUNE_ENVIRONMENT)
        of_plan = DEMANDED_TRIALS if self.loop.queue.hosts.autoscaled else MAX_PENDING_TRIALS
        os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = (
            "auto" if self.loop.queue.source.adaptive else of_plan
        )
        remove_unused_places = ray_internals.adapt(self.loop.progress.say)
        # `TuneCallback` reports lost workers, in one line each
        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
        folder = scratch_folder("tune")
        try:
            tuner = tune.Tuner(
                tune.with_resources(tune.with_parameters(TuneTrial, context=self.context), bundles),
                tune_config=tune.TuneConfig(
                    search_alg=TuneSearcher(self.loop, self.context),
                    scheduler=TuneScheduler(self.loop),
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
                    callbacks=[TuneCallback(self.loop, remove_unused_places), NoLines()],
                    failure_config=tune.FailureConfig(max_failures=self.max_failures),
                    checkpoint_config=tune.CheckpointConfig(
                        checkpoint_frequency=0, checkpoint_at_end=False
                    ),
                ),
            )
            with ray_internals.registry_read_once():
                tuner.fit()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


class TuneSearcher(Searcher):  # type: ignore[misc]
    """Tells Tune which trial is next."""

    def __init__(self, loop: TrialLoop, context: RunContext) -> None:
        super().__init__(metric=None, mode=None)
        self.loop = loop
        self.context = context

    def suggest(self, trial_id: str) -> Any:
        """Return the next trial as Tune's config; None: none now; Tune's FINISHED: none any more.

        `trial_id` is Tune's own, which nothing here needs.
        """
        following = self.loop.next()
        loop = self.loop
        if following is None or isinstance(following, Finished):
            return None if following is None else Searcher.FINISHED
        trial = following.trial
        place = loop.placements.described(trial)
        no_prior_state = loop.has_no_prior_state(trial.id)
        return self.context.describe(
            trial, place, loop.notes(following), loop.code.of(trial), no_prior_state=no_prior_state
        )

    def on_trial_complete(
        self, trial_id: str, result: StepResult | None = None, error: bool = False
    ) -> None:
        """Do nothing: records tell the source; see `TuneCallback`."""

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: a source is rebuilt from the records."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing; see `save`."""


class NoReporter(ProgressReporter):  # type: ignore[misc]
    """Tune's own table of trials, switched off.

    Without this class, Tune clears what a notebook's cell shows, and the display of the run with it.
    """

    def should_report(self, trials: list[RayTrial], done: bool = False) -> bool:
        """Return False, so that Tune never reports."""
        return False

    def report(self, trials: list[RayTrial], done: bool, *sys_info: str) -> None:
        """Print nothing."""


class NoLines(TrialProgressCallback):  # type: ignore[misc]
    """Tune's own line of a trial that ends before its first result, switched off."""

    def on_trial_complete(self, *arguments: Any, **info: Any) -> None:
        """Print nothing."""


class TuneScheduler(FIFOScheduler):  # type: ignore[misc]
    """Tells Tune which trials go on: it stops those that the source or a budget ends, and answers failures."""

    def __init__(self, loop: TrialLoop) -> None:
        super().__init__()
        self.loop = loop
        self.place_again_at = 0.0

    def on_trial_result(self, tune_controller: Any, trial: RayTrial, result: StepResult) -> str:
        """Return Tune's CONTINUE or STOP: whether the source, or a budget, lets the trial go on after this result."""
        if fault := result.get(FAULT):
            self.loop.accounts.stop(fault)
        trial_id = trial.config["id"]
        reports = result.get("reports") or []
        if self.loop.reported(trial_id, reports, result.get("seconds", 0.0)):
            # what counts is failing again and again without getting further
            ray_internals.forgive(trial)
        # With its record a trial has ended, and its last reports stop nothing.
        go_on = self.loop.goes_on(trial_id, [] if result.get("done") else reports)
        return TrialScheduler.CONTINUE if go_on else TrialScheduler.STOP  # type: ignore[no-any-return]

    def on_trial_error(self, tune_controller: Any, trial: RayTrial) -> None:
        """Give a trial that ran out of memory more of it when it is retried; called before Tune decides on a retry.

        A host that was lost is no failure of the trial (see `ray_internals`), until it has lost too many.
        """
        loop = self.loop
        active = self.loop.accounts.active.get(trial.config["id"])
        # It waits for its next attempt already: this is the same loss, reported once more.
        if active is not None and trial.status == "PENDING":
            active.lost_waiting = True
        elif active is not None:
            error = _error_text(trial)
            if ray_internals.HOST_LOST.search(error) and not loop.accounts.lost_host(active):
                ray_internals.give_up_next(trial)
            resources = loop.placements.after_error(active.trial, error)
            if resources is not None:
                self._describe_again(trial, active)
                trial.update_resources(resources)
        super().on_trial_error(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        """Return the trial to start next: the first that was handed out of those that wait, paused ones last.

        None where none waits. Once a budget is used up, those that wait are stopped. Tune's own FIFO looks at every
        trial that has ended, in each turn of its loop.
        """
        if self.loop.accounts.closing():
            for trial in [
                trial for trial in tune_controller.get_trials() if trial.status == "PENDING"
            ]:
                tune_controller.stop_trial(trial)
        elif self.loop.queue.hosts.autoscaled and time.monotonic() >= self.place_again_at:
            self.place_again_at = time.monotonic() + PLACE_AGAIN_S
            self._place_again(tune_controller)
        waiting = [
            trial
            for trial in tune_controller.get_live_trials()
            if trial.status in ("PENDING", "PAUSED")
        ]
        order = {trial_id: number for number, trial_id in enumerate(self.loop.accounts.active)}
        return min(
            waiting,
            key=lambda trial: (trial.status == "PAUSED", order.get(trial.config["id"], len(order))),
            default=None,
        )

    def _place_again(self, tune_controller: Any) -> None:
        """Request other resources for trials that wait, where more is known than when they were handed out."""
        waiting = {
            trial.config["id"]: trial
            for trial in ray_internals.waiting_for_resources(tune_controller)
        }
        for active in self.loop.placed_again(waiting):
            trial = waiting[active.trial.id]
            self._describe_again(trial, active)
            ray_internals.request_again(tune_controller, trial, bundles(trial.config))

    def _describe_again(self, trial: RayTrial, active: ActiveTrial) -> None:
        """Put the present place of a trial, and its notes, into Tune's config of it."""
        trial.config["place"] = self.loop.placements.described(active.trial)
        trial.config["notes"] = self.loop.notes(active)


class TuneCallback(tune.Callback):  # type: ignore[misc]
    """Receives the results and the end of each trial. Its methods never raise, which would end the whole study."""

    def __init__(self, loop: TrialLoop, remove_unused_places: Callable[[], None]) -> None:
        self.loop = loop
        self.watchdog = Watchdog(loop)
        self.remove_unused_places = remove_unused_places
        self.idle_message_at = time.monotonic() + IDLE_S
        self.watch_at = 0.0

    def on_step_begin(self, iteration: int, trials: list[RayTrial], **info: Any) -> None:
        """Look at the running trials, in each turn of Tune's loop."""
        interruption.check()
        self._safely(self._watch, trials)
        self._safely(self.watchdog.check, trials)
        self._safely(self.remove_unused_places)

    def on_trial_recover(
        self, iteration: int, trials: list[RayTrial], trial: RayTrial, **info: Any
    ) -> None:
        """Note that a trial whose worker failed will be retried."""
        self._safely(self.loop.lost, trial.config["id"], _reason(_error_text(trial)))

    def on_trial_start(
        self, iteration: int, trials: list[RayTrial], trial: RayTrial, **info: Any
    ) -> None:
        """Note that a worker begins the trial."""
        trial.config["no_prior_state"] = False  # for the next one, should it be lost
        self._safely(self.loop.started, trial.config["id"])

    def on_trial_result(
        self,
        iteration: int,
        trials: list[RayTrial],
        trial: RayTrial,
        result: StepResult,
        **info: Any,
    ) -> None:
        """Take new reports. Tune keeps a trial's last result to the end: what is large is taken out of it."""
        if record := result.pop("record", None):
            self._safely(self.loop.worker_recorded, result["id"], record)
        if result.get("reports"):
            self._safely(self.loop.progress.reported, result["id"], result["reports"])
        result.pop("reports", None)

    def on_trial_complete(
        self, iteration: int, trials: list[RayTrial], trial: RayTrial, **info: Any
    ) -> None:
        """End a trial: its worker has written the record, or it was stopped early."""
        self._safely(self.loop.ended, trial.config["id"])
        # Tune keeps it to the end of the run, and of an ended trial only its id is needed later.
        ray_internals.forget(trial)
        for name in ("notes", "code", "trial"):
            trial.config.pop(name, None)  # type: ignore[misc]

    def on_trial_error(
        self, iteration: int, trials: list[RayTrial], trial: RayTrial, **info: Any
    ) -> None:
        """End a trial that failed and that Tune does not retry.

        Its failures are too many, or it was waiting already for its next attempt when its loss was reported a second
        time, as with a host that dies.
        """
        trial_id = trial.config["id"]
        error = _error_text(trial)
        active = self.loop.accounts.active.get(trial_id)
        infeasible = trial_id in self.loop.placements.infeasible
        # The second report of one loss: Tune gives the trial up, and the loop hands it out again.
        if active is not None and active.lost_waiting:
            active.lost_waiting = False
            if not infeasible and self.loop.requeue(trial_id):
                self._safely(self.loop.lost, trial_id, _reason(error))
                return
        if infeasible:
            self._safely(self.loop.give_up, trial_id, error, Status.INFEASIBLE)
        else:
            self._safely(
                lambda: self.loop.give_up(
                    trial_id, error, cause=_cause(self.loop.records, trial_id, error)
                )
            )

    def _watch(self, trials: list[RayTrial]) -> None:
        """Say what is waited for where no trial has run for a while: hosts that went, or are not there yet."""
        now = time.monotonic()
        active = self.loop.accounts.active
        if now < self.watch_at:
            return
        self.watch_at = now + WATCH_S
        # From the end of the list, since the thousands that have ended come first.
        if any(trial.status == "RUNNING" for trial in reversed(trials)):
            self.idle_message_at = now + IDLE_S
            return
        pending = [trial.config["id"] for trial in trials if trial.status == "PENDING"]
        waiting = [active[trial_id] for trial_id in pending if trial_id in active]
        if waiting and now >= self.idle_message_at:
            self.idle_message_at = now + IDLE_REPEAT_S
            place = self.loop.placements.place(waiting[0].trial)
            gpu = f"{place.share} of a {place.gpu}, " if place.gpu else ""
            self.loop.progress.say(
                f"no trial runs: {len(waiting)} to come, and no host has {gpu}{plural(place.cpus, 'core')} and "
                f"{place.host_memory_gib:g} GiB free{self.loop.queue.hosts.rule(place.host_memory_gib)}"
            )

    def _safely(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Call a function of the loop; an error of the storage ends the run, any other is logged."""
        try:
            call(*arguments)
        # It comes after minutes of trying, or where access is denied: nothing can be recorded any more.
        except StorageError as error:
            self.loop.accounts.stop(str(error))
        except Exception:
            log.exception("an event of a trial was lost; the records in the storage are whole")


def _error_text(trial: RayTrial) -> str:
    """Return the traceback of the trial's last failure; Tune's file has all of them.

    Where no living worker raised it, a sentence on what becomes of such processes is its last line.
    """
    path = getattr(trial, "error_file", None)
    if not path or not Path(path).exists():
        return "the trial's worker was lost\n"
    error = ray_internals.FAILURE.split(Path(path).read_text())[-1]
    if _raised(error) or out_of_memory.which(error):
        return error
    return f"{error.rstrip()}\n{NEVER_BEGAN if ray_internals.NEVER_RAN in error else LOST}\n"


def _cause(records: StudyRecords, trial_id: str, error: str) -> Cause:
    """Return the cause that a trial's last error tells; `METHOD` is its own fault.

    Of a process that was lost without a word its log tells whether it ended itself. In an object store the log may lack
    its end, so that such a process counts as its trial's fault.
    """
    if ray_internals.HOST_LOST.search(error) or ray_internals.NEVER_RAN in error:
        return Cause.HOST_LOST
    if out_of_memory.which(error):
        return Cause.HOST_MEMORY
    if _raised(error):
        # The last of our errors in the traceback, if any.
        raised = OUR_ERROR.findall(error)
        return RAISED_CAUSES.get(raised[-1], Cause.METHOD) if raised else Cause.METHOD
    log = read_log(records, trial_id)[-LAST_WORDS:]
    # What a killed worker printed last has reached a folder, but no object store.
    is_local = isinstance(records.store, LocalStore)
    return Cause.SIGNAL if is_local and not any(words in log for words in CRASHED) else Cause.METHOD


def _reason(error: str) -> str:
    """Return a failure that left no record as one line: the last one of its traceback, or what was lost."""
    if out_of_memory.which(error):
        return "its memory ran out"
    return error.strip().splitlines()[-1] if _raised(error) else "its worker or host was lost"


def _raised(error: str) -> bool:
    """Whether a living worker raised it: so Ray begins the traceback."""
    return ray_internals.RAISED.match(error) is not None
