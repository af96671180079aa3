"""Probes of engines, beside the trials of a study with `cohort: auto`.

There is one for each family of cohort keys, whose trials differ in the loss, if it may save enough. The trials that are
handed out after it run as it says; what it measured stays in the storage.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import ray

from contrasweep.running.run_context import RunContext, TrialDescription
from contrasweep.storage.record import CodeRef, TrialNotes
from contrasweep.study.arm import COHORT_SIZES as SIZES
from contrasweep.trainables.fusing.choices import Fusion
from contrasweep.trainables.fusing.protocol import Timing, cohorts_of

log = logging.getLogger(__name__)
WORTH_S = 60.0
"""A family is probed while this may save so many seconds of its training beside its further graphs: a probe takes six
seconds of a core where it soon finds nothing to gain, and up to 45 where it compiles."""
CHECK_S = 1.0


class Probes:
    """Starts probes, one at a time, and takes their results."""

    def __init__(self, fusion: Fusion, context: RunContext, say: Callable[[str], object]) -> None:
        self.fusion, self.context, self.say = fusion, context, say
        self.due = 0.0
        self.running: tuple[str, Any] | None = None  # key and what Ray will give

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a plain object, as `TrialLoop` does."""
        return object, ()

    def check(self) -> None:
        """Take the results of probes that have ended, and start the next one if it is worth its time."""
        if (now := time.monotonic()) < self.due:
            return
        self.due = now + CHECK_S
        if self.running is not None:
            key, pending = self.running
            if ray.wait([pending], timeout=0)[0]:
                self.running = None
                self._take(key, pending)
        if self.running is None:
            for key, trial, left_s, saved_s in self.fusion.unprobed():
                if saved_s >= WORTH_S:
                    self.say(
                        f"probing the engines of cohort {key[:6]}: trials alike have about {left_s:.0f} s to train"
                    )
                    described = self.context.describe(trial, {}, TrialNotes(), CodeRef())
                    share = max(
                        (float(place.share) for place in self.fusion.footprints.options(trial)[:1]), default=0.0
                    )
                    task = ray.remote(_probe).options(num_cpus=0, num_gpus=min(1.0, share), max_retries=0)
                    sizes = self.fusion.sizes(trial)
                    self.running = (key, task.remote(self.context, described, sizes))
                    return

    def _take(self, key: str, pending: Any) -> None:
        try:
            timings: Sequence[Timing] = ray.get(pending)
        except Exception as error:  # the trainable's, or its process was lost
            reason = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
            self.fusion.separate(key, f"the probe of its engines failed ({reason})")
            self.say(f"cohort {key[:6]}: the probe of its engines failed, its trials run alone ({reason})")
            return
        self.fusion.probed(key, timings)
        self.say(f"cohort {key[:6]}: {self.fusion.verdict(key)}")


def _probe(context: RunContext, described: TrialDescription, sizes: Sequence[int]) -> list[Timing]:
    """Time the engines of a trial's key, in a process of its own."""
    fusible: Any = cohorts_of(context.function(described["trial"]["trainable"]))
    return list(fusible.probe(context.trial(described), [size for size in SIZES if size in sizes]))
