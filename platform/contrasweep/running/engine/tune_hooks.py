"""The three hooks by which Ray Tune asks which trial is next, which goes on, and tells what became of each."""

import logging
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.progress_reporter import ProgressReporter
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from contrasweep.cluster import out_of_memory
from contrasweep.errors import StorageError
from contrasweep.live.logs import read_log
from contrasweep.running.engine import ray_internals
from contrasweep.running.engine.active_trials import ActiveTrials
from contrasweep.running.engine.watchdog import Watchdog
from contrasweep.running.run_context import FAULT, RayTrial, RunContext, StepResult
from contrasweep.running.signals import interruption
from contrasweep.running.worker.output import EXIT_CALLED
from contrasweep.storage.record import Cause, Status
from contrasweep.storage.store import LocalStore
from contrasweep.tuning.source import Finished

log = logging.getLogger(__name__)

LOST = (
    "its process was lost each time: it called os._exit, crashed in compiled code, or was killed from outside, as the "
    "kernel does where memory runs out; its log has what it printed"
)
NEVER_BEGAN = (
    "its process never began: Ray gave it up before that, each time; so it does where RAY_AUTH_MODE=token is set here "
    "and the cluster asks for no token"
)
OUR_ERROR = re.compile(r"^contrasweep\.(?:\w+\.)+(\w+): ", re.MULTILINE)
RAISED_CAUSES = {
    **dict.fromkeys(("StorageError", "StorageDenied", "BrokenFileError"), Cause.STORAGE),
    **dict.fromkeys(("ProcessLostError", "LaneFault"), Cause.SIGNAL),
}
"""Causes of the errors that a worker raises and that are no fault of its trial."""
CRASHED = ("Fatal Python error: ", EXIT_CALLED)
"""Last words, in its log, of a process that ended itself: Python's own on a crash in compiled code, and ours."""
LAST_WORDS = 2**16
IDLE_S, IDLE_REPEAT_S = 30.0, 300.0
"""After so long without a running trial, and again after so long, a message says what is waited for."""


class TuneSearcher(Searcher):  # type: ignore[misc]
    """Which trial is next; first those that an earlier fit left unfinished, or that Tune gave up too early."""

    def __init__(self, trials: ActiveTrials, context: RunContext) -> None:
        super().__init__(metric=None, mode=None)
        self.trials, self.context = trials, context
        self.unfinished = list(trials.running.values())
        trials.returned.clear()  # they are among these

    def suggest(self, trial_id: str) -> Any:
        """The next trial as Tune's config; None: none now."""
        if self.trials.closing():
            return Searcher.FINISHED
        if waiting := self.unfinished or self.trials.returned:
            trial, notes = waiting.pop(0)
        else:
            candidate = self.trials.next()
            if candidate is None or isinstance(candidate, Finished):
                return None if candidate is None else Searcher.FINISHED
            trial, notes = candidate.trial, candidate.notes
        notes = self.trials.begin(trial, notes)
        place, fresh = self.trials.placements.described(trial), self.trials.fresh(trial.id)
        return self.context.describe(trial, place, notes, self.trials.code.of(trial), fresh=fresh)

    def on_trial_complete(self, trial_id: str, result: StepResult | None = None, error: bool = False) -> None:
        """Records tell the source; see `TuneCallback`."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save: a source is rebuilt from the records."""

    def restore(self, checkpoint_path: str) -> None:
        """See `save`."""


class NoReporter(ProgressReporter):  # type: ignore[misc]
    """Tune's own table of trials, switched off. Without it, in a notebook, Tune clears what the cell shows, the
    display of the run with it."""

    def should_report(self, trials: list[RayTrial], done: bool = False) -> bool:
        """Never."""
        return False

    def report(self, trials: list[RayTrial], done: bool, *sys_info: str) -> None:
        """Nothing."""


class TuneScheduler(FIFOScheduler):  # type: ignore[misc]
    """Which trial goes on: stops what the source or a budget ends, and gives a trial that ran out of memory more of
    it."""

    def __init__(self, trials: ActiveTrials) -> None:
        super().__init__()
        self.trials = trials

    def on_trial_result(self, tune_controller: Any, trial: RayTrial, result: StepResult) -> str:
        """CONTINUE or STOP."""
        if fault := result.get(FAULT):
            self.trials.stop(fault)
        trial_id, reports = trial.config["id"], result.get("reports") or []
        if self.trials.report(trial_id, reports, result.get("seconds", 0.0)):
            ray_internals.forgive(trial)  # what counts is failing again and again without getting further
        self.trials.peers(dict(result.get("peers") or ()))
        go_on = self.trials.should_continue(trial_id, [] if result.get("done") else reports)
        return TrialScheduler.CONTINUE if go_on else TrialScheduler.STOP  # type: ignore[no-any-return]

    def on_trial_error(self, tune_controller: Any, trial: RayTrial) -> None:
        """After running out of memory, the trial is retried with more. A host that was lost is no failure of the trial
        (see `Engine`), until it has lost too many."""
        if trial.config["id"] not in self.trials.running:
            super().on_trial_error(tune_controller, trial)
            return
        if trial.status == "PENDING":  # it waits for its next attempt already: the same loss once more
            self.trials.repeated.add(trial.config["id"])
            super().on_trial_error(tune_controller, trial)
            return
        error = _error_text(trial)
        if ray_internals.HOST_LOST.search(error) and not self.trials.lose_host(trial.config["id"]):
            ray_internals.give_up_next(trial)
        resources = self.trials.placements.after_error(trial.config, error)
        if resources is not None:
            trial.config["place"] = self.trials.placements.described_again(trial.config)
            trial.config["notes"] = self.trials.notes(trial.config["id"]).to_dict()
            trial.update_resources(resources)
        super().on_trial_error(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        """The first that waits; none once a budget is used up."""
        if self.trials.closing():
            for trial in [trial for trial in tune_controller.get_trials() if trial.status == "PENDING"]:
                tune_controller.stop_trial(trial)
        return super().choose_trial_to_run(tune_controller)


class TuneCallback(tune.Callback):  # type: ignore[misc]
    """What became of each trial. Nothing here may raise: that would end the whole study."""

    def __init__(self, trials: ActiveTrials) -> None:
        self.trials, self.watchdog = trials, Watchdog(trials)
        self.idle_message_at = time.monotonic() + IDLE_S

    def on_step_begin(self, iteration: int, trials: list[RayTrial], **info: Any) -> None:
        """Each turn of Tune's loop."""
        interruption.check()
        self._safely(self._watch, trials)
        self._safely(self.watchdog.check, trials)
        self._safely(self.trials.placements.lanes.check)

    def on_trial_recover(self, iteration: int, trials: list[RayTrial], trial: RayTrial, **info: Any) -> None:
        """A trial whose worker failed will be retried."""
        self._again(trial)

    def _again(self, trial: RayTrial) -> None:
        self.trials.overdue.ended(trial.config["id"])  # until a worker begins it again
        if trial.config["id"] not in self.trials.running:  # it has its record, and the worker was ended on purpose
            return
        fields = trial.config["trial"]
        fold = "" if fields["fold"] is None else f" fold={fields['fold']}"
        replicate = f"{fields['arm']}{fold} seed={fields['seed']}"
        self._safely(self.trials.listener.on_lost, trial.config["id"])
        reason = _reason(_error_text(trial))
        self._safely(self.trials.listener.on_message, f"again: {replicate}: {reason}; it resumes from its checkpoint")

    def on_trial_start(self, iteration: int, trials: list[RayTrial], trial: RayTrial, **info: Any) -> None:
        """A worker begins."""
        trial.config["fresh"] = False  # for the next one, should it be lost
        self._safely(self.trials.start, trial.config["id"])

    def on_trial_result(
        self, iteration: int, trials: list[RayTrial], trial: RayTrial, result: StepResult, **info: Any
    ) -> None:
        """New reports. Tune keeps each trial's last result to its end: what is large is taken out of it."""
        if record := result.pop("record", None):
            self._safely(self.trials.take_record, result["id"], record)
        if result.get("reports"):
            self._safely(self.trials.listener.on_report, result["id"], result["reports"])
        for name in ("reports", "peers"):
            result.pop(name, None)  # type: ignore[misc]

    def on_trial_complete(self, iteration: int, trials: list[RayTrial], trial: RayTrial, **info: Any) -> None:
        """The worker has written the record, or the trial was stopped early."""
        self._safely(self._complete, trial)
        _forget(trial)

    def on_trial_error(self, iteration: int, trials: list[RayTrial], trial: RayTrial, **info: Any) -> None:
        """A trial failed and Tune does not retry it: its failures are too many, or it was waiting already for its next
        attempt when its loss was reported a second time, as with a host that dies."""
        trial_id, error = trial.config["id"], _error_text(trial)
        repeated, infeasible = trial_id in self.trials.repeated, self.trials.placements.is_infeasible(trial.config)
        self.trials.repeated.discard(trial_id)
        if repeated and not infeasible and self.trials.hand_out_again(trial_id):
            self._again(trial)
            return
        if infeasible:
            self._safely(self.trials.give_up, trial_id, error, Status.INFEASIBLE)
        else:
            self._safely(lambda: self.trials.give_up(trial_id, error, cause=self._cause(trial_id, error)))

    def _cause(self, trial_id: str, error: str) -> Cause:
        """The cause that a trial's last error tells. Of a process that was lost without a word its log tells whether it
        ended itself."""
        if ray_internals.HOST_LOST.search(error) or ray_internals.NEVER_RAN in error:
            return Cause.HOST_LOST
        if out_of_memory.which(error):
            return Cause.HOST_MEMORY
        if _raised(error):
            raised = OUR_ERROR.findall(error)
            return RAISED_CAUSES.get(raised[-1], Cause.METHOD) if raised else Cause.METHOD
        records = self.trials.records
        log = read_log(records, trial_id)[-LAST_WORDS:]
        whole = isinstance(records.store, LocalStore)  # an object store has not what was printed last
        return Cause.SIGNAL if whole and not any(words in log for words in CRASHED) else Cause.METHOD

    def _complete(self, trial: RayTrial) -> None:
        trial_id = trial.config["id"]
        record = self.trials.recorded(trial_id)
        if record is not None:
            self.trials.end(record)
        elif trial_id in self.trials.stopped:
            self.trials.give_up(trial_id, "", Status.PRUNED)

    def _watch(self, trials: list[RayTrial]) -> None:
        """Say what is waited for where no trial has run for a while: hosts that went, or are not there yet."""
        now = time.monotonic()
        if any(trial.status == "RUNNING" for trial in reversed(trials)):  # the thousands that have ended come first
            self.idle_message_at = now + IDLE_S
        elif now >= self.idle_message_at and (waiting := [trial for trial in trials if trial.status == "PENDING"]):
            self.idle_message_at = now + IDLE_REPEAT_S
            place = self.trials.placements.of(waiting[0].config)
            gpu = f"{place.share} of a {place.gpu}, " if place.gpu else ""
            self.trials.listener.on_message(
                f"no trial runs: {len(waiting)} wait for a host with {gpu}{place.cpus:g} cores and "
                f"{place.host_memory_gib:g} GiB free"
            )

    def _safely(self, call: Callable[..., Any], *arguments: Any) -> None:
        try:
            call(*arguments)
        except StorageError as error:  # after minutes of trying, or denied: nothing can be recorded any more
            self.trials.stop(str(error))
        except Exception:
            log.exception("an event of a trial was lost; the records in the storage are whole")


def _forget(trial: RayTrial) -> None:
    """Of a trial that has ended only its id is asked for."""
    ray_internals.forget(trial)
    for name in ("data", "notes", "code", "trial"):
        trial.config.pop(name, None)  # type: ignore[misc]


def _error_text(trial: RayTrial) -> str:
    """The traceback of the trial's last failure; Tune's file has all of them."""
    path = getattr(trial, "error_file", None)
    if not path or not Path(path).exists():
        return "the trial's worker was lost\n"
    error = ray_internals.FAILURE.split(Path(path).read_text())[-1]
    if _raised(error) or out_of_memory.which(error):
        return error
    return f"{error.rstrip()}\n{NEVER_BEGAN if ray_internals.NEVER_RAN in error else LOST}\n"


def _reason(error: str) -> str:
    """A failure that left no record, in a line."""
    if out_of_memory.which(error):
        return "its memory ran out"
    return error.strip().splitlines()[-1] if _raised(error) else "its worker or host was lost"


def _raised(error: str) -> bool:
    """Whether a living worker raised it: so Ray begins the traceback."""
    return ray_internals.RAISED.match(error) is not None
