"""The protocol of searchers, the searcher that follows a list, and checks of a searcher that the user wrote."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from contrasweep import canonical
from contrasweep.config import Config, MutableConfig
from contrasweep.errors import SpecError
from contrasweep.imports import build_part
from contrasweep.study.space import Space, configurations, exists
from contrasweep.tuning.users_part import UsersPart


@dataclass(frozen=True)
class Problem:
    """The problem that a searcher is built for: its space, seed, mode and budget.

    `fixed` are the config's other keys, nested, for conditions on them. `mode` is `max` or `min`: whether a larger or a
    smaller value of the metric is better. `budget` is how often it will be asked (None: not known).
    """

    space: Space
    fixed: Config
    seed: int
    mode: str
    budget: int | None


@runtime_checkable
class Searcher(Protocol):
    """Suggests configurations of a space and learns what became of them. One is dotted setting -> value."""

    def ask(self) -> MutableConfig | None:
        """Return a configuration that was not asked before; None when there is none left."""

    def tell(
        self, config: MutableConfig, value: float | None, pruned_at: int | None = None
    ) -> None:
        """Learn what came of `config`, asked for or replayed before: its `value` of the metric, or None if it failed.

        With `pruned_at` it was stopped at that step, and `value` is the one that it had there. By default do nothing.
        """
        return

    def replay(self, config: MutableConfig) -> None:
        """Count `config` as asked for already, by an earlier process or as a start point.

        Its outcome may be told afterwards. One that was told is replayed too where it runs again.
        """


class ListSearcher(Searcher):
    """Suggests the configurations of a list, which may be endless, each once. It learns nothing from results."""

    def __init__(self, space: Space, fixed: Config, configs: Iterator[MutableConfig]) -> None:
        self.configs = configs
        # Canonical text -> configuration, of all that there are; None for an infinite space.
        self.finite = configurations(space, fixed)
        self.seen: set[str] = set()  # canonical texts of what was asked for

    def ask(self) -> MutableConfig | None:
        """Return the next configuration of the list that was not asked yet.

        None at the end of the list or of the space.
        """
        # An endless list never gives anything new once a finite space is used up.
        while self.finite is None or len(self.seen & self.finite.keys()) < len(self.finite):
            config = next(self.configs, None)
            if config is None:
                return None
            if (text := canonical.dumps(config)) not in self.seen:
                self.seen.add(text)
                return config
        return None

    def replay(self, config: MutableConfig) -> None:
        """Mark `config` as asked, so that the list does not give it again."""
        self.seen.add(canonical.dumps(config))


class OwnSearcher(UsersPart):
    """A searcher that the user names by its dotted path `name`, built as `target(problem, **options)`.

    What it suggests must lie in the space. An error names the searcher and the line of its code that failed.
    `SpecError` where it does not take the options, fails, or lacks a method of `Searcher`.
    """

    def __init__(
        self, name: str, target: Callable[..., Any], problem: Problem, options: Config
    ) -> None:
        super().__init__(
            "searcher", name, build_part("searcher", name, target, problem, options=options)
        )
        self.problem = problem
        if not isinstance(self.part, Searcher):
            raise SpecError(
                "this is no searcher and no Optuna sampler",
                place="searcher",
                value=name,
                hint="a searcher has ask, tell and replay (contrasweep.tuning.searchers.Searcher); a sampler is, say, "
                "optuna.samplers:TPESampler",
            )

    def ask(self) -> MutableConfig | None:
        """Return the next configuration; None when the searcher has no more.

        Raises `SpecError` where it suggests something that does not lie in the space.
        """
        # The method of the user's object; `self.ask` is this one.
        config = self.__getattr__("ask")()
        if config is None:
            return None
        self._check(config)
        return dict(config)

    def _check(self, config: Any) -> None:
        """Raise `SpecError` where `config` is no mapping, has other settings than exist, or a value out of range."""
        rule = f"{self.name}.ask gives a setting for each parameter of the space"
        if not isinstance(config, Mapping):
            raise SpecError(
                rule,
                place="searcher",
                value=config,
                hint="a dict of name -> value, or None at the end",
            )
        space = self.problem.space
        fixed = self.problem.fixed
        # A conditional setting exists by the values of the others in this very configuration.
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
