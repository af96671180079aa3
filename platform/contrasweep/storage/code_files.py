"""The code of a study's trials: `<study>/code/<digest>.zip` (sources), `<digest>.json` (modules, commit), once each.

`accepted.json` beside them lists the changes of code that somebody has accepted (`--accept-code`).
"""

import json
from collections.abc import Iterable
from dataclasses import asdict

from contrasweep.code import Code, CodeVersion, TooLarge, pack, unpack
from contrasweep.errors import StorageError
from contrasweep.storage.records import StudyRecords


def write_code(records: StudyRecords, code: Code) -> str:
    """Keep the sources and modules of `code`, if they are not there yet. Says in a line what was not kept, and why;
    empty where all was."""
    digest = code.version.digest
    if records.store.exists(_key(records, f"{digest}.json")):
        return ""
    said = ""
    try:
        records.store.write(_key(records, f"{digest}.zip"), pack(code), if_absent=True)
    except TooLarge as error:
        said = str(error)
    content = {"format_version": 1, **asdict(code.version)}
    records.store.write(_key(records, f"{digest}.json"), json.dumps(content, indent=1, sort_keys=True).encode())
    return said


def read_version(records: StudyRecords, digest: str) -> CodeVersion | None:
    """The modules' digests, distributions and commit of the code of this digest; None where it was not kept."""
    if not _is_digest(digest):
        return None
    key = _key(records, f"{digest}.json")
    try:
        content = json.loads(records.store.read(key))
        content.pop("format_version")
        return CodeVersion(**content)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{records.storage}/{key} is broken ({error})") from None


def read_sources(records: StudyRecords, digest: str) -> dict[str, str] | None:
    """File -> text of the code of this digest; None where its sources were not kept."""
    if not _is_digest(digest):
        return None
    try:
        return unpack(records.store.read(_key(records, f"{digest}.zip")))
    except FileNotFoundError:
        return None


def kept_codes(records: StudyRecords) -> set[str]:
    """The digests of all codes whose sources are kept, those of trials that were put aside too."""
    names = (key.rpartition("/")[2] for key in records.store.list(_key(records, "")))
    return {name.removesuffix(".zip") for name in names if name.endswith(".zip")}


def accepted(records: StudyRecords) -> set[tuple[str, str]]:
    """The changes of code (digest before, digest after) under which trials are kept."""
    try:
        return {(old, new) for old, new in json.loads(records.store.read(_key(records, "accepted.json")))}
    except FileNotFoundError:
        return set()
    except (ValueError, TypeError) as error:
        raise StorageError(f"{records.storage}/{_key(records, 'accepted.json')} is broken ({error})") from None


def accept(records: StudyRecords, changes: Iterable[tuple[str, str]]) -> None:
    """Keep trials under these changes of code from now on."""
    known = accepted(records)
    if not known.issuperset(changes := set(changes)):
        records.store.write(_key(records, "accepted.json"), json.dumps(sorted(known | changes)).encode())


def _key(records: StudyRecords, name: str) -> str:
    return f"{records.study}/code/{name}"


def _is_digest(text: str) -> bool:
    return bool(text) and all(character in "0123456789abcdef" for character in text)
