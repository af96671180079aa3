"""Trials that fit no host that there is: they wait while the cluster may still grow, and then are `infeasible`."""

from collections import Counter
from collections.abc import Callable, Collection

from contrasweep.cluster.hosts import Hosts
from contrasweep.running.engine.placement import Placements
from contrasweep.tuning.source import Next

MAX_WAITING_PER_ARM = 4
"""Candidates of one arm's search that wait for a host, beside which its search still goes on: of many, those that were
suggested first would know too little."""


class DeferredTrials:
    """Candidates that wait for a larger host, in their order. `on_message` says so, once for each arm."""

    def __init__(self, placements: Placements, hosts: Hosts, on_message: Callable[[str], object]) -> None:
        self.placements, self.hosts, self.on_message = placements, hosts, on_message
        self.waiting: list[Next] = []
        self._said: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self.waiting)

    def put(self, candidate: Next) -> bool:
        """Let a candidate wait that fits no host; False if there is no host to wait for."""
        if not self.hosts.may_grow():
            return False
        self.waiting.append(candidate)
        if (arm := candidate.trial.arm) not in self._said:
            self._said.add(arm)
            self.on_message(f"arm {arm} waits for a larger host: {self.placements.why_not(candidate.trial)}")
        self.hosts.request({self.placements.footprint(deferred.trial) for deferred in self.waiting})
        return True

    def take(self) -> Next | None:
        """One that fits a host by now; None while there is none."""
        if (inventory := self.hosts.poll()) is not None:
            self.placements.grow(inventory)
        for candidate in self.waiting:
            if self.placements.fits(candidate.trial):
                self._remove(candidate)
                return candidate
        return None

    def held(self) -> set[str]:
        """Arms of which enough candidates wait."""
        waiting = Counter(candidate.trial.arm for candidate in self.waiting)
        return {arm for arm, count in waiting.items() if count >= MAX_WAITING_PER_ARM}

    def refuse(self) -> Next | None:
        """One that will never fit, once the cluster grows no more; None before that."""
        if not self.waiting or self.hosts.may_grow():
            return None
        candidate = self.waiting[0]
        self._remove(candidate)
        return candidate

    def _remove(self, candidate: Next) -> None:
        self.waiting.remove(candidate)
        still: Collection[Next] = [c for c in self.waiting if not self.placements.fits(c.trial)]
        self.hosts.request({self.placements.footprint(deferred.trial) for deferred in still})
