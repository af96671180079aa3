"""Trackers, of which MLflow is one: views of the storage, which one process beside the driver keeps up to date.

mlflow itself (over a second) is imported by what talks to a store, on first use: `contrasweep plan` never does.
"""

from contrasweep.tracking.follower import Follower, Target
from contrasweep.tracking.kinds import TRACKERS, Trackers, checked_tracking, parted, targets, tracking_of
from contrasweep.tracking.links import Links, read_links, write_links
from contrasweep.tracking.mlflow.address import DEFAULT_URI, UI_PORT, TrackingAddress, checked_uri
from contrasweep.tracking.mlflow.models import load_checkpoint
from contrasweep.tracking.mlflow.ui import serve
from contrasweep.tracking.process import TrackingProcess, following
from contrasweep.tracking.sync import SyncSummary, follow, sync
from contrasweep.tracking.tracked_study import TrackedStudy
from contrasweep.tracking.tracker import Tracker, system_metrics

__all__ = [
    "DEFAULT_URI",
    "TRACKERS",
    "UI_PORT",
    "Follower",
    "Links",
    "SyncSummary",
    "Target",
    "TrackedStudy",
    "Tracker",
    "Trackers",
    "TrackingAddress",
    "TrackingProcess",
    "checked_tracking",
    "checked_uri",
    "follow",
    "following",
    "load_checkpoint",
    "parted",
    "read_links",
    "serve",
    "sync",
    "system_metrics",
    "targets",
    "tracking_of",
    "write_links",
]
