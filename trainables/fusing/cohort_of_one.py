"""A trial alone in its own process, by another engine than its trainable's own: a cohort of one slot.

The cohort stays open for the next trial of its key, with what it has compiled.
"""

from collections import OrderedDict
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NoReturn

from contrasweep.cluster import out_of_memory
from contrasweep.running.run_context import RunContext, TrialDescription
from contrasweep.trainables.fusing.host.messages import CohortFault
from contrasweep.trainables.fusing.place import cohort_place
from contrasweep.trainables.fusing.protocol import CannotFuse, Cohort, cohorts_of
from contrasweep.trial import Report, Trial

MAX_OPEN = 8
"""Cohorts that a process keeps open, of different keys: a study's cells alternate."""
_open: OrderedDict[tuple[str, str], Cohort] = OrderedDict()


def cohort_of_one(context: RunContext, described: TrialDescription) -> "CohortOfOne":
    """Return the runner of trials that train by another engine; see `contrasweep.planning.lanes.Ride`."""
    cohort = cohort_place(described)
    return CohortOfOne(context.function(described["trial"]["trainable"]), cohort.key, cohort.engine)


class CohortOfOne:
    """Called like the trainable `function`, whose `lane` opens the cohort of this `key` and `engine`."""

    def __init__(self, function: Callable[..., Any], key: str, engine: str) -> None:
        self.function, self.key, self.engine = function, key, engine
        if hasattr(function, "settings"):
            self.settings = function.settings

    def __call__(self, trial: Trial, resume: Path | None = None) -> Generator[Report, None, None]:
        """Yield the reports of `trial`.

        Raises what the trial raises, and `CohortFault` where the engine fails: the trial goes on from its checkpoint,
        as its trainable trains it.
        """
        cohort = self._cohort(trial)
        try:
            cohort.join(trial, resume)
        except CannotFuse as error:
            self._fail(error)
        inside = True
        try:
            while inside:
                try:
                    events = cohort.advance()
                except Exception as error:
                    self._fail(error)
                for event in events:
                    inside = not event.ended
                    if event.error is not None:
                        raise event.error
                    if event.report is not None:
                        yield event.report
        finally:
            if inside and (self.key, self.engine) in _open:
                cohort.leave(trial.id)

    def _cohort(self, trial: Trial) -> Cohort:
        """Return the cohort of the key, which the first trial of this process opens."""
        place = self.key, self.engine
        if place not in _open:
            try:
                _open[place] = cohorts_of(self.function).open(trial, 1, self.engine)
            except Exception as error:
                self._fail(error)
            if len(_open) > MAX_OPEN:
                _open.popitem(last=False)[1].close()
        _open.move_to_end(place)
        return _open[place]

    def _fail(self, error: Exception) -> NoReturn:
        """Close the cohort, which failed; memory that ran out is answered as that of a trial alone."""
        if (cohort := _open.pop((self.key, self.engine), None)) is not None:
            cohort.close()
        if out_of_memory.which(error) is not None:
            raise error
        raise CohortFault(f"engine {self.engine} failed: {type(error).__name__}: {error}") from error
