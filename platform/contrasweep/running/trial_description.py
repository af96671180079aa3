"""What travels between the driver, Ray Tune and the workers, as plain values: Tune copies and snapshots it often."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypedDict

from contrasweep.config import Config
from contrasweep.rows import Row

STATUS: Final = "contrasweep_status"
FAULT: Final = "contrasweep_fault"
"""In a result: why no trial of this study may run in this process, which ends the run."""


class RideDescription(TypedDict):
    """How a lane trains a trial: the fields of a `contrasweep.planning.lanes.Ride`, and the share of a GPU that all
    members of its place have together, 0 on a CPU."""

    runner: str
    members: int
    details: Mapping[str, str | int]
    gpu_share: float


class PlaceDescription(TypedDict, total=False):
    """What Ray reserves for a trial (resources and node labels as Ray names them), whether its host memory is limited,
    and how a lane trains it, if one does; {} of a trial that only lends its settings."""

    resources: Mapping[str, float]
    labels: Mapping[str, str]
    limit_host_memory: bool
    ride: RideDescription


class TrialFields(TypedDict):
    """The fields of a `Trial` that its study and dataset do not say."""

    arm: str
    trainable: str
    config: Config
    fold: int | None
    seed: int


class TrialDescription(TypedDict):
    """A trial as Tune's config: its id, the digest of its dataset, its place, the notes and code of its record, and
    whether nothing of it is in the storage yet, so that its worker need not ask."""

    id: str
    data: str
    place: PlaceDescription
    notes: dict[str, object]
    code: dict[str, object]
    trial: TrialFields
    fresh: bool


class RayTrial(Protocol):
    """What is asked of Ray Tune's own account of a trial; Ray is not typed."""

    config: TrialDescription
    status: str
    max_failures: int
    update_resources: Any
    should_recover: Any


class StepResult(TypedDict, total=False):
    """What a worker tells Tune after a step; `id` and `reports` always, the rest where there is something to tell."""

    id: str
    reports: list[Row]
    seconds: float
    system: list[Row]
    peers: Sequence[tuple[str, Row]]
    record: bytes
    done: bool
    contrasweep_status: str
    contrasweep_fault: str
