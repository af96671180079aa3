"""Results of timing probes of engines, kept in the storage by cohort key and device, and the choice by them.

<storage>/calibration/cohorts/<key>.json     written by the driver; may be deleted at any time

Timings are kept by the key of a family (see `Fusible.family`), memory limits by cohort key.
"""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

from contrasweep.cluster.inventory import Inventory
from contrasweep.errors import StorageError
from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.names import Label
from contrasweep.storage.record import Count
from contrasweep.storage.store import Store
from contrasweep.trainables.fusing.protocol import UNFUSED, Timing

log = logging.getLogger(__name__)
_FOLDER = "calibration/cohorts/"
MARGIN = 1.1
"""An engine has to promise so many times the trials per hour of alone: what is timed in seconds holds for minutes."""
FURTHER_GRAPH = 0.5
"""What a further graph of a family costs of the first one's compilation, as most of its kernels are there: .33 to .6 on
a CPU."""
MEMBER_START_S = 2.5
"""Seconds of a core in which a member's process starts, which imports Ray and no torch; processes are used again."""


@stored
class KeyEngines:
    """The facts on one key: timings by kind of device, and how many slots fit the memory (None: no limit).

    `compiled`: kinds of device for which its graph was compiled, so that the nodes' caches hold it.
    """

    timings: dict[Label, tuple[Timing, ...]] = field(default_factory=dict)
    most_slots: Count | None = None
    compiled: tuple[Label, ...] = ()


ENGINES_FILE = JsonFile(KeyEngines, 1, "delete it; the engines are probed again")
"""calibration/cohorts/<key>.json, written and read."""


@dataclass(frozen=True)
class Best:
    """The engine that is to be used; `gain`: trials per hour against alone."""

    slots: int
    engine: str
    gain: float

    @property
    def unfused(self) -> bool:
        """Whether that is the trainable itself."""
        return self.engine == UNFUSED


@dataclass
class KnownEngines:
    """The facts on engines in a storage, for one kind of `device`."""

    store: Store | None = None
    device: str = "cpu"
    keys: dict[str, KeyEngines] = field(default_factory=dict)

    def of(self, key: str) -> KeyEngines:
        """Return what is known of `key`; read once."""
        if key not in self.keys:
            self.keys[key] = _read(self.store, key) if self.store else KeyEngines()
        return self.keys[key]

    def most_slots(self, key: str) -> int:
        """Return how many slots may be tried, as far as memory is known to allow."""
        most = self.of(key).most_slots
        return 2**10 if most is None else most

    def timings(self, key: str) -> tuple[Timing, ...]:
        """Return what a probe of `key` measured on this kind of device; empty where none has."""
        return self.of(key).timings.get(self.device, ())

    def best(self, key: str, family: str, sizes: Sequence[int], trials: int) -> Best | None:
        """Return the engine that takes the least time for so many trials, with its gain over trials alone.

        It has one of the `sizes` or is the trainable itself (`UNFUSED`); None where the family was not timed. `UNFUSED`
        where others promise less than `MARGIN` times its rate. The probe compiled one graph of the family; one that was
        compiled costs no more.
        """
        share = 0.0 if self.device in self.of(key).compiled else FURTHER_GRAPH
        timings = [replace(t, compile_s=share * t.compile_s) for t in self.timings(family)]
        reference = next((t for t in timings if t.engine == UNFUSED), None)
        if reference is None:
            return None
        fused = [t for t in timings if t.slots in sizes]
        best = min([reference, *fused], key=lambda t: _total_s(t, trials))
        gain = _total_s(reference, trials) / _total_s(best, trials)
        return Best(1, reference.engine, 1.0) if gain < MARGIN else Best(best.slots, best.engine, gain)

    def record(self, key: str, timings: Sequence[Timing]) -> None:
        """Keep the timings of a probe on this device in place of earlier ones."""
        known = self.of(key)
        self._write(key, replace(known, timings={**known.timings, self.device: tuple(timings)}))

    def limit(self, key: str, slots: int) -> None:
        """Keep that more than so many slots run out of memory."""
        self._write(key, replace(self.of(key), most_slots=min(slots, self.most_slots(key))))

    def compiled(self, key: str) -> None:
        """Keep that trials of this key have trained by a compiled graph on this device."""
        known = self.of(key)
        if self.device not in known.compiled:
            self._write(key, replace(known, compiled=(*known.compiled, self.device)))

    def _write(self, key: str, content: KeyEngines) -> None:
        self.keys[key] = content
        if self.store is not None:
            ENGINES_FILE.write(self.store, engines_key(key), asdict(content))


def device_of(inventory: Inventory) -> str:
    """Return the kind of device that timings are for: the hosts' types of GPU, or `cpu`."""
    return "+".join(sorted(gpu.type for gpu in inventory.gpu_types)) or "cpu"


def engines_key(key: str) -> str:
    """Return the place of a cohort key's file in the storage."""
    return f"{_FOLDER}{key}.json"


def _total_s(timing: Timing, trials: int) -> float:
    """Return the seconds of so many trials in one process.

    Its start, its graphs and its members' processes cost once.
    """
    members = timing.slots * MEMBER_START_S if timing.slots > 1 else 0.0
    return trials * timing.trial_s + timing.start_s + timing.compile_s + members


def _read(store: Store, key: str) -> KeyEngines:
    try:
        return ENGINES_FILE.read(store, engines_key(key))
    except FileNotFoundError:
        return KeyEngines()
    except StorageError as error:
        log.warning("%s", error)
        return KeyEngines()
