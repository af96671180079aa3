"""The protocol of searchers, the searcher that follows a list, and checks of a searcher that the user wrote."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from contrasweep import canonical
from contrasweep.config import Config, MutableConfig
from contrasweep.errors import SpecError
from contrasweep.study.space import Space, configurations, exists
from contrasweep.tuning.users_part import UsersPart


@dataclass(frozen=True)
class Problem:
    """What a searcher is built from: the search space, the fixed settings, seed, mode and budget."""

    space: Space
    fixed: Config  # the nested config of the settings that are not searched; conditions may depend on them
    seed: int
    mode: str  # `max` or `min`: whether a larger or a smaller value of the metric is better
    budget: int | None  # how often the searcher will be asked; None: not known


@runtime_checkable
class Searcher(Protocol):
    """Suggests configurations of a search space, and learns from their results.

    A configuration is a dict: dotted setting -> value, such as `{"loss.temperature": 0.1}`.
    """

    def ask(self) -> MutableConfig | None:
        """Return a configuration that was not asked for before; None where there is none left."""

    def tell(
        self, config: MutableConfig, value: float | None, pruned_at: int | None = None
    ) -> None:
        """Learn the result of `config`, which was asked for or replayed before. By default do nothing.

        `value` is the configuration's value of the metric; None: its trial failed. With `pruned_at` the trial was
        stopped at that step, and `value` is of that step.
        """
        return

    def replay(self, config: MutableConfig) -> None:
        """Count `config` as asked for: an earlier process has asked for it, or it is a start point.

        Its result may be told afterwards. A configuration that runs again is replayed although its result was told.
        """


class ListSearcher(Searcher):
    """Suggests the configurations of a list, which may be endless, one after the other, each once.

    It learns nothing from results.
    """

    def __init__(self, space: Space, fixed: Config, configs: Iterator[MutableConfig]) -> None:
        self.configs = configs
        # canonical text -> configuration, of the whole space; None for an infinite space
        self.finite = configurations(space, fixed)
        self.seen: set[str] = set()  # canonical texts of configurations that were asked for

    def ask(self) -> MutableConfig | None:
        """Return the next configuration of the list that was not asked for before; None where there is none.

        In an endless list there is none where all configurations of a finite space were asked for. In an infinite space
        the search is given up after a long part of the list without a new one.
        """
        if self.finite is not None and self.finite.keys() <= self.seen:
            return None
        # A finite space has a new one somewhere in an endless list. An infinite one need not: its ranges may all depend
        # on what no configuration has. After a restart the list begins with all that was asked for.
        most = 1000 * (1 + len(self.seen)) if self.finite is None else None
        for config in itertools.islice(self.configs, most):
            text = canonical.dumps(config)
            if text not in self.seen:
                self.seen.add(text)
                return config
        return None

    def replay(self, config: MutableConfig) -> None:
        """Count `config` as asked for, so that it is not suggested again."""
        self.seen.add(canonical.dumps(config))


class OwnSearcher(UsersPart):
    """Wraps a searcher of the user's class, and checks that its suggestions lie in the search space.

    The user's searcher is built as `target(problem, **options)`.
    """

    kind = "searcher"
    protocol = Searcher
    rule = "this is no searcher and no Optuna sampler"
    hint = (
        "a searcher has ask, tell and replay (contrasweep.tuning.searchers.Searcher); a sampler is, say, "
        "optuna.samplers:TPESampler"
    )

    def __init__(
        self, name: str, target: Callable[..., Any], problem: Problem, options: Config
    ) -> None:
        super().__init__(name, target, problem, options=options)
        self.problem = problem

    def ask(self) -> MutableConfig | None:
        """Return the next configuration; None where the searcher has no more.

        Raises `SpecError` where the suggestion does not lie in the space.
        """
        # `__getattr__` returns the method of the user's object; `self.ask` would be this method.
        config = self.__getattr__("ask")()
        return None if config is None else self._checked(config)

    def _checked(self, config: Any) -> MutableConfig:
        """Return `config`, which the user's searcher suggests, with Python's numbers in place of NumPy's.

        Raises `SpecError` where it is no mapping, lacks a setting or has one too many, or has a value outside its
        range.
        """
        rule = f"{self.name}.ask gives a setting for each parameter of the space"
        if not isinstance(config, Mapping):
            raise SpecError(
                rule,
                place="searcher",
                value=config,
                hint="a dict of name -> value, or None at the end",
            )
        config = canonical.Config(config, "searcher")
        space = self.problem.space
        fixed = self.problem.fixed
        # Whether a conditional setting exists depends on the other values of the same configuration.
        needed = {key for key in space if exists(space, key, fixed, dict(config))}
        if config.keys() != needed:
            raise SpecError(
                rule, place="searcher", value=dict(config), hint=f"here {', '.join(sorted(needed))}"
            )
        for key, value in config.items():
            if not space[key].holds(value):
                rule = f"{self.name}.ask gives values of the space"
                raise SpecError(
                    rule, place="searcher", value={key: value}, hint=f"{key} is {space[key]}"
                )
        return dict(config)
