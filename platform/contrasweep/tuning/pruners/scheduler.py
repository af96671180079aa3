"""What a rule for early stopping is."""

from typing import Protocol

from contrasweep.errors import SpecError


class Scheduler(Protocol):
    """One arm's rule: arms never stop each other. `config` numbers the arm's configurations; each has one trial a
    fold. All calls come from one thread."""

    def add(self, trial: str, config: int, fold: int) -> None:
        """`trial` is about to start."""

    def decide(self, trial: str, step: int, value: float) -> bool:
        """Whether `trial`, which has reported `value` at `step`, keeps going."""

    def pause(self, trial: str) -> None:
        """`trial` has been stopped because the rule said so, now or before an interruption."""

    def end(self, trial: str, failed: bool = False) -> None:
        """`trial` will report no more, of its own accord."""

    def close(self, configs: int) -> None:
        """There will be only so many configurations."""

    def promoted(self) -> list[str]:
        """Trials stopped earlier that shall go on after all, each told once."""

    def waiting(self, trial: str) -> bool:
        """Whether it is open if `trial`, which was stopped, goes on."""


def first_from(history: dict[int, float], rung: float) -> float | None:
    """The value at the first step not below `rung`."""
    steps = [step for step in history if step >= rung]
    return history[min(steps)] if steps else None


def at_least(name: str, value: int, least: int) -> None:
    """`SpecError` on a scheduler option below `least`."""
    if not isinstance(value, int) or value < least:
        raise SpecError(
            f"{name} must be a whole number of at least {least}", place=f"scheduler_options.{name}", value=value
        )
