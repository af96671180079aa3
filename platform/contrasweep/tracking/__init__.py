"""Trackers, of which MLflow is one: a view of the records, fed live by one thread of the driver, caught up by `sync`.

mlflow itself (over a second) is imported by what talks to a store, on first use: `contrasweep plan` never does.
"""

from contrasweep.storage.records import StudyRecords
from contrasweep.tracking.links import Links, read_links, write_links
from contrasweep.tracking.mlflow.address import DEFAULT_URI, UI_PORT, checked_uri
from contrasweep.tracking.mlflow.models import load_checkpoint
from contrasweep.tracking.mlflow.replay import SyncSummary, sync
from contrasweep.tracking.mlflow.tracker import MlflowTracker
from contrasweep.tracking.mlflow.ui import serve
from contrasweep.tracking.tracked_study import TrackedStudy
from contrasweep.tracking.tracker import NoTracker, StudyPages, SyncGap, Tracker

__all__ = [
    "DEFAULT_URI",
    "UI_PORT",
    "Links",
    "MlflowTracker",
    "NoTracker",
    "StudyPages",
    "SyncGap",
    "SyncSummary",
    "TrackedStudy",
    "Tracker",
    "checked_uri",
    "load_checkpoint",
    "open_tracker",
    "read_links",
    "serve",
    "sync",
    "write_links",
]


def open_tracker(uri: str, study: TrackedStudy, records: StudyRecords | None = None) -> Tracker:
    """The tracker for `uri` (`none`: one that tracks nothing); `SpecError` or `StorageError` if it cannot work."""
    uri = checked_uri(uri)
    return NoTracker() if uri == "none" else MlflowTracker(uri, study, records)
