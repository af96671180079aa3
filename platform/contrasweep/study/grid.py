"""A study that is a full table: all combinations of axes, axes that vary together, and sub-grids."""

import itertools
import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple

import pydantic

from contrasweep import canonical
from contrasweep.config import MutableConfig
from contrasweep.errors import SpecError
from contrasweep.schema import checked
from contrasweep.study import dotted
from contrasweep.study.base import (
    MEASURED_COLUMNS,
    TABLE_COLUMNS,
    Reason,
    Seeds,
    StudyBase,
    check_trial_count,
)
from contrasweep.study.replicates import Positive, extended

DATA_AXIS = "data"
"""An axis of this name varies the dataset; every other axis varies a config key."""


def _with_datasets_named(axes: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return `axes` unchanged; raise `SpecError` where a value of the axis `data` is no text.

    Its values are names of datasets.
    """
    for i, name in enumerate(axes.get(DATA_AXIS, ())):
        if not isinstance(name, str):
            hint = "null names none" if name is None else "for example digits-lt"
            raise SpecError(
                "the name of a dataset is text", place=f"{DATA_AXIS}.{i}", value=name, hint=hint
            )
    return axes


Axes = Annotated[
    dict[str, Annotated[list[Any], pydantic.Field(min_length=1)]],
    pydantic.AfterValidator(_with_datasets_named),
]


class CellConfig(NamedTuple):
    """A cell of a grid as it is declared: its arm, the name of its dataset, its axes' values, its config.

    `axes` has all axes of the grid. An axis that the cell does not vary has the value that `config` has for this
    setting; None where `config` lacks it.
    """

    arm: str
    data: str
    axes: MutableConfig
    config: canonical.Config


class DeclaredCell(NamedTuple):
    """A cell as the grid or a sub-grid declares it. Two of them may give the same `CellConfig`."""

    arm: str
    axes: MutableConfig  # axis -> value
    added: MutableConfig  # what the sub-grids add to the config


class PlacedGrid(NamedTuple):
    """A grid or sub-grid with its place in the study.

    It has also the arms and settings that come from the grids around it.
    """

    place: str  # in the study; "": the grid itself
    arms: list[str]
    grid: "AblationGrid | SubGrid"
    added: MutableConfig  # what it and the sub-grids around it add to the config of an arm


@checked
class SubGrid:
    """More cells beside the combinations of a grid's axes.

    Args:
        arms: The arms of these cells. Default: those of the sub-grid around it, or all.
        config: Settings on top of the arms' own, and of the sub-grid's around it.
        axes: Setting -> values, in all combinations.
        zipped: Groups of equally long axes that vary together.
        subgrids: Sub-grids of this one. They take over its arms and config, not its axes.

    Example:
        >>> import contrasweep as cs
        >>> cs.SubGrid(arms=["scl"], axes={"loss.temperature": [0.05, 0.5]}).arms
        ['scl']
    """

    arms: Annotated[list[str], pydantic.Field(min_length=1)] | None = None
    config: MutableConfig = pydantic.Field(default_factory=dict)
    axes: Axes = pydantic.Field(default_factory=dict)
    zipped: list[Axes] = pydantic.Field(default_factory=list)
    subgrids: list["SubGrid"] = pydantic.Field(default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "config", dotted.expand(self.config, "config"))
        check_zips(self.zipped)


@checked
class AblationGrid(StudyBase):
    """A full table: every arm at every combination of `axes`, on every fold and seed.

    Args:
        axes: Setting -> values, in all combinations. Keys may be dotted; the axis `data` varies the dataset.
        zipped: Groups of equally long axes that vary together; each group is combined with the other axes.
        subgrids: More cells beside these combinations.
        repeats: How often the data are partitioned anew into `folds`. The trials of the first partition stay.
        seeds: Seeds of initial weights, data order and augmentation, such as [0, 1], each on every fold.
        excluded: Seed -> why it is left out, which the table says: `{3: power cut in the lab}`. A seed that is excluded
            after other trials have ended counts as a look. A seed cannot be excluded once a trial with it has begun.
        question: Whether the study decides arms over all cells (`overall`) or in each cell (`cells`). The rest is
            exploratory.
        type: The kind of study, for files: `ablation_grid`.

    Raises:
        SpecError: A field breaks a rule. The message is one line: place, rule, value, and what would have worked.

    Example:
        >>> import contrasweep as cs
        >>> arms = {"scl": cs.Arm("contrastive", {"loss": "supcon"}), "ocl": cs.Arm("contrastive", {"loss": "ocl"})}
        >>> grid = cs.AblationGrid("temperatures", arms, "digits-lt", {"loss.temperature": [0.1, 0.2]}, folds=5)
        >>> grid.cell_count()
        4
    """

    axes: Axes = pydantic.Field(default_factory=dict)
    zipped: list[Axes] = pydantic.Field(default_factory=list)
    subgrids: list[SubGrid] = pydantic.Field(default_factory=list)
    repeats: Positive | None = None
    seeds: Seeds = pydantic.Field(default_factory=lambda: [0])
    excluded: dict[int, Reason] = pydantic.Field(default_factory=dict)
    question: Literal["overall", "cells"] = "overall"
    type: Literal["ablation_grid"] = "ablation_grid"

    def __post_init__(self) -> None:
        self.check_shared(self.seeds, "seeds")
        # Before anything lists the cells, which takes minutes for millions of them.
        check_trial_count(
            self.cell_count(), self._most_seeds() * self._most_partitions() * (self.folds or 1)
        )
        check_zips(self.zipped)
        self._check_repeats()
        # Excluded seeds are a proper subset (`<`): at least one seed is left. A study with `replicates` grows, so it
        # has no fixed size.
        if self.excluded and (self.replicates or not self.excluded.keys() < set(self.seeds)):
            raise SpecError(
                "some of the seeds may be excluded, of a study of a fixed size",
                place="excluded",
                value=list(self.excluded),
                hint=f"seeds are {self.seeds}",
            )
        for arm_name, arm in self.arms.items():
            for field in ("space", "start_points"):
                if searched := getattr(arm, field):
                    raise SpecError(
                        "an AblationGrid searches nothing",
                        place=f"arms.{arm_name}.{field}",
                        value=list(searched),
                        hint="make its keys axes, or declare a Sweep",
                    )
        for placed in self._grids():
            self._check_keys(placed)

    def _check_keys(self, placed: PlacedGrid) -> None:
        """Raise `SpecError` where the axes of a grid or sub-grid cannot be used.

        That is where two axes set the same key, or an axis and the config of an arm do (`dotted.clash`). It is also
        where an axis has a name that it cannot have, or a value twice, and where an arm is not in the study.
        """
        place_of_axes = f"{placed.place}.axes".lstrip(".")
        axes = axis_leaves(axis_groups(placed.grid))
        for axis in axes:
            place = f"{place_of_axes}.{axis}"
            self._check_axis(axis, place)
            # A zipped axis is not in `axes`: its values may come again, each time with other values beside them.
            values = placed.grid.axes.get(axis, [])
            if len({*map(repr, canonical.canonical(values, place))}) < len(values):
                rule = "values of an axis must differ from each other"
                raise SpecError(rule, place=place, value=values)
        for first, other in itertools.combinations(axes, 2):
            problem = dotted.clash(axes[first], axes[other])
            if problem:
                raise SpecError(
                    f"axes {first!r} and {other!r} {problem}",
                    place=f"{place_of_axes}.{other}",
                    value=other,
                )
        for arm in placed.arms:
            self.check_arm(arm, f"{placed.place}.arms")
            set_by_config = dotted.leaves(dotted.merge(self.arms[arm].config, placed.added))
            for axis, leaves in axes.items():
                problem = dotted.clash(leaves, set_by_config, axis)
                if problem:
                    raise SpecError(
                        f"axis {axis!r} and the config of arm {arm!r} {problem}",
                        place=f"{place_of_axes}.{axis}",
                        value=axis,
                        hint="leave it out of the config, or of the axes",
                    )

    def _check_axis(self, axis: str, place: str) -> None:
        """Raise `SpecError` at `place` where an axis cannot have its name.

        It cannot be the name of the metric, or of another column of tables, because axes are columns too. Nor can it be
        empty, longer than 200 characters, or not printable.
        """
        if axis in (*TABLE_COLUMNS, *MEASURED_COLUMNS) or axis.startswith("metric."):
            hint = (
                "seeds: [0, 1, 2] and folds: 5 are fields of the study"
                if axis in ("seed", "fold")
                else ""
            )
            raise SpecError(
                "no axis has this name, which is a column of every table",
                place=place,
                value=axis,
                hint=hint,
            )
        if axis == self.metric:
            raise SpecError(
                "an axis and the metric have one name",
                place=place,
                value=axis,
                hint="rename the metric",
            )
        if not axis.isprintable() or len(axis) > 200 or not axis:
            raise SpecError("an axis is a setting's name", place=place[:100], value=axis)

    def _check_repeats(self) -> None:
        """Raise `SpecError` where both `repeats` and `replicates` repeat the folds, or where there are no folds."""
        # `replicates` adds seeds or repeats.
        of_repeats = self.replicates is not None and self.replicates.of == "repeats"
        if of_repeats and self.repeats is not None:
            raise SpecError(
                "`repeats` and `replicates` both say how often the data are partitioned",
                place="repeats",
                value=self.repeats,
                hint="leave one of them out",
            )
        if (self.repeats is not None or of_repeats) and self.folds is None:
            raise SpecError(
                "there are no folds to repeat",
                place="repeats" if self.repeats is not None else "replicates.of",
                value=self.repeats or "repeats",
                hint="set folds",
            )

    def _most_seeds(self) -> int:
        """Return how many seeds a cell has at most.

        With `replicates` of seeds these are the seeds at the last look, else all declared ones.
        """
        if self.replicates and self.replicates.of == "seeds":
            return self.replicates.most
        return len(self.seeds)

    def _most_partitions(self) -> int:
        """Return how many partitions of the data into folds a cell has at most: 1 without repeats."""
        if self.replicates and self.replicates.of == "repeats":
            return self.replicates.most
        return self.repeats or 1

    @property
    def all_seeds(self) -> list[int]:
        """The seeds that a cell can have: the declared ones, and after them those that `replicates` may add.

        Excluded seeds are left out.
        """
        seeds = [seed for seed in self.seeds if seed not in self.excluded]
        return extended(seeds, self._most_seeds() - len(self.excluded))

    @property
    def all_folds(self) -> list[int] | list[None]:
        """The folds of all partitions that a cell may get: fold f of partition r is number `r * folds + f`.

        [None] for a study without folds, whose trials use the dataset's own test split.
        """
        if self.folds is None:
            return [None]
        return list(range(self.folds * self._most_partitions()))

    @property
    def axis_names(self) -> list[str]:
        """The names of all axes: those of the grid, then those of its sub-grids, each once.

        In a grid, the axes of `axes` come before those of `zipped`.
        """
        groups = (group for placed in self._grids() for group in axis_groups(placed.grid))
        return list(dict.fromkeys(axis for group in groups for axis in group))

    def _grids(self) -> Iterator[PlacedGrid]:
        """Yield the grid and then its sub-grids at any depth, in the order of the table's rows."""
        return flattened(PlacedGrid("", list(self.arms), self, {}))

    def cell_count(self) -> int:
        """Return how many cells the grid declares; a cell that is declared twice is counted twice.

        A grid that has sub-grids and no axes of its own has only the cells of these.
        """
        total = 0
        for _, arms, grid, _ in self._grids():
            # The shortest axis of a zipped group serves here: unequal ones are refused elsewhere.
            lengths = [min(map(len, group.values()), default=0) for group in axis_groups(grid)]
            if lengths or not grid.subgrids:
                total += len(arms) * math.prod(lengths)
        return total

    def cells(self) -> Iterator[DeclaredCell]:
        """Yield each declared cell, in the order of the table's rows; the same cell may be declared more than once.

        A grid without axes has one cell for each arm; but one that has sub-grids too has only the cells of these.
        """
        for _, arms, grid, added in self._grids():
            groups = axis_groups(grid)
            if groups or not grid.subgrids:
                points = list(_product(groups))
                yield from (DeclaredCell(arm, point, added) for arm in arms for point in points)

    def configs(self) -> Iterator[CellConfig]:
        """Yield each different cell once, in the order of the table's rows; sub-grids may declare a cell again.

        Two cells are the same if they have the same arm, the same value of the axis `data` and the same config. Raises
        `SpecError` where a config has a value that is no plain one.
        """
        seen = set()
        names = self.axis_names
        for arm, axes, added in self.cells():
            # `data` is an axis of the table and no setting: it chooses the dataset.
            data = axes.get(DATA_AXIS, self.data)
            values = (dotted.nest(axis, value) for axis, value in axes.items() if axis != DATA_AXIS)
            # Later ones win: settings of the arm, those that sub-grids add, those of the axes.
            config = canonical.Config(
                dotted.merge(self.arms[arm].config, added, *values), f"arms.{arm}.config"
            )
            key = (arm, axes.get(DATA_AXIS), config.text)
            if key not in seen:
                seen.add(key)
                # An axis of another sub-grid has the value that this cell's config gives it.
                shown = {
                    axis: axes[axis] if axis in axes else dotted.lookup(config, axis)
                    for axis in names
                }
                if DATA_AXIS in names:
                    shown[DATA_AXIS] = data
                yield CellConfig(arm, data, shown, config)


def check_zips(zipped: list[dict[str, list[Any]]]) -> None:
    """Raise `SpecError` where a zipped group has no axes, or axes of different lengths."""
    for i, group in enumerate(zipped):
        lengths = {axis: len(values) for axis, values in group.items()}
        if not group or len(set(lengths.values())) > 1:
            raise SpecError("zipped axes must be equally long", place=f"zipped.{i}", value=lengths)


def axis_groups(grid: AblationGrid | SubGrid) -> list[dict[str, list[Any]]]:
    """Return the groups of axes that are multiplied with each other, each as axis -> values.

    First come the axes of `axes`, each a group of its own, and then the groups of `zipped`.
    """
    return [*({axis: values} for axis, values in grid.axes.items()), *grid.zipped]


def axis_leaves(groups: list[dict[str, list[Any]]]) -> dict[str, set[dotted.Leaf]]:
    """Return axis -> the config keys that its values set, for all axes of these groups.

    Where a value is a mapping, these are the keys inside it. The axis of datasets sets none. Raises `SpecError` if an
    axis is declared twice.
    """
    keys: dict[str, set[dotted.Leaf]] = {}
    for group in groups:
        for axis, values in group.items():
            if axis in keys:
                raise SpecError(
                    "an axis stands in one place only", place=f"axes.{axis}", value=axis
                )
            configs = [dotted.nest(axis, value) for value in values]
            keys[axis] = set() if axis == DATA_AXIS else dotted.leaves(*configs)
    return keys


def flattened(placed: PlacedGrid) -> Iterator[PlacedGrid]:
    """Yield a grid, then the sub-grids inside it at any depth, each before the sub-grids of its own.

    A sub-grid that names no arms takes over the arms of the grid around it.
    """
    yield placed
    for i, inner in enumerate(placed.grid.subgrids):
        # The outermost grid has the place "", before which no dot stands.
        yield from flattened(
            PlacedGrid(
                f"{placed.place}.subgrids.{i}".lstrip("."),
                placed.arms if inner.arms is None else inner.arms,
                inner,
                dotted.merge(placed.added, inner.config),
            )
        )


def _product(groups: list[dict[str, list[Any]]]) -> Iterator[MutableConfig]:
    """Yield every combination of these groups of axes as axis -> value, the last varying fastest.

    One empty combination where there is no group.
    """
    # All points of each group as mappings, of one axis or of several.
    points = [
        [dict(zip(group, row, strict=True)) for row in zip(*group.values(), strict=True)]
        for group in groups
    ]
    for combination in itertools.product(*points):
        yield {axis: value for part in combination for axis, value in part.items()}
