"""What a plan will cost and what it can answer, before anything is spent."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.inventory import Inventory, read_inventory, this_machine
from cluster.packing import Placement, place, slots_on
from cluster.simulate import Makespan
from contrasweep.planning.budget import Budget
from contrasweep.planning.durations import Durations
from contrasweep.planning.footprints import Footprints, Need
from contrasweep.planning.grid import Cell, Plan
from contrasweep.planning.learned import learned_of
from contrasweep.statistics import design
from contrasweep.storage.records import StudyRecords
from contrasweep.study.study import Study, Sweep
from contrasweep.trial import Trial

if TYPE_CHECKING:
    from contrasweep.planning.sweep import SweepPlan
    from contrasweep.planning.sweep_forecast import SweepForecast


@dataclass(frozen=True)
class Room:
    """How trials of one kind fit the hosts: their need, the first choice among `ways` to place one (none: they fit no
    host, and `why_not` says why), and how many run at once if no others do."""

    need: Need
    ways: tuple[Placement, ...]
    slots: int
    why_not: str = ""

    def to_dict(self) -> dict[str, Any]:
        """For programs: memory in GiB; shares as text, 1/4."""
        first = self.ways[0] if self.ways else None
        on = self.need.footprint.on(first.gpu) if first and first.gpu else self.need.footprint
        return {
            "memory_gib": round(on.gpu_memory_gib, 3) if on.wants_gpu else None,
            "memory_source": self.need.source,
            "host_memory_gib": on.host_memory_gib,
            "cpus": on.cpus,
            "gpu": first.gpu if first else None,
            "share": str(first.share) if first and first.gpu else None,
            "per_gpu": first.per_gpu if first and first.gpu else None,
            "types": [{"gpu": way.gpu, "share": str(way.share)} for way in self.ways if way.gpu],
            "slots": self.slots,
            "infeasible": self.why_not or None,
        }


@dataclass(frozen=True)
class CellForecast:
    """A cell of the plan: how its trials fit, how many are done, and how long one takes (None: nobody knows)."""

    cell: Cell
    done: int
    room: Room
    seconds: float | None


@dataclass(frozen=True)
class Forecast:
    """The plan of a study beside what its storage has. `packing` says how many of the trials to run go where
    (`cluster.packing.Packing.summary`), `makespan` how long that takes, None while none has finished."""

    plan: Plan
    done: Mapping[str, str]  # trial id -> status, of planned trials with a record
    cells: tuple[CellForecast, ...]
    inventory: Inventory
    packing: tuple[dict[str, Any], ...]
    makespan: Makespan | None
    budget: Budget
    warnings: tuple[str, ...]

    @property
    def hours(self) -> float | None:
        """Wall hours to go on the hosts planned for; None while no trial has finished."""
        return self.makespan.hours if self.makespan else None

    @property
    def slots(self) -> int:
        """Trials at once, those of the cell of which the fewest fit."""
        return max(1, min((c.room.slots for c in self.cells if c.room.ways), default=1))

    def to_dict(self) -> dict[str, Any]:
        """What `forecast_text.of_plan` shows, for programs."""
        trials = self.plan.trials
        return {
            "study": self.plan.study.name,
            "cells": len(self.cells),
            "trials": len(trials),
            "done": len(self.done),
            "to_run": len(trials) - len(self.done),
            "hours": self.hours,
            "slots": self.slots,
            "plan_digest": self.plan.digest,
            "packing": list(self.packing),
            "makespan": vars(self.makespan) if self.makespan else None,
            "budget": self.budget.to_dict(),
            "warnings": list(self.warnings),
            "table": [
                {
                    "arm": c.cell.arm,
                    **c.cell.axes,
                    "replicates": len(c.cell.trials),
                    "done": c.done,
                    "seconds": c.seconds,
                    **c.room.to_dict(),
                }
                for c in self.cells
            ],
        }

    def to_text(self) -> str:
        from contrasweep.planning.text import of_plan

        return of_plan(self)


def forecast(plan: "Plan | SweepPlan", storage: str, cluster: Path | None = None) -> "Forecast | SweepForecast":
    """Look up what is done and how long it took; `cluster` is an inventory file, else this machine is planned for."""
    if not isinstance(plan, Plan):
        from contrasweep.planning.sweep_forecast import of_sweep

        return of_sweep(plan, storage, cluster)
    records = StudyRecords(storage, plan.study.name)
    finished = records.finished()
    known = records.read(t.id for t in plan.trials if t.id in finished)
    inventory = hosts(cluster)
    footprints = Footprints(plan.study, inventory, learned_of(records, known.values()))
    durations, rooms = Durations(known.values(), inventory), Rooms(footprints)
    cells = tuple(
        CellForecast(c, sum(t.id in known for t in c.trials), rooms.of(c.trials[0]), durations.of(c.arm, c.trials))
        for c in plan.cells
    )
    of_trial = {t.id: c for c in cells for t in c.cell.trials}
    left = [of_trial[t.id] for t in plan.trials if t.id not in known]
    footprints_left, seconds = [c.room.need.footprint for c in left], [c.seconds for c in left]
    packing = place(footprints_left, inventory, seconds=[s or 1.0 for s in seconds]).summary()
    makespan = durations.makespan(footprints_left, seconds)
    budget = Budget(plan.study, records, known.values())
    warnings = (*durations.warnings(), *budget.warnings(makespan), *answers(plan.study))
    return Forecast(
        plan, {i: r.status for i, r in known.items()}, cells, inventory, tuple(packing), makespan, budget, warnings
    )


def hosts(cluster: Path | None) -> Inventory:
    """The inventory in the file `cluster`, or this machine."""
    return read_inventory(cluster) if cluster else this_machine()


class Rooms:
    """How trials fit, looked up once for each footprint."""

    def __init__(self, footprints: Footprints) -> None:
        self.footprints = footprints
        self.slots: dict[Placement, int] = {}

    def of(self, trial: Trial) -> Room:
        ways = tuple(self.footprints.options(trial))
        for way in ways:
            if way not in self.slots:
                self.slots[way] = sum(slots_on(way, node) * node.count for node in self.footprints.inventory.nodes)
        return Room(
            self.footprints.of(trial),
            ways,
            sum(self.slots[way] for way in ways),
            "" if ways else self.footprints.why_not(trial),
        )


def answers(study: Study) -> tuple[str, ...]:
    """What this many paired replicates cannot decide, for a table of all its arms' comparisons."""
    pairs = len(study.arms) * (len(study.arms) - 1) // 2 if study.reference is None else len(study.arms) - 1
    fraction = (study.folds - 1) / study.folds if study.folds else None
    replicates = study.folds if study.folds else len(study.confirm_seeds if isinstance(study, Sweep) else study.seeds)
    if pairs == 0 or replicates < 2:
        return ("one replicate a cell: differences cannot be told from noise; add seeds or folds",) if pairs else ()
    return design(replicates, comparisons=pairs, alpha=study.alpha, train_fraction=fraction).warnings
