"""Checks before a run spends anything: the study's name, its finished trials, and which trials run again and why."""

import contextlib
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from contrasweep.code import CurrentCode
from contrasweep.code.version import versions
from contrasweep.config import Config
from contrasweep.data.folds import class_notes
from contrasweep.errors import (
    BrokenFileError,
    ContrasweepError,
    SpecError,
    check_known,
    choose_from,
)
from contrasweep.planning import learned
from contrasweep.planning.code_comparison import CodeComparison, compare_plan, is_other
from contrasweep.planning.plan import Plan
from contrasweep.planning.starts import check_starts
from contrasweep.running.declaration import asked_before, redeclare, this_command, trained_again
from contrasweep.running.failures import lacks_metric, unreported_metric
from contrasweep.shell import command_line
from contrasweep.storage import compact
from contrasweep.storage.archive import archive_trials, finish_move
from contrasweep.storage.code_files import accept
from contrasweep.storage.interim_log import CONFIRMATIONS, LOOKS, read_looks, write_looks
from contrasweep.storage.planned import PLAN, write_planned
from contrasweep.storage.record import DatasetRef, Phase, Record
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import StudyDocument, lines_declared_anew
from contrasweep.study.file import parse_set, to_plain
from contrasweep.tracking.tracker import TrackedStudy

if TYPE_CHECKING:
    import pandas as pd

Changed = Literal["stop", "rerun", "accept"]
"""What becomes of trials of other code: the run stops; they are archived and run again; they are kept."""
MIN_ID = 6
"""Digits of a trial's id that are enough, if no other begins with them."""

DECLARATION = ("study.json", PLAN, LOOKS, CONFIRMATIONS)
"""Files of a study that a run writes before it trains."""


def run_flags(changed: Changed, max_concurrent: int | None, again: Config) -> list[str]:
    """Return the options of `contrasweep run` that say the same as these arguments; `again` has those of `prepare`.

    Such as `--max-concurrent 4 --accept-code --retry-failed --rerun a`, one word each.
    """
    words = ["--max-concurrent", str(max_concurrent)] if max_concurrent else []
    words += {"stop": [], "rerun": ["--rerun-changed"], "accept": ["--accept-code"]}[changed]
    words += [f"--{name.replace('_', '-')}" for name, value in again.items() if value is True]
    return words + [part for word in again.get("rerun", ()) for part in ("--rerun", word)]


class CodeChanged(ContrasweepError):
    """Recorded trials were made by other code, and no option tells what to do with them."""


@dataclass(frozen=True)
class Prepared:
    """The trials of a plan that an earlier run has finished, and those that it has not.

    `finished` are the ids of trials with a record; `complete`: nothing is left to run. `infeasible` are the records, by
    trial id, of those that fitted no host so far, which are not `finished`. `document` is study.json as it is now.
    """

    finished: set[str]
    complete: bool
    infeasible: Mapping[str, Record]
    document: StudyDocument


def prepare(
    plan: Plan,
    records: StudyRecords,
    code: CurrentCode,
    *,
    extend: bool,
    retry_failed: bool,
    rerun: Sequence[str] = (),
    changed: Changed = "stop",
    spend: bool = False,
) -> Prepared:
    """Write study.json and the plan, and archive what runs again.

    With `retry_failed`, failed trials lose their records and resume from their checkpoints, if their code has not
    changed. With `spend` the arms that are added count as a look at the table, so that their comparisons have verdicts.

    Raises `ContrasweepError` if another plan has the study's name, unless `extend`; if trials would leave the table
    (see `running.declaration`); and if recorded trials were made by other code and `changed` is "stop". Nothing has
    changed then.
    """
    # All that follows reads records, of which an interrupted move has only taken some.
    finish_move(records)
    before = records.document()
    recorded = records.finished()
    # First all that may refuse, so that a refusal changes nothing.
    log = read_looks(records)
    document = redeclare(plan, study_document(plan), records, extend=extend, spend=spend)
    names = before.asked_before if before and recorded else asked_before(document, records)
    document = replace(document, asked_before=names)
    new_lines = lines_declared_anew(before, document)
    decision = decide(plan, records, code, changed=changed, rerun=rerun, retry_failed=retry_failed)
    again = decision.again
    if any(arm.start for arm in plan.study.arms.values()):
        check_starts(plan, records.storage, code, recorded - again)
    if again:
        document = trained_again(document, records, again, spend=spend)
    # From here on the storage changes.
    if extend and not spend:
        # brings pandas, which `submit` does without
        from contrasweep.results.interim_analysis import count_look

        count_look(plan, records)
    document = records.claim(document)
    decision.carry_out(records)
    # What was seen at earlier looks is trained anew, so they spend nothing of the looks to come.
    if log is not None and log.looks and (again - decision.failed) & recorded:
        write_looks(records, log.begun_anew())
    finished = recorded - again
    for note in (*decision.notes, *new_lines):
        print(note, file=sys.stderr)
    # Of a sweep the frame is known once it is complete; until then the stored one stays.
    complete = plan.complete(records, finished)
    if (frame := plan.stored_frame(records, complete)) is not None:
        write_planned(records, frame, plan.digest)
    infeasible = {i: record for i, record in decision.infeasible.items() if i in finished}
    return Prepared(finished - infeasible.keys(), complete and not infeasible, infeasible, document)


@contextlib.contextmanager
def declared_as_before_if_refused(records: StudyRecords, *, extend: bool) -> Iterator[None]:
    """Put back what declared the study, where the body refuses to `extend` it before any of its records has changed.

    Some refusals come late: what a search has kept is read, and prices and hosts are known, once the run has begun.
    Without `extend` nothing is put back, since nothing else was declared.
    """
    if not extend:
        yield
        return
    before = {name: _content(records, name) for name in DECLARATION}
    ended = records.etags()
    try:
        yield
    except (SpecError, BrokenFileError):
        # Only where there was a study before, and every record is as it was.
        if before[DECLARATION[0]] is not None and records.etags() == ended:
            for name, content in before.items():
                if content is None:
                    records.store.delete(f"{records.study}/{name}")
                elif content != _content(records, name):
                    records.store.write(f"{records.study}/{name}", content)
        raise


def _content(records: StudyRecords, name: str) -> bytes | None:
    """Return the content of a file of the study; None where it is not there."""
    try:
        return records.store.read(f"{records.study}/{name}")
    except FileNotFoundError:
        return None


def check_plan(
    plan: Plan, records: StudyRecords, *, extend: bool, spend: bool = False
) -> list[str]:
    """Return lines on what is declared anew; raise `SpecError` where the storage keeps it from being run.

    `extend` and `spend` are those of `run`. Nothing is written.
    """
    document = redeclare(plan, study_document(plan), records, extend=extend, spend=spend)
    return lines_declared_anew(records.document(), document)


@dataclass(frozen=True)
class Decision:
    """What a run is going to do with the recorded trials. Nothing has been changed yet."""

    comparison: CodeComparison
    changed: Changed
    # ids of trials that run again because somebody asked for them
    selected: frozenset[str]
    # that failed and run again; of them `restarted` from their beginning, the others from their checkpoints
    failed: frozenset[str]
    restarted: frozenset[str]
    notes: tuple[str, ...]
    anew: Mapping[str, str]  # searches that start from the beginning: arm -> digest
    anew_trials: frozenset[str]  # all trials of their arms
    infeasible: Mapping[str, Record]  # of trials that fitted no host; they run where one does now

    @property
    def _changed(self) -> set[str]:
        """The trials of other code that run again."""
        return set(self.comparison.trial_ids()) if self.changed == "rerun" else set()

    @property
    def again(self) -> set[str]:
        """The trials that run again."""
        return {*self.selected, *self.failed, *self.anew_trials, *self._changed}

    def carry_out(self, records: StudyRecords) -> set[str]:
        """Archive the trials that run again, or accept their changes; return the ids of trials that run again.

        Each archive has a reason: selected ones, failed ones of other code, and trials of other code. Failed ones of
        the same code lose their records alone, and go on from their checkpoints.
        """
        ids = self._changed
        if self.selected:
            # Searches that start anew are archived once: with the trials of other code, where there are any.
            chosen = self.selected if ids else self.selected | self.anew_trials
            archive_trials(records, chosen, "run again as asked", {} if ids else self.anew)
        if self.restarted:
            archive_trials(records, self.restarted, "failed, and the code has changed since")
        # Trials of other code; the selected ones among them have gone already.
        if ids:
            moved = {*ids, *self.anew_trials} - self.selected
            archive_trials(records, moved, self.comparison.line(all_=True), self.anew)
        for trial_id in self.failed - self.restarted - self.selected:
            records.reopen(trial_id)
        # What was learned of memory may be of the code or the trials that have gone.
        if ids or self.selected or self.restarted:
            learned.forget(records)
        if self.changed == "accept":
            accept(records, [(other.old, other.new) for other in self.comparison.pending()])
        return self.again


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
    check_known(
        changed,
        "ways",
        get_args(Changed),
        "there is no such way to treat changed code",
        place="changed",
    )
    recorded = plan_records(plan, records)
    selected = (
        selected_trials(plan, recorded, rerun) & {*recorded, *records.begun()} if rerun else set()
    )
    others = {i: record for i, record in recorded.items() if i not in selected}
    # What failed runs again, by request or because its cause lay outside the method.
    lost = run_again(plan.study.metric, others, current, retry_failed)
    comparison, notes = compare_plan(plan, records, current, others, selected)
    line = comparison.line()
    if line and changed == "stop":
        raise CodeChanged(
            f"{line}; pass --rerun-changed to run them again (what there is moves to archive/), or --accept-code to "
            f"keep them (every table says so); see {command_line('code', records.study, storage=records.storage)}"
        )
    infeasible = {i: record for i, record in others.items() if record.status.infeasible}
    # Failed trials of other code start from the beginning, those of the same code from their checkpoints.
    restarted = set() if changed == "accept" else {i for i in lost if is_other(others[i], current)}
    anew = new_searches(
        plan, recorded, current, selected, comparison if changed == "rerun" else None
    )
    if anew:
        many = len(anew) > 1
        notes.append(
            f"the search{'es' if many else ''} of {', '.join(anew)} start{'' if many else 's'} anew"
        )
    return Decision(
        comparison,
        changed,
        frozenset(selected),
        frozenset(lost),
        frozenset(restarted),
        tuple(notes),
        anew,
        frozenset(i for i, record in recorded.items() if record.arm in anew),
        infeasible,
    )


def run_again(
    metric: str, recorded: Mapping[str, Record], current: CurrentCode, retry_failed: bool
) -> set[str]:
    """Return the ids of failed trials that run again.

    With `retry_failed` these are all. Otherwise they are trials that failed for a cause outside their method, unless a
    search has gone on from the failure, and trials that lacked the study's `metric`, if the metric or the code has
    changed since. Raises `ContrasweepError` where all trials lacked the metric and nothing has changed.
    """
    again = {
        i
        for i, record in recorded.items()
        if record.status.failed
        and (retry_failed or (record.missing and record.notes.phase != Phase.SEARCH))
    }
    lacking = {i: record for i, record in recorded.items() if lacks_metric(record)}
    # The metric's name was mended in the study, or the code that reports it.
    mended = {
        i for i, record in lacking.items() if metric in record.metrics or is_other(record, current)
    }
    still_lacking = [record for i, record in lacking.items() if i not in mended and i not in again]
    if still_lacking and not any(metric in record.metrics for record in recorded.values()):
        raise ContrasweepError(unreported_metric(metric, still_lacking[0]))
    return again | mended


def selected_trials(plan: Plan, recorded: Mapping[str, Record], words: Iterable[str]) -> set[str]:
    """Return the ids of the trials that `words` name.

    A word is `ARM`, `ARM/axis=value,axis=value`, `axis=value` for cells, or a trial's id or its beginning. `recorded`
    are the study's records, of a search too. Raises `SpecError` for a word that names none.
    """
    frame = plan.to_frame()
    arms = {arm: set(frame["trial_id"][frame["arm"] == arm]) for arm in plan.study.arms}
    for record in recorded.values():
        arms.setdefault(record.arm, set()).add(record.trial_id)
    ids = {*frame["trial_id"], *recorded}
    chosen: set[str] = set()
    # A word is first looked for as an arm, then as a cell, then as the beginning of an id.
    for word in words:
        if word in arms:
            matching = arms[word]
        elif "=" in word:
            matching = _cell(frame, list(arms), plan.study.axis_names, word)
        else:
            matching = {i for i in ids if i.startswith(word)} if len(word) >= MIN_ID else set()
            if len(matching) > 1:
                raise SpecError(
                    "this is the beginning of several trials' ids", place="--rerun", value=word
                )
        if not matching:
            hint = (
                f"{choose_from('arms', list(arms), word)}; a cell is ARM/axis=value, a trial its id"
            )
            raise SpecError(
                "there is no such arm, cell or trial", place="--rerun", value=word, hint=hint
            )
        chosen |= matching
    return chosen


def _cell(frame: "pd.DataFrame", arms: list[str], axes: list[str], word: str) -> set[str]:
    """Return the trials of a cell, `arm/axis=value,axis=value`, or without an arm of that cell of every arm.

    `frame` has a row for each trial of the plan. `SpecError` for an axis that there is not.
    """
    import pandas as pd

    # The name of an arm may have a slash itself, so it is looked for as a whole.
    arm = next((a for a in arms if word.startswith(f"{a}/")), None)
    matches = pd.Series(True, frame.index) if arm is None else frame["arm"] == arm
    for part in word.removeprefix(f"{arm}/").split(","):
        path, value = parse_set(part)
        axis = ".".join(path)
        check_known(axis, "axes", axes, "there is no such axis", place="--rerun")
        matches &= pd.Series([_equal(v, value) for v in frame[axis]], frame.index, dtype=bool)
    return set(frame["trial_id"][matches])


def _equal(axis_value: Any, other: Any) -> bool:
    """Whether an axis's value is the one that a word says; True is not 1, though Python takes them for equal."""
    if isinstance(other, bool):
        return type(axis_value) is type(other) and axis_value == other
    return bool(axis_value == other)


def new_searches(
    plan: Plan,
    recorded: Mapping[str, Record],
    current: CurrentCode,
    selected: Collection[str],
    comparison: CodeComparison | None,
) -> Mapping[str, str]:
    """Return the searches that start from the beginning, arm -> digest of the search.

    Their candidates were chosen by results of other code, which run again now. These are the arms whose trials
    `comparison` has (None: trials of other code do not run again), and those of which all trials of the search were
    `selected`, some of them of other code.
    """
    # Arms with a selected trial of other code, unless trials of their search stay.
    arms = {recorded[i].arm for i in selected if i in recorded and is_other(recorded[i], current)}
    searched = {i: r for i, r in recorded.items() if r.notes.phase == Phase.SEARCH}
    arms -= {record.arm for i, record in searched.items() if i not in selected}
    if comparison:
        for other in comparison.others:
            arms |= {searched[i].arm for i in other.trial_ids if i in searched}
            if other.unfinished:  # of which only the code is known
                arms |= {
                    t.arm
                    for t in plan.sample_trials
                    if current.of(t.trainable, t.config).version.digest == other.new
                }
    return plan.searches_of(arms) if arms else {}


def plan_records(plan: Plan, records: StudyRecords) -> dict[str, Record]:
    """Return trial id -> record of the plan's own trials, those of its search too; arms that are not in it left out."""
    etags = records.etags()
    belonging = plan.belonging(etags)
    records_by_id = compact.read_records(records, etags, only=belonging)
    return {i: record for i, record in records_by_id.items() if record.arm in plan.study.arms}


def study_document(plan: Plan) -> StudyDocument:
    """Return the content of study.json for a plan."""
    study = plan.study
    # A trainable that was given as a function stands there by its name.
    spec = to_plain(study)
    for name, arm in study.arms.items():
        spec["arms"][name]["trainable"] = (
            arm.trainable if isinstance(arm.trainable, str) else arm.trainable.__qualname__
        )
    return StudyDocument(
        name=study.name,
        metric=study.metric,
        mode=study.mode,
        type=study.type,
        plan_digest=plan.digest,
        arms=tuple(study.arms),
        axes=tuple(study.axis_names),
        alpha=study.alpha,
        reference=study.reference,
        folds=plan.table_folds,
        trials=plan.total,
        search=plan.declared_search,
        description=study.description,
        datasets=tuple(map(DatasetRef.of, plan.table_datasets)),
        data_notes=tuple(note for data in plan.datasets.values() for note in class_notes(data)),
        commands=this_command(),
        created=time.time(),
        versions=versions(),
        spec=spec,
    )


def tracked_study(plan: Plan, storage: str, document: StudyDocument) -> TrackedStudy:
    """Return what a tracker shows of a study, whose study.json is `document`."""
    study = plan.study
    return TrackedStudy(
        study.name,
        datasets={
            digest: {"uri": data.uri, "rows": {split: data.rows(split) for split in data.splits}}
            for digest, data in plan.datasets.items()
        },
        plan_digest=plan.digest,
        axes=tuple(plan.varied),
        extra=plan.summary(),
        keys=tuple(plan.keys),
        metric=study.metric,
        mode=study.mode,
        searches=plan.declared_search is not None,
        trials=plan.total,
        storage=storage,
        origin=document.origin,
        description=study.description,
    )
