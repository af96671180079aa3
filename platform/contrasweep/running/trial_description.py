"""What travels between the driver, Ray Tune and the workers, as plain values: Tune copies and snapshots it often."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypedDict

from contrasweep.config import Config
from contrasweep.rows import Row

STATUS: Final = "contrasweep_status"
FAULT: Final = "contrasweep_fault"
"""In a result: why no trial of this study may run in this process, which ends the run."""


class CohortPlace(TypedDict):
    """The cohort that a fused trial joins; `gpu_share` is that of the whole cohort, 0 where it trains on a CPU."""

    key: str
    slots: int
    engine: str
    gpu_share: float


class PlaceDescription(TypedDict, total=False):
    """What Ray reserves for a trial (resources and node labels as Ray names them), whether its host memory is limited,
    and of a fused trial its cohort; {} of a trial that is only probed."""

    resources: Mapping[str, float]
    labels: Mapping[str, str]
    limit_host_memory: bool
    cohort: CohortPlace


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
