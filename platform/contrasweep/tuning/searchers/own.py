"""A searcher of somebody else's: built, and held to what a searcher promises."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from contrasweep.config import Config, MutableConfig
from contrasweep.errors import SpecError
from contrasweep.imports import errors_named
from contrasweep.study.space import exists
from contrasweep.tuning.own import built
from contrasweep.tuning.searchers.searcher import Problem, Searcher


def own_searcher(name: str, target: Callable[..., Any], problem: Problem, options: Config) -> Searcher:
    """What stands at the dotted path `name`, built as `target(problem, **options)`. `SpecError` where it cannot be
    built or is no searcher."""
    searcher = built("searcher", name, target, problem, options=options)
    if not isinstance(searcher, Searcher):
        raise SpecError(
            "this is no searcher and no Optuna sampler",
            place="searcher",
            value=name,
            hint="a searcher has ask, tell and replay (contrasweep.tuning.searchers.Searcher); a sampler is, say, "
            "optuna.samplers:TPESampler",
        )
    return OwnSearcher(name, searcher, problem)


class OwnSearcher:
    """Passes calls on. What is suggested must lie in the space, and an error names the searcher and its line."""

    def __init__(self, name: str, searcher: Searcher, problem: Problem) -> None:
        self.name, self.searcher, self.problem = name, searcher, problem

    def ask(self) -> MutableConfig | None:
        """The next configuration, checked; `SpecError` where it is none of this space."""
        with errors_named(f"{self.name} fails in ask", "searcher"):
            config = self.searcher.ask()
        if config is None:
            return None
        self._check(config)
        return dict(config)

    def tell(
        self,
        config: MutableConfig,
        value: float | Sequence[float] | None,
        pruned_at: int | None = None,
        violations: Sequence[float] = (),
    ) -> None:
        """What came of `config`."""
        with errors_named(f"{self.name} fails in tell", "searcher"):
            self.searcher.tell(config, value, pruned_at, violations)

    def replay(self, config: MutableConfig) -> None:
        """Take `config` as asked."""
        with errors_named(f"{self.name} fails in replay", "searcher"):
            self.searcher.replay(config)

    def _check(self, config: Any) -> None:
        rule = f"{self.name}.ask gives a setting for each parameter of the space"
        if not isinstance(config, Mapping):
            raise SpecError(rule, place="searcher", value=config, hint="a dict of name -> value, or None at the end")
        space, fixed = self.problem.space, self.problem.fixed
        needed = {key for key in space if exists(space, key, fixed, dict(config))}
        if config.keys() != needed:
            raise SpecError(rule, place="searcher", value=dict(config), hint=f"here {', '.join(sorted(needed))}")
        for key, value in config.items():
            if not space[key].holds(value):
                rule = f"{self.name}.ask gives values of the space"
                raise SpecError(rule, place="searcher", value={key: value}, hint=f"{key} is {space[key]}")
