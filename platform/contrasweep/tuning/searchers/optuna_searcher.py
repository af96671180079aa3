"""Optuna's samplers with ask and tell, and search spaces as Optuna's distributions."""

import importlib
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from contrasweep import canonical
from contrasweep.config import Config, MutableConfig
from contrasweep.errors import SpecError
from contrasweep.study.space import Choice, Float, Int, configurations, drawn_by, levels, sample
from contrasweep.tuning.searchers.searcher import Problem


def distribution(parameter: Float | Int | Choice) -> Any:
    """Return Optuna's distribution of a parameter.

    A choice is one over the indices of its options, which may be any value; a range with a step is one over the number
    of steps from `low`, 0 to the last. Every other range is one over its values.
    """
    from optuna import distributions

    # Optuna keeps options as they are given, and takes only numbers, texts, truth values and None.
    if isinstance(parameter, Choice):
        return distributions.CategoricalDistribution(list(range(len(parameter.options))))
    if parameter.step is not None:
        return distributions.IntDistribution(0, (levels(parameter) or 1) - 1)
    kind = (
        distributions.IntDistribution
        if isinstance(parameter, Int)
        else distributions.FloatDistribution
    )
    return kind(parameter.low, parameter.high, log=parameter.log)


def suggest(trial: Any, name: str, parameter: Float | Int | Choice) -> Any:
    """Return the value of a parameter that an Optuna trial suggests: an option, or a number of the declared range."""
    form = distribution(parameter)
    if isinstance(parameter, Choice):
        return parameter.options[trial.suggest_categorical(name, form.choices)]
    is_discrete = isinstance(parameter, Int) or parameter.step is not None
    # Of a range with a step it is the number of steps.
    value = (trial.suggest_int if is_discrete else trial.suggest_float)(
        name, form.low, form.high, log=form.log
    )
    return parameter.value(value) if parameter.step is not None else value


def coordinate(parameter: Float | Int | Choice, value: Any) -> Any:
    """Return a parameter's value as Optuna keeps it: an index of a choice or of a step, else the number itself.

    It is what `distribution` is over, so `suggest` gives the value back.
    """
    if isinstance(parameter, Choice) or parameter.step is not None:
        return parameter.index(value)
    return int(value) if isinstance(parameter, Int) else float(value)


Sampler = Callable[[int], Any]
"""Seed -> Optuna sampler."""

MAX_ATTEMPTS = 5  # suggestions that a sampler may repeat before one is drawn at random


class OptunaSearcher:
    """Any Optuna sampler by ask and tell.

    A fresh sampler for each ask, seeded by the ask's number, makes a resumed search go on as it would have gone
    uninterrupted, for samplers that look at values alone. Those that mark their own trials (CMA-ES, NSGA-II) learn
    nothing from replayed ones. `fresh=False` keeps one sampler, for samplers with a state of their own.
    """

    def __init__(self, problem: Problem, sampler: Sampler, *, fresh: bool = True) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.space = problem.space
        self.fixed = problem.fixed
        self.seed = problem.seed
        self.sampler = sampler
        self.fresh = fresh
        direction = "maximize" if problem.mode == "max" else "minimize"
        self.study = optuna.create_study(direction=direction, sampler=sampler(self.seed))
        # Canonical text -> configuration, of all that there are; None for an infinite space.
        self.finite = configurations(self.space, self.fixed)
        self.random = np.random.default_rng([self.seed, 1])
        self.seen: set[str] = set()  # canonical texts of what was asked for
        # canonical text -> Optuna's trial, of what was asked for and not told
        self.open: dict[str, optuna.trial.Trial] = {}
        self.ask_count = 0

    def ask(self) -> MutableConfig | None:
        """Return the sampler's suggestion, or a random one if it repeats itself `MAX_ATTEMPTS` times.

        None where every configuration of a finite space was asked for, and where no random one of an infinite space is
        new either.
        """
        if self.finite is not None and len(self.seen & self.finite.keys()) == len(self.finite):
            return None
        for _ in range(MAX_ATTEMPTS):
            trial, config = self._ask()
            if (text := canonical.dumps(config)) not in self.seen:
                return self._open(text, trial, config)
            # Optuna is not to wait for the outcome of a repeated suggestion.
            self._fail(trial)
        unseen = self._unseen()
        return None if unseen is None else self._enqueue(unseen)

    def tell(
        self, config: MutableConfig, value: float | None, pruned_at: int | None = None
    ) -> None:
        """Tell Optuna the value of `config`, which it was asked for and not told yet.

        None and what is not finite count as failed. With `pruned_at` the value is that at this step, where the trial
        was pruned. Raises `KeyError` for a configuration that is not open.
        """
        import optuna

        # A trial of Optuna is told once, so it is open no more.
        trial = self.open.pop(canonical.dumps(config))
        if value is None or not math.isfinite(value):
            self._fail(trial)
        elif pruned_at is not None:
            trial.report(value, pruned_at)
            self.study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            self.study.tell(trial, value)

    def replay(self, config: MutableConfig) -> None:
        """Enqueue `config` as a suggestion and open its trial, so that the outcome can be told."""
        self._enqueue(config)

    def _ask(self) -> tuple[Any, MutableConfig]:
        """Return a trial of Optuna and the configuration that it suggests."""
        # The seed follows from how often was asked, so a resumed search draws as it would have drawn uninterrupted.
        if self.fresh:
            number = [self.seed, self.ask_count, len(self.study.get_trials(deepcopy=False))]
            self.study.sampler = self.sampler(
                int(np.random.SeedSequence(number).generate_state(1)[0])
            )
        trial = self.study.ask()
        return trial, drawn_by(
            self.space, self.fixed, lambda name: suggest(trial, name, self.space[name])
        )

    def _enqueue(self, config: MutableConfig) -> MutableConfig:
        """Return `config` itself, asked for and open: Optuna suggests it next, because it was enqueued."""
        self.study.enqueue_trial(
            {name: coordinate(self.space[name], value) for name, value in config.items()}
        )
        trial, _ = self._ask()
        return self._open(canonical.dumps(config), trial, config)

    def _open(self, text: str, trial: Any, config: MutableConfig) -> MutableConfig:
        """Return `config`, of this canonical `text`, once it is noted as asked for, with Optuna's `trial` to tell."""
        self.seen.add(text)
        self.open[text] = trial
        self.ask_count += 1
        return config

    def _fail(self, trial: Any) -> None:
        """Tell Optuna that a trial failed, so that its sampler learns nothing from it."""
        import optuna

        self.study.tell(trial, state=optuna.trial.TrialState.FAIL)

    def _unseen(self) -> MutableConfig | None:
        """Return a configuration that was not asked for before, at random; of an infinite space the first of 1,000.

        None where all of these 1,000 were asked for. Of a finite space one is left, as `ask` has seen.
        """
        if self.finite is not None:
            unseen = [config for text, config in self.finite.items() if text not in self.seen]
            return unseen[self.random.integers(len(unseen))]
        # NumPy draws at least one coordinate, for a space without parameters too, which does not use it.
        drawn = (
            sample(self.space, point, self.fixed)
            for point in self.random.random((1000, max(1, len(self.space))))
        )
        return next((config for config in drawn if canonical.dumps(config) not in self.seen), None)


def optuna_searcher(
    kind: str | Callable[..., Any], problem: Problem, options: Config, *, fresh: bool = True
) -> OptunaSearcher:
    """Return a searcher that asks an Optuna sampler; `kind` is the sampler's class, or its name in `optuna.samplers`.

    `options` are arguments of the class; `SpecError` where it does not take them. With `fresh`, each ask builds a
    sampler of its own; see `OptunaSearcher`.
    """
    of_class = (
        getattr(importlib.import_module("optuna.samplers"), kind) if isinstance(kind, str) else kind
    )

    def sampler(seed: int) -> Any:
        """Return a sampler with this seed; `SpecError` where the class does not take the options."""
        import optuna

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            try:
                return of_class(seed=seed, **options)
            except (TypeError, ValueError) as error:
                raise SpecError(
                    "the sampler does not take these options",
                    place="searcher_options",
                    value=dict(options),
                    hint=str(error),
                ) from None

    return OptunaSearcher(problem, sampler, fresh=fresh)
