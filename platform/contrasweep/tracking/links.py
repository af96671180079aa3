"""Links to the runs of a study's trials, kept in the storage, so that a report needs no MLflow.

    <study>/mlflow.json    tracking (the store), study (its page), runs (trial id -> page)

Written when a study has been run or synced; the last one to write is believed.
"""

import re
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Annotated

import pydantic

from contrasweep.errors import StorageError
from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.names import Label, Name
from contrasweep.storage.records import StudyRecords
from contrasweep.tracking.mlflow.address import TrackingAddress

FILE = "mlflow.json"
_PAGE = re.compile(r"(https?://[!-~]+)?")


def _check_page(url: str) -> str:
    """Return `url` if it is a web address or ""; else raise ValueError.

    A report links to such addresses, which the storage may have from anybody: they must lead to no script or local
    file.
    """
    if not _PAGE.fullmatch(url) or len(url) > 2000:
        raise ValueError("the address of a run's page is no web address")
    return url


Page = Annotated[str, pydantic.AfterValidator(_check_page)]


@stored
class Links:
    """Addresses of the pages of a study and of its trials.

    `tracking` is the address of the store that has the pages. If the store is no server, pages
    can be opened while `contrasweep ui` runs. `shown` is the state of the store when it had all of the study: another
    state says that the store has changed since.
    """

    tracking: Label = ""
    study: Page = ""
    runs: Mapping[Name, Page] = field(default_factory=dict)
    shown: Label = ""

    @property
    def served(self) -> bool:
        """Whether the store is a server, so that its pages can be opened at any time."""
        return TrackingAddress(self.tracking).is_server


LINKS_FILE = JsonFile(Links, 2, "`contrasweep sync` writes it again")
"""mlflow.json, written and read."""


def write_links(
    records: StudyRecords, tracking: TrackingAddress, study: str | None, runs: Mapping[str, str]
) -> None:
    """Write the addresses of the study's pages in MLflow to the storage, for reports.

    `tracking` is the store, `study` the address of the study's page (None: it has none), and `runs` trial id -> address
    of its page. Nothing is written where `runs` is empty.
    """
    if runs:
        _write(records, Links(tracking, study or "", dict(sorted(runs.items()))))


def write_shown(records: StudyRecords, shown: str) -> None:
    """Write to the storage that MLflow's store shows all of the study when it is in the state `shown`.

    Nothing is written for a study whose `runs` are not known (`write_links`).
    """
    links = read_links(records)
    if links.runs and links.shown != shown:
        _write(records, replace(links, shown=shown))


def _write(records: StudyRecords, links: Links) -> None:
    """Write the study's mlflow.json, in place of one that is there."""
    LINKS_FILE.write(records.store, f"{records.study}/{FILE}", links)


def read_links(records: StudyRecords) -> Links:
    """Return the links that were written last; `Links()` where the study was never tracked, or the file is broken.

    No result depends on them, and `contrasweep sync` writes them again.
    """
    try:
        return LINKS_FILE.read(records.store, f"{records.study}/{FILE}")
    except (FileNotFoundError, StorageError):
        return Links()
