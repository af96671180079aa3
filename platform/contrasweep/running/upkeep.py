"""Upkeep of a study in a storage: take trials out of it, put them back, and verify every file. Nothing is lost."""

import contextlib
import fnmatch
import functools
import math
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from contrasweep.code.version import digest_of
from contrasweep.errors import BrokenFileError, StorageError, check_known
from contrasweep.planning import learned
from contrasweep.rows import metrics_of
from contrasweep.storage import compact
from contrasweep.storage.archive import (
    ABOUT_FILE,
    MOVE_FILE,
    ArchivedTrials,
    archive_trials,
    find_archived,
    finish_move,
    restore_trials,
)
from contrasweep.storage.attempts import OWNER_FILE
from contrasweep.storage.checkpoints import MARKER_FILE, Checkpoints
from contrasweep.storage.code_files import ACCEPTED_FILE, VERSION_FILE, read_sources, read_version
from contrasweep.storage.compact import decode_part, kind_of
from contrasweep.storage.interim_log import LEDGER_FILE, LOOKS_FILE
from contrasweep.storage.json_file import JsonFile
from contrasweep.storage.lease import exclusive_driver
from contrasweep.storage.names import check_name
from contrasweep.storage.planned import PLAN, read_planned
from contrasweep.storage.record import Status
from contrasweep.storage.records import ATTEMPT, StudyRecords
from contrasweep.tracking.links import FILE as LINKS
from contrasweep.tracking.links import LINKS_FILE
from contrasweep.tracking.sync import TOLD, TOLD_FILE
from contrasweep.tuning.arm_search import CANDIDATE_FILE

Repair = Literal["trial", "search", "file", "delete", "rewrite", ""]
"""What mends it: the trial, the arm's search or the file is archived; what is derived from other files is deleted;
the next run writes it; or nothing that a command could do."""
FILES: tuple[tuple[str, JsonFile[Any], Repair], ...] = (
    ("looks.json", LOOKS_FILE, ""),
    ("confirmations.json", LEDGER_FILE, ""),
    (LINKS, LINKS_FILE, "delete"),
    (f"{TOLD}*", TOLD_FILE, "delete"),
    ("search/*/*.json", CANDIDATE_FILE, "search"),
    (f"trials/*/{ATTEMPT}", OWNER_FILE, "delete"),
    ("code/accepted.json", ACCEPTED_FILE, ""),
    ("archive/moving.json", MOVE_FILE, ""),
    ("archive/*/about.json", ABOUT_FILE, ""),
)
"""Patterns of a study's JSON files, each with what reads it and what mends a broken one."""
THREADS = 16


def removable(
    records: StudyRecords, arm: str | None = None, status: str | None = None
) -> list[str]:
    """Return the ids of the trials of an arm, of a status, of both, or all, sorted; None: of any.

    Trials that have begun and have no record are `pending`. `SpecError` for an arm or status that there is not.
    """
    recorded = compact.read_records(records, records.etags())
    document = records.document()
    declared = document.arms if document else ()
    arms = list(dict.fromkeys([*declared, *(r.arm for r in recorded.values())]))
    if arm is not None:
        check_known(arm, "arms", arms, "there is no such arm in this study", place="--arm")
    if status is not None:
        check_known(
            status,
            "statuses",
            [s.value for s in Status],
            "there is no such status",
            place="--status",
        )
    chosen = [
        r.trial_id
        for r in recorded.values()
        if (arm is None or r.arm == arm) and (status is None or r.status == status)
    ]
    # A trial without a record has no arm here, so it goes only where all arms do.
    begun = records.begun() if arm is None and (status is None or Status(status).pending) else set()
    return sorted({*chosen, *begun})


def remove(records: StudyRecords, trial_ids: list[str]) -> str:
    """Move trials to the archive, and return the name under which `restore` finds them.

    Raises `ContrasweepError` while the study runs.
    """
    with exclusive_driver(records):
        finish_move(records)
        learned.forget(records)
        return archive_trials(records, trial_ids, "removed")


def restore(records: StudyRecords, when: str | None = None) -> ArchivedTrials:
    """Put back what was archived last, or what has the name `when`.

    What was made in its place since is archived. Raises `SpecError` where there is nothing of that name,
    `ContrasweepError` while the study runs.
    """
    with exclusive_driver(records):
        finish_move(records)
        part = find_archived(records, when)
        learned.forget(records)
        # Trials of the same arms go to the archive: a search that started anew has chosen others than the one that
        # comes back.
        recorded = compact.read_records(records, records.etags()) if part.searches else {}
        restore_trials(
            records, part, {key for key, record in recorded.items() if record.arm in part.searches}
        )
        return part


@dataclass(frozen=True)
class Finding:
    """A broken file: its key, its defect, its remedy, and the trial id or the arm of the search that it belongs to.

    `of` is "" for a file of the study itself.
    """

    file: str
    problem: str
    repair: Repair = ""
    of: str = ""

    @property
    def outcome(self) -> str:
        """Return what `--repair` does about this file."""
        return {
            "trial": "the trial is archived and runs again",
            "search": "the arm's search is archived and starts anew",
            "file": "the file is archived and the next run writes it again",
            "delete": "the file is deleted; it is made again from others",
            "rewrite": "the next run of the study writes it again",
            "": "restore it from a backup",
        }[self.repair]


@dataclass(frozen=True)
class Verification:
    """How many files were read and of how many trials, which are broken, and what became of these.

    `repaired`: what can be mended was. `archived` is the archive that it was moved to; "" where nothing was moved.
    """

    study: str
    files: int
    trials: int
    findings: tuple[Finding, ...]
    archived: str = ""
    repaired: bool = False

    @property
    def sound(self) -> bool:
        """Return whether no broken file is left: there was none, or each was repaired and had a remedy."""
        return all(self.repaired and finding.repair for finding in self.findings)


def verify(records: StudyRecords, *, repair: bool = False) -> Verification:
    """Read every file that the storage holds of a study.

    With `repair`, what is broken is archived, or deleted where it is derived; `ContrasweepError` then while the study
    runs. `StorageError` where the storage is of another format.
    """
    with contextlib.suppress(BrokenFileError):  # which is found below
        records.document()
    if not repair:
        return _examined(records)
    with exclusive_driver(records):
        finish_move(records)
        examined = _examined(records)
        # By remedy, what it is done to: trial ids, arms, files. What is derived is deleted at once.
        repaired: dict[Repair, dict[str, None]] = {}
        for finding in examined.findings:
            if finding.repair == "delete":
                records.store.delete(finding.file)
            name = (
                finding.file.removeprefix(f"{records.study}/")
                if finding.repair == "file"
                else finding.of
            )
            repaired.setdefault(finding.repair, {})[name] = None
        trials, searches, files = (repaired.get(kind, {}) for kind in ("trial", "search", "file"))
        aside = trials or searches or files
        when = (
            archive_trials(records, trials, "broken", {arm: arm for arm in searches}, files)
            if aside
            else ""
        )
        return replace(examined, archived=when, repaired=True)


def _examined(records: StudyRecords) -> Verification:
    """Return what is broken or missing among the study's files."""
    study = f"{records.study}/"
    peaks = learned.peaks_key(records)
    keys = [key.removeprefix(study) for key in records.store.list(study)]
    # Files of trials are checked in parallel, because each check waits for the storage.
    trials = {
        key.split("/")[1]
        for key in keys
        if key.startswith(("trials/", "records/")) and key.count("/") > 1
    }
    with ThreadPoolExecutor(THREADS) as pool:
        findings = [
            finding
            for found in pool.map(functools.partial(_trial, records), sorted(trials))
            for finding in found
        ]
    findings += [finding for key in keys for finding in _file(records, key)]
    # Study and plan are made again by the next run; peaks of memory are derived, and may go.
    missing = sorted({"study.json", PLAN} - set(keys))
    findings += [Finding(study + name, "it is missing", "rewrite") for name in missing]
    findings += _attempt(peaks, lambda: learned.PEAKS_FILE.read(records.store, peaks), "delete")
    return Verification(records.study, len(keys), len(trials), tuple(findings))


def _trial(records: StudyRecords, trial_id: str) -> list[Finding]:
    """Return everything that is wrong with a trial. All else of it is compared with its record.

    Where the record itself cannot be read, that alone.
    """
    try:
        key = records.key(check_name(trial_id), "record.json")
        record = records.read_one(trial_id)
    except ValueError as error:
        return [
            Finding(f"{records.study}/trials/{ascii(trial_id)[:80]}", f"{error}; nothing reads it")
        ]
    except StorageError as error:
        return [_finding(key, error, "trial", trial_id)]

    def check_metrics() -> None:
        """Raise `BrokenFileError` where the last report is not what the record says."""
        rows = records.metrics(trial_id)
        metrics = record.metrics if record else {}
        last = metrics_of(rows[-1]) if rows else {}
        if metrics and not rows:
            raise BrokenFileError(key, "it is missing", "")
        same = last.keys() == metrics.keys() and all(
            value == metrics[name] or (math.isnan(value) and math.isnan(metrics[name]))
            for name, value in last.items()
        )
        if record and rows and not same:
            raise BrokenFileError(key, "its last report is not what the record says", "")

    checkpoint = functools.partial(_check_checkpoint, records, records.key(trial_id, "checkpoint"))
    # An unfinished trial loses its steps by a broken checkpoint, a finished one only its model.
    checks: list[tuple[str, Repair, Callable[[], object]]] = [
        ("checkpoint/latest.json", "" if record else "trial", checkpoint),
        ("metrics.parquet", "trial", check_metrics),
        ("items.parquet", "trial", lambda: records.items(trial_id, record.items if record else ())),
    ]
    found = [
        finding
        for name, repair, read in checks
        for finding in _attempt(records.key(trial_id, name), read, repair, trial_id)
    ]
    artifacts = [
        records.key(trial_id, f"artifacts/{name}") for name in (record.artifacts if record else ())
    ]
    missing = [artifact for artifact in artifacts if not records.store.exists(artifact)]
    return found + [Finding(artifact, "it is missing", "trial", trial_id) for artifact in missing]


def _file(records: StudyRecords, key: str) -> list[Finding]:
    """Return the defect of one of the study's files outside its trials.

    Each kind of file is read by what writes it.
    """
    full_key = f"{records.study}/{key}"
    levels = key.split("/")
    for pattern, file, repair in FILES:
        if pattern.count("/") == key.count("/") and fnmatch.fnmatchcase(key, pattern):
            of = levels[1] if repair == "search" else ""
            read = functools.partial(file.read, records.store, full_key)
            return _attempt(full_key, read, repair, of)
    if (kind := kind_of(key)) is not None:
        return _attempt(
            full_key, lambda: decode_part(records.store.read(full_key), full_key, kind), "delete"
        )
    match levels:
        case ["study.json"]:
            return _attempt(full_key, records.document, "file")
        case [name] if name == PLAN:
            return _attempt(full_key, lambda: read_planned(records), "file")
        case ["given", digest, "latest.json"]:
            return _attempt(
                full_key, lambda: _check_checkpoint(records, records.given(digest)), "delete"
            )
        case ["code", name] if name.endswith(".json"):
            return _attempt(full_key, lambda: _check_code(records, name.removesuffix(".json")))
        case ["code", name] if name.endswith(".zip"):
            return _attempt(full_key, lambda: read_sources(records, name.removesuffix(".zip")))
    return []


def _check_code(records: StudyRecords, digest: str) -> None:
    """Raise `BrokenFileError` where the digests of a code's modules do not come to its own."""
    version = read_version(records, digest)
    if version is not None and digest_of(version.modules) != digest:
        raise BrokenFileError("", "its modules come to another digest", VERSION_FILE.remedy)


def _check_checkpoint(records: StudyRecords, folder: str) -> None:
    """Raise an error where a checkpoint's marker or one of its files is broken.

    `folder` is its key in the storage. `FileNotFoundError` where there is no marker, and so no checkpoint.
    """
    marker = f"{folder}/latest.json"
    MARKER_FILE.read(records.store, marker)
    with tempfile.TemporaryDirectory(prefix="contrasweep-") as scratch:
        if Checkpoints(records.store, folder).fetch(Path(scratch)) is None:
            raise BrokenFileError(
                marker, "its files are not those that it names", "evaluate the checkpoint again"
            )


def _attempt(
    key: str, read: Callable[[], object], repair: Repair = "", of: str = ""
) -> list[Finding]:
    """Return the finding that reading a file gives; [] where it is sound or not there.

    `read` raises where it is broken; `repair` and `of` are those of the finding.
    """
    try:
        read()
    except FileNotFoundError:
        return []
    except StorageError as error:
        return [_finding(key, error, repair, of)]
    return []


def _finding(key: str, error: StorageError, repair: Repair, of: str) -> Finding:
    """Return what an error says of a file; one that cannot be reached is not broken, and has no remedy."""
    if isinstance(error, BrokenFileError):
        return Finding(key, error.problem, repair, of)
    return Finding(key, str(error), of=of)
