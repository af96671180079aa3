"""What a researcher declares: an `AblationGrid` (a full table) or a `Sweep` (a search per arm, then a confirmation).

Python objects and YAML have the same fields; both are checked here, before anything is spent.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

import pydantic

from cluster.footprint import Footprint
from contrasweep.canonical import canonical
from contrasweep.errors import SpecError, choose_from
from contrasweep.schema import checked
from contrasweep.study import dotted
from contrasweep.study import space as spaces
from contrasweep.study.arm_budget import ArmBudget
from contrasweep.study.objectives import violation
from contrasweep.study.space import Parameter

Name = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
Values = Annotated[list[Any], pydantic.Field(min_length=1)]
Axes = dict[str, Values]
Seeds = Annotated[list[Annotated[int, pydantic.Field(ge=0)]], pydantic.Field(min_length=1)]
Budget = Annotated[float, pydantic.Field(gt=0)]

DATA_AXIS = "data"
"""An axis of this name varies the dataset; every other axis varies a config key."""


@checked
class Arm:
    """One method: a trainable (dotted path `package.module:function`, or the function), its fixed settings,
    the space a Sweep searches, and what a trial of it needs (measured and refined by the platform).

    `config` may have dotted keys, and is nested afterwards; the keys of `space` are dotted."""

    trainable: str | Callable[..., Any]
    config: dict[str, Any] = pydantic.Field(default_factory=dict)
    space: Mapping[str, Parameter] = pydantic.Field(default_factory=dict)
    footprint: Footprint | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "config", dotted.expand(self.config, "config"))
        canonical(self.config, "config")
        spaces.check(self.space, self.config)
        for name, parameter in self.space.items():
            if problem := dotted.clash(spaces.settings(name, parameter), dotted.leaves(self.config)):
                hint = "" if problem == f"both set {name}" else f"the space and the config {problem}"
                raise SpecError(
                    "a key is either fixed or searched, not both", place=f"space.{name}", value=name, hint=hint
                )
        if isinstance(self.trainable, str) and self.trainable.count(":") != 1:
            raise SpecError(
                "a trainable is a dotted path package.module:function",
                place="trainable",
                value=self.trainable,
                hint="for example 'trainables.contrastive:train'",
            )


@checked
class SubGrid:
    """More cells beside the product: these axes and zips for `arms` (default: all), with `config` on top.

    Sub-grids nest: an inner one takes over its outer one's arms and config, not its axes.
    """

    arms: list[str] | None = None
    config: dict[str, Any] = pydantic.Field(default_factory=dict)
    axes: Axes = pydantic.Field(default_factory=dict)
    zipped: list[Axes] = pydantic.Field(default_factory=list)
    subgrids: list["SubGrid"] = pydantic.Field(default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "config", dotted.expand(self.config, "config"))
        _check_zips(self.zipped)


@checked
class AblationGrid:
    """A full table: every arm at every combination of `axes`, on every fold and seed.

    `axes` are multiplied; each entry of `zipped` is a group of equally long axes that vary together and is
    multiplied with the rest; `subgrids` add cells beside the product. `folds` None evaluates on the dataset's
    own test split. `reference` is the arm that the others are compared with (default: every pair). What the study may
    spend, over all its runs: `budget_hours` of wall time, `budget_gpu_hours`, and `budget_cost` at the inventory's
    prices.
    """

    name: Name
    arms: Annotated[dict[Name, Arm], pydantic.Field(min_length=1)]
    data: str
    axes: Axes = pydantic.Field(default_factory=dict)
    zipped: list[Axes] = pydantic.Field(default_factory=list)
    subgrids: list[SubGrid] = pydantic.Field(default_factory=list)
    folds: Annotated[int, pydantic.Field(ge=2)] | None = None
    seeds: Seeds = pydantic.Field(default_factory=lambda: [0])
    metric: str = "accuracy"
    mode: Literal["max", "min"] = "max"
    reference: str | None = None
    alpha: Annotated[float, pydantic.Field(gt=0, lt=0.5)] = 0.05
    description: str = ""
    max_failures: Annotated[int, pydantic.Field(ge=0)] = 3
    budget_hours: Budget | None = None
    budget_gpu_hours: Budget | None = None
    budget_cost: Budget | None = None
    type: Literal["ablation_grid"] = "ablation_grid"

    def __post_init__(self) -> None:
        _check_study(self)
        _check_zips(self.zipped)
        for arm_name, arm in self.arms.items():
            if arm.space:
                raise SpecError(
                    "an AblationGrid searches nothing",
                    place=f"arms.{arm_name}.space",
                    value=list(arm.space),
                    hint="make its keys axes, or declare a Sweep",
                )
        for place, names, axes, extra in self._grids():
            where = f"{place}.axes".lstrip(".")
            _check_axes(axes, where)
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

    @property
    def axis_names(self) -> list[str]:
        """All axes in order of declaration: the product's, the zips', then the sub-grids'."""
        return list(dict.fromkeys(axis for _, _, axes, _ in self._grids() for axis in axes))

    def _grids(self) -> Iterator[tuple[str, list[str], dict[str, set[dotted.Leaf]], Mapping[str, Any]]]:
        """Each grid as (place, arm names, what each axis sets, extra config), sub-grids flattened."""
        yield "", list(self.arms), _axis_leaves(self.axes, self.zipped), {}
        yield from _subgrids(self.subgrids, "subgrids", list(self.arms), {})

    def cells(self) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
        """Each cell as (arm, axis values, extra config), in table order; a cell may come more than once."""
        yield from _cells(list(self.arms), self.axes, self.zipped, self.subgrids, {})


@checked
class Sweep:
    """A search per arm under equal budgets, then a confirmation of each arm's best on fresh seeds and all folds.

    Only the confirmation reaches the table. `searcher` and `pruner` are names (`contrasweep list searchers`)
    or `package.module:Class`; `freeze` maps an arm to the arm whose tuned settings it starts from, so that an
    add-on is tuned on a frozen base; `warm_start` names earlier studies in the same storage.

    Each arm's search has the same `budget`; `trials_per_arm` is short for one of so many configurations. It never sees
    the test split: it looks at `search_folds`, or at the dataset's dev split where there are no folds. The confirmation
    is on the held-out part of every fold, or, if `confirm_on` is `test`, on the test split after training on all else.

    `objectives` (metric -> mode, `metric` among them) are searched at once; `constraints` (metric -> `<= 2.0` or
    `>= 0.5`) have to hold. Of the feasible configurations the best by `metric` is confirmed.
    """

    MOVED: ClassVar[Mapping[str, str]] = {"scheduler": "pruner", "scheduler_options": "pruner_options"}

    name: Name
    arms: Annotated[dict[Name, Arm], pydantic.Field(min_length=1)]
    data: str
    trials_per_arm: Annotated[int, pydantic.Field(ge=1)] | None = None
    budget: ArmBudget | None = None
    searcher: str = "tpe"
    searcher_options: dict[str, Any] = pydantic.Field(default_factory=dict)
    pruner: str | None = None
    pruner_options: dict[str, Any] = pydantic.Field(default_factory=dict)
    folds: Annotated[int, pydantic.Field(ge=2)] | None = None
    search_folds: Annotated[list[int], pydantic.Field(min_length=1)] | None = None
    search_seed: Annotated[int, pydantic.Field(ge=0)] = 0
    confirm_seeds: Seeds = pydantic.Field(default_factory=lambda: [1000, 1001, 1002, 1003, 1004])
    confirm_on: Literal["folds", "test"] = "folds"
    metric: str = "accuracy"
    mode: Literal["max", "min"] = "max"
    objectives: dict[str, Literal["max", "min"]] = pydantic.Field(default_factory=dict)
    constraints: dict[str, str] = pydantic.Field(default_factory=dict)
    reference: str | None = None
    freeze: dict[str, str] = pydantic.Field(default_factory=dict)
    warm_start: list[str] = pydantic.Field(default_factory=list)
    alpha: Annotated[float, pydantic.Field(gt=0, lt=0.5)] = 0.05
    description: str = ""
    max_failures: Annotated[int, pydantic.Field(ge=0)] = 3
    budget_hours: Budget | None = None
    budget_gpu_hours: Budget | None = None
    budget_cost: Budget | None = None
    type: Literal["sweep"] = "sweep"

    def __post_init__(self) -> None:
        _check_study(self)
        if self.search_seed in self.confirm_seeds:
            raise SpecError(
                "the confirmation needs fresh seeds, none that the search saw",
                place="confirm_seeds",
                value=self.search_seed,
                hint=f"leave {self.search_seed} out or change search_seed",
            )
        for fold in self.search_folds or []:
            if self.folds is None or not 0 <= fold < self.folds:
                raise SpecError(
                    "search_folds name folds of the study",
                    place="search_folds",
                    value=fold,
                    hint=f"folds is {self.folds}",
                )
        if self.trials_per_arm is None and self.budget is None:
            raise SpecError(
                "a search needs a budget for each arm",
                place="budget",
                hint="for example trials_per_arm: 40, or budget: {epochs: 2000} or {gpu_hours: 4}",
            )
        if self.trials_per_arm is not None and self.budget is not None and self.budget.trials is not None:
            raise SpecError(
                "trials_per_arm and budget.trials say the same", place="trials_per_arm", value=self.trials_per_arm
            )
        self._check_goals()
        for arm, base in self.freeze.items():
            for name in (arm, base):
                if name not in self.arms:
                    raise SpecError(
                        "there is no such arm",
                        place=f"freeze.{arm}",
                        value=name,
                        hint=choose_from("arms", list(self.arms), name),
                    )

    def _check_goals(self) -> None:
        if self.objectives and self.objectives.get(self.metric) != self.mode:
            raise SpecError(
                "the metric, which chooses what is confirmed, is one of the objectives, with its mode",
                place="objectives",
                value=self.objectives,
                hint=f"add {self.metric}: {self.mode}, or set metric",
            )
        if self.pruner is not None and len(self.objectives) > 1:
            raise SpecError(
                "early stopping compares trials by one metric",
                place="pruner",
                value=self.pruner,
                hint="leave the pruner out, or search for one objective and constrain the rest",
            )
        for metric, text in self.constraints.items():
            violation(metric, text, 0.0)

    @property
    def arm_budget(self) -> ArmBudget:
        """What the search of each arm may spend."""
        given = self.budget or ArmBudget(self.trials_per_arm)
        return ArmBudget(self.trials_per_arm or given.trials, given.epochs, given.gpu_hours)

    @property
    def goals(self) -> dict[str, str]:
        """What the search optimises: metric -> mode."""
        return dict(self.objectives) or {self.metric: self.mode}

    @property
    def axis_names(self) -> list[str]:
        """A Sweep's table has arms only."""
        return []


Study = AblationGrid | Sweep


def _check_study(study: Any) -> None:
    if len(set(study.seeds if isinstance(study, AblationGrid) else study.confirm_seeds)) != len(
        study.seeds if isinstance(study, AblationGrid) else study.confirm_seeds
    ):
        raise SpecError("seeds must differ from each other", place="seeds", value=list(getattr(study, "seeds", [])))
    if study.reference is not None and study.reference not in study.arms:
        raise SpecError(
            "the reference must be an arm",
            place="reference",
            value=study.reference,
            hint=choose_from("arms", list(study.arms), study.reference),
        )


def _check_zips(zipped: list[dict[str, list[Any]]]) -> None:
    for i, group in enumerate(zipped):
        lengths = {axis: len(values) for axis, values in group.items()}
        if not group or len(set(lengths.values())) > 1:
            raise SpecError("zipped axes must be equally long", place=f"zipped.{i}", value=lengths)


def _axis_leaves(axes: Axes, zipped: list[Axes]) -> dict[str, set[dotted.Leaf]]:
    """What each axis sets; the axis of datasets sets nothing of the config."""
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


def _check_axes(axes: Mapping[str, set[dotted.Leaf]], place: str) -> None:
    """No two axes set the same, nor the inside of what another sets to a plain value."""
    for one, other in itertools.combinations(axes, 2):
        if problem := dotted.clash(axes[one], axes[other]):
            raise SpecError(f"axes {one!r} and {other!r} {problem}", place=f"{place}.{other}", value=other)


def _subgrids(grids: list[SubGrid], place: str, arms: list[str], config: Mapping[str, Any]) -> Iterator[Any]:
    for i, grid in enumerate(grids):
        here, names = f"{place}.{i}", grid.arms if grid.arms is not None else arms
        extra = dotted.merge(config, grid.config)
        yield here, names, _axis_leaves(grid.axes, grid.zipped), extra
        yield from _subgrids(grid.subgrids, f"{here}.subgrids", names, extra)


def _cells(
    arms: list[str], axes: Axes, zipped: list[Axes], subgrids: list[SubGrid], config: dict[str, Any]
) -> Iterator[Any]:
    if axes or zipped or not subgrids:
        points = list(_product(axes, zipped))
        yield from ((arm, point, config) for arm in arms for point in points)
    for grid in subgrids:
        names = grid.arms if grid.arms is not None else arms
        yield from _cells(names, grid.axes, grid.zipped, grid.subgrids, dotted.merge(config, grid.config))


def _product(axes: Axes, zipped: list[Axes]) -> Iterator[dict[str, Any]]:
    """Every combination of the axes and of the zipped groups, the last varying fastest."""
    groups = [[{axis: value} for value in values] for axis, values in axes.items()]
    groups += [[dict(zip(group, row, strict=True)) for row in zip(*group.values(), strict=True)] for group in zipped]
    for combination in itertools.product(*groups):
        yield {axis: value for part in combination for axis, value in part.items()}
