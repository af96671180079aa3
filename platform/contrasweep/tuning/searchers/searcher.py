"""What is searched, what a searcher is, and the one that follows a list."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from contrasweep import canonical
from contrasweep.config import Config, MutableConfig
from contrasweep.study.space import Space
from contrasweep.tuning.searchers.finite import configurations


@dataclass(frozen=True)
class Problem:
    """What a searcher is built for. `fixed` are the config's other keys, for conditions on them; `modes` the direction
    of each objective; `budget` how often it will be asked (None: not known); `constraints` how many there are."""

    space: Space
    fixed: Config
    seed: int
    modes: tuple[str, ...]
    budget: int | None
    constraints: int = 0


@runtime_checkable
class Searcher(Protocol):
    """Suggests configurations of a space and learns what became of them."""

    def ask(self) -> MutableConfig | None:
        """A configuration that was not asked before; None when there is none left."""

    def tell(
        self,
        config: MutableConfig,
        value: float | Sequence[float] | None,
        pruned_at: int | None = None,
        violations: Sequence[float] = (),
    ) -> None:
        """What came of `config`: its value, one for each of several objectives, or None if it failed. `pruned_at`: it
        was stopped at that step, with the value it had there. `violations`: by how much it breaks each constraint;
        at or below 0 it holds."""

    def replay(self, config: MutableConfig) -> None:
        """Take `config` as asked, as it was before an interruption or by somebody else."""


class ListSearcher:
    """Asks for the configurations given, each once, and learns nothing."""

    def __init__(self, space: Space, fixed: Config, configs: Iterator[MutableConfig]) -> None:
        self.configs = configs
        self.finite = configurations(space, fixed)
        self.seen: set[str] = set()

    def ask(self) -> MutableConfig | None:
        """The next configuration of the list that was not seen; None at its end or that of the space."""
        while self.finite is None or len(self.seen & self.finite.keys()) < len(self.finite):
            config = next(self.configs, None)
            if config is None:
                return None
            if (text := canonical.dumps(config)) not in self.seen:
                self.seen.add(text)
                return config
        return None

    def tell(
        self,
        config: MutableConfig,
        value: float | Sequence[float] | None,
        pruned_at: int | None = None,
        violations: Sequence[float] = (),
    ) -> None:
        """What comes does not depend on values."""

    def replay(self, config: MutableConfig) -> None:
        """Skip it when the list comes to it."""
        self.seen.add(canonical.dumps(config))
