"""Before a run spends anything: which recorded trials would this code make otherwise, and what of them runs again."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast, get_args

from contrasweep.code import CurrentCode
from contrasweep.errors import ContrasweepError, SpecError, choose_from
from contrasweep.planning import learned
from contrasweep.planning.code_comparison import CodeComparison, compare_code, version_notes
from contrasweep.planning.plan import Plan
from contrasweep.planning.selection import selected_trials
from contrasweep.running.failures import lacks_metric, unreported_metric
from contrasweep.storage import compact
from contrasweep.storage.archive import archive_trials
from contrasweep.storage.code_files import accept
from contrasweep.storage.record import Phase, Record
from contrasweep.storage.records import StudyRecords
from contrasweep.tuning.sweep_source import earlier_results

Changed = Literal["stop", "rerun", "accept"]
"""What becomes of trials of other code: the run stops; they are archived and run again; they are kept."""


class CodeChanged(ContrasweepError):
    """Recorded trials were made by other code, and nothing says what is to become of them."""


@dataclass(frozen=True)
class NewSearches:
    """Searches that start anew (arm -> digest), and all trials of their arms.

    Results of other code have chosen the candidates of these searches.
    """

    searches: Mapping[str, str] = field(default_factory=dict)
    trial_ids: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Decision:
    """What a run does with the trials there are, decided and not yet done."""

    comparison: CodeComparison
    changed: Changed
    selected: frozenset[str]  # that run again because somebody asked for them
    failed: frozenset[str]  # that failed and run again; of them `restarted` from their beginning
    restarted: frozenset[str]
    notes: tuple[str, ...]
    anew: NewSearches
    infeasible: Mapping[str, Record]  # of trials that fitted no host; they run where one does now

    def carry_out(self, records: StudyRecords) -> set[str]:
        """Put trials aside, or accept the changes; the ids of those that are not finished any more."""
        ids = set(self.comparison.trial_ids()) if self.changed == "rerun" else set()
        if self.selected:
            searches = self.anew if not ids else NewSearches()
            archive_trials(records, {*self.selected, *searches.trial_ids}, "run again as asked", searches.searches)
        if self.restarted:
            archive_trials(records, self.restarted, "failed, and the code has changed since")
        for trial_id in self.failed - self.restarted - self.selected:
            records.reopen(trial_id)
        again = {*self.selected, *self.failed, *self.anew.trial_ids}
        if ids:
            moved = {*ids, *self.anew.trial_ids} - self.selected
            archive_trials(records, moved, self.comparison.line(all_=True), self.anew.searches)
            again |= ids
        if ids or self.selected or self.restarted:
            learned.forget(records)
        if self.changed == "accept":
            accept(records, [(other.old, other.new) for other in self.comparison.pending()])
        return again


def decide(
    plan: Plan,
    records: StudyRecords,
    current: CurrentCode,
    *,
    changed: Changed = "stop",
    rerun: Collection[str] = (),
    retry_failed: bool = False,
) -> Decision:
    """Read what there is, and decide what becomes of it; nothing is changed.

    Raises `CodeChanged` where trials of other code are left and `changed` is "stop", and `SpecError` for a word of
    `rerun` that names no trial.
    """
    if changed not in get_args(Changed):
        raise SpecError(
            "there is no such way to treat changed code",
            place="changed",
            value=changed,
            hint=choose_from("ways", list(get_args(Changed)), changed),
        )
    recorded = plan_records(plan, records)
    selected = selected_trials(plan, recorded, rerun, "--rerun") if rerun else set()
    selected &= {*recorded, *records.begun()}
    kept = {i: record for i, record in recorded.items() if i not in selected}
    lost = {i for i, record in kept.items() if record.status.failed and (retry_failed or _may_succeed(record))}
    lost |= _mended(plan, kept, current, lost)
    comparison, notes = compared(plan, records, current, kept, selected)
    if changed == "stop" and (line := comparison.line()):
        raise CodeChanged(
            f"{line}; pass --rerun-changed to run them again (what there is moves to archive/), or --accept-code to "
            f"keep them (every table says so); see contrasweep code {records.study} --storage {records.storage}"
        )
    infeasible = infeasible_records(kept)
    notes += _stale_generations(kept, infeasible)
    restarted = set() if changed == "accept" else {i for i in lost if _is_other(kept[i], current)}
    anew = new_searches(plan, recorded, current, selected, comparison if changed == "rerun" else None)
    if anew.searches:
        many = len(anew.searches) > 1
        notes.append(f"the search{'es' * many} of {', '.join(anew.searches)} start{'s' * (not many)} anew")
    return Decision(
        comparison, changed, frozenset(selected), frozenset(lost), frozenset(restarted), tuple(notes), anew, infeasible
    )


def _mended(plan: Plan, recorded: Mapping[str, Record], current: CurrentCode, again: Collection[str]) -> set[str]:
    """Return the trials that failed for the study's metric, which has another name by now, or other code reports.

    `ContrasweepError` where all trials are such and nothing was mended, but for those that run `again` anyway.
    """
    metric = plan.study.metric
    lacking = {i: record for i, record in recorded.items() if lacks_metric(record)}
    mended = {i for i, record in lacking.items() if metric in record.metrics or _is_other(record, current)}
    left = [record for i, record in lacking.items() if i not in mended and i not in again]
    if left and not any(metric in record.metrics for record in recorded.values()):
        raise ContrasweepError(unreported_metric(metric, left[0]))
    return mended


def metric_was_mended(plan: Plan, records: StudyRecords) -> bool:
    """Whether the study in the storage is `plan` but for a metric that none of its trials has reported.

    Nothing was ever read of such a metric.
    """
    document, study, designed = records.document(), plan.study, cast(Any, plan)
    if document is None or document.metric == study.metric:
        return False
    try:
        earlier = replace(designed, study=replace(study, metric=document.metric, mode=document.mode))
    except SpecError:  # the objectives do not have it
        return False
    if earlier.digest != document.plan_digest:
        return False
    return not any(document.metric in record.metrics for record in plan_records(plan, records).values())


def infeasible_records(recorded: Mapping[str, Record]) -> dict[str, Record]:
    """Return the records of trials that fitted no host, and that run where one does now.

    A generation of population based training is left out if a later one was trained: that one was decided without it.
    """
    trained: dict[str, int] = {}  # arm -> its last generation of which a trial was trained
    for record in recorded.values():
        if not record.status.infeasible and record.notes.generation is not None:
            trained[record.arm] = max(record.notes.generation, trained.get(record.arm, 0))
    return {
        i: record
        for i, record in recorded.items()
        if record.status.infeasible
        and (record.notes.generation is None or record.notes.generation >= trained.get(record.arm, 0))
    }


def _stale_generations(recorded: Mapping[str, Record], infeasible: Collection[str]) -> list[str]:
    """A line for each arm of whose infeasible trials some stay so."""
    stay = Counter(r.arm for i, r in recorded.items() if r.status.infeasible and i not in infeasible)
    return [
        f"arm {arm}: {count} trial{'s' * (count > 1)} that fitted no host stay{'s' * (count == 1)} infeasible, because "
        f"later generations of population based training were decided without {'them' if count > 1 else 'it'}; --rerun "
        f"{arm} trains the whole search again"
        for arm, count in sorted(stay.items())
    ]


def new_searches(
    plan: Plan,
    recorded: Mapping[str, Record],
    current: CurrentCode,
    selected: Collection[str],
    comparison: CodeComparison | None,
) -> NewSearches:
    """Return the searches that start anew, because trials of other code in them run again.

    These are all that `comparison` has, or those of whole arms that were `selected`.
    """
    arms = {recorded[i].arm for i in selected if i in recorded and _is_other(recorded[i], current)}
    searched = {i: r for i, r in recorded.items() if r.notes.phase == Phase.SEARCH}
    arms -= {record.arm for i, record in searched.items() if i not in selected}
    for other in comparison.others if comparison else ():
        arms |= {searched[i].arm for i in other.trial_ids if i in searched}
        if other.unfinished:  # of which only the code is known
            arms |= {t.arm for t in plan.sample_trials if current.of(t.trainable, t.config).version.digest == other.new}
    dependent = plan.dependent_searches(arms)
    return NewSearches(dependent, frozenset(i for i, r in recorded.items() if r.arm in dependent))


def compared(
    plan: Plan,
    records: StudyRecords,
    current: CurrentCode,
    recorded: Mapping[str, Record],
    without: Collection[str] = (),
) -> tuple[CodeComparison, list[str]]:
    """Return the trials that were made by other code, and notes on other versions of packages.

    The ids `without` are left out. A trial that failed has no place in a table and is not compared.
    """
    scored = [record for record in recorded.values() if not (record.status.failed or record.status.infeasible)]
    trials = [trial for trial in (*plan.trials, *plan.sample_trials) if trial.id not in without]
    notes = version_notes(scored, [current.of(t.trainable, t.config).version for t in plan.sample_trials])
    notes += _warm_start_notes(plan, records, current)
    return compare_code(records, scored, trials, current, plan.total), notes


def _warm_start_notes(plan: Plan, records: StudyRecords, current: CurrentCode) -> list[str]:
    """A line for each study to start from of which trials were made by other code."""
    trainables = {trial.trainable for trial in plan.sample_trials}
    notes = []
    for name in getattr(plan.study, "warm_start", ()):
        _, others = earlier_results(StudyRecords(records.storage, name), trainables, current)
        if others:
            notes.append(
                f"warm_start: {len(others)} trials of {name} were made by other code and are left out; run {name} with "
                f"--rerun-changed, or with --accept-code to learn from them"
            )
    return notes


def compare_plan(plan: Plan, records: StudyRecords) -> tuple[CodeComparison, list[str]]:
    """Return what `compared` does, for a plan that nobody runs yet."""
    return compared(plan, records, CurrentCode(plan.study.functions), plan_records(plan, records))


def plan_records(plan: Plan, records: StudyRecords) -> dict[str, Record]:
    """Return the records of the plan's own trials."""
    etags = records.etags()
    own = plan.own(etags)
    known = compact.read_records(records, etags, only=own)
    return {i: record for i, record in known.items() if record.arm in plan.study.arms}


def _may_succeed(record: Record) -> bool:
    """Whether a failed trial runs again without being asked to.

    Its method is not to blame, and no search has gone on from its failure.
    """
    return record.missing and record.notes.phase != Phase.SEARCH


def _is_other(record: Record, current: CurrentCode) -> bool:
    return record.code.digest != current.of(record.trainable, record.config).version.digest
