"""What holds for every kind of study."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from contrasweep.errors import SpecError, choose_from
from contrasweep.study import reserved
from contrasweep.study.arm import Arm
from contrasweep.study.objectives import metric_range

MAX_CELLS = 50_000
MAX_TRIALS = 200_000


class Declared(Protocol):
    """The fields that every kind of study has and that are checked alike."""

    @property
    def name(self) -> str:
        """Its name in the storage."""

    @property
    def arms(self) -> Mapping[str, Arm]:
        """Its arms by name."""

    @property
    def metric(self) -> str:
        """What is compared."""

    @property
    def reference(self) -> str | None:
        """The arm that the others are compared with."""

    @property
    def smallest_difference(self) -> float | None:
        """The smallest difference of interest, in units of the metric."""


def check_study(study: Declared, seeds: Sequence[int], field: str) -> None:
    """Check what every kind of study has, and its `seeds`, which stand in `field`. Raises `SpecError`."""
    reserved.check_study_name(study.name)
    reserved.check_arms(study.arms)
    if len(set(seeds)) != len(seeds):
        raise SpecError("seeds must differ from each other", place=field, value=list(seeds))
    if study.reference is not None and study.reference not in study.arms:
        raise SpecError(
            "the reference must be an arm",
            place="reference",
            value=study.reference,
            hint=choose_from("arms", list(study.arms), study.reference),
        )

    bounds = metric_range(study.metric)
    if study.smallest_difference is not None and bounds and study.smallest_difference >= bounds[1] - bounds[0]:
        raise SpecError(
            f"the smallest difference of interest is less than the range of {study.metric}, which is from "
            f"{bounds[0]:g} to {bounds[1]:g}",
            place="smallest_difference",
            value=study.smallest_difference,
            hint="it is in units of the metric, not in percent",
        )


def check_number(cells: int, replicates: int, place: str = "axes, folds, seeds") -> None:
    """Refuse what nobody can mean, and what would take minutes to write down."""
    if cells > MAX_CELLS or cells * replicates > MAX_TRIALS:
        raise SpecError(
            f"a study has at most {MAX_CELLS:,} cells and {MAX_TRIALS:,} trials",
            place=place,
            value=f"{cells:,} cells of {replicates:,} replicates",
            hint="declare several studies",
        )
