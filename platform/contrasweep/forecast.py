"""What a plan will cost and what it can answer, before anything is spent."""

import statistics as stats
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.footprint import Footprint
from cluster.inventory import Inventory
from contrasweep.planning import Plan
from contrasweep.records import DONE, Record, StudyRecords
from contrasweep.spec import Sweep
from contrasweep.statistics import design
from contrasweep.sweep_forecast import SweepForecast, read
from contrasweep.sweep_planning import SweepPlan


@dataclass(frozen=True)
class Forecast:
    """The plan of a study beside what its storage has. `seconds` is per trial, from finished ones (None: none)."""

    plan: Plan
    done: Mapping[str, str]  # trial id -> status, of planned trials with a record
    seconds: Mapping[str, float]  # arm -> median training seconds
    slots: int
    warnings: tuple[str, ...]

    @property
    def hours(self) -> float | None:
        """Wall hours to go on the hosts planned for; None while no trial has finished."""
        if not self.seconds:
            return None
        usual = stats.median(self.seconds.values())
        left = [t for t in self.plan.trials if t.id not in self.done]
        total = sum(self.seconds.get(t.arm, usual) for t in left)
        return total / min(self.slots, max(1, len(left))) / 3600

    def to_dict(self) -> dict[str, Any]:
        """The same as `to_text`, for programs."""
        trials = self.plan.trials
        return {
            "study": self.plan.study.name, "cells": len(self.plan.cells), "trials": len(trials), "done": len(self.done),
            "to_run": len(trials) - len(self.done), "hours": self.hours, "slots": self.slots, "plan_digest": self.plan.digest,
            "warnings": list(self.warnings),
            "table": [{"arm": c.arm, **c.axes, "replicates": len(c.trials), "done": sum(t.id in self.done for t in c.trials)} for c in self.plan.cells],
        }  # fmt: skip

    def to_text(self, most_cells: int = 40) -> str:
        """For people: a line a cell, then the sums and the warnings."""
        study, trials = self.plan.study, self.plan.trials
        names = ["arm", *study.axis_names, "replicates", "done"]
        rows = [[c.arm, *(str(c.axes.get(a, "-")) for a in study.axis_names), str(len(c.trials)), str(sum(t.id in self.done for t in c.trials))]
                for c in self.plan.cells[:most_cells]]  # fmt: skip
        wide = [max(len(row[i]) for row in [names, *rows]) for i in range(len(names))]
        lines = ["  ".join(f"{text:<{w}}" for text, w in zip(row, wide, strict=True)).rstrip() for row in [names, *rows]]
        if len(self.plan.cells) > most_cells:
            lines.append(f"... and {len(self.plan.cells) - most_cells} more cells")
        data = ", ".join(f"{m.name} ({m.digest[:8]})" for m in self.plan.datasets.values())
        folds = f"{study.folds} folds" if study.folds else "the test split"
        hours = "unknown until a trial has finished" if self.hours is None else f"{self.hours:.2f} h on {self.slots} slots"
        lines += ["", f"study     {study.name}: {study.metric} ({study.mode}) on {data}, {folds} x {len(study.seeds)} seeds",
                  f"cells     {len(self.plan.cells)}",
                  f"trials    {len(trials)}: {len(self.done)} done, {len(trials) - len(self.done)} to run",
                  f"time      {hours}"]  # fmt: skip
        return "\n".join([*lines, *(f"warning   {text}" for text in self.warnings)])


def forecast(plan: Plan | SweepPlan, storage: str, cluster: Path | None = None) -> Forecast | SweepForecast:
    """Look up what is done and how long it took; `cluster` is an inventory file, else this machine is planned for."""
    if isinstance(plan, SweepPlan):
        inventory = Inventory.from_yaml(cluster) if cluster else Inventory.detect()
        return read(plan, storage, _slots(plan, inventory), _warnings(plan))
    records = StudyRecords(storage, plan.study.name)
    finished = records.finished()
    known = records.read(t.id for t in plan.trials if t.id in finished)
    inventory = Inventory.from_yaml(cluster) if cluster else Inventory.detect()
    return Forecast(plan, {i: r.status for i, r in known.items()}, _seconds(known), _slots(plan, inventory), _warnings(plan))


def _seconds(known: Mapping[str, Record]) -> dict[str, float]:
    done = [r for r in known.values() if r.status == DONE]
    return {arm: stats.median(r.seconds for r in done if r.arm == arm) for arm in {r.arm for r in done}}


def _slots(plan: Plan | SweepPlan, inventory: Inventory) -> int:
    """Trials at once: the arms' packing on these hosts, the tightest arm's."""
    from cluster.packing import at_once, default_footprint, options

    def held(footprint: Footprint) -> int:
        found = options(footprint, inventory)
        return max((sum(at_once(p, node) * node.count for node in inventory.nodes) for p in found), default=0)

    default = default_footprint(inventory)
    return max(1, min(held(arm.footprint or default) for arm in plan.study.arms.values()))


def _warnings(plan: Plan | SweepPlan) -> tuple[str, ...]:
    """What this many paired replicates cannot decide, for a table of all its arms' comparisons."""
    study = plan.study
    pairs = len(study.arms) * (len(study.arms) - 1) // 2 if study.reference is None else len(study.arms) - 1
    fraction = (study.folds - 1) / study.folds if study.folds else None
    replicates = study.folds if study.folds else len(study.confirm_seeds if isinstance(study, Sweep) else study.seeds)
    if pairs == 0 or replicates < 2:
        return ("one replicate a cell: differences cannot be told from noise; add seeds or folds",) if pairs else ()
    return design(replicates, comparisons=pairs, alpha=study.alpha, train_fraction=fraction).warnings
