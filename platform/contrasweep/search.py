"""What to try next: searchers that suggest and learn, and know nothing of processes. The only user of Optuna.

    searcher = build("tpe", space, seed=0, mode="max", budget=40)
    while (config := searcher.ask()) is not None: searcher.tell(config, train(config))

What is asked depends on the seed, the number of the ask and what was told, and no configuration is asked twice.
"""

import importlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from contrasweep import canonical
from contrasweep.errors import SpecError, choose_from
from contrasweep.space import Choice, Float, Int, Space, active, ordered, sample

Config = dict[str, Any]
Sampler = Callable[[int], Any]
"""Seed -> Optuna sampler."""

TRIES = 20  # suggestions that a sampler may repeat before one is drawn at random
FINITE = 20_000  # a space of more configurations than this counts as infinite


class Searcher(Protocol):
    """Suggests configurations of a space and learns what became of them."""

    def ask(self) -> Config | None:
        """A configuration that was not asked before; None when there is none left."""

    def tell(self, config: Config, value: float | None, pruned_at: int | None = None) -> None:
        """What came of `config`: its value, or None if it failed. `pruned_at`: it was stopped at that step, with
        the value it had there."""

    def replay(self, config: Config) -> None:
        """Take `config` as asked, as it was before an interruption or by somebody else."""


class ListSearcher:
    """Asks for the configurations given, each once, and learns nothing."""

    def __init__(self, space: Space, fixed: Mapping[str, Any], configs: Iterator[Config]) -> None:
        self.configs = configs
        self.finite = configurations(space, fixed)
        self.seen: set[str] = set()

    def ask(self) -> Config | None:
        while self.finite is None or len(self.seen & self.finite.keys()) < len(self.finite):
            config = next(self.configs, None)
            if config is None:
                return None
            if (text := canonical.dumps(config)) not in self.seen:
                self.seen.add(text)
                return config
        return None

    def tell(self, config: Config, value: float | None, pruned_at: int | None = None) -> None:
        """What comes does not depend on values."""

    def replay(self, config: Config) -> None:
        self.seen.add(canonical.dumps(config))


class OptunaSearcher:
    """Any Optuna sampler by ask and tell. A fresh sampler for each ask, seeded by the ask's number, makes a resumed
    search go on as it would have gone uninterrupted; `fresh=False` keeps one, for samplers with a state of their own."""

    def __init__(self, space: Space, fixed: Mapping[str, Any], sampler: Sampler, *, seed: int, mode: str, fresh: bool = True) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.space, self.fixed, self.sampler, self.seed, self.fresh = space, fixed, sampler, seed, fresh
        self.study = optuna.create_study(direction="maximize" if mode == "max" else "minimize", sampler=sampler(seed))
        self.finite = configurations(space, fixed)
        self.random = np.random.default_rng([seed, 1])
        self.seen: set[str] = set()
        self.open: dict[str, Any] = {}
        self.asked = 0

    def ask(self) -> Config | None:
        if self.finite is not None and len(self.seen & self.finite.keys()) == len(self.finite):
            return None
        for _ in range(TRIES):
            trial, config = self._ask()
            if (text := canonical.dumps(config)) not in self.seen:
                return self._open(text, trial, config)
            self._fail(trial)
        left = self._unseen()
        return None if left is None else self._asked_as(left)

    def tell(self, config: Config, value: float | None, pruned_at: int | None = None) -> None:
        trial = self.open.pop(canonical.dumps(config))
        if value is None or not math.isfinite(value):
            self._fail(trial)
        elif pruned_at is not None:
            import optuna

            trial.report(value, pruned_at)
            self.study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            self.study.tell(trial, value)

    def replay(self, config: Config) -> None:
        self._asked_as(config)

    def learn(self, config: Config, value: float) -> None:
        """What an earlier study found; the configuration may still be asked here."""
        text = canonical.dumps(config)
        self._asked_as(config)
        self.tell(config, value)
        self.seen.discard(text)
        self.asked -= 1

    def _ask(self) -> tuple[Any, Config]:
        if self.fresh:
            self.study.sampler = self.sampler(int(np.random.SeedSequence([self.seed, self.asked, len(self.study.trials)]).generate_state(1)[0]))
        trial = self.study.ask()
        config: Config = {}
        for name in ordered(self.space):
            if active(self.space[name].when, {**self.fixed, **config}):
                config[name] = _suggest(trial, name, self.space[name])
        return trial, config

    def _asked_as(self, config: Config) -> Config:
        self.study.enqueue_trial({name: _coordinate(self.space[name], value) for name, value in config.items()})
        trial, _ = self._ask()
        return self._open(canonical.dumps(config), trial, config)

    def _open(self, text: str, trial: Any, config: Config) -> Config:
        self.seen.add(text)
        self.open[text] = trial
        self.asked += 1
        return config

    def _fail(self, trial: Any) -> None:
        import optuna

        self.study.tell(trial, state=optuna.trial.TrialState.FAIL)

    def _unseen(self) -> Config | None:
        """A configuration not asked before, at random."""
        if self.finite is not None:
            left = [config for text, config in self.finite.items() if text not in self.seen]
            return left[self.random.integers(len(left))]
        drawn = (sample(self.space, point, self.fixed) for point in self.random.random((1000, max(1, len(self.space)))))
        return next((config for config in drawn if canonical.dumps(config) not in self.seen), None)


def _random(space: Space, fixed: Mapping[str, Any], seed: int, mode: str, budget: int) -> Searcher:
    """Uniform on each parameter's scale."""
    generator = np.random.default_rng(seed)
    return ListSearcher(space, fixed, (sample(space, list(generator.random(len(space))), fixed) for _ in itertools.count()))


def _quasi_random(space: Space, fixed: Mapping[str, Any], seed: int, mode: str, budget: int) -> Searcher:
    """Scrambled Sobol points: as good as random and more even."""
    from scipy.stats import qmc

    def points() -> Iterator[Any]:
        sobol = qmc.Sobol(max(1, len(space)), rng=np.random.default_rng(seed))
        while True:
            yield from sobol.random_base2(6) if sobol.num_generated == 0 else sobol.random(sobol.num_generated)

    return ListSearcher(space, fixed, (sample(space, point, fixed) for point in points()))


def _grid(space: Space, fixed: Mapping[str, Any], seed: int, mode: str, budget: int, *,
          levels: int | Mapping[str, int] | None = None) -> Searcher:  # fmt: skip
    """Every combination of levels; `levels` of a number, or by name; default: as many as the budget pays for."""

    def grid(count: int | Mapping[str, int]) -> dict[str, Config]:
        size = count if isinstance(count, Mapping) else dict.fromkeys(space, count)
        return _product(space, fixed, {name: space[name].grid(size.get(name, 2)) for name in space})

    if levels is None:
        levels = 1
        while levels < budget and levels < 64 and len(grid(levels + 1)) <= budget:
            levels += 1
        if levels == 1 and any(not isinstance(p, Choice) and p.grid(2) != p.grid(1) for p in space.values()):
            levels = 2
    configs = grid(levels)
    if len(configs) > budget:
        raise SpecError("the grid is larger than the budget", place="trials_per_arm", value=budget,
                        hint=f"it has {len(configs)} points; set searcher_options.levels, or search at random")  # fmt: skip
    return ListSearcher(space, fixed, iter(list(configs.values())))


def _tpe(space: Space, fixed: Mapping[str, Any], seed: int, mode: str, budget: int, **options: Any) -> Searcher:
    """Tree-structured Parzen estimator (Bergstra et al. 2011), multivariate, with constant liar for parallel asks."""
    base = {"multivariate": True, "group": any(p.when for p in space.values()), "constant_liar": True,
            "n_startup_trials": max(3, min(10, budget // 4))}  # fmt: skip
    return _optuna("TPESampler", space, fixed, seed, mode, base | options)


def _cmaes(space: Space, fixed: Mapping[str, Any], seed: int, mode: str, budget: int, **options: Any) -> Searcher:
    """CMA-ES (Hansen & Ostermeier 2001) on the numbers; choices are drawn at random."""
    return _optuna("CmaEsSampler", space, fixed, seed, mode, {"warn_independent_sampling": False} | options)


def _gp(space: Space, fixed: Mapping[str, Any], seed: int, mode: str, budget: int, **options: Any) -> Searcher:
    """Gaussian process with log expected improvement; pays off at tens of trials."""
    base = {"n_startup_trials": max(3, min(10, budget // 4)), "warn_independent_sampling": False}
    return _optuna("GPSampler", space, fixed, seed, mode, base | options)


def _nsga2(space: Space, fixed: Mapping[str, Any], seed: int, mode: str, budget: int, **options: Any) -> Searcher:
    """NSGA-II (Deb et al. 2002), here on the study's one metric."""
    return _optuna("NSGAIISampler", space, fixed, seed, mode, {"population_size": max(4, min(50, budget // 4))} | options)


SEARCHERS: dict[str, Callable[..., Searcher]] = {
    "grid": _grid,
    "random": _random,
    "quasi-random": _quasi_random,
    "tpe": _tpe,
    "cmaes": _cmaes,
    "gp": _gp,
    "nsga2": _nsga2,
}
"""Searchers by name; an Optuna sampler of another is `package.module:Class`."""


def build(searcher: str, space: Space, *, fixed: Mapping[str, Any] | None = None, seed: int = 0, mode: str = "max",
          budget: int = 100, **options: Any) -> Searcher:  # fmt: skip
    """The searcher of this name, or with the Optuna sampler at this dotted path. `fixed` are the config's other
    keys, for conditions on them; `budget` how often it will be asked. `SpecError` on an unknown name or option."""
    fixed = fixed or {}
    if searcher in SEARCHERS:
        try:
            return SEARCHERS[searcher](space, fixed, seed, mode, budget, **options)
        except TypeError as error:
            raise SpecError("the searcher does not take these options", place="searcher_options", value=options, hint=str(error)) from None
    if ":" in searcher:
        return _optuna(searcher, space, fixed, seed, mode, options, fresh=False)
    raise SpecError("there is no such searcher", place="searcher", value=searcher,
                    hint=choose_from("searchers", [*SEARCHERS, "package.module:Sampler"], searcher))  # fmt: skip


def importance(configs: Sequence[tuple[Mapping[str, Any], float]], space: Space, *, mode: str = "max") -> dict[str, float]:
    """The share of each searched setting in what tells the best tenth apart, most important first.

    PED-ANOVA (Watanabe et al. 2023), from (config, value) pairs; {} where fewer than four configurations or no two
    different values are there. A conditional setting counts where it exists.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    usable = [({n: c[n] for n in space if n in c}, v) for c, v in configs if math.isfinite(v)]
    usable = [(c, v) for c, v in usable if all(space[n].holds(value) for n, value in c.items())]
    if len(usable) < 4 or len({v for _, v in usable}) < 2:
        return {}
    study = optuna.create_study(direction="maximize" if mode == "max" else "minimize")
    for config, value in usable:
        trial = optuna.trial.create_trial(
            value=value, params={n: _coordinate(space[n], v) for n, v in config.items()},
            distributions={n: _distribution(space[n]) for n in config},
        )  # fmt: skip
        study.add_trial(trial)
    shares = optuna.importance.get_param_importances(study, evaluator=optuna.importance.PedAnovaImportanceEvaluator())
    return {name: float(share) for name, share in shares.items()}


def configurations(space: Space, fixed: Mapping[str, Any] | None = None) -> dict[str, Config] | None:
    """Every configuration of a finite space, by its canonical text; None if it has a continuous parameter or more
    than `FINITE` combinations."""
    sizes = [_levels(parameter) for parameter in space.values()]
    if any(size is None for size in sizes) or math.prod(size for size in sizes if size) > FINITE:
        return None
    return _product(space, fixed or {}, {name: _values(parameter) for name, parameter in space.items()})


def _product(space: Space, fixed: Mapping[str, Any], values: Mapping[str, list[Any]]) -> dict[str, Config]:
    """Each different configuration of these values, by its canonical text."""
    found: dict[str, Config] = {}
    for point in itertools.product(*values.values()):
        drawn, config = dict(zip(values, point, strict=True)), dict[str, Any]()
        for name in ordered(space):
            if active(space[name].when, {**fixed, **config}):
                config[name] = drawn[name]
        found.setdefault(canonical.dumps(config), config)
    return found


def _optuna(name: str, space: Space, fixed: Mapping[str, Any], seed: int, mode: str, options: Mapping[str, Any], *,
            fresh: bool = True) -> OptunaSearcher:  # fmt: skip
    kind = _sampler_class(name)

    def sampler(seed: int) -> Any:
        import warnings

        import optuna

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            try:
                return kind(seed=seed, **options)
            except (TypeError, ValueError) as error:
                raise SpecError("the sampler does not take these options", place="searcher_options", value=dict(options),
                                hint=str(error)) from None  # fmt: skip

    return OptunaSearcher(space, fixed, sampler, seed=seed, mode=mode, fresh=fresh)


def _sampler_class(name: str) -> Any:
    module, _, attribute = name.rpartition(":")
    try:
        found = getattr(importlib.import_module(module or "optuna.samplers"), attribute, None)
    except ImportError as error:
        raise SpecError("the sampler's module cannot be imported", place="searcher", value=name, hint=str(error)) from None
    if not hasattr(found, "sample_relative"):
        raise SpecError("this is no Optuna sampler", place="searcher", value=name, hint="for example optuna.samplers:TPESampler")
    return found


def _levels(parameter: Float | Int | Choice) -> int | None:
    """How many values a parameter has; None if it is continuous."""
    if isinstance(parameter, Choice):
        return len(parameter.options)
    if isinstance(parameter, Float):
        if parameter.low == parameter.high:
            return 1
        return None if parameter.step is None else math.floor((parameter.high - parameter.low) / parameter.step + 1e-9) + 1
    return (parameter.high - parameter.low) // (parameter.step or 1) + 1


def _values(parameter: Float | Int | Choice) -> list[Any]:
    """All values of a finite parameter."""
    if isinstance(parameter, Int):
        return list(range(parameter.low, parameter.high + 1, parameter.step or 1))
    if isinstance(parameter, Float):
        return [parameter.low + (parameter.step or 0.0) * i for i in range(_levels(parameter) or 1)]
    return list(parameter.options)


def _distribution(parameter: Float | Int | Choice) -> Any:
    """Optuna's form: choices and steps as indices, which need not be plain values nor divide the range."""
    from optuna import distributions

    if isinstance(parameter, Choice):
        return distributions.CategoricalDistribution(list(range(len(parameter.options))))
    if parameter.step is not None:
        return distributions.IntDistribution(0, (_levels(parameter) or 1) - 1)
    kind = distributions.IntDistribution if isinstance(parameter, Int) else distributions.FloatDistribution
    return kind(parameter.low, parameter.high, log=parameter.log)


def _suggest(trial: Any, name: str, parameter: Float | Int | Choice) -> Any:
    form = _distribution(parameter)
    if isinstance(parameter, Choice):
        return parameter.options[trial.suggest_categorical(name, form.choices)]
    whole = isinstance(parameter, Int) or parameter.step is not None
    value = (trial.suggest_int if whole else trial.suggest_float)(name, form.low, form.high, log=form.log)
    return parameter.low + parameter.step * value if parameter.step is not None else value


def _coordinate(parameter: Float | Int | Choice, value: Any) -> Any:
    """The value in Optuna's form."""
    if isinstance(parameter, Choice):
        texts = [canonical.dumps(option) for option in parameter.options]
        return texts.index(canonical.dumps(value))
    if parameter.step is not None:
        return round((value - parameter.low) / parameter.step)
    return int(value) if isinstance(parameter, Int) else float(value)


def fits(space: Space, config: Mapping[str, Any], whole: Mapping[str, Any]) -> bool:
    """Whether `config` has exactly the parameters that exist under `whole`, each within its range."""
    names = {name for name, p in space.items() if active(p.when, whole)}
    return set(config) == names and all(space[name].holds(value) for name, value in config.items())
