"""What becomes of a study's declaration when it is declared anew: rewritten, kept in a log, or refused.

Until a trial has ended nothing was seen, and a declaration is rewritten freely. From then on study.json keeps every
one, and verdicts follow the first (`StudyDocument`). Trials that were declared then stay in the table.
"""

import contextlib
import getpass
import json
import platform
import shlex
import sys
import time
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from contrasweep.config import Config
from contrasweep.errors import BrokenFileError, SpecError, plural
from contrasweep.planning.grid import GridPlan
from contrasweep.planning.plan import Plan
from contrasweep.planning.stages import check_log
from contrasweep.planning.sweep import SweepPlan
from contrasweep.rows import FrameRow
from contrasweep.secrets import redacted
from contrasweep.storage import compact
from contrasweep.storage.interim_log import read_looks
from contrasweep.storage.planned import planned_rows
from contrasweep.storage.record import Phase, Record
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import VERDICT, Declared, StudyDocument, compared
from contrasweep.study.base import NO_RESULT

FREE = tuple(name for name in NO_RESULT if name not in VERDICT)
"""Fields that change no result and no verdict, so that they may be declared otherwise at any time."""
OF_A_SEARCH = ("metric", "mode", "data", "folds")
"""Fields that a Sweep keeps once a trial has ended: its search was made by them."""
MOST_SHOWN = 60
NEW_STUDY = "declare a new study, with another name"


def redeclare(
    plan: Plan, declared: StudyDocument, records: StudyRecords, *, extend: bool, spend: bool = False
) -> StudyDocument:
    """Return the study.json that a run of `plan` leaves; `declared` is what it would be in an empty storage.

    Raises `SpecError` where it differs from what was declared before a trial ended, unless `extend`, and where trials
    would leave the table. With `spend` the comparisons of added arms have verdicts too, and this is a look. Nothing is
    written.
    """
    # An evaluation has no verdicts, so it may be declared otherwise at any time.
    if declared.evaluates:
        return declared
    # Until a trial has left a score, nothing was seen, and anything may be declared otherwise.
    earlier = records.document()
    recorded = compact.read_records(records, records.etags(), [])
    results_seen = any(record.metrics or record.status.trained for record in recorded.values())
    if not (results_seen or (earlier and earlier.log)):
        return declared
    if earlier is None:
        return replace(
            declared,
            log=(Declared(time.time(), _who(), len(recorded), None, ("study.json was missing",)),),
        )
    # What differs from the newest declaration, leaving out what changes no result.
    before = compared(earlier.declared, FREE)
    now = compared(declared.spec, FREE)
    changed = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    # Verdicts follow the first declaration, whatever is asked for later.
    first = compared(earlier.spec)
    standing = {
        name: earlier.spec.get(name) for name in VERDICT if first.get(name) != now.get(name)
    }
    spec = {
        name: value for name, value in {**declared.spec, **standing}.items() if value is not None
    }
    # The same study again, or one whose metric could not be read and is now named right: nothing to enter.
    family = earlier.family or earlier.arms
    no_arm_added = set(declared.arms) <= set(family)
    verdict = [name for name in changed if name in VERDICT]  # what differs and decides verdicts
    if declared.plan_digest == earlier.plan_digest and not verdict and (no_arm_added or not spend):
        return replace(earlier, description=declared.description, spec=spec)
    if _metric_was_mended(plan, earlier, recorded):
        return declared
    # Anything else is another study: refused, unless the user asks to extend this one, and even then only where no
    # trial that was seen would leave the table.
    changes = tuple(
        text for name in changed for text in _said(name, before.get(name), now.get(name))
    )
    changes = changes or tuple(f"arms + {arm}" for arm in declared.arms if arm not in family)
    if not extend:
        raise SpecError(
            f"a study of this name with another plan is in this storage ({'; '.join(changes) or 'other trials'})",
            place="name",
            value=records.study,
            hint=f"choose another name or --storage than {records.storage}, or pass --extend to keep its trials and "
            f"add to them",
        )
    planned = planned_rows(records)
    check_log(plan.study.replicates, read_looks(records))
    _check_kept(plan, earlier, now, changed)
    excluded = _newly_excluded(plan, records, planned, recorded)
    _check_present(
        plan, earlier, now, recorded, [row for row in planned if row["seed"] not in excluded]
    )
    if spend and (verdict or plan.study.replicates is not None):
        raise SpecError(
            "it was chosen among all that was seen, which no level of a later look covers"
            if verdict
            else "the alpha of a study that grows is spread over its looks, and none is left",
            place="--spend",
            value=", ".join(verdict) or True,
            hint=f"{NEW_STUDY} and fresh seeds",
        )
    # Over more cells the arms' means are others: whoever could read the table has had a look at it.
    planned_ids = {row["trial_id"] for row in planned}
    more_cells = isinstance(plan, GridPlan) and any(
        cell.arm in earlier.arms and planned_ids.isdisjoint(trial.id for trial in cell.trials)
        for cell in plan.cells
    )
    looked = (spend and not no_arm_added) or (
        more_cells and planned_ids <= recorded.keys() and plan.study.replicates is None
    )
    spent = looked + len(excluded)  # who may stop before any of these seeds has a look before each
    # The log's new entry: what was declared anew after how many trials, and the looks that it costs.
    ended = len(planned_ids & recorded.keys()) if isinstance(plan, GridPlan) else len(recorded)
    entry = Declared(
        time.time(), _who(), ended, max(ended, earlier.trials or 0), changes, spent, declared.spec
    )
    return replace(
        declared,
        created=earlier.created,
        metric=earlier.metric,
        mode=earlier.mode,
        alpha=earlier.alpha,
        reference=earlier.reference,
        family=() if spend or no_arm_added else family,
        spec=spec,
        log=(*_log(earlier), entry),
    )


def _log(known: StudyDocument) -> tuple[Declared, ...]:
    """Return the log as far as it goes; where there is none yet, its first entry: the declaration that is known."""
    first = Declared(known.created, ", ".join(known.commands), 0, known.trials, spec=known.spec)
    return known.log or (first,)


def _newly_excluded(
    plan: Plan, records: StudyRecords, planned: list[FrameRow], recorded: Mapping[str, Record]
) -> set[int]:
    """Return the seeds of the table that `plan` leaves out; `SpecError` where a trial of one has begun."""
    excluded = {
        row["seed"] for row in planned if row["seed"] in getattr(plan.study, "excluded", ())
    }
    begun = {*recorded, *records.with_files()} if excluded else ()
    # A seed that may be left out once its score is known is a score that may be left out.
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
    """Return the other studies of the storage with ended trials that compare two of these arms on the same data.

    Arms are the same by what they train, under whatever name.
    """
    arms = _arms(document)
    names = []
    if arms.total() > 1 and not document.evaluates:
        for key in sorted(records.store.etags("", "study.json")):
            other = StudyRecords(records.storage, key.partition("/")[0])
            # somebody else's study keeps nobody from running
            with contextlib.suppress(BrokenFileError):
                declared = other.document() if other.study != document.name else None
                # The same data, two arms in common (or one twice in both), and a trial with a record.
                same = declared is not None and declared.spec.get("data") == document.spec.get(
                    "data"
                )
                if (
                    declared is not None
                    and same
                    and (arms & _arms(declared)).total() > 1
                    and other.etags()
                ):
                    names.append(declared.name)
    return tuple(names)


def _arms(document: StudyDocument) -> Counter[str]:
    """Count the arms of a study by what they train, as text; their names play no part."""
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
    """Return `document` with the present values of ended trials that are about to be trained again.

    Raises `SpecError` with `spend`. No level can be bought for such trials: if equal arms are trained again until they
    differ, at half the level each time, .09 of the studies err at an alpha of .05.
    """
    planned = planned_rows(records)
    recorded = records.read(row["trial_id"] for row in planned)
    values = {
        i: record.value(document.metric)
        for i, record in recorded.items()
        if record.was_seen(document.metric)
    }
    again = {i: value for i, value in values.items() if i in trial_ids and i not in document.seen}
    if not again or document.evaluates:
        return document
    if spend:
        raise SpecError(
            "trials that are trained again after their results were seen have no verdicts, at any level",
            place="--spend",
            value=plural(len(again), "trial"),
            hint="leave --spend out: if their values differ, their comparisons become exploratory; or "
            + NEW_STUDY,
        )
    entry = Declared(
        time.time(),
        _who(),
        len(values),
        len(planned),
        (f"{len(again)} trained again",),
        again=again,
    )
    return replace(document, log=(*_log(document), entry))


def _check_kept(plan: Plan, known: StudyDocument, now: Config, changed: Iterable[str]) -> None:
    """Raise `SpecError` for another kind of study, and for a search by other fields.

    `known` is the earlier study.json, `now` the fields as they are declared now, of which `changed` differ.
    """
    # Fields of `replicates`: how a study grows, if it does, is of its kind.
    kind = ("of", "spending")
    before = known.declared.get("replicates") or {}
    grows = plan.study.replicates
    if known.type != plan.study.type or [before.get(name) for name in kind] != [
        getattr(grows, n, None) for n in kind
    ]:
        raise SpecError(
            "a study of which trials have ended stays of its kind",
            place="type" if known.type != plan.study.type else "replicates",
            value=plan.study.type if known.type != plan.study.type else str(grows),
            hint=NEW_STUDY,
        )
    for name in changed:
        if isinstance(plan, SweepPlan) and name in OF_A_SEARCH:
            raise SpecError(
                "the search was made by another", place=name, value=now.get(name), hint=NEW_STUDY
            )


def _check_present(
    plan: Plan,
    known: StudyDocument,
    now: Config,
    recorded: Mapping[str, Record],
    planned: Sequence[FrameRow],
) -> None:
    """Raise `SpecError` where trials that were declared would leave the table.

    What was added later may go again, as long as none of it has ended. `known` is the earlier study.json, `now` the
    fields as they are declared now, `planned` the rows of the stored plan.
    """
    # By what a row of the table is known: of a sweep the arm and its replicate, else the trial.
    records = recorded.values()
    if isinstance(plan, SweepPlan):  # which configurations are confirmed is not declared
        keys: list[Hashable] = [(row["arm"], row["fold"], row["seed"]) for row in planned]
        stay: set[Hashable] = {
            (arm, fold, seed) for arm in plan.study.arms for fold, seed in plan.replicates
        }
        ended: set[Hashable] = {
            (r.arm, r.fold, r.seed) for r in records if r.notes.phase is Phase.CONFIRM
        }
    else:
        keys = [row["trial_id"] for row in planned]
        stay = {trial.id for trial in plan.trials}
        ended = set(recorded)
    gone = {key: row["arm"] for key, row in zip(keys, planned, strict=True) if key not in stay}
    # Whether this goes back to what was declared before: then what leaves was added later.
    earlier = any(
        entry.spec is not None and compared(entry.spec, FREE) == now for entry in known.log
    )
    if gone and not (earlier and ended.isdisjoint(gone)):
        count = Counter(gone.values())
        raise SpecError(
            "ended replicates stay in the table, and so do those that were declared with them",
            place="arms, axes, folds, seeds",
            value=f"without {', '.join(f'{n} of {arm}' for arm, n in count.items())}",
            hint=f"declare them as before and add to them; to leave them out, {NEW_STUDY}",
        )


def _said(name: str, before: Any, now: Any) -> list[str]:
    """Return what differs of a field, in words: `metric m0 -> m3`, `seeds + 10, 11`, `arms + c`.

    Of a list or a mapping what came and what went; None stands for a field that was not declared.
    """
    if isinstance(before, list | None) and isinstance(now, list | None) and (before or now):
        added = [entry for entry in now or [] if entry not in (before or [])]
        gone = [entry for entry in before or [] if entry not in (now or [])]
        parts = [
            f"{sign} {_short(', '.join(map(str, ones)))}"
            for sign, ones in (("+", added), ("-", gone))
            if ones
        ]
        return [f"{name} {' '.join(parts) or 'in another order'}"]
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        added = [key for key in now if key not in before]
        gone = [key for key in before if key not in now]
        other = [key for key in now if key in before and before[key] != now[key]]
        forms = [(added, "+ {}"), (gone, "- {}"), (other, "{} changed")]
        return [
            f"{name} {form.format(_short(', '.join(map(str, keys))))}"
            for keys, form in forms
            if keys
        ]
    old, new = ("none" if value is None else _short(str(value)) for value in (before, now))
    return [f"{name} {old} -> {new}"]


def _short(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _who() -> str:
    """Return who asks, on which machine and by which command."""
    # a container may have no name for its user
    with contextlib.suppress(OSError, KeyError, ImportError):
        return f"{getpass.getuser()} on {platform.node()}{''.join(f': {command}' for command in this_command())}"
    return platform.node()


def this_command() -> tuple[str, ...]:
    """Return the command that declared the study, for who runs it again; () where a program did."""
    ours = Path(sys.argv[0]).name == "contrasweep" or sys.argv[0].endswith(
        "contrasweep/__main__.py"
    )
    return (shlex.join(["contrasweep", *map(redacted, sys.argv[1:])]),) if ours else ()


def _metric_was_mended(plan: Plan, known: StudyDocument, recorded: Mapping[str, Record]) -> bool:
    """Whether `known` is of this plan but for a metric that none of its trials has reported.

    So it is where the plan with the earlier metric has the earlier digest.
    """
    study = plan.study
    designed = cast(Any, plan)  # of any kind: all have a study and a digest
    if known.metric == study.metric:
        return False
    earlier = replace(designed, study=replace(study, metric=known.metric, mode=known.mode))
    if earlier.digest != known.plan_digest:
        return False
    return not any(known.metric in record.metrics for record in recorded.values())
