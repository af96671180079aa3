"""The protocol of rules for early stopping, and checks of a rule that the user wrote."""

from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from contrasweep.config import Config
from contrasweep.errors import SpecError
from contrasweep.imports import build_part
from contrasweep.tuning.users_part import UsersPart

History = dict[int, float]
"""Step -> value."""


class Decision(Enum):
    """What a trial does after a report. With `PAUSE` it stops, and may be resumed once its peers have reported."""

    CONTINUE = "continue"
    PAUSE = "pause"
    STOP = "stop"


CONTINUE, PAUSE, STOP = Decision


@runtime_checkable
class Pruner(Protocol):
    """A rule for early stopping within one arm; trials of one arm never stop those of another.

    `trial` is a trial's id. `config` numbers the arm's configurations from 0; each has one trial a fold. All calls come
    from one thread. After a restart the reports of all trials come again, in the order of the configurations.
    """

    def add(self, trial: str, config: int, fold: int) -> None:
        """Take note that `trial` is about to start, of configuration `config` and on `fold` (0 without folds).

        It is called again for one that runs again. By default do nothing.
        """
        return

    def on_report(self, trial: str, step: int, value: float) -> Decision:
        """Return what `trial`, which has reported `value` of the study's metric at `step`, does next."""

    def on_pause(self, trial: str) -> None:
        """Take note that `trial` has stopped as decided, now or before an interruption; by default do nothing."""
        return

    def on_end(self, trial: str, failed: bool = False) -> None:
        """Take note that `trial` has ended by itself, not by this rule, and reports no more. By default do nothing.

        `failed`: it was not trained to its end.
        """
        return

    def on_search_end(self, configs: int) -> None:
        """Take note that the search has asked for its last configuration; there are `configs` in all.

        By default do nothing.
        """
        return

    def resumable(self) -> list[str]:
        """Return the ids of paused trials that may go on from their checkpoints, each once; by default none."""
        return []

    def is_paused(self, trial: str) -> bool:
        """Whether `trial` has stopped and may still be resumed; by default it has not."""
        return False


def first_from(history: History, rung: float) -> float | None:
    """Return the value at the first step that is not below `rung`; None where no step is that late.

    `history` is step -> value.
    """
    steps = [step for step in history if step >= rung]
    return history[min(steps)] if steps else None


def at_least(name: str, value: int, least: int) -> None:
    """Raise `SpecError` where the pruner's option `name` is no whole number, or below `least`."""
    if not isinstance(value, int) or value < least:
        raise SpecError(
            f"{name} must be a whole number of at least {least}",
            place=f"pruner_options.{name}",
            value=value,
        )


class OwnPruner(UsersPart):
    """A pruner that the user names by its dotted path `name`, built as `target(mode, budget, **options)`.

    Each report must get a decision. An error names the pruner and the line of its code that failed. `SpecError` where
    it does not take the options, fails, or lacks a method of `Pruner`.
    """

    def __init__(
        self, name: str, target: Callable[..., Any], mode: str, budget: int | None, options: Config
    ) -> None:
        super().__init__(
            "pruner", name, build_part("pruner", name, target, mode, budget, options=options)
        )
        if not isinstance(self.part, Pruner):
            raise SpecError(
                "the pruner lacks methods of contrasweep.tuning.pruners.Pruner",
                place="pruner",
                value=name,
                hint="derive it from contrasweep.tuning.pruners.StoppingRule",
            )

    def try_out(self) -> None:
        """Take one trial through the pruner, so that a plan finds its errors; the pruner is not to be used afterwards.

        Raises `SpecError` where one of its methods fails, or gives no `Decision` for a report.
        """
        self.add("trial", 0, 0)
        self.on_report("trial", 1, 0.5)
        self.resumable()
        self.is_paused("trial")
        self.on_end("trial")
        self.on_search_end(1)

    def on_report(self, trial: str, step: int, value: float) -> Decision:
        """Return what `trial` does next. Raises `SpecError` where the pruner gives no `Decision`."""
        # The method of the user's object; `self.on_report` is this one.
        decision = self.__getattr__("on_report")(trial, step, value)
        if not isinstance(decision, Decision):
            rule = (
                f"{self.name}.on_report gives CONTINUE, PAUSE or STOP of contrasweep.tuning.pruners"
            )
            raise SpecError(rule, place="pruner", value=decision)
        return decision
