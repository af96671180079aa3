"""What a rule for early stopping is."""

from enum import Enum
from typing import Protocol, runtime_checkable

from contrasweep.errors import SpecError


class Decision(Enum):
    """What a trial that has reported does next. `PAUSE`: it stops, and may be resumed once its peers have reported."""

    CONTINUE = "continue"
    PAUSE = "pause"
    STOP = "stop"


CONTINUE, PAUSE, STOP = Decision


@runtime_checkable
class Pruner(Protocol):
    """One arm's rule: arms never stop each other. `config` numbers the arm's configurations; each has one trial a
    fold. All calls come from one thread."""

    def add(self, trial: str, config: int, fold: int) -> None:
        """`trial` is about to start."""

    def on_report(self, trial: str, step: int, value: float) -> Decision:
        """What `trial` does, which has reported `value` at `step`."""

    def on_pause(self, trial: str) -> None:
        """`trial` has stopped as decided, now or before an interruption."""

    def on_end(self, trial: str, failed: bool = False) -> None:
        """`trial` will report no more, of its own accord."""

    def on_search_end(self, configs: int) -> None:
        """The search has asked for its last configuration; there are so many."""

    def resumable(self) -> list[str]:
        """Paused trials that go on from their checkpoints, each listed once."""

    def is_paused(self, trial: str) -> bool:
        """Whether `trial` has stopped and may still be resumed."""


@runtime_checkable
class ComparesPeers(Protocol):
    """A pruner whose decision depends on which trials have reported before. Of trials that train in step it is told all
    reports before it decides on the first."""

    def on_peer_report(self, trial: str, step: int, value: float) -> None:
        """`trial` has reported `value` at `step`; `on_report` will ask what it does."""


def first_from(history: dict[int, float], rung: float) -> float | None:
    """The value at the first step not below `rung`."""
    steps = [step for step in history if step >= rung]
    return history[min(steps)] if steps else None


def at_least(name: str, value: int, least: int) -> None:
    """`SpecError` on a pruner option below `least`."""
    if not isinstance(value, int) or value < least:
        raise SpecError(
            f"{name} must be a whole number of at least {least}", place=f"pruner_options.{name}", value=value
        )
