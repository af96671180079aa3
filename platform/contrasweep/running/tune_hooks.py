"""What Ray Tune asks and tells, to and from the engine: which trial is next, which goes on, what became of it."""

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray import tune
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from cluster import out_of_memory
from contrasweep.running.source import Finished, Next
from contrasweep.storage.record import Status, TrialNotes
from contrasweep.trial import Trial

if TYPE_CHECKING:
    from contrasweep.running.engine import Engine

log = logging.getLogger(__name__)


class Bridge(Searcher):  # type: ignore[misc]
    """The source as Tune sees it."""

    def __init__(self, engine: "Engine", again: list[tuple[Trial, TrialNotes]]) -> None:
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
        notes = notes.joined(engine.placements.notes(trial))
        engine.running[trial.id] = (trial, notes)
        engine.stopped.discard(trial.id)  # a search may let a stopped trial go on
        return engine.job.describe(trial, engine.placements.described(trial), notes)

    def _next(self) -> Next | Finished | None:
        """The source's next trial that fits some host; the others end here, `infeasible`."""
        engine = self.engine
        while isinstance(found := engine.source.next(), Next) and not engine.placements.fits(found.trial):
            engine.running[found.trial.id] = (found.trial, found.notes)
            engine.give_up(found.trial.id, f"{engine.placements.why_not(found.trial)}\n", Status.INFEASIBLE)
        return found

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Records tell the source; see `Events`."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save: a source is rebuilt from the records."""

    def restore(self, checkpoint_path: str) -> None:
        """See `save`."""


class Decider(FIFOScheduler):  # type: ignore[misc]
    """Stops what the source wants stopped and what is out of time, and gives a trial that ran out of memory more of
    it."""

    def __init__(self, engine: "Engine") -> None:
        super().__init__()
        self.engine = engine

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        reports = result.get("reports") or []
        trial_id = trial.config["id"]
        self.engine.seconds[trial_id] = result.get("seconds", 0.0)
        self.engine.budget.trained(trial_id, self.engine.seconds[trial_id])
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


class Events(tune.Callback):  # type: ignore[misc]
    """What Tune tells, passed on to the listener. Nothing here may raise: that would end the whole study."""

    def __init__(self, engine: "Engine") -> None:
        self.engine = engine

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self._safely(self.engine.watch, trials)

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        of = trial.config["trial"]
        why = _why(_error_text(trial))
        text = f"again: {of['arm']} fold={of['fold']} seed={of['seed']}: {why}; it goes on from its checkpoint"
        self._safely(self.engine.listener.said, text)

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        entry = self.engine.running.get(trial.config["id"])
        if entry is not None:
            self._safely(self.engine.listener.started, entry[0])

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        if result.get("reports"):
            self._safely(self.engine.listener.reported, result["id"], result["reports"])

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._safely(self._complete, trial)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        text = _error_text(trial)
        status = Status.INFEASIBLE if self.engine.placements.is_infeasible(trial.config) else Status.FAILED
        self._safely(self.engine.give_up, trial.config["id"], text, status)

    def _complete(self, trial: Any) -> None:
        trial_id = trial.config["id"]
        record = self.engine.records.read_one(trial_id)
        if record is not None:
            self.engine.end(record)
        elif trial_id in self.engine.stopped:
            self.engine.give_up(trial_id, "", Status.PRUNED)

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


def _why(error: str) -> str:
    """A failure of which no record tells, in a line."""
    if out_of_memory.which(error):
        return "its memory ran out"
    raised = re.match(r"(\x1b\[\d+m)?ray::", error)  # so Ray begins the traceback of what a living worker raised
    return error.strip().splitlines()[-1] if raised else "its worker or host was lost"
