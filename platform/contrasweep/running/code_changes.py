"""Before a run spends anything: which recorded trials would this code make otherwise, and what of them runs again."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from contrasweep.errors import ContrasweepError, SpecError, choose_from
from contrasweep.planning.identity import CodeComparison, PresentCode, compare_code, version_notes
from contrasweep.planning.plan import Plan
from contrasweep.planning.selection import selected_trials
from contrasweep.storage import compact
from contrasweep.storage.code_files import accept
from contrasweep.storage.record import Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.superseded import put_aside

Changed = Literal["stop", "rerun", "accept"]
"""What becomes of trials of other code: the run stops; they are put aside and run again; they are kept."""


class CodeChanged(ContrasweepError):
    """Recorded trials were made by other code, and nothing says what is to become of them."""


@dataclass(frozen=True)
class Decision:
    """What a run does with the trials there are, decided and not yet done."""

    comparison: CodeComparison
    changed: Changed
    selected: frozenset[str]  # that run again because somebody asked for them
    failed: frozenset[str]  # that failed and run again; of them `restarted` from their beginning
    restarted: frozenset[str]
    notes: tuple[str, ...]

    def carry_out(self, records: StudyRecords) -> set[str]:
        """Put trials aside, or accept the changes; the ids of those that are not finished any more."""
        if self.selected:
            put_aside(records, self.selected, "run again as asked")
        if self.restarted:
            put_aside(records, self.restarted, "failed, and the code has changed since")
        for trial_id in self.failed - self.restarted - self.selected:
            records.reopen(trial_id)
        again = {*self.selected, *self.failed}
        if self.changed == "rerun" and (ids := self.comparison.trial_ids()):
            put_aside(records, ids, self.comparison.line(all_=True))
            again |= set(ids)
        if self.changed == "accept":
            accept(records, [(other.old, other.new) for other in self.comparison.pending()])
        return again


def decide(
    plan: Plan,
    records: StudyRecords,
    present: PresentCode,
    *,
    changed: Changed = "stop",
    rerun: Collection[str] = (),
    retry_failed: bool = False,
    adopted: Mapping[str, Record] | None = None,
) -> Decision:
    """Read what there is, and `adopted` from an earlier release, and say what becomes of it; nothing is changed. Raises
    `CodeChanged` where trials of other code are left and `changed` is "stop", `SpecError` for a word of `rerun` that
    names no trial."""
    if changed not in get_args(Changed):
        raise SpecError(
            "there is no such way to treat changed code",
            place="changed",
            value=changed,
            hint=choose_from("ways", list(get_args(Changed)), changed),
        )
    recorded = {**plan_records(plan, records), **(adopted or {})}
    selected = selected_trials(plan, recorded, rerun, "--rerun") if rerun else set()
    selected &= {*recorded, *records.begun()}
    kept = {i: record for i, record in recorded.items() if i not in selected}
    lost = {i for i, record in kept.items() if record.status is Status.FAILED} if retry_failed else set()
    comparison, notes = compared(plan, records, present, kept, selected)
    if changed == "stop" and (line := comparison.line()):
        raise CodeChanged(
            f"{line}; pass --rerun-changed to run them again (what there is moves to superseded/), or --accept-code to "
            f"keep them (every table says so); see contrasweep code {records.study} --storage {records.storage}"
        )
    restarted = set() if changed == "accept" else {i for i in lost if _is_other(kept[i], present)}
    return Decision(comparison, changed, frozenset(selected), frozenset(lost), frozenset(restarted), tuple(notes))


def compared(
    plan: Plan,
    records: StudyRecords,
    present: PresentCode,
    recorded: Mapping[str, Record],
    without: Collection[str] = (),
) -> tuple[CodeComparison, list[str]]:
    """The trials that were made by other code, those of the ids `without` aside, and notes on other versions of
    packages. A trial that failed has no place in a table and is not compared."""
    scored = [record for record in recorded.values() if record.status not in (Status.FAILED, Status.INFEASIBLE)]
    trials = [trial for trial in (*plan.trials, *plan.sample_trials) if trial.id not in without]
    notes = version_notes(scored, [present.of(t.trainable, t.config).version for t in plan.sample_trials])
    return compare_code(records, scored, trials, present, plan.total), notes


def compare_plan(plan: Plan, records: StudyRecords) -> tuple[CodeComparison, list[str]]:
    """The same for a plan that nobody runs yet."""
    return compared(plan, records, PresentCode(plan.functions), plan_records(plan, records))


def plan_records(plan: Plan, records: StudyRecords) -> dict[str, Record]:
    """The records of the plan's own trials."""
    etags = compact.record_etags(records)
    own = plan.own(etags)
    known = compact.read_records(records, {i: etag for i, etag in etags.items() if i in own})
    return {i: record for i, record in known.items() if record.arm in plan.study.arms}


def _is_other(record: Record, present: PresentCode) -> bool:
    return record.code.digest != present.of(record.trainable, record.config).version.digest
