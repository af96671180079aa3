"""The code of a study's trials: `<study>/code/<digest>.zip` (sources), `<digest>.json` (modules, commit), once each.

`accepted.json` beside them lists the changes of code that somebody has accepted (`--accept-code`).
"""

import re
from collections.abc import Iterable

from contrasweep.code import Code, CodeVersion, TooLarge, pack, unpack
from contrasweep.errors import BrokenFileError, StorageError
from contrasweep.storage.json_file import MAX_BYTES, JsonFile, stored
from contrasweep.storage.names import Label
from contrasweep.storage.records import StudyRecords


@stored
class AcceptedChanges:
    """The content of accepted.json: the changes of code that were accepted."""

    # (digest of the code before, digest of the code after) of each
    changes: tuple[tuple[Label, Label], ...] = ()


VERSION_FILE = JsonFile(
    CodeVersion, 2, "it is kept for readers alone; delete it, or restore it from a backup"
)
"""code/<digest>.json, written and read."""
ACCEPTED_FILE = JsonFile(
    AcceptedChanges, 2, "delete it, and accept the changes again with --accept-code"
)
"""code/accepted.json, written and read."""


def write_code(records: StudyRecords, code: Code) -> str:
    """Write the sources of `code` and the digests of its modules to the storage, if it does not have them yet.

    Sources that are too large are left out; the modules' digests are written all the same.

    Returns:
        A line that says why the sources were left out; "" where they were not.
    """
    digest = code.version.digest
    if records.store.exists(_key(records, f"{digest}.json")):
        return ""
    # The .json is written last: code that has it is not written again.
    problem = ""
    try:
        records.store.write(_key(records, f"{digest}.zip"), pack(code), if_absent=True)
    except TooLarge as error:
        problem = str(error)
    VERSION_FILE.write(records.store, _key(records, f"{digest}.json"), code.version)
    return problem


def read_version(records: StudyRecords, digest: str) -> CodeVersion | None:
    """Return the modules' digests, distributions and commit of the code with this digest.

    None where the storage has no such code, or where `digest` is no digest. `BrokenFileError` where the file is broken
    or describes code with another digest.
    """
    if not _is_digest(digest):
        return None
    key = _key(records, f"{digest}.json")
    version = VERSION_FILE.find(records.store, key)
    if version is not None and version.digest != digest:
        raise BrokenFileError(
            f"{records.store.uri}/{key}",
            f"it is of code {version.digest[:16]}",
            VERSION_FILE.remedy,
        )
    return version


def read_sources(records: StudyRecords, digest: str) -> dict[str, str] | None:
    """Return file -> text of the source files of the code with this digest.

    None where the storage does not have them, because they were too large, and where `digest` is no digest.
    `BrokenFileError` where they cannot be unpacked.
    """
    if not _is_digest(digest):
        return None
    key = _key(records, f"{digest}.zip")
    try:
        return unpack(records.store.read(key, MAX_BYTES))
    except FileNotFoundError:
        return None
    # The file is too large; `read` has named it in the error.
    except BrokenFileError:
        raise
    # `unpack` does not know the file's name, which its error gets here.
    except StorageError as error:
        raise BrokenFileError(
            f"{records.store.uri}/{key}", str(error), VERSION_FILE.remedy
        ) from None


def code_bytes(records: StudyRecords, digest: str) -> dict[str, bytes]:
    """Return the content of the stored files of the code with this digest, by suffix: `.json`, and perhaps `.zip`.

    `.json` describes the modules; `.zip` has the sources and is missing where they were too large. Raises
    `StorageError` where the storage has no such code.
    """
    if read_version(records, digest) is None:
        raise StorageError(
            f"{records.store.uri}/{_key(records, digest)}.json is not there: trials name this code"
        )
    keys = {suffix: _key(records, digest + suffix) for suffix in (".json", ".zip")}
    return {
        suffix: records.store.read(key, MAX_BYTES)
        for suffix, key in keys.items()
        if records.store.exists(key)
    }


def accepted(records: StudyRecords) -> set[tuple[str, str]]:
    """Return (old digest, new digest) of each accepted change: trials of the old code stay valid under the new code.

    An empty set where no change was accepted; `BrokenFileError` where accepted.json is broken.
    """
    content = ACCEPTED_FILE.find(records.store, _key(records, "accepted.json"))
    return set(content.changes) if content else set()


def accept(records: StudyRecords, changes: Iterable[tuple[str, str]]) -> None:
    """Add these changes of code, (old digest, new digest), to the accepted ones."""
    before = accepted(records)
    together = before.union(changes)
    if together != before:
        content = AcceptedChanges(tuple(sorted(together)))
        ACCEPTED_FILE.write(records.store, _key(records, "accepted.json"), content)


def _key(records: StudyRecords, name: str) -> str:
    """Return the key of the file `name` in the study's folder of code."""
    return f"{records.study}/code/{name}"


def _is_digest(text: str) -> bool:
    """Return whether `text` has hexadecimal digits alone; a record that anybody may have written can have any text."""
    return re.fullmatch("[0-9a-f]+", text) is not None
