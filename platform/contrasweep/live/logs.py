"""The log of a trial, read from the storage: as it is now, or followed until the trial has ended."""

import time
from collections.abc import Callable

from contrasweep.errors import SpecError, plural
from contrasweep.live.state import read_live
from contrasweep.shell import command_line
from contrasweep.storage.record import Record
from contrasweep.storage.records import LOG, STACK, StudyRecords

POLL_S = 1.0  # seconds between two readings of a log that is followed
MAX_LOG = 2**26  # bytes; a log that a worker writes has at most a sixteenth of that
KNOWN = 200
"""So many of the last written characters tell where to go on in a log whose middle was cut out."""
LAST = 10_000
"""So many of its last characters are written where these are cut out too."""


def find_trial(records: StudyRecords, prefix: str) -> str:
    """Return the id of the trial that begins with `prefix`; `SpecError` where none or several do.

    Trials that run and have written nothing yet are known from the driver's `live.json`. Those that never began, as an
    infeasible one, have only a record.
    """
    ids = set[str]()
    for folder in ("trials", "records"):
        # A key is <study>/<folder>/<id>/...
        place = f"{records.study}/{folder}/"
        keys = records.store.list(place + prefix)
        ids |= {key.removeprefix(place).split("/")[0] for key in keys}
    live = read_live(records)
    if live is not None:
        ids |= {trial_id for trial_id in live.running if trial_id.startswith(prefix)}
    if len(ids) == 1:
        return ids.pop()
    hint = _listed(records)
    if ids and prefix:
        hint = f"it begins {len(ids)}: {', '.join(sorted(ids)[:5])}"
    raise SpecError(
        "the id of one trial of this study, or its beginning",
        place="TRIAL",
        value=prefix,
        hint=hint,
    )


def _listed(records: StudyRecords) -> str:
    """Return a hint for a wrong trial id: some ids of the study's trials, and the command that prints all of them."""
    ids = sorted(records.with_files() | records.finished())
    examples = ""
    if ids:
        examples = f"the study has {plural(len(ids), 'trial')}, such as {', '.join(ids[:3])}; "
    listing = command_line("report", records.study, storage=records.storage, json=True)
    return f"{examples}`{listing}` prints the trial_id, arm, fold, seed and status of each in its table"


def read_log(records: StudyRecords, trial_id: str) -> str:
    """Return all that a trial has printed so far; "" where it has printed nothing."""
    return _text(records, trial_id, LOG)


def ending(records: StudyRecords, trial_id: str, record: Record | None) -> str:
    """Return what is known of a trial besides its log, as text that is printed behind the log.

    For an ended trial this is the status in its `record`, and its traceback if it failed. Without a record (None) it is
    the stack that was written when the trial did not report for long; "" where no stack was written.
    """
    if record is None:
        stack = _text(records, trial_id, STACK)
        return f"--- it did not report, and was here:\n{stack}" if stack else ""
    where = f" on {record.host}" if record.host else ""
    cause = f": {record.cause}" if record.cause else ""
    return f"--- {record.status}{where}{cause}\n{record.error or ''}"


def follow(records: StudyRecords, trial_id: str, write: Callable[[str], object]) -> None:
    """Pass each new part of a trial's log to `write` until the trial has a record; at last pass its `ending`.

    A part may be "", which has nothing to print.
    """
    written = ""
    while True:
        # The record is read before the log: once there is a record, the log is whole.
        record = records.read_one(trial_id)
        text = read_log(records, trial_id)
        write(_new(written, text))
        written = text
        if record is not None:
            write(ending(records, trial_id, record))
            return
        time.sleep(POLL_S)


def _new(written: str, text: str) -> str:
    """Return the part of the log `text` that comes after `written`, the log as it was printed before.

    A long log loses its middle, so `text` need not begin with `written`. The end of `written` is then looked for in
    `text`; where it was cut out too, the end of `text` is returned.
    """
    if text.startswith(written):
        return text[len(written) :]
    # `found` is "" where the end of what was written stands in the text no more.
    _, found, rest = text.rpartition(written[-KNOWN:])
    if found:
        return rest
    return f"\n--- a part that was printed too fast is left out here\n{rest[-LAST:]}"


def _text(records: StudyRecords, trial_id: str, name: str) -> str:
    """Return the file `name` of a trial as text, at most `MAX_LOG` bytes of it; "" where it is not there."""
    try:
        return records.store.read(records.key(trial_id, name), MAX_LOG).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
