"""`trainables.contrastive` whose cohorts of four have next to no memory left for a step: the process's own limit of
address space (`RLIMIT_AS`) is what it has by then, and torch's allocator meets it."""

import contextlib
import resource
from pathlib import Path

from contrasweep.trainables import contrastive
from contrasweep.trainables.fusing.cohorts.contrastive import ContrastiveCohorts

TOO_MANY, LEFT = 4, 2**24
"""Slots of such a cohort, and the bytes that are left."""


def train(trial, resume=None):
    yield from contrastive.train(trial, resume)


@contextlib.contextmanager
def little_memory():
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + LEFT, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


class LimitedCohort:
    def __init__(self, cohort):
        self.cohort, self.slots, self.engine = cohort, cohort.slots, cohort.engine

    def join(self, trial, resume):
        self.cohort.join(trial, resume)

    def leave(self, trial_id):
        self.cohort.leave(trial_id)

    def close(self):
        self.cohort.close()

    def advance(self, members=None):
        with little_memory():
            return self.cohort.advance(members)


class LimitedCohorts(ContrastiveCohorts):
    def open(self, trial, slots, engine="auto"):
        cohort = super().open(trial, slots, engine)
        return LimitedCohort(cohort) if slots == TOO_MANY else cohort


train.settings = contrastive.Settings
train.memory = contrastive.memory
train.lane = LimitedCohorts()
