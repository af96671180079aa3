"""Checks before a run spends anything: the study's name, its finished trials, and which trials run again and why."""

import contextlib
import math
import re
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from contrasweep.canonical import same
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
from contrasweep.planning.code_comparison import CodeComparison, compare_plan, is_of_other_code
from contrasweep.planning.planner import Plan
from contrasweep.planning.starts import check_starts
from contrasweep.running.declaration import asked_before, redeclare, this_command, trained_again
from contrasweep.running.failures import lacks_metric
from contrasweep.shell import command_line
from contrasweep.storage import compact
from contrasweep.storage.archive import archive_trials, finish_move
from contrasweep.storage.code_files import accept
from contrasweep.storage.interim_log import CONFIRMATIONS, EXTENDED, LOOKS, read_looks, write_looks
from contrasweep.storage.planned import PLAN, write_planned
from contrasweep.storage.record import DatasetRef, Phase, Record, RecordsById
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import StudyDocument, lines_declared_anew
from contrasweep.study.file import parse_set, to_plain
from contrasweep.tracking.tracker import TrackedStudy

if TYPE_CHECKING:
    import pandas as pd

Changed = Literal["stop", "rerun", "accept"]
"""What a run does with trials of other code: it stops; archives them and trains again; or keeps them."""
MIN_ID = 6
"""Digits of a trial's id that suffice to name it, if no other id begins with them."""

DECLARATION_FILES = ("study.json", PLAN, LOOKS, CONFIRMATIONS)
"""Files of a study that a run writes before it trains."""


def run_flags(changed: Changed, max_concurrent: int | None, options: Config) -> list[str]:
    """Return the words of the options of `contrasweep run` that mean the same as these arguments.

    For example `["--max-concurrent", "4", "--accept-code", "--retry-failed", "--rerun", "a"]`. `options` are arguments
    of `prepare` by name: `extend`, `spend`, `retry_failed` and `rerun`.
    """
    words = ["--max-concurrent", str(max_concurrent)] if max_concurrent else []
    words += {"stop": [], "rerun": ["--rerun-changed"], "accept": ["--accept-code"]}[changed]
    words += [f"--{name.replace('_', '-')}" for name, value in options.items() if value is True]
    return words + [part for word in options.get("rerun", ()) for part in ("--rerun", word)]


class CodeChanged(ContrasweepError):
    """Trials in the storage were trained by other code, and the user has not said what to do with them."""


@dataclass(frozen=True)
class Prepared:
    """What earlier runs have left to do of a plan.

    `finished` are the ids of trials that do not run: they have a record. `infeasible` has the records, by trial id, of
    trials that fitted no host so far; they may run, and are not in `finished`. `complete` says whether nothing is left
    to run. `document` is study.json as it is now.
    """

    finished: set[str]
    complete: bool
    infeasible: RecordsById
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
    """Write study.json and the plan, archive the trials that run again, and return what is left to do.

    Args:
        plan: The plan of the study as it is declared now.
        records: The study in the storage.
        code: The code of the study as it is now.
        extend: Accept a plan that differs from the one of this name in the storage.
        retry_failed: Let failed trials run again: from their checkpoints, or from the beginning if their code changed
            or their last report has no value.
        rerun: Words that name trials which run again (`selected_trials`).
        changed: What is done with trials of other code.
        spend: Count added arms as a look at the table, so that their comparisons have verdicts.

    Raises:
        ContrasweepError: Another plan has the study's name, without `extend`; trials would leave the table (see
            `running.declaration`); or recorded trials are of other code and `changed` is "stop". Nothing has changed.
    """
    # An interrupted move to the archive has taken some of the records that are read below.
    finish_move(records)
    before = records.document()
    recorded = records.finished()
    # All that may refuse comes first, so that a refusal changes nothing.
    log = read_looks(records)
    document = redeclare(plan, study_document(plan), records, extend=extend, spend=spend)
    # Which studies asked the same is found out once, before the first trial has ended.
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
        # More replicates for a table that is complete are a look at it. Imported here because it brings pandas, which
        # `submit` does without.
        from contrasweep.results.interim_analysis import count_look

        count_look(plan, records)
    document = records.claim(document)
    decision.carry_out(records)
    # A study that grows takes its looks once more: those so far saw results that are trained anew now. Looks at a study
    # that was extended are not taken again: they still count.
    trained_anew = (again - decision.failed) & recorded
    if log is not None and log.spending != EXTENDED and log.looks and trained_anew:
        write_looks(records, log.begun_anew())
    done_before = recorded - again
    for note in (*decision.notes, *new_lines):
        print(note, file=sys.stderr)
    # The stored plan of a complete sweep (None here) stays, because it has the trials that its searches found.
    all_recorded = plan.complete(records, done_before)
    frame = plan.stored_frame(records, all_recorded)
    if frame is not None:
        write_planned(records, frame, plan.digest)
    # Trials that fitted no host have a record too, but they may run now.
    fitted_none = decision.infeasible
    infeasible = {trial: fitted_none[trial] for trial in fitted_none if trial in done_before}
    return Prepared(
        finished=done_before - infeasible.keys(),
        complete=all_recorded and not infeasible,
        infeasible=infeasible,
        document=document,
    )


@contextlib.contextmanager
def declared_as_before_if_refused(records: StudyRecords, *, extend: bool) -> Iterator[None]:
    """Put back the study's earlier declaration where the body of the `with` block refuses the new one.

    Refused means that the body raises `SpecError` or `BrokenFileError` before any record has changed. Such an error may
    come late, because stored searches, prices and hosts are read after the new declaration was written. Without
    `extend` the declaration cannot have changed, and nothing is done.
    """
    if not extend:
        yield
        return
    before = {name: _content(records, name) for name in DECLARATION_FILES}
    etags = records.etags()
    try:
        yield
    except (SpecError, BrokenFileError):
        # Only where study.json was there before, and every record is as it was.
        if before["study.json"] is not None and records.etags() == etags:
            for name, content in before.items():
                if content is None:
                    records.store.delete(f"{records.study}/{name}")
                elif content != _content(records, name):
                    records.store.write(f"{records.study}/{name}", content)
        raise


def _content(records: StudyRecords, name: str) -> bytes | None:
    """Return the bytes of the file `name` in the study's folder of the storage; None where there is no such file."""
    try:
        return records.store.read(f"{records.study}/{name}")
    except FileNotFoundError:
        return None


def check_plan(
    plan: Plan, records: StudyRecords, *, extend: bool, spend: bool = False
) -> list[str]:
    """Return lines for the user on how the declaration differs from the study in the storage; write nothing.

    Raises `SpecError` where `run` would refuse the declaration. `extend` and `spend` are those of `run`.
    """
    document = redeclare(plan, study_document(plan), records, extend=extend, spend=spend)
    return lines_declared_anew(records.document(), document)


@dataclass(frozen=True)
class Decision:
    """Which recorded trials a run is going to train again, and why. Nothing is changed before `carry_out`."""

    comparison: CodeComparison
    changed: Changed
    selected: set[str]  # ids of trials that run again because the user named them
    failed: set[str]  # ids of failed trials that run again
    # those of `failed` that start from the beginning, not from a checkpoint: of other code, or trained to their end
    restarted: set[str]
    notes: tuple[str, ...]  # lines for the user
    anew: Mapping[str, str]  # searches that start from the beginning: arm -> digest of the search
    anew_trials: set[str]  # ids of all recorded trials of the arms in `anew`
    infeasible: RecordsById  # of trials that fitted no host; they run where they fit now

    @property
    def _changed_ids(self) -> set[str]:
        """The ids of the trials of other code, if the user wants them to run again; else none."""
        return set(self.comparison.trial_ids()) if self.changed == "rerun" else set()

    @property
    def again(self) -> set[str]:
        """The ids of all trials that run again."""
        return {*self.selected, *self.failed, *self.anew_trials, *self._changed_ids}

    def carry_out(self, records: StudyRecords) -> set[str]:
        """Do what was decided: archive trials, delete records, or accept other code; return the ids that run again.

        There may be three archives, each with its reason. One has the trials that the user selected, one the failed
        trials that start from the beginning, and one the other trials of other code. Other failed trials lose only
        their records, so that they resume from their checkpoints.
        """
        changed_ids = self._changed_ids
        # Searches that start anew move with all trials of their arms: into the archive of the trials of other code
        # (below) if there are such trials, else into that of the selected trials.
        reason = "run again as asked"
        if self.selected and changed_ids:
            archive_trials(records, self.selected, reason)
        elif self.selected:
            archive_trials(records, self.selected | self.anew_trials, reason, self.anew)
        if self.restarted:
            archive_trials(records, self.restarted, "failed, and runs again from its beginning")
        # The selected trials among those of other code are in an archive already.
        if changed_ids:
            moved = {*changed_ids, *self.anew_trials} - self.selected
            archive_trials(records, moved, self.comparison.line(with_accepted=True), self.anew)
        for trial_id in self.failed - self.restarted - self.selected:
            records.reopen(trial_id)
        # The learned memory may be that of the earlier code, or of trials that are archived now.
        if changed_ids or self.selected or self.restarted:
            learned.forget(records)
        if self.changed == "accept":
            accept(records, [(change.old, change.new) for change in self.comparison.pending()])
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
    """Return which recorded trials run again, and why; change nothing.

    The arguments are those of `prepare`. Raises `CodeChanged` where trials of other code are left and `changed` is
    "stop", and `SpecError` for a word of `rerun` that names no trial.
    """
    check_known(
        changed,
        "ways",
        get_args(Changed),
        "there is no such way to treat changed code",
        place="changed",
    )
    # Trials that the user has named, as far as they have begun, run again whatever the other rules say.
    recorded = plan_records(plan, records)
    selected: set[str] = set()
    if rerun:
        selected = selected_trials(plan, recorded, rerun) & {*recorded, *records.begun()}
    not_selected = {trial: recorded[trial] for trial in recorded if trial not in selected}
    comparison, notes = compare_plan(plan, records, current, not_selected, selected)
    line = comparison.line()
    if line and changed == "stop":
        raise CodeChanged(
            f"{line}; pass --rerun-changed to run them again (what there is moves to archive/), or --accept-code to "
            f"keep them (every table says so); see {command_line('code', records.study, storage=records.storage)}"
        )

    failed: set[str] = set()
    restarted: set[str] = set()
    infeasible: dict[str, Record] = {}
    for trial, record in not_selected.items():
        if record.status.infeasible:
            infeasible[trial] = record
        # Failed trials run again by request, or because the cause was outside their method (`record.missing`), unless
        # they belong to a search: it has gone on from the failure.
        outside_method = record.missing and record.notes.phase != Phase.SEARCH
        if not record.status.failed or not (retry_failed or outside_method):
            continue
        failed.add(trial)
        # Failed trials of other code start from the beginning, those of the same code from their checkpoints. A trial
        # whose last report has no value starts from the beginning too: it was trained to its end, and would fail again
        # at once if it went on from its checkpoint.
        no_value = lacks_metric(record) and math.isnan(record.reported(plan.study.metric))
        if no_value or (changed != "accept" and is_of_other_code(record, current)):
            restarted.add(trial)

    arms = _selected_searches(recorded, selected, current)
    if changed == "rerun":
        arms |= _changed_searches(plan, recorded, comparison, current)
    anew = plan.searches_of(arms) if arms else {}
    if anew:
        notes.append(f"searches that start anew: {', '.join(anew)}")
    return Decision(
        comparison,
        changed,
        selected=selected,
        failed=failed,
        restarted=restarted,
        notes=tuple(notes),
        anew=anew,
        anew_trials={trial for trial, record in recorded.items() if record.arm in anew},
        infeasible=infeasible,
    )


def _selected_searches(
    recorded: RecordsById, selected: Collection[str], current: CurrentCode
) -> set[str]:
    """Return the arms whose whole search starts from the beginning, because the user selected its trials to run again.

    That is so where `selected` has all recorded search trials of the arm, and one of its selected trials is of other
    code. Its candidates were then chosen by results of that code.
    """
    arms = set()
    for trial in selected:
        if trial in recorded and is_of_other_code(recorded[trial], current):
            arms.add(recorded[trial].arm)
    for trial, record in recorded.items():
        if record.notes.phase == Phase.SEARCH and trial not in selected:
            arms.discard(record.arm)
    return arms


def _changed_searches(
    plan: Plan, recorded: RecordsById, comparison: CodeComparison, current: CurrentCode
) -> set[str]:
    """Return the arms that have search trials which other code has trained, or begun to train.

    `comparison` says which trials are of other code, and `current` is the code of today.
    """
    arms = set()
    for change in comparison.changes:
        for trial in change.trial_ids:
            if trial in recorded and recorded[trial].notes.phase == Phase.SEARCH:
                arms.add(recorded[trial].arm)
        # Unfinished trials have no record: their arm is found by the code alone.
        if change.unfinished:
            for example in plan.example_trials:
                version = current.of(example.trainable, example.config).version
                if version.digest == change.new:
                    arms.add(example.arm)
    return arms


def selected_trials(plan: Plan, recorded: RecordsById, words: Iterable[str]) -> set[str]:
    """Return the ids of the trials that `words` name.

    A word is an arm, a cell (`ARM/axis=value,axis=value`), `axis=value` for the cells of all arms, or the beginning of
    a trial's id. `recorded` are the study's records, those of a search too. Raises `SpecError` for a word that names no
    trial.
    """
    # arm -> ids of its trials, planned or recorded
    frame = plan.to_frame()
    arms = {arm: set(frame["trial_id"][frame["arm"] == arm]) for arm in plan.study.arms}
    for record in recorded.values():
        arms.setdefault(record.arm, set()).add(record.trial_id)
    ids = set().union(*arms.values())
    chosen: set[str] = set()
    # A word is first looked for as an arm, then as a cell, then as the beginning of an id.
    for word in words:
        matching: set[str] = set()
        if word in arms:
            matching = arms[word]
        elif "=" in word:
            matching = _cell_trials(frame, list(arms), plan.study.axis_names, word)
        elif len(word) >= MIN_ID:
            matching = {trial for trial in ids if trial.startswith(word)}
            if len(matching) > 1:
                raise SpecError(
                    "this is the beginning of several trials' ids", place="--rerun", value=word
                )
        if not matching:
            known = choose_from("arms", list(arms), word)
            hint = f"{known}; a cell is ARM/axis=value, a trial its id"
            raise SpecError(
                "there is no such arm, cell or trial", place="--rerun", value=word, hint=hint
            )
        chosen |= matching
    return chosen


def _cell_trials(frame: "pd.DataFrame", arms: list[str], axes: list[str], word: str) -> set[str]:
    """Return the ids of the trials of a cell.

    `word` names the cell: `arm/axis=value,axis=value`, or `axis=value` for that cell of every arm. `frame` has a row
    for each trial of the plan. Raises `SpecError` for an unknown axis.
    """
    # What stands before a slash may be an arm, or part of a value such as an address.
    arm, _, values = word.partition("/")
    if arm in arms:
        frame = frame[frame["arm"] == arm]
    else:
        values = word
    # A list as a value has commas too. A comma between two axes stands before a name and its `=`.
    for part in re.split(r",(?=[^,=]+=)", values):
        path, value = parse_set(part, "--rerun")
        axis = ".".join(path)
        check_known(axis, "axes", axes, "there is no such axis", place="--rerun")
        frame = frame.loc[[same(value_of_row, value) for value_of_row in frame[axis]]]
    return set(frame["trial_id"])


def plan_records(plan: Plan, records: StudyRecords) -> dict[str, Record]:
    """Return trial id -> record of the trials of a plan and of its search.

    Records of arms that the plan does not have are left out.
    """
    etags = records.etags()
    by_id = compact.read_records(records, only=plan.trials_among(etags), etags=etags)
    return {trial: record for trial, record in by_id.items() if record.arm in plan.study.arms}


def study_document(plan: Plan) -> StudyDocument:
    """Return the content of study.json for a plan."""
    study = plan.study
    # A trainable that is a function is written as its name.
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
    """Return the facts on the study that a tracker shows, such as its datasets, metric and number of trials.

    `document` is the study's study.json, which has its origin.
    """
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
