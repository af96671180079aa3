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

    `fixed` are the config's other keys, for conditions on them, `mode` the direction of the metric, and `budget`
    how often it will be asked (None: not known).
    """

    space: Space
    fixed: Config
    seed: int
    mode: str
    budget: int | None


@runtime_checkable
class Searcher(Protocol):
    """Suggests configurations of a space and learns what became of them."""

    def ask(self) -> MutableConfig | None:
        """Return a configuration that was not asked before; None when there is none left."""

    def tell(
        self, config: MutableConfig, value: float | None, pruned_at: int | None = None
    ) -> None:
        """Learn what came of `config`: its `value` of the metric, or None if it failed.

        With `pruned_at` it was stopped at that step, and `value` is the one that it had there. By default do nothing.
        """
        return

    def replay(self, config: MutableConfig) -> None:
        """Count `config` as asked for already, by this process before an interruption, or by another one."""


class ListSearcher(Searcher):
    """Suggests the configurations of a list, each once. It learns nothing from results."""

    def __init__(self, space: Space, fixed: Config, configs: Iterator[MutableConfig]) -> None:
        self.configs = configs
        self.finite = configurations(space, fixed)
        self.seen: set[str] = set()

    def ask(self) -> MutableConfig | None:
        """Return the next configuration of the list that was not asked yet.

        None at the end of the list or of the space.
        """
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
    """A searcher that the user names by its dotted path.

    What it suggests must lie in the space. An error names the searcher and the line of its code that failed.
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
        config = self.__getattr__("ask")()
        if config is None:
            return None
        self._check(config)
        return dict(config)

    def _check(self, config: Any) -> None:
        """Raise `SpecError` where `config` is no point of the space."""
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
