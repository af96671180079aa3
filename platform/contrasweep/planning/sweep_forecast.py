"""What a Sweep will cost: each arm's budget beside what the storage has of it."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.inventory import Inventory
from cluster.simulate import Makespan
from contrasweep.planning.budget import Budget
from contrasweep.planning.durations import Durations
from contrasweep.planning.footprints import Footprints
from contrasweep.planning.forecast import Room, Rooms, answers, hosts
from contrasweep.planning.learned import learned_of
from contrasweep.planning.sweep import SweepPlan
from contrasweep.planning.text import notes, room_columns, table, time_lines
from contrasweep.storage.record import Phase, Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.study.arm_budget import spent


@dataclass(frozen=True)
class SweepForecast:
    """The plan of a Sweep and the records there are. `rooms` say by arm how its trials fit the hosts, at the largest of
    three points of its space; `makespan` is of the trials to come if nothing is stopped early, None while no trial has
    finished or where the budget counts no trials."""

    plan: SweepPlan
    found: Mapping[str, Record]
    rooms: Mapping[str, Room]
    inventory: Inventory
    makespan: Makespan | None
    budget: Budget
    warnings: tuple[str, ...]

    @property
    def hours(self) -> float | None:
        """Wall hours to go."""
        return self.makespan.hours if self.makespan else None

    @property
    def slots(self) -> int:
        """Trials at once, those of the arm of which the fewest fit."""
        return max(1, min((room.slots for room in self.rooms.values() if room.ways), default=1))

    def rows(self) -> list[dict[str, Any]]:
        """A row an arm: its trials of the search and the confirmation, planned and ended."""
        study, configurations = self.plan.study, self.plan.study.arm_budget.trials
        trials = self.plan.searched and self.plan.searched // len(study.arms)
        ended, cost = ([(r.arm, r.notes.phase) for r in self.found.values()], spent(self.found.values(), study.arms))
        return [
            {
                "arm": arm,
                "searched": list(a.space),
                "starts_from": study.freeze.get(arm),
                "configurations": configurations,
                "search_trials": trials,
                "epochs": cost[arm].epochs,
                "gpu_hours": cost[arm].gpu_hours,
                "search_ended": ended.count((arm, Phase.SEARCH)),
                "confirmation_trials": len(self.plan.replicates),
                "confirmation_ended": ended.count((arm, Phase.CONFIRM)),
                **self.rooms[arm].to_dict(),
            }
            for arm, a in study.arms.items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """The same as `to_text`, for programs."""
        return {
            "study": self.plan.study.name,
            "trials": self.plan.total,
            "search_trials": self.plan.searched,
            "ended": len(self.found),
            "hours": self.hours,
            "slots": self.slots,
            "plan_digest": self.plan.digest,
            "warnings": list(self.warnings),
            "table": self.rows(),
            "makespan": vars(self.makespan) if self.makespan else None,
            "budget": self.budget.to_dict(),
        }

    def to_text(self) -> str:
        """For people: a line an arm, then the sums."""
        study, plan = self.plan.study, self.plan
        shown = [["arm", "search", "ended", "confirmation", "ended"]]
        shown += [
            [
                r["arm"],
                str(r["search_trials"] or "-"),
                str(r["search_ended"]),
                str(r["confirmation_trials"]),
                str(r["confirmation_ended"]),
            ]
            for r in self.rows()
        ]
        searched = [
            ["searched"],
            *(
                [", ".join(r["searched"]) + (f" (on {r['starts_from']}'s best)" if r["starts_from"] else "")]
                for r in self.rows()
            ),
        ]
        columns = room_columns([self.rooms[arm] for arm in study.arms], self.inventory)
        lines = table([row + more + last for row, more, last in zip(shown, columns, searched, strict=True)])
        folds = (
            "the dev split"
            if study.folds is None
            else f"fold{'s' * (len(plan.search_folds) > 1)} {', '.join(map(str, plan.search_folds))} of {study.folds}"
        )
        where = f"{study.folds} folds x " if study.folds and study.confirm_on == "folds" else "the test split, "
        known = plan.total is None or any(r.status == Status.DONE for r in self.found.values())
        unknown = "unknown, as how many trials the budget pays for" if known else "unknown until a trial has finished"
        lines += [
            "",
            f"study     {study.name}: {study.metric} ({study.mode}) on {plan.data.name} ({plan.data.digest[:8]})",
            f"search    {study.searcher}, {study.scheduler or 'no'} early stopping, seed {study.search_seed}, {folds}",
            f"budget    equal: {study.arm_budget} an arm"
            + ("" if plan.searched is None else f", {plan.searched // len(study.arms)} trials an arm"),
            *(
                f"spent     {arm}: {cost.beside(study.arm_budget)}"
                for arm, cost in spent(self.found.values(), study.arms).items()
                if cost.trials
            ),
            f"confirm   each arm's best on {where}{len(study.confirm_seeds)} fresh seeds; only these reach the table",
            f"trials    {plan.confirmed} of the confirmation and as many of the search as the budget pays for, "
            f"{len(self.found)} ended"
            if plan.total is None
            else f"trials    {plan.total}: {plan.searched} of the search, {plan.confirmed} of the confirmation, "
            f"{len(self.found)} ended",
            *time_lines(self.makespan, self.inventory, self.slots, unknown),
            *notes(self.rooms.items(), self.inventory),
        ]
        return "\n".join([*lines, *(f"warning   {text}" for text in self.warnings)])


def of_sweep(plan: SweepPlan, storage: str, cluster: Path | None = None) -> SweepForecast:
    """Look up what has ended; `cluster` is an inventory file, else this machine is planned for."""
    records, inventory = StudyRecords(storage, plan.study.name), hosts(cluster)
    found = records.read(sorted(records.finished()))
    lookup = Rooms(Footprints(plan.study, inventory, learned_of(records, found.values())))
    rooms = {arm: max((lookup.of(trial) for trial in plan.samples(arm)), key=_size) for arm in plan.study.arms}
    left = list(_left(plan, found))
    durations = Durations(found.values(), inventory)
    footprints = [rooms[arm].need.footprint for arm in left]
    makespan = None if plan.total is None else durations.makespan(footprints, [durations.of(arm) for arm in left])
    budget = Budget(plan.study, records, found.values())
    warnings = (*durations.warnings(), *budget.warnings(makespan), *answers(plan.study))
    return SweepForecast(plan, found, rooms, inventory, makespan, budget, warnings)


def _left(plan: SweepPlan, found: Mapping[str, Record]) -> Iterator[str]:
    """The arm of each trial to come: the searches in turns, then the confirmations in turns."""
    arms, ended = list(plan.study.arms), Counter((r.arm, r.notes.phase) for r in found.values())
    for phase, trials in ((Phase.SEARCH, (plan.searched or 0) // len(arms)), (Phase.CONFIRM, len(plan.replicates))):
        for i in range(trials):
            yield from (arm for arm in arms if i >= ended[arm, phase])


def _size(room: Room) -> tuple[bool, float, float]:
    footprint = room.need.footprint
    return not room.ways, footprint.gpu_memory_gib, footprint.host_memory_gib
