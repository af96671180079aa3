"""Trials that were taken out of a study on purpose: they move to `<study>/archive/<time>/` and are never deleted.

<study>/archive/<when>/trials/<id>/...          all that the storage holds of a trial, its record too
<study>/archive/<when>/search/<digest>/...      the candidates of a search that starts anew
<study>/archive/<when>/about.json               why, which trials, which searches
<study>/archive/moving.json                     a move that is not finished

A move may be killed at any point without loss. Its intention is written first (`moving.json`), then everything is
copied, then the intention says so, then the originals are deleted, records first. Whoever changes a study first calls
`finish_move`, which completes a move that was interrupted.
"""

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Annotated

import pydantic

from contrasweep.errors import BrokenFileError, SpecError, StorageError
from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.names import FileName, Label, Name, check_file_name
from contrasweep.storage.record import RECORD_FILE, Record, Time
from contrasweep.storage.records import RECORD, StudyRecords

THREADS = 16
WHOLE_FILES = ("study.json", "plan.parquet")
"""Files of a study that are archived where they are broken; the next run writes them again."""


def _check_prefix(prefix: str) -> str:
    """Return `prefix` if it is a folder's, with a slash at its end, or a file's."""
    check_file_name(prefix.removesuffix("/"))
    return prefix


Prefix = Annotated[str, pydantic.AfterValidator(_check_prefix)]


@stored
class About:
    """Why trials were archived, which ones, and the searches (arm -> digest) that then started from the beginning."""

    reason: str
    trials: tuple[Name, ...] = ()
    searches: Mapping[Label, Name] = field(default_factory=dict)
    moved: Time = 0.0


@stored
class Move:
    """Prefix -> prefix of a move, files that are written with it, and whether everything is copied."""

    moves: Mapping[Prefix, Prefix]
    files: Mapping[FileName, About] = field(default_factory=dict)
    copied: bool = False


ABOUT_FILE = JsonFile(About, 2, "it says why trials were archived, no more")
"""archive/<when>/about.json, written and read."""
MOVE_FILE = JsonFile(Move, 2, "restore it from a backup, or compare archive/ with trials/ and delete it")
"""archive/moving.json, written and read."""


@dataclass(frozen=True)
class ArchivedTrials:
    """Trials that were archived together.

    `when` is their name in archive/, `reason` why they are there. `searches` maps the arms whose searches started anew
    then to the digests of these searches.
    """

    when: str
    reason: str
    trial_ids: tuple[str, ...]
    searches: Mapping[str, str] = field(default_factory=dict)


def archive_trials(
    records: StudyRecords,
    trial_ids: Iterable[str],
    reason: str,
    searches: Mapping[str, str] | None = None,
    files: Iterable[str] = (),
) -> str:
    """Move trials, the candidates of `searches` (arm -> digest) and some of `WHOLE_FILES` to archive/.

    Returns:
        Their name there.
    """
    ids, searches = sorted(set(trial_ids)), dict(searches or {})
    when = _new_name(records)
    aside = f"{_folder(records)}/{when}"
    moves = {_record(records, i): f"{aside}/trials/{i}/" for i in ids}  # with the files of its trial
    moves |= {place: archived for archived, place in _places(records, when, ids, searches).items()}
    moves |= {f"{records.study}/{file}": f"{aside}/{file}" for file in files}
    _move(records, Move(moves, {f"{aside}/about.json": About(reason, tuple(ids), searches, time.time())}))
    return when


def restore_trials(records: StudyRecords, archived: ArchivedTrials, replaced: Iterable[str] = ()) -> None:
    """Move archived trials and searches to where they were.

    Trials that were made in their place are archived first, and so are the trials in `replaced`, which later searches
    have chosen.
    """
    ids = {*archived.trial_ids, *replaced}
    present = [i for i in ids if _holds(records, records.key(i, "")) or _holds(records, _record(records, i))]
    if present or any(_holds(records, _search(records, digest)) for digest in archived.searches.values()):
        archive_trials(records, present, f"restored as they were {archived.when}", archived.searches)
    _move(records, Move(_places(records, archived.when, archived.trial_ids, archived.searches)))
    if archived.when not in {left.when for left in list_archived(records)}:
        records.store.delete(f"{_folder(records)}/{archived.when}/about.json")


def list_archived(records: StudyRecords) -> list[ArchivedTrials]:
    """Return what lies in archive/, the oldest first."""
    names: dict[str, set[str]] = {}
    for key in records.store.list(f"{_folder(records)}/"):
        parts = key.removeprefix(f"{_folder(records)}/").split("/")
        if len(parts) > 3 and parts[1] in ("trials", "search"):
            names.setdefault(parts[0], set()).update({parts[2]} if parts[1] == "trials" else ())
    archived = []
    for when in sorted(names):
        try:
            about = ABOUT_FILE.read(records.store, f"{_folder(records)}/{when}/about.json")
        except (FileNotFoundError, StorageError):
            about = About("")
        archived.append(ArchivedTrials(when, about.reason, tuple(sorted(names[when])), about.searches))
    return archived


def find_archived(records: StudyRecords, when: str) -> ArchivedTrials:
    """Return what lies in archive/ under the name `when`; `SpecError` where nothing does."""
    known = {archived.when: archived for archived in list_archived(records)}
    if when not in known:
        raise SpecError(
            "nothing was archived under this name", place="restore", value=when, hint=f"known: {', '.join(known)}"
        )
    return known[when]


def read_archived_record(records: StudyRecords, when: str, trial_id: str) -> Record | None:
    """Return the record of an archived trial, or None if it has none or is broken."""
    try:
        return RECORD_FILE.read(records.store, f"{_folder(records)}/{when}/trials/{trial_id}/record.json")
    except (FileNotFoundError, StorageError):
        return None


def finish_move(records: StudyRecords) -> None:
    """Finish a move that was interrupted, if there is one."""
    try:
        move = MOVE_FILE.read(records.store, _intention(records))
    except (FileNotFoundError, NotADirectoryError):
        return
    _carry_out(records, move)


def _move(records: StudyRecords, move: Move) -> None:
    MOVE_FILE.write(records.store, _intention(records), asdict(move))
    _carry_out(records, move)


def _carry_out(records: StudyRecords, move: Move) -> None:
    store, moves = records.store, move.moves
    inside = tuple(f"{records.study}/{folder}/" for folder in ("records", "trials", "search", "archive"))
    whole = {f"{records.study}/{file}" for file in WHOLE_FILES}
    places = [*moves, *moves.values(), *move.files]
    if not all(place.startswith(inside) or place in whole for place in places):
        raise BrokenFileError(
            f"{records.store.uri}/{_intention(records)}", "it names places outside the study", MOVE_FILE.remedy
        )

    def copy(pair: tuple[str, str]) -> None:
        for key in store.list(pair[0]):
            store.copy(key, _current(records, pair[1] + key.removeprefix(pair[0])))

    def delete(prefix: str) -> None:
        for key in sorted(store.list(prefix), key=lambda key: not key.endswith("/record.json")):
            store.delete(key)

    with ThreadPoolExecutor(THREADS) as pool:
        if not move.copied:
            for key, about in move.files.items():
                ABOUT_FILE.write(store, key, asdict(about))
            list(pool.map(copy, moves.items()))
            MOVE_FILE.write(store, _intention(records), asdict(Move(moves, copied=True)))
        for records_first in (True, False):
            is_record = f"{records.study}/records/"
            list(pool.map(delete, [place for place in moves if place.startswith(is_record) == records_first]))
    store.delete(_intention(records))


def _folder(records: StudyRecords) -> str:
    return f"{records.study}/archive"


def _intention(records: StudyRecords) -> str:
    return f"{_folder(records)}/moving.json"


def _places(records: StudyRecords, when: str, ids: Iterable[str], searches: Mapping[str, str]) -> dict[str, str]:
    """Return place in archive/`when` -> place in the study, both with a slash at the end."""
    aside = f"{_folder(records)}/{when}"
    trials = {f"{aside}/trials/{i}/": records.key(i, "") for i in ids}
    return trials | {f"{aside}/search/{digest}/": _search(records, digest) for digest in searches.values()}


def _record(records: StudyRecords, trial_id: str) -> str:
    return records.key(trial_id, RECORD).removesuffix(RECORD)


def _current(records: StudyRecords, key: str) -> str:
    """Return `key`, or the place of the record that goes back from among the files of its trial."""
    folder = f"{records.study}/trials/"
    trial_id, _, name = key.removeprefix(folder).partition("/")
    return records.key(trial_id, RECORD) if key.startswith(folder) and name == RECORD else key


def _search(records: StudyRecords, digest: str) -> str:
    return f"{records.study}/search/{digest}/"


def _holds(records: StudyRecords, prefix: str) -> bool:
    return next(records.store.list(prefix), None) is not None


def _new_name(records: StudyRecords) -> str:
    """Return the present time as a name, with a number where that name is taken."""
    now = time.strftime("%Y-%m-%dT%H%M%S", time.gmtime())
    taken = {archived.when for archived in list_archived(records)}
    return next(name for name in (now, *(f"{now}-{n}" for n in range(2, len(taken) + 3))) if name not in taken)
