"""Studies as trackers show them, made of trials alone."""

from contrasweep.study import dotted
from contrasweep.tracking.tracker import TrackedStudy


def tracked_of(name, planned, **fields):
    """The study `name` whose trials, and so whose config keys, are those of `planned`."""
    keys = dict.fromkeys(key for trial in planned for key in dotted.flatten(trial.config))
    return TrackedStudy(name, keys=tuple(keys), **{"trials": len(planned), **fields})
