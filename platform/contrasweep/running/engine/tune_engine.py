"""Ray Tune as the engine: it places trials on hosts, keeps workers alive, and retries trials that a machine broke.

`run_trials` runs Tune. Tune asks a searcher which trial is next, asks a scheduler which trials go on, and tells a
callback what becomes of each: all three pass this on to `TrialLoop`. After a fault of Tune itself, Tune is started
again for the trials without a record.
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
from contrasweep.errors import ContrasweepError, error_of, plural
from contrasweep.live.logs import read_log
from contrasweep.processes import scratch_folder
from contrasweep.running.engine import ray_internals
from contrasweep.running.engine.accounts import ActiveTrial
from contrasweep.running.engine.loop import TrialLoop
from contrasweep.running.engine.placement import bundles
from contrasweep.running.engine.watchdog import Watchdog
from contrasweep.running.run_context import (
    FAULT,
    RayTrial,
    RunContext,
    StepResult,
    TrialDescription,
)
from contrasweep.running.signals import interruption
from contrasweep.running.worker.output import EXIT_CALLED
from contrasweep.running.worker.worker import TuneTrial
from contrasweep.storage.record import Cause, Record, Status
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
"""Environment variables that Ray and Ray Tune read."""
FAULT_PAUSE_S = 3.0
"""A pause after a fault of Tune, in which `RayWatch` notices if Ray has died."""
MAX_PENDING_TRIALS = "16"
"""Trials of a plan that wait for their places at once, on hosts that stay as they are.

Of a search one waits, or `max_concurrent`: a configuration that is suggested later is chosen by more results.
"""
DEMANDED_TRIALS = "200"
"""Trials that wait for their places at once where an autoscaler starts hosts for them."""
WATCH_S = 1.0
"""How often it is checked whether any trial runs, which goes through all trials so far."""
PLACE_AGAIN_S = 2.0
"""How often waiting trials are placed anew where an autoscaler starts hosts."""
LOST = (
    "its process was lost each time: it called os._exit, crashed in compiled code, or was killed from outside, as the "
    "kernel does where memory runs out; its log has what it printed"
)
NEVER_BEGAN = (
    "its process never began: Ray gave it up before that, each time. Ray also does this if RAY_AUTH_MODE=token is set "
    "here and the cluster asks for no token"
)
"""The last lines of the errors of trials that no worker has raised."""
OUR_ERROR = re.compile(r"^contrasweep\.(?:\w+\.)+(\w+): ", re.MULTILINE)
"""A line of a traceback with an error of this package; its group is the class."""
RAISED_CAUSES = {
    **dict.fromkeys(("StorageError", "StorageDenied", "BrokenFileError"), Cause.STORAGE),
    "ProcessLostError": Cause.SIGNAL,
}
"""Class of an error that a worker raises -> cause, of errors that are no fault of the trial."""
CRASHED = ("Fatal Python error: ", EXIT_CALLED)
"""Texts at the end of the log of a process that ended itself: Python's own after a crash in compiled code, and ours."""
LAST_WORDS = 2**16
"""Characters at the end of a log in which these texts are looked for."""
IDLE_S = 30.0
"""After so long without a running trial a message says which place the next one waits for."""
IDLE_REPEAT_S = 300.0
"""After so long the message is repeated."""


def run_trials(
    context: RunContext,
    loop: TrialLoop,
    *,
    max_failures: int,
    max_concurrent: int | None,
    own_process: bool,
) -> None:
    """Run all trials of a loop on a connected Ray, until each has its record, or no trial may start any more.

    Tune may end by a fault of its own, such as a host whose memory ran out. It is then started again, up to
    `max_failures` times in a row without a trial that ends between them. After one more, the trials that were
    handed out end as failed.

    Args:
        context: What each worker receives.
        loop: The loop over the trials.
        max_failures: How often a trial, or Tune, may fail in a row without progress.
        max_concurrent: Trials at once, at most; None: as many as fit.
        own_process: Each trial has a process of its own. Otherwise a process trains many trials, one after the other.

    Raises `ContrasweepError` where the accounts have a fault, such as a lost lease or an error of the storage.
    """
    faults = 0  # of Tune, since a trial has ended
    accounts = loop.accounts
    queue = loop.queue
    say = loop.progress.say
    while faults <= max_failures:
        ended = accounts.ended
        try:
            _fit(context, loop, max_failures, max_concurrent, own_process)
        except (RuntimeError, ray.exceptions.RayError, tune.TuneError) as error:
            # The text of the error may be a traceback, whose last line says most.
            reason = [repr(error), *str(error).strip().splitlines()][-1]
            say(f"Ray Tune stopped and is started again ({reason})")
            time.sleep(FAULT_PAUSE_S)
        # Tune has ended, by itself or by a fault. `begin_again` queues all trials without a record, so it is read
        # first whether trials were queued again while Tune was ending.
        requeued = bool(queue.requeued)
        loop.begin_again()
        if accounts.fault:
            raise ContrasweepError(accounts.fault)
        if not accounts.active or accounts.closing():
            return
        # Tune ends by itself once the source has no more trials. Trials that were queued again while it was ending
        # are no fault of Tune.
        if not requeued:
            faults = 1 if accounts.ended > ended else faults + 1
    # Tune had too many faults: the trials that are left end as failed.
    for trial_id in list(accounts.active):
        loop.give_up(
            trial_id,
            "Ray Tune stopped each time this trial was running\n",
            cause=Cause.HOST_LOST,
        )


def _fit(
    context: RunContext,
    loop: TrialLoop,
    max_failures: int,
    max_concurrent: int | None,
    own_process: bool,
) -> None:
    """Run Tune once, until it has no trial left. Errors of Tune are not caught.

    The arguments are those of `run_trials`.
    """
    # Tune reads from the environment how many trials may wait for resources at once. `auto` is one, or
    # `max_concurrent`.
    os.environ.update(TUNE_ENVIRONMENT)
    if loop.queue.source.adaptive:
        pending = "auto"
    elif loop.queue.hosts.autoscaled:
        pending = DEMANDED_TRIALS
    else:
        pending = MAX_PENDING_TRIALS
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = pending
    ray_internals.adapt(loop.progress.say)
    # Tune's own messages are off: `TuneCallback` reports lost workers, in one line each.
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    folder = scratch_folder("tune")
    watchdog = Watchdog(loop)
    try:
        tuner = tune.Tuner(
            tune.with_resources(tune.with_parameters(TuneTrial, context=context), bundles),
            tune_config=tune.TuneConfig(
                search_alg=TuneSearcher(loop),
                scheduler=TuneScheduler(loop),
                num_samples=-1,  # until the searcher has no more trials
                reuse_actors=not own_process,
                max_concurrent_trials=max_concurrent,
                trial_dirname_creator=lambda trial: trial.trial_id,
            ),
            run_config=tune.RunConfig(
                name="study",
                storage_path=str(folder),
                verbose=0,
                progress_reporter=NoReporter(),
                callbacks=[TuneCallback(loop, watchdog), NoLines()],
                failure_config=tune.FailureConfig(max_failures=max_failures),
                checkpoint_config=tune.CheckpointConfig(
                    checkpoint_frequency=0, checkpoint_at_end=False
                ),
            ),
        )
        tuner.fit()
    finally:
        watchdog.end()
        shutil.rmtree(folder, ignore_errors=True)


class TuneSearcher(Searcher):  # type: ignore[misc]
    """Tells Tune which trial is next, as the loop says."""

    def __init__(self, loop: TrialLoop) -> None:
        super().__init__(metric=None, mode=None)
        self.loop = loop

    def suggest(self, trial_id: str) -> Any:
        """Return the next trial as Tune's config; None: none now; Tune's FINISHED: none any more.

        `trial_id` is Tune's own id of the trial, which is not used.
        """
        loop = self.loop
        following = loop.next()
        if following is None:
            return None
        if isinstance(following, Finished):
            return Searcher.FINISHED
        trial = following.trial
        # The config is small, because Tune often copies it.
        return TrialDescription(
            id=trial.id,
            place=loop.placements.place_description(trial),
            notes=loop.notes(following),
            code=loop.code.of(trial),
            trial=Record.of(trial, status=Status.PENDING),
        )

    def on_trial_complete(
        self, trial_id: str, result: StepResult | None = None, error: bool = False
    ) -> None:
        """Do nothing, because the source learns of the end of a trial by its record, from `TuneCallback`."""

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: this searcher has no state to save, since its trials are found again from the records."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing; see `save`."""


class NoReporter(ProgressReporter):  # type: ignore[misc]
    """Replaces Tune's own table of trials by nothing.

    In a notebook, Tune's reporter would clear the output of the cell, with the display of the run.
    """

    def should_report(self, trials: list[RayTrial], done: bool = False) -> bool:
        """Return False, so that Tune never reports."""
        return False

    def report(self, trials: list[RayTrial], done: bool, *sys_info: str) -> None:
        """Print nothing."""


class NoLines(TrialProgressCallback):  # type: ignore[misc]
    """Replaces Tune's own line on a trial that ends before its first result by nothing."""

    def on_trial_complete(self, *arguments: Any, **info: Any) -> None:
        """Print nothing."""


class TuneScheduler(FIFOScheduler):  # type: ignore[misc]
    """Tells Tune which trial starts and which go on, and gives more memory to trials that ran out of it."""

    def __init__(self, loop: TrialLoop) -> None:
        super().__init__()
        self.loop = loop
        self.place_again_at = 0.0  # monotonic time

    def on_trial_result(self, tune_controller: Any, trial: RayTrial, result: StepResult) -> str:
        """Return Tune's CONTINUE, or STOP where the trial ends now.

        It ends where its source stops it, or where a budget or a fault ends all trials. The reports in `result` are
        counted before that.
        """
        fault = result.get(FAULT)
        if fault:
            self.loop.accounts.stop(fault)
        trial_id = trial.config["id"]
        reports = result.get("reports") or []
        # Only failures in a row without progress count.
        if self.loop.reported(trial_id, reports, result.get("seconds", 0.0)):
            ray_internals.forgive(trial)
        # A trial with its record has ended by itself: its last reports cannot stop it.
        go_on = self.loop.goes_on(trial_id, [] if result.get("done") else reports)
        return TrialScheduler.CONTINUE if go_on else TrialScheduler.STOP  # type: ignore[no-any-return]

    def on_trial_error(self, tune_controller: Any, trial: RayTrial) -> None:
        """Prepare a failed trial for its next attempt: with more memory where it has run out of memory.

        Whether there is a next attempt is decided by Tune, later. Tune does not count the loss of a host as a failure
        (see `ray_internals`). But a trial that has lost too many hosts is given up at its next failure.
        """
        loop = self.loop
        active = loop.accounts.active.get(trial.config["id"])
        # The trial already waits for its next attempt: this is the same loss, reported once more.
        if active is not None and trial.status == "PENDING":
            active.lost_waiting = True
        elif active is not None:
            error = _error_text(trial)
            if ray_internals.HOST_LOST.search(error) and not loop.accounts.lost_host(active):
                ray_internals.give_up_next(trial)
            resources = loop.placements.after_error(active.trial, error)
            if resources is not None:
                self._set_place_and_notes(trial, active)
                trial.update_resources(resources)
        super().on_trial_error(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        """Return the trial that Tune is to start next, which is pending or paused; None where no trial waits.

        Pending trials come before paused ones, and each group is in the order in which trials were handed out. A trial
        that was not handed out, or has ended, comes last in its group. Once a budget is used up, and after a fault,
        pending trials are stopped.

        Where an autoscaler starts hosts, many trials wait that were placed before any memory was measured. So every
        `PLACE_AGAIN_S` seconds, trials whose memory is better known by now ask Ray for other resources.
        """
        # No further trial may start: a budget is used up, or the run has a fault.
        if self.loop.accounts.closing():
            for trial in list(tune_controller.get_trials()):
                if trial.status == "PENDING":
                    tune_controller.stop_trial(trial)
        elif self.loop.queue.hosts.autoscaled and time.monotonic() >= self.place_again_at:
            self.place_again_at = time.monotonic() + PLACE_AGAIN_S
            unplaced = {
                trial.config["id"]: trial
                for trial in ray_internals.waiting_for_resources(tune_controller)
            }
            for active in self.loop.placed_again(unplaced):
                trial = unplaced[active.trial.id]
                self._set_place_and_notes(trial, active)
                ray_internals.request_again(tune_controller, trial, bundles(trial.config))
        # Live trials only: Tune's own scheduler goes through all trials that have ended, in each turn of its loop.
        waiting = [
            trial
            for trial in tune_controller.get_live_trials()
            if trial.status in ("PENDING", "PAUSED")
        ]
        # `active` has the trials in the order in which they were handed out.
        order = {trial_id: number for number, trial_id in enumerate(self.loop.accounts.active)}

        def rank(trial: RayTrial) -> tuple[bool, int]:
            """Return the sort key by which pending trials (False) come before paused ones, both in `order`."""
            return trial.status == "PAUSED", order.get(trial.config["id"], len(order))

        return min(waiting, key=rank, default=None)

    def _set_place_and_notes(self, trial: RayTrial, active: ActiveTrial) -> None:
        """Write the place and the notes that a trial has now to its Tune config, which its worker receives."""
        trial.config["place"] = self.loop.placements.place_description(active.trial)
        trial.config["notes"] = self.loop.notes(active)


class TuneCallback(tune.Callback):  # type: ignore[misc]
    """Passes the results and the end of each trial to the loop.

    Tune passes all arguments by name; those that a method does not use are in `info`. An error of the loop is logged,
    and the run goes on. An error of the storage ends the run in good order (see `_safely`).
    """

    def __init__(self, loop: TrialLoop, watchdog: Watchdog) -> None:
        self.loop = loop
        self.watchdog = watchdog
        self.idle_message_at = time.monotonic() + IDLE_S
        self.watch_at = 0.0  # monotonic time

    def on_step_begin(self, *, trials: list[RayTrial], **info: Any) -> None:
        """Check the running trials and their workers; Tune calls this in each turn of its loop.

        Where no trial runs, a message says what is waited for. Raises KeyboardInterrupt where a signal has come.
        """
        interruption.check()
        self._safely(self._watch, trials)
        self._safely(self.watchdog.check, trials)

    def on_trial_recover(self, *, trial: RayTrial, **info: Any) -> None:
        """Note that a trial whose worker failed will be retried."""
        self._safely(self.loop.lost, trial.config["id"], _reason(_error_text(trial)))

    def on_trial_start(self, *, trial: RayTrial, **info: Any) -> None:
        """Note that a worker begins the trial."""
        self._safely(self.loop.started, trial.config["id"])

    def on_trial_result(self, *, trial: RayTrial, result: StepResult, **info: Any) -> None:
        """Pass the new reports and the record in `result` on to the loop, and remove both from `result`.

        They are removed because Tune keeps each trial's last result in memory to the end of the run.
        """
        record = result.pop("record", None)
        if record:
            self._safely(self.loop.worker_recorded, result["id"], record)
        if result.get("reports"):
            self._safely(self.loop.progress.reported, result["id"], result["reports"])
        result.pop("reports", None)

    def on_trial_complete(self, *, trial: RayTrial, **info: Any) -> None:
        """End a trial whose worker has written the record, or that was stopped early."""
        self._safely(self.loop.ended, trial.config["id"])
        # Tune keeps the trial to the end of the run, and only the id is needed later.
        ray_internals.forget(trial)
        for name in ("notes", "code", "trial"):
            trial.config.pop(name, None)  # type: ignore[misc]

    def on_trial_error(self, *, trial: RayTrial, **info: Any) -> None:
        """End a failed trial that Tune does not retry.

        There are two cases. The trial has failed too often. Or one loss of its host was reported twice: at the second
        report the trial already waited for its next attempt, and Tune gives it up by mistake.
        """
        loop = self.loop
        trial_id = trial.config["id"]
        error = _error_text(trial)
        active = loop.accounts.active.get(trial_id)
        infeasible = trial_id in loop.placements.infeasible
        # After a second report of one loss the loop hands the trial out again.
        if active is not None and active.lost_waiting:
            active.lost_waiting = False
            if not infeasible and loop.requeue(trial_id):
                self._safely(loop.lost, trial_id, _reason(error))
                return
        if infeasible:
            self._safely(loop.give_up, trial_id, error, Status.INFEASIBLE)
        else:
            self._safely(
                lambda: loop.give_up(trial_id, error, cause=_cause(loop.records, trial_id, error))
            )

    def _watch(self, trials: list[RayTrial]) -> None:
        """Tell the user what the next trial waits for, where no trial has run for `IDLE_S` seconds.

        That is a place on a host: hosts have left, or have not joined yet. The message is repeated every
        `IDLE_REPEAT_S` seconds.
        """
        loop = self.loop
        now = time.monotonic()
        active = loop.accounts.active
        if now < self.watch_at:
            return
        self.watch_at = now + WATCH_S
        # From the end of the list, because thousands of ended trials may come first.
        if any(trial.status == "RUNNING" for trial in reversed(trials)):
            self.idle_message_at = now + IDLE_S
            return
        pending = [trial.config["id"] for trial in trials if trial.status == "PENDING"]
        waiting = [active[trial_id] for trial_id in pending if trial_id in active]
        too_large = loop.queue.waiting  # for every host that is there
        if now < self.idle_message_at or not (waiting or too_large):
            return
        self.idle_message_at = now + IDLE_REPEAT_S
        state = loop.progress.state
        trials_left = (
            len(waiting) + len(too_large) if state.total is None else state.total - state.done
        )
        if waiting:
            place = loop.placements.place(waiting[0].trial)
            gpu = f"{place.share} of a {place.gpu}, " if place.gpu else ""
            why = (
                f"the first is starting, or no host has {gpu}{plural(place.cpus, 'core')} and "
                f"{place.host_memory_gib:g} GiB free{loop.queue.hosts.rule(place.host_memory_gib)}"
            )
        else:
            why = loop.placements.footprints.why_not(too_large[0].trial)
        loop.progress.waits(f"no trial runs: {trials_left} to come; {why}")

    def _safely(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Call a function of the loop, so that none of its errors ends Tune at once.

        A `ContrasweepError`, such as one of the storage, lets no further trial start, so that the run ends. Any other
        error is only logged.
        """
        try:
            call(*arguments)
        # The storage was tried for minutes, or denies access; or the user's searcher fails: nothing can go on.
        except ContrasweepError as error:
            self.loop.accounts.stop(str(error))
        except Exception:
            log.exception("an event of a trial was lost; the records in the storage are whole")


def _error_text(trial: RayTrial) -> str:
    """Return the traceback of the trial's last failure, from Tune's file of all its failures.

    Where the worker's process was lost, so that no worker raised the error, the last line is a sentence on the possible
    reasons.
    """
    path = getattr(trial, "error_file", None)
    if not path or not Path(path).exists():
        return "the trial's worker was lost\n"
    error = ray_internals.FAILURE.split(Path(path).read_text())[-1]
    if _raised(error) or out_of_memory.exhausted_memory(error):
        return error
    reason = NEVER_BEGAN if ray_internals.NEVER_RAN in error else LOST
    return f"{error.rstrip()}\n{reason}\n"


def _cause(records: StudyRecords, trial_id: str, error: str) -> Cause:
    """Return the cause of the failure of a trial whose worker left no record; `error` is Tune's traceback.

    Where the traceback does not show it, the end of the trial's log does. `METHOD` means that the trial itself is at
    fault.
    """
    if ray_internals.HOST_LOST.search(error) or ray_internals.NEVER_RAN in error:
        return Cause.HOST_LOST
    if out_of_memory.exhausted_memory(error):
        return Cause.HOST_MEMORY
    if _raised(error):
        # The classes of our own errors in the traceback; the last one counts.
        raised = OUR_ERROR.findall(error)
        return RAISED_CAUSES.get(raised[-1], Cause.METHOD) if raised else Cause.METHOD
    # The process was lost without a word: the end of its log tells whether it ended itself. In an object store the end
    # of the log may be missing, so there the trial is at fault in any case.
    log = read_log(records, trial_id)[-LAST_WORDS:]
    ended_itself = any(words in log for words in CRASHED)
    if isinstance(records.store, LocalStore) and not ended_itself:
        return Cause.SIGNAL
    return Cause.METHOD


def _reason(error: str) -> str:
    """Return one line on why a worker has ended without a record; `error` is the traceback that Tune has.

    It is `its memory ran out`, the error that was raised, or `its worker or host was lost`.
    """
    if out_of_memory.exhausted_memory(error):
        return "its memory ran out"
    return error_of(error.strip()) if _raised(error) else "its worker or host was lost"


def _raised(error: str) -> bool:
    """Return whether a living worker has raised `error`, and not Ray because the worker was lost.

    The first words of the traceback show it.
    """
    return ray_internals.RAISED.match(error) is not None
