"""`contrasweep verify`: reads every file of a study, archives broken ones, and lets their trials run again."""

import contextlib
import functools
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from contrasweep.code.version import digest_of
from contrasweep.errors import BrokenFileError, StorageError
from contrasweep.planning.learned import PEAKS_FILE, peaks_key
from contrasweep.rows import Row, metrics_of
from contrasweep.storage.archive import ABOUT_FILE, MOVE_FILE, archive_trials, finish_move
from contrasweep.storage.attempts import OWNER_FILE
from contrasweep.storage.checkpoints import MARKER_FILE, Checkpoints
from contrasweep.storage.code_files import ACCEPTED_FILE, VERSION_FILE, read_sources, read_version
from contrasweep.storage.compact import decode_part, kind_of
from contrasweep.storage.confirmations import read_confirmations
from contrasweep.storage.interim_log import read_looks
from contrasweep.storage.lease import exclusive_driver
from contrasweep.storage.names import check_name
from contrasweep.storage.planned import PLAN, read_planned
from contrasweep.storage.record import Record
from contrasweep.storage.records import ATTEMPT, StudyRecords
from contrasweep.tracking.links import FILE as LINKS
from contrasweep.tracking.links import LINKS_FILE
from contrasweep.tracking.sync import TOLD, TOLD_FILE
from contrasweep.tuning.candidate import CANDIDATE_FILE

Repair = Literal["trial", "search", "file", "delete", "rewrite", ""]
"""What mends it: the trial, the arm's search or the file is archived; what is derived from other files is deleted;
the next run writes it; or nothing that a command could do."""
Problem = tuple[str, str, bool]
"""The file below the trial's folder, what is wrong with it, and whether running the trial again mends it."""
THREADS = 16


@dataclass(frozen=True)
class Finding:
    """A broken file: its key, its defect, its remedy, and the trial or search that it belongs to."""

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
    """The files that were read, the broken ones, and the archive with what was repaired ("" where there is none)."""

    study: str
    files: int
    trials: int
    findings: tuple[Finding, ...]
    archived: str = ""
    repaired: bool = False

    @property
    def sound(self) -> bool:
        """Return whether no broken file is left."""
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
        seen = _examined(records)
        when = _repair(records, seen.findings)
        return Verification(seen.study, seen.files, seen.trials, seen.findings, when, repaired=True)


def _examined(records: StudyRecords) -> Verification:
    keys = [key.removeprefix(f"{records.study}/") for key in records.store.list(f"{records.study}/")]
    trials = sorted(
        {key.split("/")[1] for key in keys if key.startswith(("trials/", "records/")) and key.count("/") > 1}
    )
    findings: list[Finding] = []
    with ThreadPoolExecutor(THREADS) as pool:
        for problems in pool.map(functools.partial(_trial, records), trials):
            findings.extend(problems)
    for key in keys:
        findings.extend(_file(records, key))
    if not {"study.json", PLAN} <= set(keys):
        missing = sorted({"study.json", PLAN} - set(keys))
        findings.extend(Finding(f"{records.study}/{name}", "it is missing", "rewrite") for name in missing)
    findings.extend(
        _attempt(f"{peaks_key(records)}", "delete", lambda: PEAKS_FILE.read(records.store, peaks_key(records)))
    )
    return Verification(records.study, len(keys), len(trials), tuple(findings))


def _trial(records: StudyRecords, trial_id: str) -> list[Finding]:
    try:
        check_name(trial_id)
    except ValueError as error:
        return [Finding(f"{records.study}/trials/{ascii(trial_id)[:80]}", f"{error}; nothing reads it")]
    with tempfile.TemporaryDirectory(prefix="contrasweep-") as folder:
        return [
            Finding(records.key(trial_id, name), problem, "trial" if mends else "", trial_id)
            for name, problem, mends in _trial_problems(records, trial_id, Path(folder))
        ]


def _trial_problems(records: StudyRecords, trial_id: str, scratch: Path) -> Iterator[Problem]:
    """Everything that is wrong with a trial. Checkpoints are fetched into the folder `scratch`."""
    try:
        record = records.read_one(trial_id)
    except StorageError as error:
        yield "record.json", _text(error), isinstance(error, BrokenFileError)
        return
    yield from _checkpoint(records, trial_id, scratch, unfinished=record is None)
    try:
        rows = records.metrics(trial_id)
    except StorageError as error:
        yield "metrics.parquet", _text(error), isinstance(error, BrokenFileError)
        return
    if record is not None:
        yield from _finished(records, record, rows)
    try:
        records.items(trial_id, record.items if record else ())
    except StorageError as error:
        yield "items.parquet", _text(error), isinstance(error, BrokenFileError)


def _finished(records: StudyRecords, record: Record, rows: list[Row]) -> Iterator[Problem]:
    if rows and not _same(rows[-1], record.metrics):
        yield "metrics.parquet", "its last report is not what the record says", True
    if not rows and record.metrics:
        yield "metrics.parquet", "it is missing", True
    for name in record.artifacts:
        if not records.store.exists(records.key(record.trial_id, f"artifacts/{name}")):
            yield f"artifacts/{name}", "it is missing", True


def _checkpoint(records: StudyRecords, trial_id: str, scratch: Path, *, unfinished: bool) -> Iterator[Problem]:
    """Return a finding for a broken checkpoint.

    An unfinished trial loses its steps by it, a finished one only its model.
    """
    name = "checkpoint/latest.json"
    try:
        MARKER_FILE.read(records.store, records.key(trial_id, name))
        whole = Checkpoints(records.store, records.key(trial_id, "checkpoint")).fetch(scratch) is not None
        problem = "" if whole else "its files are not those that it names"
    except FileNotFoundError:
        return
    except StorageError as error:
        problem = _text(error)
    if problem:
        yield name, problem, unfinished


def _same(row: Row, metrics: Mapping[str, float]) -> bool:
    reported = metrics_of(row)
    return reported.keys() == metrics.keys() and all(
        value == metrics[name] or (math.isnan(value) and math.isnan(metrics[name])) for name, value in reported.items()
    )


def _text(error: StorageError) -> str:
    return error.problem if isinstance(error, BrokenFileError) else str(error)


def _file(records: StudyRecords, key: str) -> Iterator[Finding]:
    """Return the defect of one of the study's files outside its trials."""
    store, whole = records.store, f"{records.study}/{key}"
    folder, _, name = key.partition("/")
    stem = name.rpartition("/")[2].partition(".")[0]
    if key == "study.json":
        yield from _attempt(whole, "file", records.document)
    elif key == PLAN:
        yield from _attempt(whole, "file", lambda: read_planned(records))
    elif key == "looks.json":
        yield from _attempt(whole, "", lambda: read_looks(records))
    elif key == "confirmations.json":
        yield from _attempt(whole, "", lambda: read_confirmations(records))
    elif key == LINKS:
        yield from _attempt(whole, "delete", lambda: LINKS_FILE.read(store, whole))
    elif key.startswith(TOLD):
        yield from _attempt(whole, "delete", lambda: TOLD_FILE.read(store, whole))
    elif (kind := kind_of(key)) is not None:
        yield from _attempt(whole, "delete", lambda: decode_part(store.read(whole), whole, kind))
    elif folder == "search" and key.endswith(".json"):
        for finding in _attempt(whole, "search", lambda: CANDIDATE_FILE.read(store, whole)):
            yield Finding(finding.file, finding.problem, "search", name.partition("/")[0])
    elif folder == "trials" and key.endswith(f"/{ATTEMPT}"):
        yield from _attempt(whole, "delete", lambda: OWNER_FILE.read(store, whole))
    elif folder == "given" and key.endswith("/latest.json"):
        yield from _attempt(whole, "delete", lambda: _check_given(records, name.partition("/")[0], whole))
    elif key == "code/accepted.json":
        yield from _attempt(whole, "", lambda: ACCEPTED_FILE.read(store, whole))
    elif folder == "code" and key.endswith(".json"):
        yield from _attempt(whole, "", lambda: _check_code(records, stem))
    elif folder == "code" and key.endswith(".zip"):
        yield from _attempt(whole, "", lambda: read_sources(records, stem))
    elif key == "archive/moving.json":
        yield from _attempt(whole, "", lambda: MOVE_FILE.read(store, whole))
    elif folder == "archive" and key.endswith("/about.json"):
        yield from _attempt(whole, "", lambda: ABOUT_FILE.read(store, whole))


def _check_code(records: StudyRecords, digest: str) -> None:
    version = read_version(records, digest)
    if version is not None and digest_of(version.modules) != digest:
        raise BrokenFileError("", "its modules come to another digest", VERSION_FILE.remedy)


def _check_given(records: StudyRecords, content: str, marker: str) -> None:
    MARKER_FILE.read(records.store, marker)
    with tempfile.TemporaryDirectory(prefix="contrasweep-") as folder:
        if Checkpoints(records.store, records.given(content)).fetch(Path(folder)) is None:
            raise BrokenFileError(marker, "its files are not those that it names", "evaluate the checkpoint again")


def _attempt(key: str, repair: Repair, read: Callable[[], object]) -> Iterator[Finding]:
    try:
        read()
    except FileNotFoundError:
        return
    except BrokenFileError as error:
        yield Finding(key, error.problem, repair)
    except StorageError as error:
        yield Finding(key, str(error))


def _repair(records: StudyRecords, findings: tuple[Finding, ...]) -> str:
    """Carry out the remedies of the findings; return the name of the archive, if something was archived."""
    for finding in findings:
        if finding.repair == "delete":
            records.store.delete(finding.file)
    trials = sorted({finding.of for finding in findings if finding.repair == "trial"})
    searches = {finding.of: finding.of for finding in findings if finding.repair == "search"}
    files = [finding.file.removeprefix(f"{records.study}/") for finding in findings if finding.repair == "file"]
    if not (trials or searches or files):
        return ""
    return archive_trials(records, trials, "broken", searches, files)
