"""Trackers, of which MLflow is one: a view of the records, fed live by one thread of the driver, caught up by `sync`.

mlflow itself (over a second) is imported by what talks to a store, on first use: `contrasweep plan` never does.
"""

from collections.abc import Sequence

from contrasweep.storage.records import StudyRecords
from contrasweep.tracking.kinds import TRACKERS, Trackers, checked_tracking, open_trackers, parted, tracking_of
from contrasweep.tracking.links import Links, read_links, write_links
from contrasweep.tracking.mlflow.address import DEFAULT_URI, UI_PORT, TrackingAddress, checked_uri
from contrasweep.tracking.mlflow.models import load_checkpoint
from contrasweep.tracking.mlflow.replay import SyncSummary, sync
from contrasweep.tracking.mlflow.tracker import MlflowTracker
from contrasweep.tracking.mlflow.ui import serve
from contrasweep.tracking.tracked_study import TrackedStudy
from contrasweep.tracking.tracker import NoTracker, StudyPages, SyncGap, Tracker, system_metrics

__all__ = [
    "DEFAULT_URI",
    "TRACKERS",
    "UI_PORT",
    "Links",
    "MlflowTracker",
    "NoTracker",
    "StudyPages",
    "SyncGap",
    "SyncSummary",
    "TrackedStudy",
    "Tracker",
    "Trackers",
    "TrackingAddress",
    "checked_tracking",
    "checked_uri",
    "load_checkpoint",
    "open_tracker",
    "parted",
    "read_links",
    "serve",
    "sync",
    "system_metrics",
    "tracking_of",
    "write_links",
]


def open_tracker(
    tracking: str | Sequence[str] | TrackingAddress | Trackers, study: TrackedStudy, records: StudyRecords | None = None
) -> Tracker:
    """The tracker for an address, or for several (`none`: one that tracks nothing); `SpecError` or `StorageError` if
    one cannot work."""
    return open_trackers(checked_tracking(tracking), study, records)
