"""Studies as trackers show them, and what a worker and a driver leave in a storage for those who follow it."""

import time
from dataclasses import asdict

from contrasweep.live.state import LIVE, LIVE_FILE, RunningTrial, RunState
from contrasweep.storage.attempts import Attempt
from contrasweep.study import dotted
from contrasweep.tracking.tracker import TrackedStudy

T0 = 1_700_000_000.0


def tracked_of(name, planned, **fields):
    """The study `name` whose trials, and so whose config keys, are those of `planned`."""
    keys = dict.fromkeys(key for trial in planned for key in dotted.flatten(trial.config))
    return TrackedStudy(name, keys=tuple(keys), **{"trials": len(planned), **fields})


def train(records, trial, rows):
    """Write what a worker leaves that has begun a trial and reported `rows`."""
    Attempt(records, trial)
    if rows:
        records.write_metrics(trial.id, list(rows))


def drive(records, *trials, **fields):
    """Write what a driver tells of itself while these trials run, or ran last; `fields` are of its state."""
    running = {}
    for t in trials:
        rows = records.metrics(t.id) or [{"step": 0}]
        running[t.id] = RunningTrial(
            t.id, t.arm, {}, t.fold, t.seed, T0, step=int(rows[-1]["step"])
        )
    known = {"total": 8, "before": {}, "slots": 2.0, "began": T0, "updated": time.time()}
    known |= {"running": running, **fields}
    state = RunState(records.study, "accuracy", "max", records.storage, **known)
    LIVE_FILE.write(records.store, f"{records.study}/{LIVE}", asdict(state))
