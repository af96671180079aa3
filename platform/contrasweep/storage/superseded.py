"""Trials that were put aside on purpose: they move to `<study>/superseded/<when>/trials/<id>/` and are never deleted.

A move is killed at any point without loss. Its intention is written first (`superseded/moving.json`), then everything
is copied, then the intention says so, then the originals are deleted, the record first. What was begun is finished by
`finish_move`, which whoever changes a study calls before anything else.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from contrasweep.errors import SpecError, StorageError
from contrasweep.storage.record import Record
from contrasweep.storage.records import StudyRecords

THREADS = 16


@dataclass(frozen=True)
class PutAside:
    """Trials that were put aside together: when (a name in the storage), why, and their ids."""

    when: str
    reason: str
    trial_ids: tuple[str, ...]


def put_aside(records: StudyRecords, trial_ids: Iterable[str], reason: str) -> str:
    """Move all that the storage holds of some trials to superseded/; its name there."""
    ids = sorted(set(trial_ids))
    when = _name(records)
    about = {"reason": reason, "trials": ids, "moved": time.time()}
    moves = {_trial(records, i): f"{_folder(records)}/{when}/trials/{i}/" for i in ids}
    _begin(records, moves, {f"{_folder(records)}/{when}/about.json": about})
    return when


def put_back(records: StudyRecords, when: str, trial_ids: Iterable[str]) -> None:
    """Move trials from superseded/`when` to where they were. What has been made of them since is put aside first."""
    ids = sorted(set(trial_ids))
    if present := [i for i in ids if next(records.store.list(_trial(records, i)), None) is not None]:
        put_aside(records, present, f"restored as they were {when}")
    _begin(records, {f"{_folder(records)}/{when}/trials/{i}/": _trial(records, i) for i in ids}, {})
    if when not in {part.when for part in put_aside_so_far(records)}:
        records.store.delete(f"{_folder(records)}/{when}/about.json")


def put_aside_so_far(records: StudyRecords) -> list[PutAside]:
    """What lies in superseded/, the oldest first."""
    found: dict[str, set[str]] = {}
    for key in records.store.list(f"{_folder(records)}/"):
        parts = key.removeprefix(f"{_folder(records)}/").split("/")
        if len(parts) > 3 and parts[1] == "trials":
            found.setdefault(parts[0], set()).add(parts[2])
    return [PutAside(when, _reason(records, when), tuple(sorted(found[when]))) for when in sorted(found)]


def read_put_aside(records: StudyRecords, when: str, trial_id: str) -> Record | None:
    """The record of a trial that was put aside, or None if it has none or is broken."""
    try:
        return Record.from_json(records.store.read(f"{_folder(records)}/{when}/trials/{trial_id}/record.json"))
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, StorageError):
        return None


def finish_move(records: StudyRecords) -> None:
    """Finish a move that was interrupted; nothing where none was."""
    try:
        _carry_out(records, json.loads(records.store.read(_intention(records))))
    except (FileNotFoundError, NotADirectoryError):
        return
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{records.storage}/{_intention(records)} is broken ({error})") from None


def _begin(records: StudyRecords, moves: Mapping[str, str], files: Mapping[str, Mapping[str, Any]]) -> None:
    """`moves`: prefix -> prefix. `files` are written with them."""
    intention = {"moves": moves, "copied": False}
    records.store.write(_intention(records), json.dumps(intention).encode())
    for key, content in files.items():
        records.store.write(key, json.dumps(content).encode())
    _carry_out(records, intention)


def _carry_out(records: StudyRecords, intention: Mapping[str, Any]) -> None:
    store, moves = records.store, dict(intention["moves"])
    inside = (f"{records.study}/trials/", f"{_folder(records)}/")
    if not all(prefix.startswith(inside) and ".." not in prefix for pair in moves.items() for prefix in pair):
        raise StorageError(f"{records.storage}/{_intention(records)} names places outside the study")

    def copy(pair: tuple[str, str]) -> None:
        for key in store.list(pair[0]):
            store.copy(key, pair[1] + key.removeprefix(pair[0]))

    def delete(prefix: str) -> None:
        for key in sorted(store.list(prefix), key=lambda key: not key.endswith("/record.json")):
            store.delete(key)

    with ThreadPoolExecutor(THREADS) as pool:
        if not intention["copied"]:
            list(pool.map(copy, moves.items()))
            store.write(_intention(records), json.dumps({"moves": moves, "copied": True}).encode())
        list(pool.map(delete, moves))
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


def _intention(records: StudyRecords) -> str:
    return f"{_folder(records)}/moving.json"


def _trial(records: StudyRecords, trial_id: str) -> str:
    return records.key(trial_id, "")


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


def _reason(records: StudyRecords, when: str) -> str:
    try:
        return str(json.loads(records.store.read(f"{_folder(records)}/{when}/about.json"))["reason"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return ""
