"""Fused trials: what a trainable gives so that several of its trials are trained as one network in one process.

A *cohort* is several trials of one *cohort key* trained together; each is a *member* in one of its *slots*. The key
digests all that changes shapes or the graph; what differs between members (learning rate, temperature, seed, data
order, fold) does not enter it. The *engine* is how a step is computed (folded by groups or by batched products, eager
or compiled). A trainable whose trials can be fused has a `Fusible` as its attribute `lane`:

    train.lane = MyCohorts()

What is here knows nothing of Ray; `list`-ing the events of a `Cohort` is a test.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol

import pydantic

from contrasweep.planning.lanes import offer_of
from contrasweep.storage.json_file import SCHEMA
from contrasweep.storage.names import Label
from contrasweep.storage.record import Measure
from contrasweep.trial import Report, Trial

AUTO = "auto"
"""The engine that the trainable itself holds best without a probe."""
UNFUSED = "unfused"
"""The engine of a trial that runs alone, called as its trainable."""


class CannotFuse(Exception):
    """A trial cannot be fused; `reason` is a clause that ends "it runs alone, because ..."."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True)
class Event:
    """An event of a member: a `report`, its end (neither field), or its failure (`error`).

    A member that has ended or failed has left its slot already. The checkpoint and the artifacts of a report stay as
    they are until the member is advanced past its next report or leaves.
    """

    trial_id: str
    report: Report | None = None
    error: BaseException | None = None

    @property
    def ended(self) -> bool:
        """Whether the member is in the cohort no more."""
        return self.report is None


class Cohort(Protocol):
    """Members that train as one. Used from one thread at a time."""

    slots: int
    engine: str
    """How its steps are computed, as records name it; never `AUTO`."""

    def join(self, trial: Trial, resume: Path | None) -> None:
        """Put `trial` into a free slot, at the beginning or where the checkpoint in `resume` was written.

        It yields the same reports as `train(trial, resume)` would, up to the divergence of floating-point sums in
        another order.

        Raises what `train` would raise before its first report; the cohort is as before then.
        """

    def leave(self, trial_id: str) -> None:
        """Free the slot of a member, at any point of its training. The others do not change."""

    def advance(self, members: Collection[str] | None = None) -> Sequence[Event]:
        """Train on until at least one member has an event, and return the events in the order of slots.

        `members` (ids; None: all) are those that may train; the others stand still, with their state unchanged. There
        is at least one. A member that stands in the middle of an epoch stays there. What is raised here is a fault of
        the cohort as a whole: none of its members can be used any more.
        """

    def close(self) -> None:
        """Free everything; may be called twice."""


@dataclass(frozen=True)
class Timing:
    """The time of one engine, from a few of its steps on the device of the calling process.

    `engine` is `UNFUSED`, with one slot, for the trainable itself; a cohort of one slot trains a trial in its own
    process by another engine. `trial_s`: seconds of one trial of the key from its beginning to its end, if `slots` of
    them train together (the seconds of a fused step divided by `slots`, times the trial's steps, and its evaluations).
    `start_s`: seconds once for each process that uses the engine with warm caches on disk, and `compile_s` what is
    added where these are cold.
    """

    __pydantic_config__: ClassVar[pydantic.ConfigDict] = SCHEMA  # probes are kept in the storage

    engine: Label
    slots: Annotated[int, pydantic.Field(ge=1, le=1024)]
    trial_s: Measure
    start_s: Measure = 0.0
    compile_s: Measure = 0.0


class Fusible(Protocol):
    """The attribute `lane` of a trainable whose trials can be fused; a class of your own inherits from this one.

    It imports nothing heavy: plans ask it for keys.
    """

    kind: ClassVar[str] = "contrasweep.trainables.fusing.lane:open_fusing"

    def key(self, trial: Trial) -> str:
        """Return the cohort key of `trial`: trials of equal keys can be members of one cohort.

        Must neither read the data nor touch a GPU. Raises `CannotFuse` with the reason where the trial cannot be fused.
        """

    def family(self, trial: Trial) -> str:
        """Return what trials have in common of which a step takes about as long, as a cohort key is given.

        A probe of one holds for all of them. Here their cohort key; a trial has one.
        """
        return self.key(trial)

    def open(self, trial: Trial, slots: int, engine: str = AUTO) -> Cohort:
        """Open a cohort of `slots` free slots for the key of `trial`, in the process that trains it.

        `trial` is not joined by this. Raises `CannotFuse` where only now it shows that it cannot be folded.
        """


class Probing(Fusible, Protocol):
    """A `Fusible` that can time its engines."""

    def probe(self, trial: Trial, slots: Sequence[int]) -> Sequence[Timing]:
        """Time each engine for each number of slots, and for one, on a few steps of `trial`, on this process's device.

        `UNFUSED` is among them. Changes nothing of any trial, and leaves out what cannot pay for its own timing.
        """


def cohorts_of(function: Callable[..., Any]) -> Fusible:
    """Return the cohorts that the trainable `function` declares; `CannotFuse` where its trials always train alone."""
    offer = offer_of(function)
    if getattr(offer, "kind", None) != Fusible.kind:
        raise CannotFuse("its trainable has no `lane` of cohorts")
    fusible: Fusible = offer
    return fusible
