"""Upkeep of a study in a storage: archive trials, put them back, and verify every file."""

import contextlib
import fnmatch
import functools
import math
import tempfile
from collections.abc import Callable, Mapping
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
    REMOVED,
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
from contrasweep.storage.interim_log import CONFIRMATIONS_FILE, LOOKS_FILE
from contrasweep.storage.json_file import JsonFile
from contrasweep.storage.lease import exclusive_driver
from contrasweep.storage.names import check_name
from contrasweep.storage.planned import PLAN, read_planned
from contrasweep.storage.record import Status
from contrasweep.storage.records import ATTEMPT, StudyRecords
from contrasweep.tracking.links import FILE as LINKS
from contrasweep.tracking.links import LINKS_FILE
from contrasweep.tracking.sync import TOLD_FILE, TOLD_PREFIX
from contrasweep.tuning.sweep_source import CANDIDATE_FILE

Repair = Literal["trial", "search", "file", "delete", "rewrite", ""]
"""How a broken file is repaired: the trial, the arm's search or the file itself is archived ("trial", "search",
"file"); it is deleted, because it is derived from others ("delete"); the next run writes it ("rewrite"); or no command
can repair it ("")."""
FILES: tuple[tuple[str, JsonFile[Any], Repair], ...] = (
    ("looks.json", LOOKS_FILE, ""),
    ("confirmations.json", CONFIRMATIONS_FILE, ""),
    (LINKS, LINKS_FILE, "delete"),
    (f"{TOLD_PREFIX}*", TOLD_FILE, "delete"),
    ("search/*/*.json", CANDIDATE_FILE, "search"),
    (f"trials/*/{ATTEMPT}", OWNER_FILE, "delete"),
    ("code/accepted.json", ACCEPTED_FILE, ""),
    ("archive/moving.json", MOVE_FILE, ""),
    ("archive/*/about.json", ABOUT_FILE, ""),
)
"""JSON files of a study: a pattern of their paths, what reads them, and how a broken one is repaired."""
THREADS = 16
"""Trials that are checked at once."""


def removable(records: StudyRecords, arm: str | None, status: str | None) -> list[str]:
    """Return the ids of the trials that have this arm and this status, sorted; None: any arm, any status.

    Trials that have begun and have no record are `pending`. Raises `SpecError` for an unknown arm or status.
    """
    recorded = compact.read_records(records)
    document = records.document()
    declared = document.arms if document else ()
    arms = list(dict.fromkeys([*declared, *(record.arm for record in recorded.values())]))
    if arm is not None:
        check_known(arm, "arms", arms, "there is no such arm in this study", place="--arm")
    if status is not None:
        check_known(
            status,
            "statuses",
            [status.value for status in Status],
            "there is no such status",
            place="--status",
        )
    chosen = [
        record.trial_id
        for record in recorded.values()
        if (arm is None or record.arm == arm) and (status is None or record.status == status)
    ]
    # The arm of a trial without a record is not known, so such trials are returned only where no arm is asked for.
    if arm is None and (status is None or Status(status).pending):
        chosen += records.begun()
    return sorted(set(chosen))


def remove(records: StudyRecords, trial_ids: list[str]) -> str:
    """Move trials to the archive, and return the name under which `restore` finds them.

    Raises `ContrasweepError` while the study runs.
    """
    with exclusive_driver(records):
        finish_move(records)
        learned.forget(records)
        return archive_trials(records, trial_ids, REMOVED)


def restore(records: StudyRecords, when: str | None = None) -> ArchivedTrials:
    """Move archived trials back into the study, and return what was moved back.

    `when` is the name of their archive; None: the newest one. Where the study has such a trial again, that one is
    archived in its place. Raises `SpecError` where there is no such archive, and `ContrasweepError` while the study
    runs.
    """
    with exclusive_driver(records):
        finish_move(records)
        part = find_archived(records, when)
        learned.forget(records)
        # Where the search of an arm comes back, all present trials of the arm go to the archive: a newer search has
        # chosen them.
        recorded = compact.read_records(records) if part.searches else {}
        restore_trials(
            records, part, {key for key, record in recorded.items() if record.arm in part.searches}
        )
        return part


@dataclass(frozen=True)
class Finding:
    """A broken file of a study.

    `file` is its key in the storage, and `problem` says what is wrong with it. `repair` is the kind of its remedy, and
    "" where only a backup helps. `of` is the id of the trial, or the digest of the search, to which the file belongs;
    "" for other files.
    """

    file: str
    problem: str
    repair: Repair = ""
    of: str = ""

    @property
    def outcome(self) -> str:
        """Return in words what happens to the file with `verify --repair`, or what the user must do."""
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
    """The result of `verify`.

    `files` is the number of the study's files, and `trials` that of its trials. `findings` are the broken files.
    `repaired` says whether each of them with a remedy was repaired. `archived` is the name of the archive of what was
    moved; "" where nothing was moved.
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
    """Read every file of a study in the storage, and return which are broken.

    With `repair`, broken files are archived, or deleted where they are derived from others. Raises `ContrasweepError`
    with `repair` while the study runs, and `StorageError` where the storage is of another format.
    """
    # Only the format is checked here: a broken study.json is one of the findings.
    with contextlib.suppress(BrokenFileError):
        records.document()
    if not repair:
        return _examine(records)
    with exclusive_driver(records):
        finish_move(records)
        examined = _examine(records)
        # Derived files are deleted at once; what is to be archived is collected by kind.
        trials: list[str] = []
        searches: dict[str, str] = {}
        files: list[str] = []
        for finding in examined.findings:
            match finding.repair:
                case "delete":
                    records.store.delete(finding.file)
                case "trial":
                    trials.append(finding.of)
                # The digest is the key too, where an arm stands otherwise: `restore` archives the trials of each arm
                # that is named, and here the trials stay when the search is archived.
                case "search":
                    searches[finding.of] = finding.of
                case "file":
                    files.append(finding.file.removeprefix(f"{records.study}/"))
        when = ""
        if trials or searches or files:
            when = archive_trials(records, trials, "broken", searches, files)
        return replace(examined, archived=when, repaired=True)


def _examine(records: StudyRecords) -> Verification:
    """Read all files of a study, and return which are broken or missing."""
    study = f"{records.study}/"
    keys = [key.removeprefix(study) for key in records.store.list(study)]
    # Trials are checked in parallel, because each check waits for the storage. The key of a trial's file is
    # trials/<id>/... or records/<id>/...
    trials = set()
    for key in keys:
        if key.startswith(("trials/", "records/")) and key.count("/") > 1:
            trials.add(key.split("/")[1])
    findings: list[Finding] = []
    with ThreadPoolExecutor(THREADS) as pool:
        for of_trial in pool.map(functools.partial(_check_trial, records), sorted(trials)):
            findings += of_trial
    for key in keys:
        findings += _check_file(records, key)
    # The next run writes the study and its plan again.
    missing = sorted({"study.json", PLAN} - set(keys))
    findings += [Finding(study + name, "it is missing", repair="rewrite") for name in missing]
    # The peaks of memory lie outside the study's folder.
    peaks = learned.peaks_key(records)
    findings += _try_read(
        peaks, lambda: learned.PEAKS_FILE.read(records.store, peaks), repair="delete"
    )
    return Verification(records.study, len(keys), len(trials), tuple(findings))


def _check_trial(records: StudyRecords, trial_id: str) -> list[Finding]:
    """Return the broken files of a trial, each compared with the trial's record; [] where all are sound.

    Where the record itself cannot be read, it is the only finding.
    """
    try:
        key = records.key(check_name(trial_id), "record.json")
        record = records.read_one(trial_id)
    except ValueError as error:  # no trial has such an id
        place = f"{records.study}/trials/{ascii(trial_id)[:80]}"
        return [Finding(place, f"{error}; nothing reads it")]
    except StorageError as error:
        return [_finding(key, error, repair="trial", of=trial_id)]

    metrics_key = records.key(trial_id, "metrics.parquet")

    def check_metrics() -> None:
        """Raise `BrokenFileError` where the metrics of the last report are not those of the record."""
        rows = records.metrics(trial_id)
        metrics = record.metrics if record else {}
        if metrics and not rows:
            raise BrokenFileError(metrics_key, "it is missing", "")
        if record and rows and not _same_metrics(metrics_of(rows[-1]), metrics):
            problem = "its last report is not what the record says"
            raise BrokenFileError(metrics_key, problem, "")

    # With a broken checkpoint an unfinished trial must start over. A finished one has lost its network, which no
    # command can make again.
    checkpoint = records.key(trial_id, "checkpoint")
    findings = _try_read(
        f"{checkpoint}/latest.json",
        lambda: _check_checkpoint(records, checkpoint),
        repair="" if record else "trial",
        of=trial_id,
    )
    findings += _try_read(metrics_key, check_metrics, repair="trial", of=trial_id)
    findings += _try_read(
        records.key(trial_id, "items.parquet"),
        lambda: records.items(trial_id, record.items if record else ()),
        repair="trial",
        of=trial_id,
    )
    names = record.artifacts if record else ()
    for name in names:
        artifact = records.key(trial_id, f"artifacts/{name}")
        if not records.store.exists(artifact):
            findings.append(Finding(artifact, "it is missing", repair="trial", of=trial_id))
    return findings


def _same_metrics(a: Mapping[str, float], b: Mapping[str, float]) -> bool:
    """Whether two mappings of metrics are equal; NaN, which is not equal to itself, is the same value here."""
    if a.keys() != b.keys():
        return False
    return all(a[name] == b[name] or (math.isnan(a[name]) and math.isnan(b[name])) for name in a)


def _check_file(records: StudyRecords, key: str) -> list[Finding]:
    """Return the defect of one of the study's files outside its trials; [] where it is sound.

    `key` is the file's path within the study. Files of an unknown kind are sound.
    """
    full_key = f"{records.study}/{key}"
    levels = key.split("/")
    # JSON files of a pattern. In a pattern, `*` would match a slash too, so their numbers are compared.
    for pattern, file, repair in FILES:
        if pattern.count("/") == key.count("/") and fnmatch.fnmatchcase(key, pattern):
            # The key of a search's file is search/<digest>/<number>.json.
            search = levels[1] if repair == "search" else ""
            read = functools.partial(file.read, records.store, full_key)
            return _try_read(full_key, read, repair=repair, of=search)
    # Parts of compact/.
    kind = kind_of(key)
    if kind is not None:
        return _try_read(
            full_key,
            lambda: decode_part(records.store.read(full_key), full_key, kind),
            repair="delete",
        )
    # All others.
    match levels:
        case ["study.json"]:
            return _try_read(full_key, records.document, repair="file")
        case [name] if name == PLAN:
            return _try_read(full_key, lambda: read_planned(records), repair="file")
        case ["given", digest, "latest.json"]:
            return _try_read(
                full_key,
                lambda: _check_checkpoint(records, records.given_checkpoint_key(digest)),
                repair="delete",
            )
        case ["code", name] if name.endswith(".json"):
            return _try_read(full_key, lambda: _check_code(records, name.removesuffix(".json")))
        case ["code", name] if name.endswith(".zip"):
            return _try_read(full_key, lambda: read_sources(records, name.removesuffix(".zip")))
    return []


def _check_code(records: StudyRecords, digest: str) -> None:
    """Raise `BrokenFileError` where `digest`, by which the code is named, is not the digest of its modules."""
    version = read_version(records, digest)
    if version is not None and digest_of(version.modules) != digest:
        raise BrokenFileError("", "its modules come to another digest", VERSION_FILE.remedy)


def _check_checkpoint(records: StudyRecords, folder: str) -> None:
    """Raise `StorageError` where a checkpoint's marker or one of its files is broken.

    `folder` is the key of the checkpoint's folder. Raises `FileNotFoundError` where there is no checkpoint.
    """
    marker = f"{folder}/latest.json"
    MARKER_FILE.read(records.store, marker)
    with tempfile.TemporaryDirectory(prefix="contrasweep-") as scratch:
        if Checkpoints(records.store, folder).fetch(Path(scratch)) is None:
            raise BrokenFileError(
                marker, "its files are not those that it names", "evaluate the checkpoint again"
            )


def _try_read(
    key: str, read: Callable[[], object], *, repair: Repair = "", of: str = ""
) -> list[Finding]:
    """Call `read()`, which reads the file `key`; return [finding] where it raises `StorageError`, else [].

    A file that does not exist gives [] too. `repair` and `of` become those of the finding.
    """
    try:
        read()
    except FileNotFoundError:
        return []
    except StorageError as error:
        return [_finding(key, error, repair=repair, of=of)]
    return []


def _finding(key: str, error: StorageError, *, repair: Repair, of: str) -> Finding:
    """Return the finding on the file `key` that could not be read because of `error`.

    A `BrokenFileError` gives one with the remedy `repair`. Any other error means that the file could not be reached. It
    may be sound then, so that its finding has no remedy.
    """
    if isinstance(error, BrokenFileError):
        return Finding(key, error.problem, repair, of)
    return Finding(key, str(error), of=of)
