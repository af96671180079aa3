"""Timings of a few steps of each engine for trials of one key, by which a study chooses the trials to fuse.

On a CPU, seconds are those of the processor, so that what else runs on the machine changes them little.
"""

import itertools
import logging
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.utils.flop_counter import FlopCounterMode

from contrasweep.processes import scratch_prefix
from contrasweep.trainables import torch_internals
from contrasweep.trainables.fusing.cohorts.cohort import FusedCohort, Stepped
from contrasweep.trainables.fusing.cohorts.network import Batch
from contrasweep.trainables.fusing.folding import ENGINES
from contrasweep.trainables.fusing.protocol import UNFUSED, CannotFuse, Timing
from contrasweep.trainables.optimisation import Schedule
from contrasweep.trial import Trial

log = logging.getLogger(__name__)
STEPS, WARM = 9, 2
"""Steps that are timed, after so many that are not."""
PRODUCT_ROWS = 128
"""Rows of a step up to which compiled products are the faster ones on a CPU; compiled groups are above."""
POTENTIAL = 2.0
"""How many times faster a step of a trial alone would be at the rate of a product of matrices, from which on an engine
is tried on a CPU. Small networks have 2.3 to 5 and gain 1.3 to 3.9 times, a ResNet-18 has .7 and loses."""
SIDE = 384
"""Rows and columns of those matrices."""
FEW = 16
"""Images of a first step on a CPU: where already these show that nothing is to be gained, as large networks do, the
whole batch need not be waited for."""
OpenCohort = Callable[[int, str], FusedCohort[Any]]
"""A cohort of so many slots by an engine's name."""


class Timed(Stepped, Protocol):
    """A method whose steps are timed."""

    schedule: Schedule

    def step(self, running: Any, /, *batch: Any) -> object:
        """Take the next step of an epoch."""


@dataclass(frozen=True)
class Subject:
    """The trial that is timed: its method with a given batch size, and what its time depends on.

    `images` are those of a batch, `rows` those of a step; so many batches are drawn `together`.
    """

    of_batches: Callable[[int], Timed]
    device: torch.device
    images: int
    rows: int
    epochs: int
    evaluate_every: int
    together: int = 1

    def build(self) -> Timed:
        """Return the method that the trial trains, built as its worker builds it."""
        return self.of_batches(self.images)


def probe(trial: Trial, slots: Sequence[int], subject: Subject, open_cohort: OpenCohort) -> list[Timing]:
    """Time the trial alone, and every engine worth trying with so many `slots`."""
    clock = Clock(subject.device)
    if subject.device.type == "cpu" and subject.images >= 2 * FEW:
        few = subject.of_batches(FEW)
        few_s, potential = _first_step(clock, few)
        if potential < POTENTIAL:  # a larger batch has less
            return [Timing(UNFUSED, 1, few.schedule.steps * few_s)]
    method = subject.build()
    steps = method.schedule.steps
    step_s, potential = _step_alone(clock, method)
    engines = candidates(slots, subject.rows, clock.device.type, potential)
    rest_s = clock.of(subject.build) + _beside_steps(clock, method, subject, trial) if engines else 0.0
    timings = [Timing(UNFUSED, 1, steps * step_s + rest_s)]
    for engine, count in engines:
        compiled = ENGINES[engine].compiled
        if compiled and not torch_internals.can_compile():
            continue
        try:
            fused = _fused(clock, trial, partial(open_cohort, count, engine), twice=compiled)
        except CannotFuse:  # by this engine: the masks of dropout have no compiled form
            continue
        except Exception as error:
            if not compiled:
                raise
            log.warning("engine %s cannot be used here: %s", engine, error)  # where there is no compiler, say
            continue
        trial_s = steps * fused.step_s / count + rest_s
        timings.append(Timing(engine, count, trial_s, fused.start_s, fused.compile_s))
    return timings


def candidates(slots: Sequence[int], rows: int, device: str, potential: float = math.inf) -> list[tuple[str, int]]:
    """Return the engines and numbers of slots to try for members whose step has `rows` rows.

    A step would be `potential` times faster at the rate of a product of matrices. On a CPU it is one trial compiled:
    several members take 1.0 to 2.3 times as long for each. A step that is near that rate already gains nothing.
    """
    compiled = [engine.name for engine in ENGINES.values() if engine.compiled]
    if device != "cpu":
        largest = [(name, max(slots)) for name in compiled if slots]
        return [(e.name, count) for e in ENGINES.values() for count in slots if not e.compiled] + largest
    if potential < POTENTIAL:
        return []
    best = "products-compiled" if rows <= PRODUCT_ROWS else "grouped-compiled"
    return [(best, 1)]


class Clock:
    """Seconds of work on a device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def now(self) -> float:
        """Return the seconds so far."""
        if self.device.type != "cuda":
            return time.process_time()
        torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def with_compilers(self) -> float:
        """Return the seconds so far of this process and of the compilers that it has waited for."""
        return sum(os.times()[:4]) if self.device.type != "cuda" else time.perf_counter()

    def of(self, act: Callable[[], object]) -> float:
        """Return the seconds of one call."""
        start = self.now()
        act()
        return self.now() - start

    def median(self, act: Callable[[Any], object], batches: Sequence[Any]) -> float:
        """Return the median time in seconds of `STEPS` calls on these batches, used again where they are few."""
        repeated = itertools.islice(itertools.cycle(batches), WARM + STEPS)
        return statistics.median([self.of(partial(act, batch)) for batch in repeated][WARM:])


def _first_step(clock: Clock, method: Timed) -> tuple[float, float]:
    """Return the seconds of a method's first step, and how much fusing may gain (see `candidates`)."""
    running = method.begin(1)
    with closing(running.batches):
        batch = next(running.batches)
    with FlopCounterMode(display=False) as counter:
        step_s = clock.of(lambda: method.step(running, *batch))
    return step_s, step_s * _product_rate(clock) / max(1, counter.get_total_flops())


def _step_alone(clock: Clock, method: Timed) -> tuple[float, float]:
    """Return the seconds of a step of a trial alone, and its potential: see `candidates`.

    Where the first step shows a potential too small, it is the only one.
    """
    first_s, potential = _first_step(clock, method)
    if clock.device.type == "cpu" and potential < POTENTIAL:
        return first_s, potential
    running = method.begin(1)
    with closing(running.batches):
        batches = list(itertools.islice(running.batches, WARM + STEPS))
    step_s = clock.median(lambda batch: method.step(running, *batch), batches)
    return step_s, potential * step_s / first_s


def _product_rate(clock: Clock) -> float:
    """Return the floating-point operations a second of a product of two matrices."""
    a = torch.rand(SIDE, SIDE, device=clock.device)
    return 2 * SIDE**3 / clock.median(lambda other: a @ other, [a])


def _beside_steps(clock: Clock, method: Timed, subject: Subject, trial: Trial) -> float:
    """Return the seconds of a trial's batches and evaluations, in a process that has done both before."""
    started = clock.now()
    running = method.begin(1)
    drawn = min(running.count, max(1, subject.together))
    with closing(running.batches):
        for _ in itertools.islice(running.batches, drawn):
            pass
    batch_s = (clock.now() - started) / drawn
    number = 0 if trial.fold is None or not subject.evaluate_every else subject.epochs // subject.evaluate_every
    with tempfile.TemporaryDirectory(prefix=scratch_prefix("probe")) as folder:
        method.evaluate(True, Path(folder))
        each = clock.of(lambda: method.evaluate(False, Path(folder))) if number else 0.0
        last = clock.of(lambda: method.evaluate(True, Path(folder)))
    return method.schedule.steps * batch_s + number * each + last


@dataclass(frozen=True)
class Fused:
    """Measured seconds of a fused cohort.

    `step_s` is a step of all members, `start_s` the start of a process that finds compiled code on disk, `compile_s`
    compiling it.
    """

    step_s: float
    start_s: float
    compile_s: float


def _fused(clock: Clock, trial: Trial, open_cohort: Callable[[], FusedCohort[Any]], *, twice: bool) -> Fused:
    """Time a cohort of copies of `trial` with other seeds; `twice`: start it twice, as the first start compiles."""
    cold_s = 0.0
    if twice:
        with _started(clock, trial, open_cohort) as (_, _, cold_s, _):
            pass
    with _started(clock, trial, open_cohort) as (cohort, start_s, warm_s, batches):
        return Fused(clock.median(cohort.network.step, batches), start_s, max(0.0, cold_s - warm_s))


@contextmanager
def _started(
    clock: Clock, trial: Trial, open_cohort: Callable[[], FusedCohort[Any]]
) -> Iterator[tuple[FusedCohort[Any], float, float, list[dict[int, Batch[Any]]]]]:
    """Start a cohort; yield it after its first step, with the time that this took and batches for more steps.

    The times are seconds of work, without and with those of compilers, beside the members' own start.
    """
    start, whole = clock.now(), clock.with_compilers()
    with closing(open_cohort()) as cohort:
        start, whole = clock.now() - start, clock.with_compilers() - whole
        for number in range(cohort.slots):
            cohort.join(replace(trial, seed=trial.seed + number), None)
        members = list(cohort.members.values())
        for member in members:
            cohort.prepare(member)
        count = min(WARM + STEPS, *(member.running.count for member in members))
        batches = [{member.slot: member.draw() for member in members} for _ in range(count)]
        first = clock.with_compilers()
        start += clock.of(lambda: cohort.network.step(batches[0]))
        yield cohort, start, whole + clock.with_compilers() - first, batches
