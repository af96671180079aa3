"""A run as single lines, for a file or a pipe."""

import time
from typing import TextIO

from contrasweep.live.state import RunState
from contrasweep.planning.durations import duration

EVERY_S = 15.0
TROUBLE = ("failed:", "silent:", "again:", "no sign of life", "arm ")
"""How a line begins that says what went wrong, or that an arm waits for a larger host."""


class Lines:
    """Prints a line when a run starts, one every `every_s` seconds while it runs, and each message at once."""

    def __init__(self, stream: TextIO, every_s: float = EVERY_S) -> None:
        self.stream, self.every_s = stream, every_s
        self.due = time.monotonic() + every_s

    def show(self, state: RunState) -> None:
        """Print a line, if one is due."""
        if (now := time.monotonic()) >= self.due:
            self.due = now + self.every_s
            self.say(progress_line(state))

    def say(self, text: str) -> None:
        """Print a line at once."""
        print(text, file=self.stream, flush=True)

    def close(self, state: RunState) -> None:
        """Print how the run ended."""
        self.say(progress_line(state))


class Quiet(Lines):
    """Prints failed, silent, repeated and waiting trials, and no progress."""

    def show(self, state: RunState) -> None:
        """Print nothing."""

    def say(self, text: str) -> None:
        """Print a line if it is about a failure."""
        if text.startswith(TROUBLE):
            super().say(text)

    def close(self, state: RunState) -> None:
        """Print nothing."""


def start_line(state: RunState) -> str:
    """What a run will do: `30 trials, 12 done before, 2 slots, about 3 min`."""
    trials = "trials until the budget is used up" if state.total is None else _count(state.total, "trial")
    before = f", {state.before} done before" if state.before else ""
    parts = f"{state.study}: {trials}{before}, {_count(int(state.slots), 'slot')}"
    if state.eta_s is None:
        return f"{parts}; how long it takes is known once some trials have ended"
    return f"{parts}, about {duration(state.eta_s)}"


def counts_line(state: RunState) -> str:
    """`14/30 trials, 2 running, 1 failed, 3 min so far, about 4 min to go`."""
    done = f"{state.done} trials" if state.total is None else f"{state.done}/{state.total} trials"
    parts = [done, f"{len(state.running)} running", *state.bad, f"{elapsed(state.updated - state.began)} so far"]
    if state.ended:
        parts[1] = "interrupted" if state.ended == "interrupted" else "ended"
    elif state.eta_s and state.total is not None and state.done < state.total:  # 0: all that is left is overdue
        parts.append(f"about {duration(state.eta_s)} to go")
    return ", ".join(parts)


def progress_line(state: RunState) -> str:
    """The counts, the newest value of the metric of a trial that runs, and the best so far."""
    parts, metric = [counts_line(state)], state.name(state.metric)
    reported = [trial for trial in state.running.values() if trial.value is not None]
    if reported:
        newest = max(reported, key=lambda trial: trial.reported or 0.0)
        parts.append(f"{metric} {newest.value:.4g} of {state.name(newest.arm)} at step {newest.step}")
    if state.best is not None:
        name, arm = state.best
        parts.append(f"best {metric} {arm.best:.4g}: {state.name(name)} {arm.best_where}".rstrip())
    return "; ".join(parts)


def elapsed(seconds: float) -> str:
    """Return a time as 0:07, 12:40 or 3:05:12."""
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + "s" * (number != 1)
