"""A study that is a full table."""

from collections.abc import Iterator
from typing import Annotated, Literal

import pydantic

from contrasweep.errors import SpecError, choose_from
from contrasweep.schema import checked
from contrasweep.storage.names import Label
from contrasweep.study import dotted, reserved
from contrasweep.study.arm import Arm
from contrasweep.study.cells import Cell, Grid, SubGrid, axis_leaves, cells_of, check_axes, check_zips, count, flattened
from contrasweep.study.checks import check_number, check_study
from contrasweep.study.cohort_choice import CohortChoice
from contrasweep.study.fields import Axes, Budget, Name, Seeds, SmallestDifference, Tracking
from contrasweep.study.replicates import Replicates, extended


@checked
class AblationGrid:
    """A full table: every arm at every combination of `axes`, on every fold and seed.

    `axes` are multiplied; each entry of `zipped` is a group of equally long axes that vary together and is
    multiplied with the rest; `subgrids` add cells beside the product. `folds` None evaluates on the dataset's
    own test split. `reference` is the arm that the others are compared with (default: every pair). `question` is what
    the study decides: arms over all cells (`overall`), or in each cell (`cells`); the rest is exploratory.
    `smallest_difference`, in units of the metric, is the smallest one of interest: arms that surely differ by less are
    equivalent. What the study may spend, over all its runs: `budget_hours` of wall time, `budget_gpu_hours`, and
    `budget_cost` at the inventory's prices. A trial that trains longer than `trial_hours`, or does not report for
    `report_minutes`, ends as failed.
    """

    name: Name
    arms: Annotated[dict[Name, Arm], pydantic.Field(min_length=1)]
    data: str
    axes: Axes = pydantic.Field(default_factory=dict)
    zipped: list[Axes] = pydantic.Field(default_factory=list)
    subgrids: list[SubGrid] = pydantic.Field(default_factory=list)
    folds: Annotated[int, pydantic.Field(ge=2)] | None = None
    repeats: Annotated[int, pydantic.Field(ge=1)] | None = None
    """How often the data are partitioned anew into `folds` (default 1); the trials of the first partition stay."""
    seeds: Seeds = pydantic.Field(default_factory=lambda: [0])
    replicates: Replicates | None = None
    """Replicates where they are needed; instead of a fixed number, which then is `most` at most."""
    metric: str = "accuracy"
    mode: Literal["max", "min"] = "max"
    reference: str | None = None
    question: Literal["overall", "cells"] = "overall"
    smallest_difference: SmallestDifference | None = None
    alpha: Annotated[float, pydantic.Field(gt=0, lt=0.5)] = 0.05
    description: str = ""
    labels: dict[Label, Label] | None = None
    """What arms, axes, their values, metrics and datasets are called where people read them: tables, reports, a run as
    it is watched. JSON, frames and CSV keep the declared names."""
    tracking: Tracking = None
    """Where runs are shown, where the command does not say: an address, or several; see `contrasweep list trackers`."""
    max_failures: Annotated[int, pydantic.Field(ge=0)] = 3
    budget_hours: Budget | None = None
    budget_gpu_hours: Budget | None = None
    budget_cost: Budget | None = None
    trial_hours: Budget | None = None
    report_minutes: Budget | None = None
    process: Literal["shared", "own"] = "shared"
    """Whether a process trains many trials, one after the other, or one (`own`); changes no trial's id."""
    cohort: CohortChoice | None = None
    """Whether trials of equal shapes train several as one network (`off` unless set); changes no trial's id."""
    type: Literal["ablation_grid"] = "ablation_grid"

    def __post_init__(self) -> None:
        check_study(self, self.seeds, "seeds")
        check_number(self.cell_count(), self._seeds_most() * self._partitions() * (self.folds or 1))
        check_zips(self.zipped)
        self._check_repeats()
        for arm_name, arm in self.arms.items():
            if arm.space:
                raise SpecError(
                    "an AblationGrid searches nothing",
                    place=f"arms.{arm_name}.space",
                    value=list(arm.space),
                    hint="make its keys axes, or declare a Sweep",
                )
        reserved.check_metric(self.metric)
        for place, names, axes, extra in self._grids():
            where = f"{place}.axes".lstrip(".")
            for axis in axes:
                reserved.check_axis(axis, [self.metric], f"{where}.{axis}")
            check_axes(axes, where)
            for arm_name in names:
                if arm_name not in self.arms:
                    raise SpecError(
                        "there is no such arm",
                        place=f"{place}.arms",
                        value=arm_name,
                        hint=choose_from("arms", list(self.arms), arm_name),
                    )
                set_by_config = dotted.leaves(dotted.merge(self.arms[arm_name].config, extra))
                for axis, leaves in axes.items():
                    if problem := dotted.clash(leaves, set_by_config):
                        problem = "both set it" if problem == f"both set {axis}" else problem
                        raise SpecError(
                            f"axis {axis!r} and the config of arm {arm_name!r} {problem}",
                            place=f"{where}.{axis}",
                            value=axis,
                        )

    def _check_repeats(self) -> None:
        of_repeats = self.replicates is not None and self.replicates.of == "repeats"
        if of_repeats and self.repeats is not None:
            raise SpecError(
                "`repeats` and `replicates` both say how often the data are partitioned",
                place="repeats",
                value=self.repeats,
                hint="leave one of them out",
            )
        if self.replicates is not None and not of_repeats:
            self.replicates.check_seeds(self.seeds, "seeds")
        if (self.repeats is not None or of_repeats) and self.folds is None:
            raise SpecError(
                "there are no folds to repeat",
                place="repeats" if self.repeats is not None else "replicates.of",
                value=self.repeats or "repeats",
                hint="set folds",
            )

    def _seeds_most(self) -> int:
        """How many seeds a cell may get."""
        return self.replicates.most if self.replicates and self.replicates.of == "seeds" else len(self.seeds)

    def _partitions(self) -> int:
        """How many partitions into folds a cell may get."""
        return self.replicates.most if self.replicates and self.replicates.of == "repeats" else self.repeats or 1

    @property
    def all_seeds(self) -> list[int]:
        """The seeds that a cell may get."""
        return extended(self.seeds, self._seeds_most())

    @property
    def all_folds(self) -> list[int] | list[None]:
        """The folds of all partitions that a cell may get: fold f of partition r is number `r * folds + f`."""
        if self.folds is None:
            return [None]
        return list(range(self.folds * self._partitions()))

    @property
    def axis_names(self) -> list[str]:
        """All axes in order of declaration: the product's, the zips', then the sub-grids'."""
        return list(dict.fromkeys(axis for _, _, axes, _ in self._grids() for axis in axes))

    def _grids(self) -> Iterator[Grid]:
        """Each grid as (place, arm names, what each axis sets, extra config), sub-grids flattened."""
        yield "", list(self.arms), axis_leaves(self.axes, self.zipped), {}
        yield from flattened(self.subgrids, "subgrids", list(self.arms), {})

    def cell_count(self) -> int:
        """How many cells the grid has, those that come more than once counted each time."""
        return count(len(self.arms), self.axes, self.zipped, self.subgrids)

    def cells(self) -> Iterator[Cell]:
        """Each cell as (arm, axis values, extra config), in table order; a cell may come more than once."""
        yield from cells_of(list(self.arms), self.axes, self.zipped, self.subgrids, {})
