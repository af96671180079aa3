"""What was put aside on purpose: it moves to `<study>/superseded/<when>/` and is never deleted.

<study>/superseded/<when>/trials/<id>/...          all that the storage holds of a trial, its record too
<study>/superseded/<when>/search/<digest>/...      the candidates of a search that starts anew

A move is killed at any point without loss. Its intention is written first (`superseded/moving.json`), then everything
is copied, then the intention says so, then the originals are deleted, the record first. What was begun is finished by
`finish_move`, which whoever changes a study calls before anything else.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field

from contrasweep.errors import BrokenFileError, SpecError, StorageError
from contrasweep.storage.record import RECORD_FILE, Record
from contrasweep.storage.records import RECORD, StudyRecords
from contrasweep.storage.superseded_files import ABOUT_FILE, MOVE_FILE, About, Move

THREADS = 16
WHOLE_FILES = ("study.json", "plan.parquet")
"""Files of a study that are put aside where they are broken; the next run writes them again."""


@dataclass(frozen=True)
class PutAside:
    """Trials that were put aside together: when (a name in the storage), why, their ids, and of the arms whose searches
    started anew then the digest of the search."""

    when: str
    reason: str
    trial_ids: tuple[str, ...]
    searches: Mapping[str, str] = field(default_factory=dict)


def put_aside(
    records: StudyRecords,
    trial_ids: Iterable[str],
    reason: str,
    searches: Mapping[str, str] | None = None,
    files: Iterable[str] = (),
) -> str:
    """Move all that the storage holds of some trials, the candidates of `searches` (arm -> digest) and some of
    `WHOLE_FILES` to superseded/; its name there."""
    ids, searches = sorted(set(trial_ids)), dict(searches or {})
    when = _name(records)
    about = About(reason, tuple(ids), searches, time.time())
    moves = {_record(records, i): f"{_folder(records)}/{when}/trials/{i}/" for i in ids}  # with the files of its trial
    moves |= {place: aside for aside, place in _places(records, when, ids, searches).items()}
    moves |= {f"{records.study}/{file}": f"{_folder(records)}/{when}/{file}" for file in files}
    _begin(records, moves, {f"{_folder(records)}/{when}/about.json": about})
    return when


def put_back(records: StudyRecords, part: PutAside, replaced: Iterable[str] = ()) -> None:
    """Move what was put aside to where it was. What stands in its place since is put aside first, and so are the trials
    `replaced`, which the searches of since then have chosen."""
    present = [
        i
        for i in {*part.trial_ids, *replaced}
        if _holds(records, records.key(i, "")) or _holds(records, _record(records, i))
    ]
    if present or any(_holds(records, _search(records, digest)) for digest in part.searches.values()):
        put_aside(records, present, f"restored as they were {part.when}", part.searches)
    _begin(records, _places(records, part.when, part.trial_ids, part.searches), {})
    if part.when not in {left.when for left in put_aside_so_far(records)}:
        records.store.delete(f"{_folder(records)}/{part.when}/about.json")


def put_aside_so_far(records: StudyRecords) -> list[PutAside]:
    """What lies in superseded/, the oldest first."""
    names: dict[str, set[str]] = {}
    for key in records.store.list(f"{_folder(records)}/"):
        parts = key.removeprefix(f"{_folder(records)}/").split("/")
        if len(parts) > 3 and parts[1] in ("trials", "search"):
            names.setdefault(parts[0], set()).update({parts[2]} if parts[1] == "trials" else ())
    return [_part(records, when, names[when]) for when in sorted(names)]


def read_put_aside(records: StudyRecords, when: str, trial_id: str) -> Record | None:
    """The record of a trial that was put aside, or None if it has none or is broken."""
    try:
        return RECORD_FILE.read(records.store, f"{_folder(records)}/{when}/trials/{trial_id}/record.json")
    except (FileNotFoundError, StorageError):
        return None


def finish_move(records: StudyRecords) -> None:
    """Finish a move that was interrupted; nothing where none was."""
    try:
        move = MOVE_FILE.read(records.store, _intention(records))
    except (FileNotFoundError, NotADirectoryError):
        return
    _carry_out(records, move)


def _begin(records: StudyRecords, moves: Mapping[str, str], files: Mapping[str, About]) -> None:
    """`moves`: prefix -> prefix. `files` are written with them."""
    move = Move(moves, files)
    MOVE_FILE.write(records.store, _intention(records), asdict(move))
    _carry_out(records, move)


def _carry_out(records: StudyRecords, move: Move) -> None:
    store, moves = records.store, move.moves
    inside = tuple(f"{records.study}/{folder}/" for folder in ("records", "trials", "search", "superseded"))
    places = [*moves, *moves.values(), *move.files]
    if not all(place.startswith(inside) or place in _whole_files(records) for place in places):
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
        for first in (True, False):
            list(pool.map(delete, [place for place in moves if _of_records(records, place) == first]))
    store.delete(_intention(records))


def check_name(records: StudyRecords, when: str) -> PutAside:
    """The part of superseded/ of this name; `SpecError` where there is none."""
    known = {part.when: part for part in put_aside_so_far(records)}
    if when not in known:
        raise SpecError(
            "nothing was put aside under this name", place="restore", value=when, hint=f"known: {', '.join(known)}"
        )
    return known[when]


def _folder(records: StudyRecords) -> str:
    return f"{records.study}/superseded"


def _whole_files(records: StudyRecords) -> list[str]:
    return [f"{records.study}/{file}" for file in WHOLE_FILES]


def _intention(records: StudyRecords) -> str:
    return f"{_folder(records)}/moving.json"


def _places(records: StudyRecords, when: str, ids: Iterable[str], searches: Mapping[str, str]) -> dict[str, str]:
    """Place in superseded/`when` -> place in the study, both with a slash at the end."""
    aside = f"{_folder(records)}/{when}"
    trials = {f"{aside}/trials/{i}/": records.key(i, "") for i in ids}
    return trials | {f"{aside}/search/{digest}/": _search(records, digest) for digest in searches.values()}


def _record(records: StudyRecords, trial_id: str) -> str:
    return records.key(trial_id, RECORD).removesuffix(RECORD)


def _of_records(records: StudyRecords, place: str) -> bool:
    return place.startswith(f"{records.study}/records/")


def _current(records: StudyRecords, key: str) -> str:
    """`key`, or where the record belongs that goes back among the files of its trial, with which it was put aside."""
    folder = f"{records.study}/trials/"
    trial_id, _, name = key.removeprefix(folder).partition("/")
    return records.key(trial_id, RECORD) if key.startswith(folder) and name == RECORD else key


def _search(records: StudyRecords, digest: str) -> str:
    return f"{records.study}/search/{digest}/"


def _holds(records: StudyRecords, prefix: str) -> bool:
    return next(records.store.list(prefix), None) is not None


def _name(records: StudyRecords) -> str:
    """Now, as a name that is not taken."""
    now = time.strftime("%Y-%m-%dT%H%M%S", time.gmtime())
    taken = {part.when for part in put_aside_so_far(records)}
    return next(name for name in _names(now) if name not in taken)


def _names(now: str) -> Iterator[str]:
    yield now
    number = 2
    while True:
        yield f"{now}-{number}"
        number += 1


def _part(records: StudyRecords, when: str, trial_ids: Iterable[str]) -> PutAside:
    """With what its about.json says, as far as that can be read."""
    try:
        about = ABOUT_FILE.read(records.store, f"{_folder(records)}/{when}/about.json")
    except (FileNotFoundError, StorageError):
        about = About("")
    return PutAside(when, about.reason, tuple(sorted(trial_ids)), about.searches)
