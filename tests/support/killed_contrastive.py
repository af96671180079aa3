"""`trainables.contrastive` whose first cohort of eight kills its own host once each member has made ten reports.

Beside the dataset's folder lie `joined` and `reported` (trial id and epoch a line), and `killed` once it has happened.
"""

import os
import signal
import time
from collections import Counter
from pathlib import Path

from contrasweep.trainables import contrastive
from contrasweep.trainables.fusing.cohorts.contrastive import ContrastiveCohorts

REPORTS, MEMBERS = 10, 8
"""A member's process has stored a checkpoint by then: it may be four reports behind, and be storing four more."""


def train(trial, resume=None):
    yield from contrastive.train(trial, resume)


class KilledCohort:
    def __init__(self, cohort, folder):
        self.cohort, self.folder, self.reports = cohort, folder, Counter()
        self.slots, self.engine = cohort.slots, cohort.engine

    def join(self, trial, resume):
        self.cohort.join(trial, resume)
        self.note("joined", trial.id, self.cohort.members[trial.id].training.epoch)

    def leave(self, trial_id):
        self.cohort.leave(trial_id)

    def close(self):
        self.cohort.close()

    def advance(self, members=None):
        if not (self.folder / "killed").exists():
            members = [name for name in members or self.cohort.members if self.reports[name] < REPORTS]
            if len(self.cohort.members) < MEMBERS:
                time.sleep(0.01)
                return []
            if min(self.reports[name] for name in self.cohort.members) == REPORTS:
                (self.folder / "killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if not members:
                time.sleep(0.01)
                return []
        events = self.cohort.advance(members)
        for event in events:
            if event.report is not None:
                self.reports[event.trial_id] += 1
                self.note("reported", event.trial_id, event.report.step)
        return events

    def note(self, name, trial_id, epoch):
        with (self.folder / name).open("a") as file:
            file.write(f"{trial_id} {epoch}\n")


class KilledCohorts(ContrastiveCohorts):
    def open(self, trial, slots, engine="auto"):
        return KilledCohort(super().open(trial, slots, engine), Path(trial.data.uri).parent)


train.settings = contrastive.Settings
train.lane = KilledCohorts()
