"""What a plan will cost and what it can answer, before anything is spent."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.inventory import Inventory, read_inventory, this_machine
from cluster.packing import place
from cluster.simulate import Makespan
from contrasweep.planning import text
from contrasweep.planning.budget import Budget
from contrasweep.planning.capacity import Capacities, Capacity
from contrasweep.planning.durations import Durations
from contrasweep.planning.footprints import Footprints
from contrasweep.planning.learned import learned_of
from contrasweep.planning.plan import Lot, Plan
from contrasweep.statistics import design
from contrasweep.storage.record import Record
from contrasweep.storage.records import StudyRecords
from contrasweep.study.study import Study, Sweep


@dataclass(frozen=True)
class LotForecast:
    """Trials of one kind: how they fit the hosts, and the expected seconds of one (None before any has finished)."""

    lot: Lot
    capacity: Capacity
    seconds: float | None


@dataclass(frozen=True)
class Forecast:
    """The plan of a study beside the `records` there are. `packing` says how many of the trials to run go where
    (`cluster.packing.Packing.summary`), `makespan` how long that takes if nothing is stopped early: None before any
    trial has finished, or where the budget counts no trials."""

    plan: Plan
    records: Mapping[str, Record]
    lots: tuple[LotForecast, ...]
    inventory: Inventory
    packing: tuple[dict[str, Any], ...]
    makespan: Makespan | None
    budget: Budget
    warnings: tuple[str, ...]

    @property
    def hours(self) -> float | None:
        """Wall hours to go on the hosts planned for; None where it is not known."""
        return self.makespan.hours if self.makespan else None

    @property
    def slots(self) -> int:
        """How many trials run concurrently, for the most demanding lot."""
        return max(1, min((lot.capacity.slots for lot in self.lots if lot.capacity.placements), default=1))

    def to_dict(self) -> dict[str, Any]:
        """What `to_text` shows, for programs."""
        return {
            "study": self.plan.study.name,
            **self.plan.totals(self.records),
            "hours": self.hours,
            "slots": self.slots,
            "plan_digest": self.plan.digest,
            "packing": list(self.packing),
            "makespan": vars(self.makespan) if self.makespan else None,
            "budget": self.budget.to_dict(),
            "warnings": list(self.warnings),
            "table": [{**f.lot.facts, "seconds": f.seconds, **f.capacity.to_dict()} for f in self.lots],
        }

    def to_text(self, width: int | None = None) -> str:
        """For people: a line a lot, folded in a terminal of `width` columns, then the sums and the warnings."""
        unbounded = self.plan.total is None
        unknown = "unknown, as how many trials the budget pays for" if unbounded else text.UNTIL_ONE_FINISHED
        lines = [
            *text.table([(f.lot, f.capacity) for f in self.lots], self.inventory, width),
            "",
            *self.plan.lines(self.records),
            *text.packing_lines(self.packing),
            *text.time_lines(self.makespan, self.inventory, self.slots, unknown),
            *text.notes([(f.lot.arm, f.capacity) for f in self.lots], self.inventory),
        ]
        return "\n".join([*lines, *(f"warning   {line}" for line in self.warnings)])


def forecast(plan: Plan, storage: str, cluster: Path | None = None) -> Forecast:
    """Look up what has ended and how long it took; `cluster` is an inventory file, else this machine is planned for."""
    records, inventory = StudyRecords(storage, plan.study.name), hosts(cluster)
    known = records.read(sorted(plan.own(records.finished())))
    capacities = Capacities(Footprints(plan.study, inventory, learned_of(records, known.values())))
    durations = Durations(known.values(), inventory)
    lots = tuple(
        LotForecast(lot, capacities.of(lot.samples), durations.of(lot.arm, lot.trials)) for lot in plan.lots(known)
    )
    packing: list[dict[str, Any]] = []
    makespan = None
    if (left := plan.left(known)) is not None:
        to_run = [lots[number] for number in left]
        footprints, seconds = [f.capacity.requirement.footprint for f in to_run], [f.seconds for f in to_run]
        packing = place(footprints, inventory, seconds=[s or 1.0 for s in seconds]).summary()
        makespan = durations.makespan(footprints, seconds)
    budget = Budget(plan.study, records, known.values())
    warnings = (*durations.warnings(), *budget.warnings(makespan), *power_warnings(plan.study))
    return Forecast(plan, known, lots, inventory, tuple(packing), makespan, budget, warnings)


def hosts(cluster: Path | None) -> Inventory:
    """The inventory in the file `cluster`, or this machine."""
    return read_inventory(cluster) if cluster else this_machine()


def power_warnings(study: Study) -> tuple[str, ...]:
    """What this many paired replicates cannot decide, for a table of all its arms' comparisons."""
    pairs = len(study.arms) * (len(study.arms) - 1) // 2 if study.reference is None else len(study.arms) - 1
    fraction = (study.folds - 1) / study.folds if study.folds else None
    replicates = study.folds if study.folds else len(study.confirm_seeds if isinstance(study, Sweep) else study.seeds)
    if pairs == 0 or replicates < 2:
        return ("one replicate a cell: differences cannot be told from noise; add seeds or folds",) if pairs else ()
    return design(replicates, comparisons=pairs, alpha=study.alpha, train_fraction=fraction).warnings
