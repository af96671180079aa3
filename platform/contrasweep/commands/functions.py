"""Functions whose loop is somebody else's, as trainables: plain ones, Optuna's objectives, Ray Tune's functions.

They report by `contrasweep.report`, by `trial.report` or by `tune.report`. The function runs in a thread, and waits in
each report until the trial goes on.
"""

import functools
import math
import queue
import threading
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

import pydantic

from contrasweep.config import Config, MutableConfig
from contrasweep.errors import SpecError, check_known
from contrasweep.imports import import_path
from contrasweep.schema import OMIT_DEFAULT, checked
from contrasweep.trial import Report, RevisedReport, Trainable, Trial

END_S = 30.0
"""How long a function may take to end after its trial was stopped."""
CALLS = "calls"
"""The setting that names Optuna's or Ray Tune's function."""
UNTIL = "until"
"""The setting with what ends a function of Ray Tune's, as its `stop`: a metric or `training_iteration` -> value."""
OBJECTIVE = "objective"
"""The metric that an objective returns."""
STEP = "contrasweep-step"
"""The file of a checkpoint of Ray Tune's that has its step."""


class Stopped(BaseException):
    """Raised in a function where it reports, once its trial was stopped."""


class _Reports:
    """What a function has reported and its trial has not yet taken."""

    def __init__(self) -> None:
        self.items: queue.Queue[Report | BaseException | None] = queue.Queue()
        self.taken = threading.Semaphore(0)
        self.stopped = False
        self.step = 0

    def put(self, step: int, metrics: Mapping[str, float], checkpoint: Path | None) -> None:
        """Hand a report to the trial and wait until it was taken; `Stopped` where the trial was stopped meanwhile."""
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
        step: The step or epoch that it is of; it counts up from 1. A report of the same step takes the former's place.
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


def generator(function: Callable[..., Any]) -> Trainable:
    """Return a plain function as a trainable."""

    def train(trial: Trial, resume: Path | None = None) -> Generator[Report, None, None]:
        """Run the function in a thread, and yield what it reports; each report waits until the last one was taken."""
        global _current
        reports = _current = _Reports()

        def run() -> None:
            """Call the function; its error, and then None, stand behind its last report."""
            try:
                function(trial, resume=resume)
            except Stopped:
                pass
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
        finally:
            reports.stopped = True
            reports.taken.release()
            thread.join(END_S)
            _current = None

    functools.update_wrapper(train, function)
    # What looks through `__wrapped__` would take it for the plain function that it wraps.
    del train.__wrapped__  # type: ignore[attr-defined]
    return train


class _Asked:
    """What an objective is given as Optuna's trial: its suggestions are the settings of ours."""

    number = 0

    def __init__(self, config: Config) -> None:
        self.params = {key: value for key, value in config.items() if key != CALLS}
        self.user_attrs: MutableConfig = {}
        self.step = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("suggest_"):
            raise AttributeError(name)
        return self._suggested

    def _suggested(self, name: str, *_: Any, **__: Any) -> Any:
        """Return the trial's value of the setting `name`, whatever range the objective suggests it from."""
        rule = "an objective suggests what the arm's space has"
        check_known(name, "settings", self.params, rule, place="space")
        return self.params[name]

    def report(self, value: float, step: int) -> None:
        """Report; the objective ends here where its trial was stopped."""
        self.step = max(step + 1, self.step + 1)  # Optuna's count from 0
        report(self.step, {OBJECTIVE: value})

    def should_prune(self) -> bool:
        """Return False: a trial that is stopped ends in its report."""
        return False

    def set_user_attr(self, key: str, value: Any) -> None:
        """Keep a value for `user_attrs`."""
        self.user_attrs[key] = value


def _of_optuna(trial: Trial, resume: Path | None = None) -> None:
    asked = _Asked(trial.config)
    values = import_path(trial.config[CALLS])(asked)
    values = values if isinstance(values, tuple | list) else [values]
    names = [OBJECTIVE, *(f"{OBJECTIVE}_{i}" for i in range(1, len(values)))]
    report(asked.step + 1, dict(zip(names, map(float, values), strict=True)))


def _of_tune(trial: Trial, resume: Path | None = None) -> None:
    """Run a function that was written for Ray Tune, whose `report` and `get_checkpoint` are this trial's meanwhile."""
    from ray import train as ray_train
    from ray import tune

    step = int((resume / STEP).read_text()) if resume is not None else 0

    def told(metrics: Config, *, checkpoint: Any = None, **_: Any) -> None:
        """Take a report of `tune.report`, and stop the function where it has reached its `stop` criteria."""
        nonlocal step
        step += 1
        folder = None if checkpoint is None else Path(checkpoint.path)
        if folder is not None:
            (folder / STEP).write_text(str(step))
        numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
        report(step, numbers, folder)
        reached = {"training_iteration": step, **numbers}
        if any(
            reached.get(name, -math.inf) >= value
            for name, value in trial.config.get(UNTIL, {}).items()
        ):
            raise Stopped

    def saved() -> Any:
        return None if resume is None else tune.Checkpoint.from_directory(str(resume))

    config = {key: value for key, value in trial.config.items() if key not in (CALLS, UNTIL)}
    with (
        mock.patch.multiple(tune, report=told, get_checkpoint=saved),
        mock.patch.multiple(ray_train, report=told, get_checkpoint=saved),
    ):
        if metrics := import_path(trial.config[CALLS])(config):
            told(metrics)


class _Call:
    """The settings of an adapter: the function, what ends it, and any others, for it."""

    calls: str
    until: Annotated[Mapping[str, float], OMIT_DEFAULT] = pydantic.Field(default_factory=dict)

    def __post_init__(self) -> None:
        import_path(self.calls, CALLS)


optuna = generator(_of_optuna)
"""An objective of Optuna's: `trainable: "optuna:my.module:objective"`. Its metric is `objective`."""
tune = generator(_of_tune)
"""A function of Ray Tune's, called with the settings: `trainable: "tune:my.module:train"`."""
optuna.settings = tune.settings = checked(_Call, extra="allow")  # type: ignore[attr-defined]
ADAPTERS = {name: f"{__name__}:{name}" for name in ("optuna", "tune")}
"""How a trainable's path begins -> the trainable that calls what it names."""


def loader_path(trainable: str, config: Config) -> str:
    """Return the path of `load_model(folder, trial)` beside a trainable, or beside the function that an adapter calls.

    It returns the network in a checkpoint of the trial, mostly a `torch.nn.Module`.
    """
    path = str(config.get(CALLS)) if trainable in ADAPTERS.values() else trainable
    return f"{path.partition(':')[0]}:load_model"
