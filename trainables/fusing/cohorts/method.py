"""Parts that the cohorts of every shipped method share: their key, the start of a trial, the members' images."""

import warnings
import weakref
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import torch

from contrasweep import canonical
from contrasweep.components import Component
from contrasweep.data.manifest import Manifest
from contrasweep.trainables import loop, seeding
from contrasweep.trainables.fusing.cohorts import probing
from contrasweep.trainables.fusing.cohorts.cohort import FusedCohort
from contrasweep.trainables.fusing.cohorts.network import CohortNetwork
from contrasweep.trainables.fusing.folding import Slots, Unfoldable, fold_optimizer, loss_structure
from contrasweep.trainables.fusing.protocol import AUTO, CannotFuse, Fusible, Timing
from contrasweep.trainables.losses import AnyLoss
from contrasweep.trial import Trial

KEPT_BYTES = 64 * 2**20
"""Images that are kept though no member uses them. A plan counts the images of a trial once; this is within what it
allows beyond them."""

V = TypeVar("V")


class MethodCohorts(Fusible):
    """Base of the `lane` of a shipped method; satisfies `contrasweep.trainables.fusing.protocol.Probing`."""

    settings: ClassVar[Any]
    """The class of the method's settings."""
    evaluated_rows: ClassVar[int]
    """Images per forward pass of an evaluation at most."""

    @abstractmethod
    def structure(self, settings: Any, data: Manifest) -> dict[str, object]:
        """Return all that the trials of one cohort have in common, for resolved `settings`.

        Raises `CannotFuse` where something cannot be folded.
        """

    @abstractmethod
    def network(self, settings: Any, trial: Trial, slots: Slots, engine: str) -> CohortNetwork[Any]:
        """Return the folded network of `trial` and all of its key; `Unfoldable` where there is none."""

    @abstractmethod
    def method(self, settings: Any, trial: Trial, device: torch.device) -> Any:
        """Return `trial` as it trains alone, with images that members of this process share."""

    @abstractmethod
    def subject(self, settings: Any, trial: Trial, device: torch.device) -> probing.Subject:
        """Return what a probe times of `trial`."""

    def key(self, trial: Trial) -> str:
        """Return the digest of all that changes the shapes or the graph of a step.

        Raises `CannotFuse` with the reason where the trial cannot be fused.
        """
        return canonical.digest(self.structure(self._settings(trial), trial.data), 16)

    def family(self, trial: Trial) -> str:
        """Return the same without the loss: nearly all of a step's time is the encoder's."""
        return canonical.digest(self.structure(self._settings(trial), trial.data) | {"loss": ""}, 16)

    def open(self, trial: Trial, slots: int, engine: str = AUTO) -> FusedCohort[Any]:
        """Return a cohort of `slots` free slots for trials of the key of `trial`.

        Raises `CannotFuse` where they cannot be folded.
        """
        settings = self._settings(trial)
        structure, device = self.structure(settings, trial.data), seeding.pick_device(settings.device)
        seeding.prepare(device, settings.threads)
        engine = "grouped" if engine == AUTO else engine
        try:
            network = self.network(settings, trial, Slots(slots, device), engine)
        except Unfoldable as error:
            raise CannotFuse(error.reason) from None
        return FusedCohort(network, slots, engine, partial(self._start, structure, device, slots))

    def probe(self, trial: Trial, slots: Sequence[int]) -> Sequence[Timing]:
        """Time a trial alone, and the engines with so many slots each, on this process's device."""
        settings = self._settings(trial)
        subject = self.subject(settings, trial, seeding.pick_device(settings.device))
        return probing.probe(trial, slots, subject, partial(self.open, trial))

    def _settings(self, trial: Trial) -> Any:
        return self.settings(**trial.config).resolve(trial.data)

    def _start(
        self, structure: dict[str, object], device: torch.device, slots: int, trial: Trial, resume: Path | None
    ) -> tuple[Any, loop.Training]:
        """Start a trial as it starts alone; `CannotFuse` where its structure is not the cohort's."""
        settings = self._settings(trial)
        own = self.structure(settings, trial.data)
        if own != structure:
            other = ", ".join(name for name in structure if own[name] != structure[name])
            raise CannotFuse(f"it differs from its cohort in {other}")
        method = self.method(settings, trial, device)
        method.evaluated_rows = min(self.evaluated_rows, slots * method.evaluated_rows)  # as much memory as training
        every = {"evaluate_every": settings.evaluate_every, "checkpoint_every": settings.checkpoint_every}
        return method, loop.Training(method, trial, resume, **every)


def structure_of_loss(loss: AnyLoss) -> list[str]:
    """Return all of a loss but its hyperparameters; `CannotFuse` where it cannot be folded."""
    try:
        return list(loss_structure(loss))
    except Unfoldable as error:
        raise CannotFuse(error.reason) from None


def structure_of_optimizer(chosen: Component) -> dict[str, object]:
    """Return all of an optimizer but its hyperparameters; `CannotFuse` where it cannot be folded."""
    try:
        fold_optimizer(chosen.entry, [], Slots(1), [])
    except Unfoldable as error:
        raise CannotFuse(error.reason) from None
    numbers = (int, float, tuple, list)
    fixed = {name: value for name, value in chosen.parameters.items() if not isinstance(value, numbers)}
    return {"name": chosen.name, **fixed}


@contextmanager
def without_memory() -> Iterator[None]:
    """Build networks without weights and silence their warnings: a plan needs only their graph."""
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Recent(Generic[V]):
    """Values shared by the cohorts of a process; each value is opened once for all its users.

    The last ones are kept longer, as far as they take no more than `kept_bytes` together: a study's folds alternate,
    and small images are read faster than they train.
    """

    def __init__(self, size: Callable[[V], int], kept_bytes: int = KEPT_BYTES) -> None:
        """Share values; `size` returns the bytes of one."""
        self._size, self._kept_bytes = size, kept_bytes
        self._used: weakref.WeakValueDictionary[tuple[object, ...], V] = weakref.WeakValueDictionary()
        self._kept: OrderedDict[tuple[object, ...], V] = OrderedDict()

    def get(self, key: tuple[object, ...], opened: Callable[[], V]) -> V:
        """Return the value of `key`, which `opened` gives where it is neither in use nor kept."""
        value = self._used.get(key)
        if value is None:
            self._used[key] = value = opened()
        if self._size(value) <= self._kept_bytes:
            self._kept[key] = value
            self._kept.move_to_end(key)
            while sum(map(self._size, self._kept.values())) > self._kept_bytes:
                self._kept.popitem(last=False)
        return value
