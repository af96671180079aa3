"""Functions whose loop is somebody else's, as trainables: plain ones, Optuna's objectives, Ray Tune's functions.

They report by `contrasweep.report`, by `trial.report` or by `tune.report`. The function runs in a thread, and waits in
each report until the trial goes on.
"""

import contextlib
import functools
import queue
import threading
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Annotated, Any, SupportsFloat
from unittest import mock

import pydantic

from contrasweep.config import Config, MutableConfig, flatten
from contrasweep.errors import SpecError, check_known
from contrasweep.imports import import_path
from contrasweep.schema import OMIT_DEFAULT, checked
from contrasweep.trial import Report, RevisedReport, Trainable, Trial

END_S = 30.0
"""Seconds that a function may take to end after its trial was stopped."""
FUNCTION_KEY = "calls"
"""The setting that names Optuna's or Ray Tune's function."""
STOP_KEY = "until"
"""The setting with what ends a function of Ray Tune's, as Tune's `stop`: metric or `training_iteration` -> value."""
OBJECTIVE = "objective"
"""The metric that an objective returns."""
STEP_FILE = "contrasweep-step"
"""The file of a checkpoint of Ray Tune's that has its step."""


class Stopped(BaseException):
    """Raised at a function's next report after its trial was stopped, to end the function.

    No `except Exception` of the function catches it.
    """


class _Reports:
    """Hands the reports of a function from its own thread to the thread of its trial.

    Attributes:
        items: Reports that the trial has not taken yet. Behind the last one stands the error that ended the function,
            if there was one, and then None.
        taken: A semaphore, released once for each report that the trial has taken.
        stopped: Whether the function has to end at its next report.
        step: The step of the last report; -1 before the first.
    """

    def __init__(self) -> None:
        self.items: queue.Queue[Report | BaseException | None] = queue.Queue()
        self.taken = threading.Semaphore(0)
        self.stopped = False
        self.step = -1

    def put(self, step: int, metrics: Mapping[str, float], checkpoint: Path | None) -> None:
        """Hand a report to the trial and wait until it was taken; raise `Stopped` if the trial was stopped meanwhile.

        `metrics` is metric -> number, and `checkpoint` a folder from which the function could go on after `step`.
        """
        # A second report of the same step takes the first one's place.
        kind = RevisedReport if step == self.step else Report
        self.step = step
        self.items.put(kind(step, dict(metrics), checkpoint))
        self.taken.acquire()
        if self.stopped:
            raise Stopped


_current: _Reports | None = None  # of the trial that this process trains


def report(step: int, metrics: Mapping[str, float], checkpoint: str | Path | None = None) -> None:
    """Report from a trainable that is a plain function, as from the callback of a loop that is not yours.

    The function ends here where its trial was stopped.

    Args:
        step: The step or epoch that the report is of, counted up from 1. A second report of a step replaces the first.
        metrics: Metric -> number.
        checkpoint: A folder from which the function, called with `resume=folder`, goes on after this report.

    Raises:
        SpecError: No trial of contrasweep's calls the function.

    Example:
        >>> import contrasweep as cs
        >>> def train(trial, resume=None):
        ...     cs.report(1, {"accuracy": 0.75})
    """
    if _current is None:
        hint = "name the function as `trainable` of an arm, and run the study"
        raise SpecError(
            "a function reports while a trial of contrasweep's calls it", place="report", hint=hint
        )
    _current.put(step, metrics, None if checkpoint is None else Path(checkpoint))


@functools.cache
def generator(function: Callable[..., Any]) -> Trainable:
    """Return a trainable that runs the plain `function(trial, resume=None)` and yields each report that it makes.

    For one function it is always the same object, because arms are told apart by their functions.

    An error of the function is raised in the trial. After the trial was stopped, the function has `END_S` seconds to
    end; then nobody waits for it any longer.
    """

    def train(trial: Trial, resume: Path | None = None) -> Generator[Report]:
        """Run the function in a thread, and yield what it reports.

        In each call of `report` the function waits until the trial has taken the report.
        """
        global _current
        reports = _current = _Reports()

        def run() -> None:
            """Call the function; then put its error, if it raised one, and None into the queue of reports."""
            try:
                function(trial, resume=resume)
            except Stopped:
                pass
            # Also SystemExit, of a script's `sys.exit`: the trial has failed.
            except BaseException as error:
                reports.items.put(error)
            reports.items.put(None)

        thread = threading.Thread(target=run, name="trainable", daemon=True)
        thread.start()
        try:
            while (item := reports.items.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
                reports.taken.release()
        # Also where the trial is stopped: the function, if it waits in a report, is woken and ends there.
        finally:
            reports.stopped = True
            reports.taken.release()
            thread.join(END_S)
            _current = None

    functools.update_wrapper(train, function)
    # What looks through `__wrapped__` would take it for the plain function that it wraps.
    del train.__wrapped__  # type: ignore[attr-defined]
    return train


class _OptunaTrial:
    """What an objective of Optuna gets as its trial: its `suggest_...` methods return our trial's settings.

    `params` are these settings. `step` is the step of the last report, counted from 1; 0 before the first. `number`,
    which Optuna counts in a study, is always 0.
    """

    number = 0

    def __init__(self, config: Config) -> None:
        # An objective may name a setting within another one by a dotted name.
        self.params = {**config, **flatten(config)}
        self.user_attrs: MutableConfig = {}
        self.step = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return `_suggested` for every name that begins with `suggest_`; its first argument names the setting."""
        if not name.startswith("suggest_"):
            raise AttributeError(name)
        return self._suggested

    def _suggested(self, name: str, *_: Any, **__: Any) -> Any:
        """Return the trial's value of the setting `name`, whatever range the objective suggests it from.

        `SpecError` where the arm has no such setting.
        """
        rule = "an objective suggests what the arm's space has"
        check_known(name, "settings", self.params, rule, place="space")
        return self.params[name]

    def report(self, value: float, step: int) -> None:
        """Report the value of the objective at Optuna's `step`, which counts from 0 and may repeat.

        Where the trial was stopped, the function ends in this call.
        """
        # Optuna's steps count from 0 and may repeat, ours count up from 1.
        self.step = max(step + 1, self.step + 1)
        report(self.step, {OBJECTIVE: value})

    def should_prune(self) -> bool:
        """Return False: a function whose trial is stopped has ended in `report`, before it could ask."""
        return False

    def set_user_attr(self, key: str, value: Any) -> None:
        """Keep a value in `user_attrs`, for the objective itself; it is no result of the trial."""
        self.user_attrs[key] = value


def _run_objective(trial: Trial, resume: Path | None = None) -> None:
    """Run an objective of Optuna's, and report what it returns as its last step.

    The metric is `objective`; further values of an objective are `objective_1` and so on. A resumed trial begins anew,
    since Optuna's objectives have no checkpoints.
    """
    optuna_trial = _OptunaTrial(_settings(trial))
    values = import_path(trial.config[FUNCTION_KEY])(optuna_trial)
    values = values if isinstance(values, tuple | list) else [values]
    names = [OBJECTIVE, *(f"{OBJECTIVE}_{i}" for i in range(1, len(values)))]
    report(optuna_trial.step + 1, dict(zip(names, map(float, values), strict=True)))


def _run_tune_function(trial: Trial, resume: Path | None = None) -> None:
    """Run a function that was written for Ray Tune, and report what it reports to Tune.

    While it runs, Tune's `report` and `get_checkpoint` are replaced by functions of this trial.
    """
    from ray import train as ray_train
    from ray import tune

    step = int((resume / STEP_FILE).read_text()) if resume is not None else 0

    def tune_report(metrics: Config, *, checkpoint: Any = None, **_: Any) -> None:
        """Stand in for `tune.report`: report the numbers of `metrics`, and end the function if `until` is reached."""
        nonlocal step
        step += 1
        folder = None if checkpoint is None else Path(checkpoint.path)
        # Tune's functions do not tell their step: a resumed one counts on from its checkpoint's.
        if folder is not None:
            (folder / STEP_FILE).write_text(str(step))
        numbers = {}
        for name, value in metrics.items():
            # Numbers of libraries too, such as a tensor's of one element.
            if isinstance(value, SupportsFloat):
                with contextlib.suppress(TypeError, ValueError, RuntimeError):
                    numbers[name] = float(value)
        report(step, numbers, folder)
        reached = {"training_iteration": step, **numbers}
        for name, value in trial.config.get(STOP_KEY, {}).items():
            check_known(name, "metrics", reached, "what ends a trial is reported", place=STOP_KEY)
            if reached[name] >= value:
                raise Stopped

    def tune_checkpoint() -> Any:
        """Stand in for `tune.get_checkpoint`: return the checkpoint to go on from; None in a first attempt."""
        return None if resume is None else tune.Checkpoint.from_directory(str(resume))

    # Scripts import these from `ray.tune` or from `ray.train`. What the function returns is its last report.
    with (
        mock.patch.multiple(tune, report=tune_report, get_checkpoint=tune_checkpoint),
        mock.patch.multiple(ray_train, report=tune_report, get_checkpoint=tune_checkpoint),
    ):
        if metrics := import_path(trial.config[FUNCTION_KEY])(_settings(trial)):
            tune_report(metrics)


def _settings(trial: Trial) -> MutableConfig:
    """Return the settings for a function; the texts `{seed}` and `{fold}` become those of the trial."""
    own_values = {"{seed}": trial.seed, "{fold}": trial.fold}
    return {
        key: own_values.get(value, value) if isinstance(value, str) else value
        for key, value in trial.config.items()
        if key not in (FUNCTION_KEY, STOP_KEY)
    }


class _Call:
    """The settings of an arm whose function was written for Optuna or Ray Tune.

    `calls` is the dotted path of the function. `until` is metric -> value: a function of Ray Tune's ends once a report
    has reached the value. All other settings are passed to the function, `{seed}` and `{fold}` as the trial's values.
    """

    calls: str
    until: Annotated[Mapping[str, float], OMIT_DEFAULT] = pydantic.Field(default_factory=dict)

    def __post_init__(self) -> None:
        import_path(self.calls, FUNCTION_KEY)


optuna = generator(_run_objective)
"""An objective of Optuna's: `trainable: "optuna:my.module:objective"`. Its metric is `objective`."""
tune = generator(_run_tune_function)
"""A function of Ray Tune's, called with the settings: `trainable: "tune:my.module:train"`."""
optuna.settings = tune.settings = checked(_Call, extra="allow")  # type: ignore[attr-defined]
ADAPTERS = {name: f"{__name__}:{name}" for name in ("optuna", "tune")}
"""First word of an arm's `trainable`, before its colon -> dotted path of the trainable that calls the function."""


def loader_path(trainable: str, config: Config) -> str:
    """Return the path of `load_model(folder, trial)` beside a trainable, or beside the function that an adapter calls.

    `load_model` returns the network in a checkpoint of the trial, mostly a `torch.nn.Module`. Whether there is such a
    function is not looked up.
    """
    path = str(config.get(FUNCTION_KEY)) if trainable in ADAPTERS.values() else trainable
    return f"{path.partition(':')[0]}:load_model"
