"""Where each trial goes: its footprint packed on the cluster's hosts, and more memory after it ran out of it."""

from collections.abc import Mapping
from typing import Any

from ray.tune import PlacementGroupFactory

from cluster import out_of_memory
from cluster.inventory import Inventory
from cluster.packing import Placement, at_once, default_footprint, options, why_not
from contrasweep.errors import SpecError
from contrasweep.spec import Study
from contrasweep.trial import Trial


class Placements:
    """Placement per arm, with what was learned about single trials on top."""

    def __init__(self, study: Study, inventory: Inventory) -> None:
        self.inventory = inventory
        self.footprints = {name: arm.footprint or default_footprint(inventory) for name, arm in study.arms.items()}
        self.raised: dict[str, Placement] = {}
        self.infeasible: set[str] = set()
        self.first: dict[str, Placement] = {}
        for name, footprint in self.footprints.items():
            found = options(footprint, inventory)
            if not found:
                raise SpecError("a trial must fit one host of the cluster", place=f"arms.{name}.footprint",
                                hint=why_not(footprint, inventory))  # fmt: skip
            self.first[name] = found[0]

    def of(self, described: Mapping[str, Any]) -> Placement:
        """The placement of a trial as `Job.describe` gives it."""
        return self.raised.get(described["id"], self.first[described["trial"]["arm"]])

    def gpus(self, trial: Trial) -> float:
        """GPUs, or the share of one, that a trial holds; 0 where it holds none."""
        return float(self.raised.get(trial.id, self.first[trial.arm]).share)

    def bundles(self, described: Mapping[str, Any]) -> PlacementGroupFactory:
        """What to ask Ray for."""
        placement = self.of(described)
        label = placement.label_selector()
        return PlacementGroupFactory([placement.resources()], **({"bundle_label_selector": [label]} if label else {}))

    def after_error(self, described: Mapping[str, Any], error: str) -> PlacementGroupFactory | None:
        """New bundles for a trial that ended in `error`; None if the error has nothing to do with memory or no
        host has more, which makes the trial infeasible."""
        memory = out_of_memory.which(error)
        if memory is None:
            return None
        more = out_of_memory.retry(self.of(described), memory, self.inventory)
        if more is None:
            self.infeasible.add(described["id"])
            return None
        self.raised[described["id"]] = more
        return self.bundles(described)

    def is_infeasible(self, described: Mapping[str, Any]) -> bool:
        return described["id"] in self.infeasible

    def slots(self) -> int:
        """Trials of the roomiest arm that the whole cluster holds at once."""
        return max(sum(at_once(p, node) * node.count for node in self.inventory.nodes) for p in self.first.values())
