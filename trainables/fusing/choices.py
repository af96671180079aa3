"""The choice of trials that are fused, and how many at a time; and why other trials train alone."""

import statistics
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from contrasweep import canonical
from contrasweep.cluster.packing import Placement, options, slots_on
from contrasweep.planning.footprints import Cell, Footprints, cell_of
from contrasweep.planning.lanes import arm_choice
from contrasweep.planning.plan import Plan
from contrasweep.study.arm import COHORT_SIZES as SIZES
from contrasweep.study.trainables import find_trainable
from contrasweep.trainables.fusing.known_engines import Best, KnownEngines
from contrasweep.trainables.fusing.protocol import AUTO, CannotFuse, Fusible, Timing, cohorts_of
from contrasweep.trial import Trial

MEMBER_GIB = 0.15
"""Host memory of the process that stands for one member of a cohort: Ray's worker, without torch."""
PRODUCT_RATE = 1e11
"""Floating-point operations a second of a product of matrices on one core of a server; a probe measures it."""
GAIN = 0.4
"""The part of what is left to that rate that compiled trials gain: small networks that compute alone at .15, .23 and
.31 of it were seen to take 1/2.4, 1/1.8 and 1/1.0 of the time."""
FURTHER_S = 15.0
"""Processor seconds in which a further graph of a family is compiled."""
UNKNOWN_GAIN = 1.43
"""What a probe is expected to find where a trial's operations are not counted."""


@dataclass(frozen=True)
class Fused:
    """A trial that is a member of cohorts of this `key`.

    A cohort has so many `slots`, and its steps are computed by the `engine`; with one slot the trial trains in its own
    process. `gain`: trials per hour against alone, by the probe (None: not probed).
    """

    key: str
    slots: int
    engine: str = AUTO
    gain: float | None = None


@dataclass(frozen=True)
class Unfused:
    """The reason why a trial trains alone; "" where the study asks for no fusion."""

    reason: str = ""
    key: str = ""


Choice = Fused | Unfused


class Fusion:
    """Decides for each trial of a study. `counts`: how many trials of each key there are to run."""

    def __init__(self, footprints: Footprints, known: KnownEngines | None = None) -> None:
        self.footprints, self.known = footprints, known or KnownEngines()
        self.counts: Counter[str] = Counter()
        self.changed = True
        """Whether the order of trials is to be arranged anew: at first, and when a probe has ended."""
        self._fusible: dict[str, Fusible] = {}
        self._keys: dict[tuple[str, Cell, int | None], str | Unfused] = {}
        self._unprobed: dict[str, Trial] = {}  # by key, of which a probe would decide
        self._trained: dict[str, list[float]] = {}  # key -> seconds of its trials that have ended
        self._separate: dict[str, str] = {}  # key -> why its trials run alone from now on
        self._families: dict[str, str] = {}  # key -> that of its family, by which timings are kept

    @property
    def used(self) -> bool:
        """Whether any arm's trials may be fused."""
        return any(self.choice(arm) != "off" for arm in self.footprints.study.arms)

    def choice(self, arm: str) -> Any:
        """Return the field `cohort` of an arm, or of the study where the arm has none."""
        return arm_choice(self.footprints.study, arm)

    def count(self, expected: Iterable[tuple[Trial, int]]) -> "Fusion":
        """Note trials that are to run, and how many of each kind."""
        for trial, number in expected:
            if self.choice(trial.arm) != "off" and isinstance(key := self._key(trial), str):
                self.counts[key] += number
        return self

    def of(self, trial: Trial) -> Choice:
        """Return how `trial` runs."""
        choice = self.choice(trial.arm)
        if choice == "off":
            return Unfused()
        key = self._key(trial)
        if isinstance(key, Unfused):
            return key
        if key in self._separate:
            return Unfused(self._separate[key], key)
        return self._as_probed(trial, key) if choice == "auto" else self._as_declared(trial, key, choice)

    def _as_probed(self, trial: Trial, key: str) -> Choice:
        """Under `auto`: with the engine that a probe showed to pay."""
        if not callable(getattr(self._cohorts(trial.arm), "probe", None)):
            return Unfused("its trainable cannot time its engines (its `lane` has no `probe`)", key)
        if (best := self._best(key, [1, *self.sizes(trial)])) is None:
            self._unprobed[key] = trial
            return Unfused("its engines have not been probed", key)
        if best.unfused:
            return Unfused("the probe shows no gain", key)
        return Fused(key, best.slots, best.engine, best.gain)

    def _as_declared(self, trial: Trial, key: str, choice: int) -> Choice:
        """With a number: so many at a time, or as many as there are and fit."""
        if self.counts[key] == 1:
            return Unfused("no other trial has its shapes", key)
        needed = next((size for size in SIZES if size >= self.counts[key]), max(SIZES))
        fitting = self._fitting(trial, key, min(needed, choice))
        if not fitting:
            return Unfused("two of its kind do not fit the memory of a host", key)
        best = self._best(key, fitting[-1:])
        if best is None or best.unfused:  # not probed, or asked for though it does not pay
            return Fused(key, fitting[-1], gain=None if best is None else best.gain)
        return Fused(key, best.slots, best.engine, best.gain)

    def arranged(self, trials: Iterable[Trial]) -> Iterator[Trial]:
        """Yield the trials in their order, but each followed by as many of its key as fit a cohort with it.

        Else every place would hold cohorts of many keys, each with few members.
        """
        every = list(trials)
        choices: dict[tuple[str, Cell, int | None], Choice] = {}
        of_key: dict[Fused, deque[int]] = {}
        chosen: list[Choice] = []
        for number, trial in enumerate(every):
            kind = _kind(trial)
            if kind not in choices:
                choices[kind] = self.of(trial)
            chosen.append(choice := choices[kind])
            if isinstance(choice, Fused):
                of_key.setdefault(choice, deque()).append(number)
        for number, choice in enumerate(chosen):
            if not isinstance(choice, Fused):
                yield every[number]
            elif of_key[choice] and of_key[choice][0] == number:
                for _ in range(min(choice.slots, len(of_key[choice]))):
                    yield every[of_key[choice].popleft()]

    def sizes(self, trial: Trial) -> list[int]:
        """Return the slots that a cohort of several such trials may have under `auto`.

        They are no more than leave work for every place, and than fit the memory.
        """
        key = self._key(trial)
        if not isinstance(key, str):
            return []
        return self._fitting(trial, key, self.counts[key] // max(1, self._places(trial)))

    def _fitting(self, trial: Trial, key: str, most: int) -> list[int]:
        """Return the numbers of slots, `most` at the most, that fit the memory of a host as far as is known."""
        most = min(most, self.known.most_slots(key))
        return [size for size in SIZES if size <= most and self.options(trial, size)]

    def ended(self, trial: Trial, seconds: float, *, compiled: bool = False) -> None:
        """Note how long a trial that ran alone took, or that one was trained by its `compiled` graph."""
        if self.choice(trial.arm) != "off" and isinstance(key := self._key(trial), str):
            if compiled:
                self.known.compiled(key)
            else:
                self._trained.setdefault(key, []).append(seconds)

    def unprobed(self) -> list[tuple[str, Trial, float, float]]:
        """Return a key of each family that needs a probe, first those with the most training left.

        It is the family's key with the most training left. With each come a trial, the seconds that the family's
        trials still have to train if they take as long as those that have ended, and how many of these a probe may
        save, less what the graphs of the family's further keys cost.
        """
        families: dict[str, list[tuple[float, float, str]]] = {}
        for key, trial in self._unprobed.items():
            took, family = self._trained.get(key), self._families[key]
            if took and key not in self._separate and not self.known.timings(family):
                left_s = statistics.median(took) * (self.counts[key] - len(took))
                saved_s = left_s * (1 - 1 / self._expected_gain(trial, statistics.median(took)))
                families.setdefault(family, []).append((left_s, saved_s, key))
        waiting = [
            (
                key,
                self._unprobed[key],
                sum(left_s for left_s, *_ in each),
                sum(saved_s for _, saved_s, _ in each) - FURTHER_S * (len(each) - 1),
            )
            for each in families.values()
            for *_, key in [max(each)]
        ]
        return sorted(waiting, key=lambda entry: -entry[2])

    def probed(self, key: str, timings: Sequence[Timing]) -> None:
        """Keep the timings of a probe of this key, which hold for its family."""
        self.known.record(self._families[key], timings)
        self.known.compiled(key)
        self.changed = True

    def _expected_gain(self, trial: Trial, seconds: float) -> float:
        """Return how many times faster an engine may train such a trial, which takes so many `seconds` alone.

        On a CPU the rate at which it computes alone tells: what is left to `PRODUCT_RATE` of it.
        """
        operations = self.footprints.operations(trial) if self.known.device == "cpu" else None
        return max(1.0, GAIN * seconds * PRODUCT_RATE / operations) if operations else UNKNOWN_GAIN

    def _best(self, key: str, sizes: Sequence[int]) -> Best | None:
        """Return the engine for trials of this key, as far as its family has been timed."""
        return self.known.best(key, self._families[key], sizes, self.counts[key])

    def verdict(self, key: str) -> str:
        """Return what a probe's figures come to, in words."""
        best = self._best(key, (1, *SIZES))
        if best is None or best.unfused:
            return "the probe shows no gain, its trials run alone"
        return f"{slots_text(best.slots)} by engine {best.engine}, {best.gain:.1f}x trials per hour expected"

    def options(self, trial: Trial, slots: int) -> list[Placement]:
        """Return every way to place a member of a cohort of `slots`: an equal part of the cohort's place."""
        if slots == 1:
            return self.footprints.options(trial)
        return [
            Placement(place.gpu, place.share / slots, place.cpus / slots, place.host_memory_gib / slots)
            for place in options(self.footprints.together(trial, slots, MEMBER_GIB), self.footprints.inventory)
            if place.share <= 1
        ]

    def overflowed(self, key: str, slots: int) -> None:
        """Halve the slots of a key whose cohort ran out of memory; at last its trials run alone."""
        self.known.limit(key, slots // 2)
        if self.known.most_slots(key) < min(SIZES):
            self._separate[key] = "two of its kind ran out of memory"

    def separate(self, key: str, reason: str) -> None:
        """Let the trials of a key run alone from now on."""
        self._separate.setdefault(key, reason)

    def _key(self, trial: Trial) -> str | Unfused:
        if trial.start is not None:
            return Unfused("it starts from another trial's checkpoint")
        kind = _kind(trial)
        if kind not in self._keys:
            self._keys[kind] = self._ask_key(trial)
        return self._keys[kind]

    def _ask_key(self, trial: Trial) -> str | Unfused:
        try:
            cohorts = self._cohorts(trial.arm)
            key, family = (
                canonical.digest([trial.trainable, own], length=16)
                for own in (cohorts.key(trial), cohorts.family(trial))
            )
            self._families[key] = family
            return key
        except CannotFuse as error:
            return Unfused(error.reason)
        except (Exception, SystemExit) as error:  # the trainable is the user's
            return Unfused(f"its `lane` cannot say its key ({type(error).__name__}: {error})")

    def _cohorts(self, arm: str) -> Fusible:
        if arm not in self._fusible:
            function: Callable[..., Any] = find_trainable(self.footprints.study.arms[arm], f"arms.{arm}.trainable")
            self._fusible[arm] = cohorts_of(function)
        return self._fusible[arm]

    def _places(self, trial: Trial) -> int:
        """Cohorts of the smallest size that run at the same time on all hosts."""
        nodes = self.footprints.inventory.nodes
        kinds = options(self.footprints.together(trial, min(SIZES), MEMBER_GIB), self.footprints.inventory)
        return sum(slots_on(kind, node) * node.count for kind in kinds for node in nodes)


def slots_text(slots: int) -> str:
    """Return how many trials train as one, in words."""
    return "each trial alone" if slots == 1 else f"{slots} trials as one"


def _kind(trial: Trial) -> tuple[str, Cell, int | None]:
    """Return what trials of one key have in common at least: seeds alone may differ."""
    return trial.arm, cell_of(trial), trial.fold


def fusion_of(plan: Plan, footprints: Footprints, done: Iterable[str], known: KnownEngines | None = None) -> Fusion:
    """Return the choices for a plan; those of its trials that are `done` have a record."""
    fusion = Fusion(footprints, known)
    if fusion.used:
        fusion.count(plan.expected(set(done)))
    return fusion
