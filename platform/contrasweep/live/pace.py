"""An estimate of the time that a run still needs, from trials that have ended and from steps of running ones.

The first trial of each place also starts a process and imports what it trains with, which the later ones need not. So
there is no estimate from what took less than `WORTH_S`, until a place trains its second trial.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable

from contrasweep.live.state import RunningTrial

Cell = tuple[str, str]
"""An arm and its axes' values as text."""
WORTH_S = 60.0
"""Seconds beside which the start of a process is little."""


class _Mean:
    def __init__(self) -> None:
        self.count, self.value = 0, 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self.value += (value - self.value) / self.count


class Pace:
    """The seconds and steps of a trial: the mean over ended trials of its cell, else of its arm, else of all."""

    def __init__(self) -> None:
        self._seconds: defaultdict[Cell | str, _Mean] = defaultdict(_Mean)
        self._any = _Mean()  # stopped early or not: what a trial of a search takes
        self._steps: dict[Cell | str, int] = {}

    def ended(self, cell: Cell, seconds: float, steps: int, *, whole: bool = True, first: bool = False) -> None:
        """Learn from a trial that was trained to its end, or stopped early (`whole` false).

        Of the `first` of a place only its steps are learned, unless it took long.
        """
        counts = not first or seconds >= WORTH_S
        if counts:
            self._any.add(seconds)
        if not whole:
            return
        for key in (cell, cell[0], "") if counts else ():
            self._seconds[key].add(seconds)
        for key in (cell, cell[0]):
            self._steps[key] = max(steps, self._steps.get(key, 0))

    def steps(self, cell: Cell) -> int | None:
        """Return the expected last step of a trial of this cell; None before a trial of its arm has ended."""
        return self._steps.get(cell) or self._steps.get(cell[0])

    def seconds(self, cell: Cell) -> float | None:
        """Return the expected seconds of such a trial; None before any has ended."""
        known = [self._seconds[key] for key in (cell, cell[0], "") if key in self._seconds]
        return known[0].value if known else None

    def eta_s(
        self, waiting: Counter[Cell], unknown: int, running: Iterable[RunningTrial], slots: float, now: float
    ) -> float | None:
        """Return the seconds until the run ends; None where no trial's length is known.

        `waiting` counts trials by cell, `unknown` those of no known cell; the running ones count with what they lack.
        """
        guesses = {cell: self.seconds(cell) for cell in waiting}
        left, longest = 0.0, 0.0
        lengths = []
        for trial in running:
            spent = now - trial.started
            length = self._length(trial, spent)
            if length is not None:
                lengths.append(length)
                left += max(0.0, length - spent)
                longest = max(longest, length - spent)
        usual = self._any.value if self._any.count else sum(lengths) / len(lengths) if lengths else None
        if usual is None:
            return 0.0 if not (sum(waiting.values()) or unknown) and not lengths else None
        ahead = sum(n * (guesses[cell] or usual) for cell, n in waiting.items()) + unknown * usual
        places = max(1.0, min(slots, sum(waiting.values()) + unknown + len(lengths)))
        return max(longest, (left + ahead) / places)

    def _length(self, trial: RunningTrial, spent: float) -> float | None:
        """Return the seconds that a running trial takes in all.

        They follow from its steps since its first report where that is a while ago, else from the trials that ended.
        """
        if trial.steps and trial.reported is not None and trial.first_reported is not None:
            span, steps = trial.reported - trial.first_reported, trial.step - trial.first_step
            if span >= WORTH_S and steps > 0:
                return trial.reported - trial.started + span / steps * (trial.steps - trial.step)
        known = self.seconds((trial.arm, trial.settings))
        return None if known is None else max(known, spent)
