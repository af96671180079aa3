"""A searcher that asks an Optuna sampler, and search spaces as Optuna's distributions."""

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from contrasweep import canonical
from contrasweep.config import Config, MutableConfig
from contrasweep.imports import build_part, errors_named, import_path
from contrasweep.study.space import Choice, Float, Int, configurations, drawn_by, levels, sample
from contrasweep.tuning.searchers.searcher import Problem


def distribution(parameter: Float | Int | Choice) -> Any:
    """Return Optuna's distribution of a parameter.

    For a choice it is over the indices of the options. For a range with a step it is over the numbers of steps from
    `low`, and for any other range over the values themselves.
    """
    from optuna import distributions

    # Options may be any values, but Optuna takes only numbers, texts, booleans and None: therefore indices.
    if isinstance(parameter, Choice):
        return distributions.CategoricalDistribution(list(range(len(parameter.options))))
    if parameter.step is not None:
        # With a step `levels` is never None; `or 1` is for mypy.
        return distributions.IntDistribution(0, (levels(parameter) or 1) - 1)
    kind = (
        distributions.IntDistribution
        if isinstance(parameter, Int)
        else distributions.FloatDistribution
    )
    return kind(parameter.low, parameter.high, log=parameter.log)


def suggest(trial: Any, name: str, parameter: Float | Int | Choice) -> Any:
    """Return the value that an Optuna trial suggests for the parameter `name`: an option, or a number of its range."""
    optuna_distribution = distribution(parameter)
    if isinstance(parameter, Choice):
        return parameter.options[trial.suggest_categorical(name, optuna_distribution.choices)]
    # For a range with a step Optuna suggests the number of steps.
    is_float = isinstance(parameter, Float) and parameter.step is None
    draw = trial.suggest_float if is_float else trial.suggest_int
    drawn = draw(
        name, optuna_distribution.low, optuna_distribution.high, log=optuna_distribution.log
    )
    return drawn if parameter.step is None else parameter.value(drawn)


def coordinate(parameter: Float | Int | Choice, value: Any) -> Any:
    """Return a parameter's value as Optuna stores it: the index of an option or of a step, else the number itself.

    It is a value of `distribution`. `suggest` converts it back.
    """
    if isinstance(parameter, Choice) or parameter.step is not None:
        return parameter.index(value)
    return int(value) if isinstance(parameter, Int) else float(value)


Sampler = Callable[[int], Any]
"""Seed -> Optuna sampler."""

MAX_ATTEMPTS = 5
"""Suggestions in a row that a sampler may repeat, before a configuration is drawn at random."""


class OptunaSearcher:
    """A searcher that asks an Optuna sampler.

    With `fresh`, each `ask` makes a new sampler, whose seed follows from the number of asks so far. So an interrupted
    search goes on as if it had never stopped, if the sampler looks only at the values of trials. Without `fresh` one
    sampler is used all the time, for samplers with a state of their own. Samplers that mark their own trials (CMA-ES,
    NSGA-II) learn nothing from replayed ones.
    """

    def __init__(self, problem: Problem, sampler: Sampler, *, fresh: bool) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.space = problem.space
        self.fixed = problem.fixed
        self.seed = problem.seed
        self.sampler = sampler
        self.fresh = fresh
        direction = "maximize" if problem.mode == "max" else "minimize"
        # Samplers take seeds of 32 bits.
        self.study = optuna.create_study(direction=direction, sampler=sampler(self.seed % 2**32))
        # canonical text -> configuration, of the whole space; None for an infinite space
        self.finite = configurations(self.space, self.fixed)
        self.seen: set[str] = set()  # canonical texts of configurations that were asked for
        # canonical text -> Optuna's trial, of configurations that were asked for and not told
        self.open: dict[str, optuna.trial.Trial] = {}
        self.ask_count = 0

    def ask(self) -> MutableConfig | None:
        """Return the next suggestion of the sampler that is new.

        After `MAX_ATTEMPTS` suggestions that were asked for before, it is a random configuration. None where every
        configuration of a finite space was asked for, or where 1,000 random ones of an infinite space bring nothing
        new.
        """
        if self.finite is not None and self.finite.keys() <= self.seen:
            return None
        for attempt in range(MAX_ATTEMPTS):
            trial, config = self._ask(attempt)
            text = canonical.dumps(config)
            if text not in self.seen:
                return self._open(text, trial, config)
            # Optuna must not wait for the outcome of a repeated suggestion.
            self._fail(trial)
        # The sampler repeats itself. Optuna did not suggest this configuration, so it is replayed.
        unseen = self._unseen()
        if unseen is not None:
            self.replay(unseen)
        return unseen

    def tell(
        self, config: MutableConfig, value: float | None, pruned_at: int | None = None
    ) -> None:
        """Tell Optuna the value of `config`; None and a value that is not finite mean that it failed.

        With `pruned_at`, the configuration was pruned at this step with this value. Raises `KeyError` for a
        configuration that was not asked for, or was told already.
        """
        import optuna

        # Each trial of Optuna is told once.
        trial = self.open.pop(canonical.dumps(config))
        with errors_named(f"{type(self.study.sampler).__name__} fails", "searcher"):
            if value is None or not math.isfinite(value):
                self._fail(trial)
            elif pruned_at is not None:
                trial.report(value, pruned_at)
                self.study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            else:
                self.study.tell(trial, value)

    def replay(self, config: MutableConfig) -> None:
        """Count `config` as asked for, as if Optuna had suggested it, so that its outcome can be told."""
        self.study.enqueue_trial(
            {name: coordinate(self.space[name], value) for name, value in config.items()}
        )
        trial, _ = self._ask()
        self._open(canonical.dumps(config), trial, config)

    def _ask(self, attempt: int = 0) -> tuple[Any, MutableConfig]:
        """Return a new trial of Optuna, and the configuration that it suggests.

        `attempt` is how many suggestions for this ask were repetitions; it changes the sampler's seed.
        """
        # The seed follows from the numbers of asks and attempts alone, so that a resumed search, which knows nothing
        # of repeated suggestions, draws the same configurations.
        if self.fresh:
            seeds = [self.seed, self.ask_count, self.ask_count + attempt]
            seed = int(np.random.SeedSequence(seeds).generate_state(1)[0])
            self.study.sampler = self.sampler(seed)
        with errors_named(f"{type(self.study.sampler).__name__} fails", "searcher"):
            trial = self.study.ask()
            return trial, drawn_by(
                self.space, self.fixed, lambda name: suggest(trial, name, self.space[name])
            )

    def _open(self, text: str, trial: Any, config: MutableConfig) -> MutableConfig:
        """Note that `config` was asked for, so that its outcome can be told; return `config`.

        `text` is its canonical text, and `trial` is Optuna's trial that suggests it.
        """
        self.seen.add(text)
        self.open[text] = trial
        self.ask_count += 1
        return config

    def _fail(self, trial: Any) -> None:
        """Tell Optuna that a trial failed, so that its sampler learns nothing from it."""
        import optuna

        self.study.tell(trial, state=optuna.trial.TrialState.FAIL)

    def _unseen(self) -> MutableConfig | None:
        """Return a random configuration that was not asked for before.

        In an infinite space 1,000 configurations are drawn. None where all of these were asked for before.
        """
        random = np.random.default_rng([self.seed, 1, self.ask_count])
        # `ask` has checked that a finite space has such a configuration.
        if self.finite is not None:
            unseen = [config for text, config in self.finite.items() if text not in self.seen]
            return unseen[random.integers(len(unseen))]
        # A space without parameters does not use the one coordinate that is drawn for it.
        drawn = (
            sample(self.space, point, self.fixed)
            for point in random.random((1000, max(1, len(self.space))))
        )
        return next((config for config in drawn if canonical.dumps(config) not in self.seen), None)


def optuna_searcher(
    kind: str | Callable[..., Any], problem: Problem, options: Config, *, fresh: bool = True
) -> OptunaSearcher:
    """Return a searcher that asks an Optuna sampler; `kind` is the sampler's class, or its name in `optuna.samplers`.

    `options` are arguments of the class. `fresh` is that of `OptunaSearcher`. Raises `SpecError` where the class does
    not take the options.
    """
    sampler_class = import_path(f"optuna.samplers:{kind}") if isinstance(kind, str) else kind

    def sampler(seed: int) -> Any:
        """Return a sampler with this seed; `SpecError` where the class does not take the options."""
        import optuna

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return build_part(
                "searcher",
                sampler_class.__name__,
                functools.partial(sampler_class, seed=seed),
                options=options,
            )

    return OptunaSearcher(problem, sampler, fresh=fresh)
