"""The place of a cohort: the cohort in a trial's description."""

from typing import NamedTuple

from contrasweep.running.run_context import TrialDescription


class CohortPlace(NamedTuple):
    """A cohort; `gpu_share` is that of all its members together, 0 where it trains on a CPU."""

    key: str
    slots: int
    engine: str
    gpu_share: float


def cohort_place(described: TrialDescription) -> CohortPlace:
    """Return the cohort of a trial that is described with a ride of `contrasweep.trainables.fusing.lane`."""
    ride = described["place"]["ride"]
    return CohortPlace(str(ride["details"]["key"]), ride["members"], str(ride["details"]["engine"]), ride["gpu_share"])
