"""A pruner of somebody else's: built, and held to what a pruner promises."""

from collections.abc import Callable
from typing import Any

from contrasweep.config import Config
from contrasweep.errors import SpecError
from contrasweep.imports import errors_named
from contrasweep.tuning.own import built
from contrasweep.tuning.pruners.pruner import ComparesPeers, Decision, Pruner


def own_pruner(name: str, target: Callable[..., Any], mode: str, budget: int | None, options: Config) -> Pruner:
    """What stands at the dotted path `name`, built as `target(mode, budget, **options)`. `SpecError` where it cannot
    be built or is no pruner."""
    pruner = built("pruner", name, target, mode, budget, options=options)
    if not isinstance(pruner, Pruner):
        raise SpecError(
            "the pruner lacks methods of contrasweep.tuning.pruners.Pruner",
            place="pruner",
            value=name,
            hint="derive it from contrasweep.tuning.pruners.StoppingRule",
        )
    return OwnPruner(name, pruner)


class OwnPruner:
    """Passes calls on. Each report must get a decision, and an error names the pruner and its line."""

    def __init__(self, name: str, pruner: Pruner) -> None:
        self.name, self.pruner = name, pruner

    def try_out(self) -> None:
        """Take one trial through it, for the plan: `SpecError` where a call fails. It is not to be used afterwards."""
        self.add("trial", 0, 0)
        self.on_peer_report("trial", 1, 0.5)
        self.on_report("trial", 1, 0.5)
        self.resumable()
        self.is_paused("trial")
        self.on_end("trial")
        self.on_search_end(1)

    def add(self, trial: str, config: int, fold: int) -> None:
        """`trial` is about to start."""
        self._call("add", trial, config, fold)

    def on_report(self, trial: str, step: int, value: float) -> Decision:
        """What `trial` does; `SpecError` where the rule does not say."""
        decision = self._call("on_report", trial, step, value)
        if not isinstance(decision, Decision):
            rule = f"{self.name}.on_report gives CONTINUE, PAUSE or STOP of contrasweep.tuning.pruners"
            raise SpecError(rule, place="pruner", value=decision)
        return decision

    def on_peer_report(self, trial: str, step: int, value: float) -> None:
        """`trial` has reported; passed on to a pruner that compares peers."""
        if isinstance(self.pruner, ComparesPeers):
            self._call("on_peer_report", trial, step, value)

    def on_pause(self, trial: str) -> None:
        """`trial` has stopped as decided."""
        self._call("on_pause", trial)

    def on_end(self, trial: str, failed: bool = False) -> None:
        """`trial` will report no more."""
        self._call("on_end", trial, failed)

    def on_search_end(self, configs: int) -> None:
        """There are so many configurations."""
        self._call("on_search_end", configs)

    def resumable(self) -> list[str]:
        """Paused trials that go on."""
        return list(self._call("resumable"))

    def is_paused(self, trial: str) -> bool:
        """Whether `trial` may still be resumed."""
        return bool(self._call("is_paused", trial))

    def _call(self, method: str, *words: Any) -> Any:
        with errors_named(f"{self.name} fails in {method}", "pruner"):
            return getattr(self.pruner, method)(*words)
