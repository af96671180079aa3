"""What becomes of study.json when a study is declared again: it is rewritten, extended by a log entry, or refused.

Until a trial has ended, nobody has seen a result, and study.json is rewritten freely. From then on its log keeps every
declaration, and verdicts follow the first one (`StudyDocument`). Trials that were declared stay in the table.
"""

import contextlib
import getpass
import json
import platform
import shlex
import sys
import time
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from contrasweep.config import Config
from contrasweep.errors import BrokenFileError, SpecError, plural
from contrasweep.planning.grid import GridPlan
from contrasweep.planning.planner import Plan
from contrasweep.planning.stages import check_log
from contrasweep.planning.sweep import SweepPlan
from contrasweep.rows import FrameRow
from contrasweep.running.failures import lacks_metric
from contrasweep.secrets import redacted
from contrasweep.storage import compact
from contrasweep.storage.interim_log import read_looks
from contrasweep.storage.planned import planned_rows
from contrasweep.storage.record import Phase, RecordsById, Status
from contrasweep.storage.records import StudyRecords, study_names
from contrasweep.storage.study_document import VERDICT, LogEntry, StudyDocument, comparable_fields
from contrasweep.study.base import NO_RESULT

FREE_FIELDS = tuple(name for name in NO_RESULT if name not in VERDICT)
"""Fields that change no result and no verdict, so that they may be declared otherwise at any time."""
FIXED_BY_SEARCH = ("metric", "mode", "data", "folds")
"""Fields that a Sweep keeps once a trial has ended: its search was made by them."""
MOST_SHOWN = 60  # characters of a value in a message
NEW_STUDY = "declare a new study, with another name"


def redeclare(
    plan: Plan, declared: StudyDocument, records: StudyRecords, *, extend: bool, spend: bool = False
) -> StudyDocument:
    """Return the study.json that a run of `plan` leaves in the storage; write nothing.

    Args:
        plan: The plan of the study as it is declared now.
        declared: The study.json that `plan` would have in an empty storage.
        records: The study in the storage, with its earlier study.json.
        extend: Accept a plan that differs from the earlier one, and enter the difference in the log.
        spend: Give verdicts to the comparisons of added arms too. The log's entry then counts as a look.

    Raises:
        SpecError: A trial has ended and `plan` differs from the earlier one, without `extend`. Or trials would leave
            the table, or `spend` is given where no comparison can get a verdict by it.
    """
    # An evaluation has no verdicts, so it may be declared otherwise at any time.
    if declared.evaluates:
        return declared
    # Until a trial has left a score, nothing was seen, and anything may be declared otherwise.
    earlier = records.document()
    recorded = compact.read_records(records, broken=[])
    results_seen = any(record.metrics or record.status.trained for record in recorded.values())
    if not (results_seen or (earlier and earlier.log)):
        return declared
    # There are results, but the declaration that they followed is lost: the log says so.
    if earlier is None:
        entry = LogEntry(
            time.time(), by=_asker(), ended=len(recorded), changes=("study.json was missing",)
        )
        return replace(declared, log=(entry,))

    # The fields that differ from the newest declaration, without those that change no result and no verdict.
    before = comparable_fields(earlier.declared, FREE_FIELDS)
    now = comparable_fields(declared.spec, FREE_FIELDS)
    changed = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    changed_verdict = [name for name in changed if name in VERDICT]
    spec = _with_first_verdicts(declared.spec, earlier.spec)
    # The arms that have verdicts, which are all arms where `family` is (); and those that are new beside them.
    family = earlier.family or earlier.arms
    added_arms = [arm for arm in declared.arms if arm not in family]
    # The same study again: nothing to enter in the log.
    same_plan = declared.plan_digest == earlier.plan_digest
    if same_plan and not changed_verdict and not (added_arms and spend):
        return replace(earlier, description=declared.description, spec=spec)
    # A metric that no trial has reported was corrected: no result was seen, so this is a first declaration.
    if _metric_was_mended(plan, earlier, recorded):
        return declared

    # Anything else is another study, which is refused unless the user asks to extend this one.
    changes = tuple(_change_text(name, before.get(name), now.get(name)) for name in changed)
    changes = changes or tuple(f"arms + {arm}" for arm in added_arms)
    if not extend:
        raise SpecError(
            f"a study of this name with another plan is in this storage ({'; '.join(changes) or 'other trials'})",
            place="name",
            value=records.study,
            hint=f"choose another name or --storage than {records.storage}, or pass --extend to keep its trials and "
            "add others (seeds, folds, values of axes, arms; a setting of an arm is another arm). What an earlier "
            "command had by --set is given again, or stands in the study's file",
        )
    # Even with `extend` the study stays of its kind, and no trial that was seen leaves the table.
    planned = planned_rows(records)
    check_log(plan.study.replicates, read_looks(records))
    _check_kind(plan, earlier, now, changed)
    excluded = _newly_excluded(plan, records, planned, recorded)
    included = [row for row in planned if row["seed"] not in excluded]
    _check_present(plan, earlier, now, recorded, included)
    if spend:
        _check_spend(plan, changed_verdict)

    # Each excluded seed counts as a look, because the user could stop before any of them. Arms added with `spend` and
    # new cells count as one look together.
    planned_ids = {row["trial_id"] for row in planned}
    looks = len(excluded)
    if (spend and added_arms) or _grows_after_look(plan, earlier, planned_ids, recorded, spend):
        looks += 1
    # The log's new entry: what changed, after how many trials, and how many looks this costs. The stored plan of a
    # sweep may not know its trials yet, so all of its records count, even if they are more than the table was to have.
    ended = len(planned_ids & recorded.keys()) if isinstance(plan, GridPlan) else len(recorded)
    entry = LogEntry(
        at=time.time(),
        by=_asker(),
        ended=ended,
        trials=max(ended, earlier.trials or 0),
        changes=changes,
        spent=looks,
        spec=declared.spec,
    )
    # Without `spend` the comparisons of added arms have no verdicts: the family stays that of the earlier arms. Else
    # all arms have verdicts, which () stands for.
    return replace(
        declared,
        created=earlier.created,
        metric=earlier.metric,
        mode=earlier.mode,
        alpha=earlier.alpha,
        reference=earlier.reference,
        family=family if added_arms and not spend else (),
        spec=spec,
        log=(*_log(earlier), entry),
    )


def _with_first_verdicts(declared: Config, first: Config) -> Config:
    """Return the fields `declared`, but with those fields on which verdicts depend (`VERDICT`) as they are in `first`.

    `first` are the fields of the study's first declaration, which verdicts follow. A field of `VERDICT` that `first`
    lacks is left out.
    """
    before = comparable_fields(first)
    now = comparable_fields(declared)
    # `comparable_fields` keeps of a field only what verdicts depend on. A field that is equal in this stays as it is
    # declared now, such as an evaluation on other data for the same scores.
    from_first = {name: first.get(name) for name in VERDICT if before.get(name) != now.get(name)}
    fields = {**declared, **from_first}
    # None: the first declaration lacks the field, so that the result does too.
    return {name: value for name, value in fields.items() if value is not None}


def _grows_after_look(
    plan: Plan,
    earlier: StudyDocument,
    planned_ids: Set[str],
    recorded: RecordsById,
    spend: bool,
) -> bool:
    """Return whether `plan` adds cells to a table that is complete, which counts as one more look at the results.

    The user has seen the complete table, and more cells change the means of its arms. `earlier` is the stored
    study.json, `planned_ids` are the trials of the stored plan, and `recorded` the ended trials by id.

    False where looks.json counts the look instead: in a study that declares `replicates`, and where, without `spend`,
    cells get more replicates.
    """
    if not isinstance(plan, GridPlan) or plan.study.replicates is not None:
        return False
    # How many trials of each cell the stored plan has.
    stored = [sum(trial.id in planned_ids for trial in cell.trials) for cell in plan.cells]
    # Cells get more replicates, without `spend`: looks.json counts this look.
    if not spend and max(stored) < max(len(cell.trials) for cell in plan.cells):
        return False
    # The table is whole, and an arm that was in it gets a cell of which the stored plan has no trial.
    return planned_ids <= recorded.keys() and any(
        cell.arm in earlier.arms and not count
        for cell, count in zip(plan.cells, stored, strict=True)
    )


def _log(earlier: StudyDocument) -> tuple[LogEntry, ...]:
    """Return the log of declarations in the study.json `earlier`, the oldest first.

    A study.json that was declared once has an empty log. Then the result is one entry, made from its own fields.
    """
    if earlier.log:
        return earlier.log
    commands = ", ".join(earlier.commands)
    return (LogEntry(earlier.created, by=commands, trials=earlier.trials, spec=earlier.spec),)


def _check_spend(plan: Plan, changed_verdict: Collection[str]) -> None:
    """Raise `SpecError` where `--spend` cannot give verdicts to the comparisons that a changed declaration adds.

    It cannot where fields on which verdicts depend have changed, which are `changed_verdict`. Nor can it in a study
    with `replicates`, whose alpha is spread over its looks already.
    """
    if changed_verdict:
        rule = "it was chosen among all that was seen, which no level of a later look covers"
    elif plan.study.replicates is not None:
        rule = "the alpha of a study that grows is spread over its looks, and none is left"
    else:
        return
    raise SpecError(
        rule,
        place="--spend",
        value=", ".join(changed_verdict) or True,
        hint=f"{NEW_STUDY} and fresh seeds",
    )


def _newly_excluded(
    plan: Plan, records: StudyRecords, planned: list[FrameRow], recorded: RecordsById
) -> set[int]:
    """Return the seeds that `plan` excludes and that have rows in the stored plan (`planned`).

    Raises `SpecError` where a trial of such a seed has begun: its score may be known, and must not be the reason.
    `recorded` has the ended trials by id.
    """
    excluded = {row["seed"] for row in planned}.intersection(getattr(plan.study, "excluded", ()))
    if not excluded:
        return excluded
    # Once a trial has begun its score may be known, and a seed must not be excluded for its score.
    begun = {*recorded, *records.with_files()}
    begun_and_excluded = {row["seed"] for row in planned if row["trial_id"] in begun} & excluded
    if begun_and_excluded:
        raise SpecError(
            "a seed is left out by name before any of its trials has begun",
            place="excluded",
            value=begun_and_excluded,
            hint=f"it stays in the table; to leave it out, {NEW_STUDY}",
        )
    return excluded


def asked_before(document: StudyDocument, records: StudyRecords) -> tuple[str, ...]:
    """Return the names of the studies of this storage that have asked the question of `document` before.

    Such a study has two arms of this one, on the same data, and one of its trials was trained to its end. Arms are the
    same if their declarations are, whatever their names.
    """
    arms = _arms(document)
    names = []
    # Without two arms nothing is compared, and an evaluation asks nothing of its own.
    if arms.total() > 1 and not document.evaluates:
        for name in study_names(records.storage):
            other = StudyRecords(records.storage, name)
            # A broken file of another study must not stop this one.
            with contextlib.suppress(BrokenFileError):
                declared = other.document() if other.study != document.name else None
                if declared is None or declared.spec.get("data") != document.spec.get("data"):
                    continue
                # Two arms in common, or one that both declare twice.
                if (arms & _arms(declared)).total() < 2:
                    continue
                # Where no trial has a value nobody can have seen an answer.
                records_of_other = map(other.read_one, other.etags())
                if any(record and record.status.counts for record in records_of_other):
                    names.append(declared.name)
    return tuple(names)


def _arms(document: StudyDocument) -> Counter[str]:
    """Return the declarations of a study's arms, each with the number of arms that have it.

    A declaration is JSON text without the arm's name.
    """
    return Counter(
        json.dumps(arm, sort_keys=True, default=str)
        for arm in document.spec.get("arms", {}).values()
    )


def trained_again(
    document: StudyDocument,
    records: StudyRecords,
    trial_ids: Collection[str],
    *,
    spend: bool = False,
) -> StudyDocument:
    """Return `document` with a log entry on trials that are about to be trained again, which keeps their values.

    `trial_ids` are those trials. The entry has the values of the metric that somebody may have seen, because the first
    training counts. Without such a value, or where each is in the log already, `document` is returned as it is.

    Raises `SpecError` with `spend`: no level makes verdicts on such trials right. If equal arms are trained again until
    they differ, at half the level each time, .09 of the studies err at an alpha of .05.
    """
    planned = planned_rows(records)
    # The values of the metric that somebody may have seen, by trial; None: the trial failed.
    seen_values = {}
    for trial, record in records.read(row["trial_id"] for row in planned).items():
        if record.was_seen(document.metric):
            # A trial that failed by a misspelt name of the metric alone counts as trained.
            if lacks_metric(record):
                record = replace(record, status=Status.DONE)
            seen_values[trial] = record.value(document.metric)
    # The value of the first training counts, so a value that is kept already is not replaced.
    kept_values = {}
    for trial, value in seen_values.items():
        if trial in trial_ids and trial not in document.first_values:
            kept_values[trial] = value
    if not kept_values or document.evaluates:
        return document
    if spend:
        raise SpecError(
            "trials that are trained again after their results were seen have no verdicts, at any level",
            place="--spend",
            value=plural(len(kept_values), "trial"),
            hint="leave --spend out: if their values differ, their comparisons become exploratory; or "
            + NEW_STUDY,
        )
    entry = LogEntry(
        at=time.time(),
        by=_asker(),
        ended=len(seen_values),
        trials=len(planned),
        changes=(f"{len(kept_values)} trained again",),
        again=kept_values,
    )
    return replace(document, log=(*_log(document), entry))


def _check_kind(plan: Plan, earlier: StudyDocument, now: Config, changed: Iterable[str]) -> None:
    """Raise `SpecError` where `plan` is of another type of study than `earlier`, or changes how its search is made.

    `earlier` is the study.json in the storage. `now` are the fields as they are declared now, and `changed` the names
    of the fields that differ. Whether and how a study adds replicates belongs to its type too.
    """
    rule = "a study of which trials have ended stays of its kind"
    if earlier.type != plan.study.type:
        raise SpecError(rule, place="type", value=plan.study.type, hint=NEW_STUDY)
    before = earlier.declared.get("replicates") or {}
    replicates = plan.study.replicates
    if any(before.get(name) != getattr(replicates, name, None) for name in ("of", "spending")):
        raise SpecError(rule, place="replicates", value=str(replicates), hint=NEW_STUDY)
    for name in changed:
        if isinstance(plan, SweepPlan) and name in FIXED_BY_SEARCH:
            raise SpecError(
                "the search was made by another", place=name, value=now.get(name), hint=NEW_STUDY
            )


def _check_present(
    plan: Plan,
    earlier: StudyDocument,
    now: Config,
    recorded: RecordsById,
    planned: Sequence[FrameRow],
) -> None:
    """Raise `SpecError` where trials that were declared would leave the table.

    Trials that were added later may leave it again, as long as none of them has ended. `earlier` is the earlier
    study.json. `now` are the fields as they are declared now. `recorded` has the ended trials by id, and `planned` the
    rows of the stored plan.
    """
    # What identifies a row of the table: its trial; in a sweep its arm, fold and seed, because the confirmed
    # configuration is not declared.
    keys: list[Hashable]
    stay: set[Hashable]
    ended: set[Hashable]
    if isinstance(plan, SweepPlan):
        keys = [(row["arm"], row["fold"], row["seed"]) for row in planned]
        stay = {(arm, *replicate) for arm in plan.study.arms for replicate in plan.replicates}
        ended = {
            (record.arm, record.fold, record.seed)
            for record in recorded.values()
            if record.notes.phase is Phase.CONFIRM
        }
    else:
        keys = [row["trial_id"] for row in planned]
        stay = {trial.id for trial in plan.trials}
        ended = set(recorded)
    # Rows that would leave, with their arms.
    leaving = {key: row["arm"] for key, row in zip(keys, planned, strict=True) if key not in stay}
    # Where an earlier declaration is restored, the rows that leave were added after it.
    restored = any(
        entry.spec is not None and comparable_fields(entry.spec, FREE_FIELDS) == now
        for entry in earlier.log
    )
    if leaving and not (restored and ended.isdisjoint(leaving)):
        counts = Counter(leaving.values()).items()
        raise SpecError(
            "ended replicates stay in the table, and so do those that were declared with them",
            place="arms, axes, folds, seeds",
            value=f"without {', '.join(f'{n} of {arm}' for arm, n in counts)}",
            hint=f"declare them as before and add to them; to leave them out, {NEW_STUDY}",
        )


def _change_text(name: str, before: Any, now: Any) -> str:
    """Return how the field `name` has changed, as a text: `metric m0 -> m3`, `seeds + 10, 11`, `arms + c`.

    Of a list or a mapping it names the entries that were added, removed and changed. None stands for a field that was
    not declared.
    """
    kinds = (list, Mapping, type(None))
    # None against [] has no entry to name.
    if not isinstance(before, kinds) or not isinstance(now, kinds) or not (before or now):
        return f"{name} {_value_text(before)} -> {_value_text(now)}"
    old = _entries(before)
    new = _entries(now)
    added = [entry for entry in new if entry not in old]
    removed = [entry for entry in old if entry not in new]
    changed = [entry for entry in new if entry in old and old[entry] != new[entry]]
    parts = []
    for form, entries in (("+ {}", added), ("- {}", removed), ("{} changed", changed)):
        if entries:
            parts.append(form.format(_short(", ".join(map(str, entries)))))
    return f"{name} {' '.join(parts) or 'in another order'}"


def _entries(value: Any) -> Mapping[Any, Any]:
    """Return the entries of a field as a mapping, so that two versions of the field can be compared.

    A mapping is returned as it is. A list gives entry as text -> None, and None gives {}.
    """
    return value if isinstance(value, Mapping) else dict.fromkeys(map(str, value or ()))


def _value_text(value: Any) -> str:
    """Return a value as a short text; `none` for None."""
    return "none" if value is None else _short(str(value))


def _short(text: str) -> str:
    """Return a text, cut after `MOST_SHOWN` characters."""
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def who() -> str:
    """Return the user of this process and the machine, such as `ann on laptop`.

    Where the user's name is not known, it is the machine alone.
    """
    # a container may have no name for its user
    with contextlib.suppress(OSError, KeyError, ImportError):
        return f"{getpass.getuser()} on {platform.node()}"
    return platform.node()


def _asker() -> str:
    """Return who has started this command, where, and the command: `ann on laptop: contrasweep run ...`.

    Where a program of the user runs, the command is left out.
    """
    return ": ".join([who(), *this_command()])


def this_command() -> tuple[str, ...]:
    """Return the running command as a tuple of one text, which people can paste; () where a program of the user runs.

    A tuple, because `StudyDocument.commands` may hold several.
    """
    is_command = Path(sys.argv[0]).name == "contrasweep" or sys.argv[0].endswith(
        "contrasweep/__main__.py"
    )
    return (shlex.join(["contrasweep", *map(redacted, sys.argv[1:])]),) if is_command else ()


def _metric_was_mended(plan: Plan, earlier: StudyDocument, recorded: RecordsById) -> bool:
    """Return whether `plan` changes nothing but the metric, and no trial has reported the earlier metric.

    `earlier` is the earlier study.json, `recorded` the ended trials by id.
    """
    study = plan.study
    if earlier.metric == study.metric:
        return False
    # Nothing else has changed if the plan, given the earlier metric, has the earlier digest.
    untyped = cast(Any, plan)  # for mypy: every kind of plan has a study and a digest
    with_earlier_metric = replace(
        untyped, study=replace(study, metric=earlier.metric, mode=earlier.mode)
    )
    if with_earlier_metric.digest != earlier.plan_digest:
        return False
    return not any(earlier.metric in record.metrics for record in recorded.values())
