"""The pilot of a study: one trial of each arm is trained and checked before the rest starts."""

import itertools
import math
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from contrasweep.planning.durations import duration
from contrasweep.results.notices import NOTICES, early_notices, notices_of
from contrasweep.rows import Row
from contrasweep.storage.record import Record
from contrasweep.study.study import Study
from contrasweep.study.trainables import find_trainable
from contrasweep.tuning.source import Finished, Next, Source

GO_ON = "Nothing more is trained: mend the study, or go on as it is with --set pilot=false"


def is_floor(study: Study, arm: str) -> bool:
    """Whether an arm is a floor, such as nearest neighbours by raw pixels: its trainable has `floor = True`."""
    return bool(getattr(find_trainable(study.arms[arm], f"arms.{arm}.trainable"), "floor", False))


def objections(study: Study, pilots: Mapping[str, Record]) -> list[str]:
    """Say what speaks against training the rest, given the record of one trial of each arm.

    An arm failed, a notice holds in it (that it collapsed, say), it is below a floor on the same test part, or two arms
    have the same metrics to the bit, loss included.
    """
    found = []
    pilots = {arm: pilots[arm] for arm in study.arms if arm in pilots}
    for arm, record in pilots.items():
        if not record.status.counts:
            found.append(f"arm {arm} ended {record.status.value}")
        found += [f"arm {arm}: {sentence}" for sentence in notices_of(record).values()]
    sign = 1 if study.mode == "max" else -1
    for (arm, first), (other, second) in itertools.permutations(pilots.items(), 2):
        if (first.data.digest, first.fold) != (second.data.digest, second.fold):
            continue
        score, floor = (record.metrics.get(study.metric, math.nan) for record in (first, second))
        if is_floor(study, other) and not is_floor(study, arm) and sign * score < sign * floor:
            found.append(f"arm {arm} is below {other}: {study.metric} {score:.4g} against {floor:.4g}")
        if arm < other and "loss" in first.metrics and _numbers(first) == _numbers(second):
            found.append(f"arms {arm} and {other} have the same loss and metrics to the bit")
    return found


def _numbers(record: Record) -> dict[str, float]:
    """The metrics of a record but for its notices, which some losses alone report."""
    return {name: value for name, value in record.metrics.items() if name not in NOTICES}


def cost_line(pilots: Mapping[str, Record]) -> str:
    """Say the memory and seconds that the pilot measured."""
    each = []
    for arm, record in pilots.items():
        gib, where = (record.gpu_memory_gib, "GPU") if record.gpu_memory_gib else (record.host_memory_gib, "host")
        memory = "" if gib is None else f", {gib:.1f} GiB of the {where}"
        each.append(f"{arm} {duration(record.seconds)}{memory}")
    return f"pilot: {'; '.join(each)}"


@dataclass
class PilotSource:
    """Hands out the trials of `inner`: one trial of each arm, then the other trials once these have passed.

    `pilots` are the records of arms that have a trial already. `stop` is given the reason where the pilot does not
    pass; trials that run then keep their checkpoints. `say` is given lines for people.
    """

    study: Study
    inner: Source
    pilots: dict[str, Record]
    stop: Callable[[str], None]
    say: Callable[[str], object]
    waiting: deque[Next] = field(default_factory=deque)
    running: dict[str, str] = field(default_factory=dict)
    passed: bool = False

    @property
    def adaptive(self) -> bool:
        """Return what the inner source says."""
        return self.inner.adaptive

    @property
    def finished(self) -> bool:
        """Whether every trial has been handed out."""
        return not self.waiting and self.inner.finished

    def next(self, paused_arms: Collection[str] = ()) -> Next | Finished | None:
        """Return a trial of an arm that has none yet; None while these trials run; then the other trials.

        An arm whose search waits for that of another arm has no pilot.
        """
        while not self.passed:
            begun = {*self.pilots, *self.running.values()}
            following = self.inner.next({*paused_arms, *begun}) if begun < {*self.study.arms} else None
            if isinstance(following, Next):
                if following.trial.arm in begun:
                    self.waiting.append(following)
                    continue
                self.running[following.trial.id] = following.trial.arm
                return following
            if self.running:
                return None
            self.say(cost_line(self.pilots))
            if found := objections(self.study, self.pilots):
                self.stop(f"pilot: {'; '.join(found)}. {GO_ON}")
                return Finished()
            self.passed = True
        return self.waiting.popleft() if self.waiting else self.inner.next(paused_arms)

    def retry(self, trial_id: str) -> bool:
        """Return what the inner source says."""
        return self.inner.retry(trial_id)

    def keep_going(self, trial_id: str, reports: list[Row]) -> bool:
        """Return what the inner source says; a pilot trial with a notice after its first epochs ends the run."""
        arm = self.running.get(trial_id)
        early = early_notices(reports) if arm else {}
        if early:
            self.stop(f"pilot: arm {arm}: {next(iter(early.values()))}. {GO_ON}")
        return self.inner.keep_going(trial_id, reports)

    def done(self, record: Record) -> None:
        """Keep the record of a pilot, and pass it on."""
        if arm := self.running.pop(record.trial_id, None):
            self.pilots[arm] = record
        self.inner.done(record)

    def warnings(self) -> list[str]:
        """Return the warnings of the inner source."""
        return self.inner.warnings()
