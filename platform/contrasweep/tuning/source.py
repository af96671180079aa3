"""The interface of sources, which hand out trials to the engine: lists of trials, and searches."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field

from contrasweep.rows import Row
from contrasweep.storage.record import Record, TrialNotes
from contrasweep.trial import Trial


@dataclass(frozen=True)
class NextTrial:
    """A trial that is to run now, with notes for its record.

    `stopped` is true where the pruner has stopped it already in an earlier run, whose driver was lost before it wrote
    the record. Such a trial is not trained; it only gets its record.
    """

    trial: Trial
    notes: TrialNotes = field(default_factory=TrialNotes)
    stopped: bool = False


class Finished:
    """The answer of a source that will never have another trial, in place of a `NextTrial`."""


class Source(ABC):
    """Hands out the trials of a run to the engine. All methods are called from the driver's main thread.

    `adaptive` is true where the choice of the next trial depends on results. Few trials should wait for a host then.
    """

    adaptive = False

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Return whether every trial has been handed out, so that `next` has none any more."""

    @abstractmethod
    def next(self, paused_arms: Collection[str] = ()) -> NextTrial | Finished | None:
        """Return the next trial; None: there is none before another result; `Finished`: there will be none any more.

        The arms in `paused_arms` suggest nothing new meanwhile, because enough of their trials wait for a host.
        """

    def retry(self, trial_id: str) -> bool:
        """Return whether a trial that ended as infeasible runs after all, now that it fits a host.

        False where its search has gone on without it.
        """
        return True

    def keep_going(self, trial_id: str, reports: list[Row]) -> bool:
        """Return whether a trial goes on after these new reports; otherwise it ends as `pruned`."""
        return True

    def done(self, record: Record) -> None:  # noqa: B027  # most sources need not know
        """Receive the record of a trial that has ended."""

    def warnings(self) -> list[str]:
        """Return lines for people when all trials have ended; by default none."""
        return []
