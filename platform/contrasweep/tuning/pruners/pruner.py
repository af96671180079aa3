"""The protocol of rules for early stopping, and checks of a rule that the user wrote."""

from typing import Protocol, runtime_checkable

from contrasweep.errors import SpecError
from contrasweep.tuning.users_part import UsersPart

History = dict[int, float]
"""Step -> value."""


@runtime_checkable
class Pruner(Protocol):
    """A rule for early stopping among the trials of one arm.

    In its methods, `trial` is a trial's id, and `config` the number of a configuration of the arm, from 0. Each
    configuration has one trial for each fold. All methods are called from one thread. After a restart the reports of
    all trials come again, in the order of the configurations.
    """

    def add(self, trial: str, config: int, fold: int) -> None:
        """Note that a trial of configuration `config` on `fold` (0 without folds) is about to start.

        It is called again for a trial that runs again. By default do nothing.
        """
        return

    def on_report(self, trial: str, step: int, value: float) -> bool:
        """Return whether `trial` goes on after it has reported `value` of the study's metric at `step`."""

    def on_end(self, trial: str, *, stopped: bool = False, failed: bool = False) -> None:
        """Note that `trial` has ended. By default do nothing.

        After a restart it is called again for each trial that had ended before the restart. `stopped` says that this
        rule has stopped the trial early; `resumable` may return that trial later. `failed` says that the trial was not
        trained to its end. It is true for a stopped trial too.
        """
        return

    def on_search_end(self, configs: int) -> None:
        """Note that there will be no more configurations than `configs`. By default do nothing."""
        return

    def resumable(self) -> list[str]:
        """Return the ids of trials that this rule has stopped and now lets go on, from their checkpoints.

        Each is returned once for each stop. By default there are none.
        """
        return []

    def is_paused(self, trial: str) -> bool:
        """Return whether `trial` has stopped and may still be resumed; by default False."""
        return False


def first_from(history: History, rung: float) -> float | None:
    """Return the value of `history` at its first step that is not below `rung`; None where there is no such step."""
    steps = [step for step in history if step >= rung]
    return history[min(steps)] if steps else None


def at_least(name: str, value: int, least: int) -> None:
    """Raise `SpecError` where `value`, the pruner's option `name`, is no whole number, or is less than `least`."""
    if type(value) is not int or value < least:  # True is an int too
        raise SpecError(
            f"{name} must be a whole number of at least {least}",
            place=f"pruner_options.{name}",
            value=value,
        )


class OwnPruner(UsersPart):
    """Wraps a pruner of the user's class, and checks that `on_report` returns True or False.

    The user's pruner is built as `target(mode, budget, **options)`.
    """

    kind = "pruner"
    protocol = Pruner
    rule = "the pruner lacks methods of contrasweep.tuning.pruners.Pruner"
    hint = "derive it from contrasweep.tuning.pruners.StoppingRule"

    def try_out(self) -> None:
        """Call each method of the pruner for one trial, so that a plan finds its errors.

        The pruner must not be used afterwards. Raises `SpecError` where a method fails, or gives no truth value.
        """
        self.add("trial", 0, 0)
        self.on_report("trial", 1, 0.5)
        self.resumable()
        self.is_paused("trial")
        self.on_end("trial")
        self.on_search_end(1)

    def on_report(self, trial: str, step: int, value: float) -> bool:
        """Return whether `trial` goes on, as the user's pruner says.

        Raises `SpecError` where that returns neither True nor False.
        """
        # `__getattr__` returns the method of the user's object; `self.on_report` would be this method.
        goes_on = self.__getattr__("on_report")(trial, step, value)
        if not isinstance(goes_on, bool):
            rule = f"{self.name}.on_report says whether the trial goes on, True or False"
            raise SpecError(rule, place="pruner", value=goes_on)
        return goes_on
