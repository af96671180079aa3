"""Members that train as one network, whatever the method: who is in which slot, whose epoch ends, what is reported.

A method takes part if its epochs can be begun, advanced batch by batch and finished (`Stepped`), and if a
`CohortNetwork` computes a step of several of them at once. Everything else is what `loop.run` does for a trial alone.
"""

from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from contrasweep.trainables import loop
from contrasweep.trainables.fusing.cohorts.network import Batch, CohortNetwork
from contrasweep.trainables.fusing.protocol import Event
from contrasweep.trial import Trial


@runtime_checkable
class Running(Protocol):
    """An epoch in progress: `steps` of its `count` batches were taken."""

    batches: Generator[Any]
    count: int
    steps: int


@runtime_checkable
class Stepped(loop.Method, Protocol):
    """A method whose epochs can be trained step by step."""

    def begin(self, report: int) -> Running:
        """Begin the epoch of report 1, 2, ... and seed all that is random in it."""


M = TypeVar("M", bound=Stepped)


@dataclass(eq=False)
class Member(Generic[M]):
    """A trial in a slot. `placed`: its weights are in the slot and no longer in its method."""

    trial: Trial
    slot: int
    method: M
    training: loop.Training
    running: Any = None
    placed: bool = False

    def draw(self) -> Batch[M]:
        """Draw its next batch."""
        return Batch(self.method, self.running, next(self.running.batches))


class FusedCohort(Generic[M]):
    """Satisfies `trainables.fusing.protocol.Cohort`. `start(trial, resume)` builds a trial as it is built alone."""

    def __init__(
        self,
        network: CohortNetwork[M],
        slots: int,
        engine: str,
        start: Callable[[Trial, Path | None], tuple[M, loop.Training]],
    ) -> None:
        self.slots, self.engine, self.network, self.start = slots, engine, network, start
        self.members: dict[str, Member[M]] = {}

    def join(self, trial: Trial, resume: Path | None) -> None:
        """Put a trial into a free slot, at its beginning or where the checkpoint in `resume` was written."""
        taken = {member.slot for member in self.members.values()}
        free = [slot for slot in range(self.slots) if slot not in taken]
        if trial.id in self.members or not free:
            why = "is a member already" if trial.id in self.members else f"finds no free slot of {self.slots}"
            raise ValueError(f"trial {trial.id} {why}")
        method, training = self.start(trial, resume)
        self.members[trial.id] = Member(trial, free[0], method, training)

    def leave(self, trial_id: str) -> None:
        """Free the slot of a member, at any point of its training."""
        member = self.members.pop(trial_id)
        if member.running is not None:
            member.running.batches.close()
        member.training.close()

    def advance(self, members: Collection[str] | None = None) -> Sequence[Event]:
        """Train on until at least one of `members` (None: all) has an event; events in the order of slots."""
        going = [member for name, member in self.members.items() if members is None or name in members]
        if not going:
            raise ValueError("there is no member to train")
        events: dict[int, Event] = {}
        batches: dict[int, Batch[M]] = {}
        self._each(going, events, self.prepare)
        while not events:
            batches.clear()
            self._each(going, events, partial(self._draw, batches))
            if batches:
                self.network.step(batches)
            self._each([member for member in going if member.slot in batches], events, self._close)
        return [events[slot] for slot in sorted(events)]

    def close(self) -> None:
        """End all members."""
        for trial_id in list(self.members):
            self.leave(trial_id)

    def _each(
        self, members: Sequence[Member[M]], events: dict[int, Event], act: Callable[[Member[M]], Event | None]
    ) -> None:
        """Call `act` for each member; a member whose call raises leaves with its error, and the others go on."""
        for member in members:
            try:
                event = act(member)
            except Exception as error:
                event = Event(member.trial.id, error=error)
            if event is not None:
                events[member.slot] = event
                if event.ended:
                    self.leave(member.trial.id)

    def prepare(self, member: Member[M]) -> Event | None:
        """Begin a member's next epoch where it is between two; its end where there is none."""
        if member.training.ended:
            return Event(member.trial.id)
        if member.running is None:
            running = member.running = member.method.begin(member.training.epoch + 1)
            if not member.placed:
                self.network.put(member.slot, member.method)
                member.placed = True
            self.network.begin(member.slot, member.method, running)
        return None

    def _draw(self, batches: dict[int, Batch[M]], member: Member[M]) -> None:
        batches[member.slot] = member.draw()

    def _close(self, member: Member[M]) -> Event | None:
        """Count a step; after the last step of an epoch, make its report."""
        running = member.running
        running.steps += 1
        if running.steps < running.count:
            return None
        running.batches.close()
        if member.training.state_needed:
            self.network.take(member.slot, member.method)
        metrics = self.network.finish(member.slot, member.method, running)
        member.running = None
        return Event(member.trial.id, member.training.report(metrics))
