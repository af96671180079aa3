"""What hands out trials to the engine: a plain list (`planning.grid`) or searches (`tuning.sweep_source`)."""

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, field

from contrasweep.rows import Row
from contrasweep.storage.record import Record, TrialNotes
from contrasweep.trial import Trial


@dataclass(frozen=True)
class Next:
    """A trial to run now, and notes for its record.

    `stopped`: its reports have stopped it already, and it is to end as `pruned`; an earlier driver died before it did
    that.
    """

    trial: Trial
    notes: TrialNotes = field(default_factory=TrialNotes)
    stopped: bool = False


class Finished:
    """The answer of a source that will never have another trial, in place of a `Next`."""


class Source(ABC):
    """Hands out trials. All calls come from the driver's one thread.

    `adaptive`: the next trial depends on results, so that few should wait for a place.
    """

    adaptive = False

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether every trial has been handed out."""

    @abstractmethod
    def next(self, paused_arms: Collection[str] = ()) -> Next | Finished | None:
        """Return the next trial; None: there is none before the next result; `Finished`: there will be no other one.

        Of `paused_arms` nothing new is suggested, because enough candidates of each of these arms wait for a host.
        """

    def retry(self, trial_id: str) -> bool:
        """Whether a trial that has ended as infeasible and fits a host by now is to run after all.

        False where the source has gone on without it.
        """
        return True

    def keep_going(self, trial_id: str, reports: list[Row]) -> bool:
        """Whether a trial that has made these new reports goes on; else it ends as `pruned`."""
        return True

    def done(self, record: Record) -> None:  # noqa: B027  # most sources need not know
        """Receive the record of a trial that has ended."""

    def warnings(self) -> list[str]:
        """Return lines that a person should read when all trials have ended; by default none."""
        return []
