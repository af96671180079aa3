"""Trackers, such as MLflow: views of the storage, which a process beside the driver keeps up to date.

mlflow itself (over a second) is imported by what talks to a store, on first use: `contrasweep plan` never does.
"""

from contrasweep.tracking.tracker import TrackedStudy, Tracker

__all__ = ["TrackedStudy", "Tracker"]
