"""MLflow as a view of the records: fed live by one thread of the driver, and caught up by `sync`.

mlflow itself (over a second) is imported by what talks to a store, on first use: `contrasweep plan` never does.
"""

from contrasweep.storage.records import StudyRecords
from contrasweep.tracking.address import DEFAULT_URI, UI_PORT, checked_uri
from contrasweep.tracking.facts import StudyFacts
from contrasweep.tracking.links import Links, read_links, write_links
from contrasweep.tracking.models import load_checkpoint
from contrasweep.tracking.replay import Summary, sync
from contrasweep.tracking.tracker import Gap, MlflowTracker, NoTracker, Tracker
from contrasweep.tracking.ui import serve

__all__ = [
    "DEFAULT_URI",
    "UI_PORT",
    "Gap",
    "Links",
    "MlflowTracker",
    "NoTracker",
    "StudyFacts",
    "Summary",
    "Tracker",
    "checked_uri",
    "load_checkpoint",
    "open_tracker",
    "read_links",
    "serve",
    "sync",
    "write_links",
]


def open_tracker(uri: str, study: StudyFacts, records: StudyRecords | None = None) -> Tracker:
    """The tracker for `uri` (`none`: one that tracks nothing); `SpecError` or `StorageError` if it cannot work."""
    uri = checked_uri(uri)
    return NoTracker() if uri == "none" else MlflowTracker(uri, study, records)
