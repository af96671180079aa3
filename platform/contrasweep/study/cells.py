"""The cells of a table: axes multiplied, zipped axes, and sub-grids beside the product."""

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import pydantic

from contrasweep.config import Config, MutableConfig
from contrasweep.errors import SpecError
from contrasweep.schema import checked
from contrasweep.study import dotted
from contrasweep.study.fields import DATA_AXIS, Axes

Cell = tuple[str, MutableConfig, MutableConfig]
"""Arm, values of the axes, and what the sub-grids add to the config."""
Grid = tuple[str, list[str], dict[str, set[dotted.Leaf]], Config]
"""Its place in the study, the names of its arms, what each axis sets, and what it adds to the config."""


@checked
class SubGrid:
    """More cells beside the product: these axes and zips for `arms` (default: all), with `config` on top.

    Sub-grids nest: an inner one takes over its outer one's arms and config, not its axes.
    """

    arms: list[str] | None = None
    config: MutableConfig = pydantic.Field(default_factory=dict)
    axes: Axes = pydantic.Field(default_factory=dict)
    zipped: list[Axes] = pydantic.Field(default_factory=list)
    subgrids: list["SubGrid"] = pydantic.Field(default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "config", dotted.expand(self.config, "config"))
        check_zips(self.zipped)


def count(arms: int, axes: Axes, zipped: list[Axes], subgrids: list[SubGrid]) -> int:
    """How many cells so many arms have, those that come more than once counted each time."""
    lengths = [*map(len, axes.values()), *(min(map(len, group.values()), default=0) for group in zipped)]
    own = arms * math.prod(lengths) if lengths or not subgrids else 0
    inner = (count(arms if g.arms is None else len(g.arms), g.axes, g.zipped, g.subgrids) for g in subgrids)
    return own + sum(inner)


def check_zips(zipped: list[dict[str, list[Any]]]) -> None:
    """Check that the axes of each zipped group are equally long. Raises `SpecError`."""
    for i, group in enumerate(zipped):
        lengths = {axis: len(values) for axis, values in group.items()}
        if not group or len(set(lengths.values())) > 1:
            raise SpecError("zipped axes must be equally long", place=f"zipped.{i}", value=lengths)


def axis_leaves(axes: Axes, zipped: list[Axes]) -> dict[str, set[dotted.Leaf]]:
    """What each axis sets; the axis of datasets sets nothing of the config. Raises `SpecError` if one stands twice."""
    groups = [axes, *zipped]
    names = [axis for group in groups for axis in group]
    for axis in names:
        if names.count(axis) > 1:
            raise SpecError("an axis stands in one place only", place=f"axes.{axis}", value=axis)
    return {
        axis: set() if axis == DATA_AXIS else dotted.leaves(*(dotted.nest(axis, value) for value in values))
        for group in groups
        for axis, values in group.items()
    }


def check_axes(axes: Mapping[str, set[dotted.Leaf]], place: str) -> None:
    """Check that no two axes set the same, nor the inside of what another sets to a plain value. Raises `SpecError`."""
    for one, other in itertools.combinations(axes, 2):
        if problem := dotted.clash(axes[one], axes[other]):
            raise SpecError(f"axes {one!r} and {other!r} {problem}", place=f"{place}.{other}", value=other)


def flattened(grids: list[SubGrid], place: str, arms: list[str], config: Config) -> Iterator[Grid]:
    """Each sub-grid of `grids`, which stand at `place`, and those inside it."""
    for i, grid in enumerate(grids):
        here, names = f"{place}.{i}", grid.arms if grid.arms is not None else arms
        extra = dotted.merge(config, grid.config)
        yield here, names, axis_leaves(grid.axes, grid.zipped), extra
        yield from flattened(grid.subgrids, f"{here}.subgrids", names, extra)


def cells_of(
    arms: list[str], axes: Axes, zipped: list[Axes], subgrids: list[SubGrid], config: MutableConfig
) -> Iterator[Cell]:
    """Each cell of `arms` at the axes and at the sub-grids, in table order; a cell may come more than once."""
    if axes or zipped or not subgrids:
        points = list(_product(axes, zipped))
        yield from ((arm, point, config) for arm in arms for point in points)
    for grid in subgrids:
        names = grid.arms if grid.arms is not None else arms
        yield from cells_of(names, grid.axes, grid.zipped, grid.subgrids, dotted.merge(config, grid.config))


def _product(axes: Axes, zipped: list[Axes]) -> Iterator[MutableConfig]:
    """Every combination of the axes and of the zipped groups, the last varying fastest."""
    groups = [[{axis: value} for value in values] for axis, values in axes.items()]
    groups += [[dict(zip(group, row, strict=True)) for row in zip(*group.values(), strict=True)] for group in zipped]
    for combination in itertools.product(*groups):
        yield {axis: value for part in combination for axis, value in part.items()}
