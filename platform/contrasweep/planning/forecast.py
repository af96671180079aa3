"""What a plan will cost and what it can answer, before anything is spent."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from contrasweep.cluster.inventory import Inventory, read_inventory, this_machine
from contrasweep.cluster.packing import PackingRow, place
from contrasweep.cluster.simulate import Makespan
from contrasweep.planning import text
from contrasweep.planning.budget import Budget
from contrasweep.planning.capacity import Capacities, Capacity
from contrasweep.planning.durations import Durations, duration
from contrasweep.planning.footprints import Footprints
from contrasweep.planning.lanes import open_lanes
from contrasweep.planning.learned import learned_of
from contrasweep.planning.missing import MissingDataset, missing_lines
from contrasweep.planning.plan import Lot, Plan
from contrasweep.planning.power import power_lines, power_warnings
from contrasweep.planning.sizes import PlannedSize, other_question, planned_sizes
from contrasweep.storage.record import Record
from contrasweep.storage.records import StudyRecords
from contrasweep.study.grid import AblationGrid
from contrasweep.study.trainables import unchecked_settings


@dataclass(frozen=True)
class LotForecast:
    """Trials of one kind: how they fit the hosts, and the expected seconds of one: `counted` from the work of its steps
    before any has finished (None where that is not known)."""

    lot: Lot
    capacity: Capacity
    seconds: float | None
    counted: bool = False


@dataclass(frozen=True)
class Forecast:
    """The plan of a study beside the `records` there are. `packing` says how many of the trials to run go where
    (`cluster.packing.Packing.summary`), `makespan` how long that takes if nothing is stopped early: None where the
    seconds of a trial are not known, or where the budget counts no trials."""

    plan: Plan
    records: Mapping[str, Record]
    lots: tuple[LotForecast, ...]
    inventory: Inventory
    packing: tuple[PackingRow, ...]
    makespan: Makespan | None
    budget: Budget
    warnings: tuple[str, ...]
    durations: Durations
    lanes: tuple[str, ...] = ()
    """Lines on how trials train, where the study asks for more than alone."""
    missing: tuple[MissingDataset, ...] = ()
    """Datasets that are not staged, whose cells are not in the plan."""

    @property
    def hours(self) -> float | None:
        """Wall hours to go on the hosts planned for; None where it is not known."""
        return self.makespan.hours if self.makespan else None

    @property
    def counted(self) -> bool:
        """Whether the hours are of counted work: no trial of some kind has finished yet."""
        return self.makespan is not None and any(lot.counted for lot in self.lots)

    @property
    def slots(self) -> int:
        """How many trials run concurrently, for the most demanding lot."""
        return max(1, min((lot.capacity.slots for lot in self.lots if lot.capacity.placements), default=1))

    def hours_of(self, trials: Mapping[str, int]) -> float | None:
        """Wall hours of so many trials of each arm, spread over its cells, on the hosts planned for, simulated; None
        where the seconds of a trial are not known, or an arm is not in the plan."""
        lots: dict[str, list[LotForecast]] = {}
        for lot in self.lots:
            lots.setdefault(lot.lot.arm, []).append(lot)
        if not set(trials) <= set(lots):
            return None
        each = [lot for arm, count in trials.items() for lot in islice(cycle(lots[arm]), count)]
        makespan = self.durations.makespan(
            [lot.capacity.requirement.footprint for lot in each], [lot.seconds for lot in each]
        )
        return makespan.hours if makespan else None

    def power_lines(self) -> list[str]:
        """What the study decides as it is declared, what it would at two and four times its replicates, with the price
        of what is beyond the plan, and what its other question could."""
        study, lines = self.plan.study, power_lines(self.plan.study)
        for size in self.sizes[1:]:
            more = "" if size.trials is None else f", {size.trials * (size.times - 1) // size.times} trials more"
            hours = self.hours_of(self._added(size.times)) if size.trials is not None else None
            time = "" if hours is None else f", {duration(3600 * hours)}"
            lines.append(
                f"  x{size.times}      {size.seeds} seeds{more}{time}: {size.detectable:.2g} standard deviations"
            )
        return [*lines, *other_question(study)]

    def _added(self, times: int) -> dict[str, int]:
        added: dict[str, int] = {}
        for lot in self.lots:
            added[lot.lot.arm] = added.get(lot.lot.arm, 0) + (times - 1) * len(lot.lot.trials)
        return added

    @property
    def sizes(self) -> list[PlannedSize]:
        """What the study decides as declared, and at two and four times its replicates; none where it says nothing of
        noise or looks for itself."""
        study = self.plan.study
        if study.replicates is not None or not isinstance(study, AblationGrid):
            return []
        return [size for size in planned_sizes(study, self.plan.total) if math.isfinite(size.detectable)]

    def to_dict(self) -> dict[str, object]:
        """What `to_text` shows, for programs."""
        return {
            "study": self.plan.study.name,
            **self.plan.totals(self.records),
            "hours": self.hours,
            "hours_are_counted": self.counted,
            "slots": self.slots,
            "plan_digest": self.plan.digest,
            "packing": list(self.packing),
            "makespan": vars(self.makespan) if self.makespan else None,
            "budget": self.budget.to_dict(),
            "warnings": list(self.warnings),
            "sizes": [vars(size) for size in self.sizes],
            "missing": [dataset.to_dict() for dataset in self.missing],
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
            *missing_lines(self.missing),
            *text.packing_lines(self.packing),
            *self.lanes,
            *text.time_lines(self.makespan, self.inventory, self.slots, unknown, self.counted),
            *text.notes([(f.lot.arm, f.capacity) for f in self.lots], self.inventory),
        ]
        said = [*self.power_lines(), *(f"warning   {line}" for line in self.warnings)]
        return "\n".join([*lines, *(text.hanging(line, width) for line in said)])


def forecast(
    plan: Plan, storage: str, cluster: Path | None = None, missing: tuple[MissingDataset, ...] = ()
) -> Forecast:
    """Look up what has ended and how long it took; `cluster` is an inventory file, else this machine is planned for.
    `missing` are the datasets whose cells the plan leaves out."""
    records, inventory = StudyRecords(storage, plan.study.name), hosts(cluster)
    known = records.read(sorted(plan.own(records.finished())))
    footprints = Footprints(plan.study, inventory, learned_of(records, known.values()))
    capacities = Capacities(footprints)
    lanes = open_lanes(plan, footprints, known, records)
    durations = Durations(known.values(), inventory)
    lots = tuple(
        _lot(lot, capacities.of(lot.samples), durations, footprints) for lot in lanes.annotated(plan.lots(known))
    )
    packing: list[PackingRow] = []
    makespan = None
    if (left := plan.left(known)) is not None:
        to_run = [lots[number] for number in left]
        needs, seconds = [f.capacity.requirement.footprint for f in to_run], [f.seconds for f in to_run]
        packing = place(needs, inventory, seconds=[s or 1.0 for s in seconds]).summary()
        makespan = durations.makespan(needs, seconds)
    budget = Budget(plan.study, records, known.values())
    study = plan.study
    warnings = (*durations.warnings(), *budget.warnings(makespan), *power_warnings(study), *unchecked_settings(study))
    lines = tuple(lanes.lines([f.lot for f in lots]))
    return Forecast(plan, known, lots, inventory, tuple(packing), makespan, budget, warnings, durations, lines, missing)


def _lot(lot: Lot, capacity: Capacity, durations: Durations, footprints: Footprints) -> LotForecast:
    """The lot with its seconds: those that trials took, else those of the longest of its samples by counted work."""
    seconds = durations.of(lot.arm, lot.trials)
    if seconds is not None:
        return LotForecast(lot, capacity, seconds)
    each = [footprints.seconds(trial) for trial in lot.samples]
    known = [seconds for seconds in each if seconds is not None]
    complete = known and len(known) == len(each)
    return LotForecast(lot, capacity, max(known) if complete else None, bool(complete))


def hosts(cluster: Path | None) -> Inventory:
    """The inventory in the file `cluster`, or this machine."""
    return read_inventory(cluster) if cluster else this_machine()
