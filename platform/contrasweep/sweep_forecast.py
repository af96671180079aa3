"""What a Sweep will cost: each arm's budget beside what the storage has of it."""

import statistics as stats
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from contrasweep.arm_budget import spent
from contrasweep.records import DONE, Record, StudyRecords
from contrasweep.sweep_planning import SweepPlan


@dataclass(frozen=True)
class SweepForecast:
    """The plan of a Sweep and the records there are. `slots` trials run at once."""

    plan: SweepPlan
    found: Mapping[str, Record]
    slots: int
    warnings: tuple[str, ...]

    @property
    def hours(self) -> float | None:
        """Wall hours to go if nothing is stopped early; None while no trial has finished, or where the budget counts no
        trials."""
        seconds = [r.seconds for r in self.found.values() if r.status == DONE]
        if self.plan.total is None:
            return None
        left = max(0, self.plan.total - len(self.found))
        return left * stats.fmean(seconds) / min(self.slots, max(1, left)) / 3600 if seconds else None

    def rows(self) -> list[dict[str, Any]]:
        """A row an arm: its trials of the search and the confirmation, planned and ended."""
        study, configurations = self.plan.study, self.plan.study.arm_budget.trials
        trials = configurations and configurations * len(self.plan.search_folds)
        ended, cost = [(r.arm, r.notes.get("phase")) for r in self.found.values()], spent(self.found.values(), study.arms)
        return [
            {"arm": arm, "searched": list(a.space), "starts_from": study.freeze.get(arm), "configurations": configurations,
             "search_trials": trials, "epochs": cost[arm].epochs, "gpu_hours": cost[arm].gpu_hours, "search_ended": ended.count((arm, "search")),
             "confirmation_trials": len(self.plan.replicates), "confirmation_ended": ended.count((arm, "confirm"))}
            for arm, a in study.arms.items()
        ]  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """The same as `to_text`, for programs."""
        return {"study": self.plan.study.name, "trials": self.plan.total, "search_trials": self.plan.searched, "ended": len(self.found),
                "hours": self.hours, "slots": self.slots, "plan_digest": self.plan.digest, "warnings": list(self.warnings), "table": self.rows()}  # fmt: skip

    def to_text(self) -> str:
        """For people: a line an arm, then the sums."""
        study, plan = self.plan.study, self.plan
        shown = [["arm", "search", "ended", "confirmation", "ended", "searched"]]
        shown += [[r["arm"], str(r["search_trials"] or "-"), str(r["search_ended"]), str(r["confirmation_trials"]), str(r["confirmation_ended"]),
                   ", ".join(r["searched"]) + (f" (on {r['starts_from']}'s best)" if r["starts_from"] else "")] for r in self.rows()]  # fmt: skip
        wide = [max(len(row[i]) for row in shown) for i in range(len(shown[0]))]
        lines = ["  ".join(f"{text:<{w}}" for text, w in zip(row, wide, strict=True)).rstrip() for row in shown]
        folds = "the dev split" if study.folds is None else f"fold{'s' * (len(plan.search_folds) > 1)} {', '.join(map(str, plan.search_folds))} of {study.folds}"
        where = f"{study.folds} folds x " if study.folds and study.confirm_on == "folds" else "the test split, "
        known = plan.total is None or any(r.status == DONE for r in self.found.values())
        unknown = "unknown, as how many trials the budget pays for" if known else "unknown until a trial has finished"
        hours = unknown if self.hours is None else f"{self.hours:.2f} h on {self.slots} slots"
        lines += ["", f"study     {study.name}: {study.metric} ({study.mode}) on {plan.data.name} ({plan.data.digest[:8]})",
                  f"search    {study.searcher}, {study.scheduler or 'no'} early stopping, seed {study.search_seed}, {folds}",
                  f"budget    equal: {study.arm_budget} an arm" + ("" if plan.searched is None else f", {plan.searched // len(study.arms)} trials an arm"),
                  *(f"spent     {arm}: {cost.beside(study.arm_budget)}" for arm, cost in spent(self.found.values(), study.arms).items() if cost.trials),
                  f"confirm   each arm's best on {where}{len(study.confirm_seeds)} fresh seeds; only these reach the table",
                  f"trials    {plan.confirmed} of the confirmation and as many of the search as the budget pays for, {len(self.found)} ended" if plan.total is None else
                  f"trials    {plan.total}: {plan.searched} of the search, {plan.confirmed} of the confirmation, {len(self.found)} ended",
                  f"time      {hours}"]  # fmt: skip
        return "\n".join([*lines, *(f"warning   {text}" for text in self.warnings)])


def read(plan: SweepPlan, storage: str, slots: int, warnings: tuple[str, ...]) -> SweepForecast:
    """Look up what has ended."""
    records = StudyRecords(storage, plan.study.name)
    return SweepForecast(plan, records.read(sorted(records.finished())), slots, warnings)
