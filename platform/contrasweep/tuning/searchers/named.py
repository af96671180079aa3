"""The searchers that a study can name, such as `tpe`, and the function that builds one by its name."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import numpy as np

from contrasweep.config import Config, MutableConfig
from contrasweep.errors import SpecError, check_known
from contrasweep.imports import build_part, import_path
from contrasweep.study.space import FINITE_LIMIT, Space, product, sample
from contrasweep.tuning.searchers.optuna_searcher import optuna_searcher
from contrasweep.tuning.searchers.searcher import ListSearcher, OwnSearcher, Problem, Searcher


def _random(problem: Problem) -> Searcher:
    """Return the searcher of independent random points; each parameter is uniform on its own scale, linear or log."""
    generator = np.random.default_rng(problem.seed)
    return _listed(problem, (generator.random(len(problem.space)) for _ in itertools.count()))


def _quasi_random(problem: Problem) -> Searcher:
    """Return the searcher of scrambled Sobol points, which cover the space more evenly than random ones."""
    from scipy.stats import qmc

    def points() -> Iterator[Any]:
        """Yield points of the unit cube without end, with a coordinate in [0, 1) for each parameter."""
        sobol = qmc.Sobol(max(1, len(problem.space)), rng=np.random.default_rng(problem.seed))
        # Sobol points are balanced at powers of two: first 2^6 points, and then each time as many as before.
        yield from sobol.random_base2(6)
        while True:
            yield from sobol.random(sobol.num_generated)

    return _listed(problem, points())


def _grid(problem: Problem, *, levels: int | Mapping[str, int] | None = None) -> Searcher:
    """Return the searcher of all combinations of some values (levels) of each setting.

    `levels` is the number of levels of each setting, or a mapping setting -> number, where a setting that is not in it
    has 2. By default it is the largest number, up to 64, with which the grid fits the budget. A choice always has all
    of its options as levels.

    Raises `SpecError` where the grid is larger than the budget, where neither `levels` nor the budget gives a size, and
    for fewer than one level.
    """
    space = problem.space
    budget = problem.budget
    most = budget or FINITE_LIMIT  # configurations

    def grid(counts: Mapping[str, int]) -> dict[str, MutableConfig]:
        """Return the configurations of the grid with `counts` (setting -> number of levels), by their canonical text.

        A setting that is not in `counts` has 2 levels. Where the grid has more than `most` configurations, only `most`
        + 1 are returned, which shows that it is too large.
        """
        values = {name: space[name].grid(counts.get(name, 2)) for name in space}
        return product(space, problem.fixed, values, most)

    if levels is None:
        if budget is None:
            raise SpecError(
                "the size of a grid has to be said where the budget counts no configurations",
                place="searcher_options.levels",
                hint="set it, or budget.trials",
            )
        # The finest grid that fits the budget. With one level a range is not searched, so the first grid that is tried
        # has two. Where even this does not fit, the error below says so.
        levels = 2
        while levels < min(64, budget) and len(grid(dict.fromkeys(space, levels + 1))) <= budget:
            levels += 1
    counts = levels if isinstance(levels, Mapping) else dict.fromkeys(space, levels)
    for count in counts.values():
        if type(count) is not int or not 1 <= count <= FINITE_LIMIT:
            raise SpecError(
                f"a setting has 1 to {FINITE_LIMIT:,} levels",
                place="searcher_options.levels",
                value=count,
            )
    configs = grid(counts)
    if len(configs) > most:
        raise SpecError(
            "the grid is larger than the budget"
            if budget
            else "a grid is larger than can be listed",
            place="budget",
            value=most,
            hint="set searcher_options.levels, or search at random; start points count too",
        )
    return ListSearcher(space, problem.fixed, iter(list(configs.values())))


def _tpe(problem: Problem, **options: Any) -> Searcher:
    """Return the searcher of the tree-structured Parzen estimator (Bergstra et al. 2011).

    It is multivariate (Falkner et al. 2018). It assumes bad results for trials that still run (constant liar), so that
    parallel suggestions differ. `options` are options of Optuna's `TPESampler`, and override these choices.
    """
    choices = {
        "multivariate": True,
        # With conditional settings not every configuration has all settings, so that they are grouped.
        "group": any(parameter.when for parameter in problem.space.values()),
        "constant_liar": True,
        "n_startup_trials": _startup(problem),
    }
    return optuna_searcher("TPESampler", problem, {**choices, **options})


def _cmaes(problem: Problem, **options: Any) -> Searcher:
    """Return the searcher of CMA-ES (Hansen & Ostermeier 2001) for numbers; choices are drawn at random."""
    return optuna_searcher("CmaEsSampler", problem, {"warn_independent_sampling": False, **options})


def _gp(problem: Problem, **options: Any) -> Searcher:
    """Return the searcher of a Gaussian process with log expected improvement (Ament et al. 2023).

    It is useful from tens of trials on.
    """
    return optuna_searcher(
        "GPSampler",
        problem,
        {"n_startup_trials": _startup(problem), "warn_independent_sampling": False, **options},
    )


def _nsga2(problem: Problem, **options: Any) -> Searcher:
    """Return the searcher of the genetic algorithm of NSGA-II (Deb et al. 2002).

    The population has as many members as the square root of the budget, 4 to 50, so that there are about as many
    generations as members. Without a budget of configurations it has 12.
    """
    size = 12 if problem.budget is None else max(4, min(50, round(problem.budget**0.5)))
    return optuna_searcher("NSGAIISampler", problem, {"population_size": size, **options})


SEARCHERS: dict[str, Callable[..., Searcher]] = {
    "grid": _grid,
    "random": _random,
    "quasi-random": _quasi_random,
    "tpe": _tpe,
    "cmaes": _cmaes,
    "gp": _gp,
    "nsga2": _nsga2,
}
"""Searchers by name. Any other one is named by `package.module:Class`: an Optuna sampler, or a `Searcher`, built as
`Class(problem, **options)`."""


def build(
    searcher: str,
    space: Space,
    *,
    fixed: Config | None = None,
    seed: int = 0,
    mode: str = "max",
    budget: int | None = 100,
    **options: Any,
) -> Searcher:
    """Return a new searcher for a space.

    `searcher` is a name of `SEARCHERS`, or the path `package.module:Class` of a searcher or an Optuna sampler. `fixed`,
    `seed`, `mode` and `budget` are those of `Problem`, and `options` the options of the searcher.

    Raises `SpecError` for an unknown name or option, and for a class that is neither a searcher nor a sampler.
    """
    problem = Problem(space, fixed or {}, seed, mode, budget)
    if ":" in searcher:
        target = import_path(searcher, "searcher", "searcher")
        # A sampler of Optuna may have a state of its own, so one sampler is used for the whole search.
        if hasattr(target, "sample_relative"):
            return optuna_searcher(target, problem, options, fresh=False)
        # The wrapper has the methods of a searcher, which it passes on to the user's object.
        return cast(Searcher, OwnSearcher(searcher, target, problem, options))
    names = [*SEARCHERS, "package.module:Class"]
    check_known(searcher, "searchers", names, "there is no such searcher", place="searcher")
    return cast(
        Searcher, build_part("searcher", searcher, SEARCHERS[searcher], problem, options=options)
    )


def _startup(problem: Problem) -> int:
    """Return how many configurations are drawn at random before a model suggests any.

    It is a quarter of the budget, at least 3 and at most 10. Without a budget it is 10.
    """
    return 10 if problem.budget is None else max(3, min(10, problem.budget // 4))


def _listed(problem: Problem, points: Iterator[Any]) -> ListSearcher:
    """Return a searcher that suggests the configurations at `points` of the unit cube, one after the other.

    A point has a coordinate from 0 to 1 for each parameter of the space.
    """
    configs = (sample(problem.space, list(map(float, point)), problem.fixed) for point in points)
    return ListSearcher(problem.space, problem.fixed, configs)
