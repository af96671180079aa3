"""Where the runs of a study's trials are shown: kept in the storage, so that a report needs no MLflow to link them.

    <study>/mlflow.json    tracking (the store), study (its page), runs (trial id -> page)

Written when a study has been run or synced; the last one to write is believed.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from contrasweep.storage.records import StudyRecords
from contrasweep.tracking.mlflow import address

FILE = "mlflow.json"


@dataclass(frozen=True)
class Links:
    """The pages of a study and its trials. `tracking` is the store they are in, without its password; where it is
    no server, they are there while `contrasweep ui` serves it."""

    tracking: str = ""
    study: str = ""
    runs: Mapping[str, str] = field(default_factory=dict)

    @property
    def served(self) -> bool:
        """Whether the store is a server, so that its pages can be opened at any time."""
        return address.is_server(self.tracking)


def write_links(records: StudyRecords, tracking: str, study: str | None, runs: Mapping[str, str]) -> None:
    """Keep where the runs are; nothing where nothing is known."""
    if runs:
        links = Links(address.without_password(tracking), study or "", dict(sorted(runs.items())))
        records.store.write(f"{records.study}/{FILE}", json.dumps(asdict(links)).encode())


def read_links(records: StudyRecords) -> Links:
    """What `write_links` wrote; empty where the study was never tracked."""
    try:
        return Links(**json.loads(records.store.read(f"{records.study}/{FILE}")))
    except (FileNotFoundError, ValueError, TypeError):
        return Links()
