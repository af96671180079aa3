"""The code of a study's trials: `<study>/code/<digest>.zip` (sources), `<digest>.json` (modules, commit), once each.

`accepted.json` beside them lists the changes of code that somebody has accepted (`--accept-code`).
"""

from collections.abc import Iterable
from dataclasses import asdict

from contrasweep.code import Code, CodeVersion, TooLarge, pack, unpack
from contrasweep.errors import BrokenFileError, StorageError
from contrasweep.storage.json_file import MAX_BYTES, JsonFile, stored
from contrasweep.storage.names import Label
from contrasweep.storage.records import StudyRecords


@stored
class AcceptedChanges:
    """The content of accepted.json: for each change that was accepted the digests of the code before and after it."""

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
    """Keep the sources and modules of `code`, if they are not there yet.

    Sources that are too large are left out; the modules' digests are kept all the same.

    Returns:
        A line that says what was not kept, and why; "" where all was, or was there before.
    """
    digest = code.version.digest
    if records.store.exists(_key(records, f"{digest}.json")):
        return ""
    # The .json is written last: where it is, the code counts as kept.
    problem = ""
    try:
        records.store.write(_key(records, f"{digest}.zip"), pack(code), if_absent=True)
    except TooLarge as error:
        problem = str(error)
    VERSION_FILE.write(records.store, _key(records, f"{digest}.json"), asdict(code.version))
    return problem


def read_version(records: StudyRecords, digest: str) -> CodeVersion | None:
    """Return the modules' digests, distributions and commit of the code of this digest.

    None where it was not kept, or `digest` is none. `BrokenFileError` where the file is broken or of another code.
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
    """Return file -> text of the code of this digest; None where its sources were not kept, or `digest` is none.

    `BrokenFileError` where they cannot be unpacked.
    """
    if not _is_digest(digest):
        return None
    key = _key(records, f"{digest}.zip")
    try:
        return unpack(records.store.read(key, MAX_BYTES))
    except FileNotFoundError:
        return None
    except BrokenFileError:
        raise
    except StorageError as error:
        raise BrokenFileError(
            f"{records.store.uri}/{key}", str(error), VERSION_FILE.remedy
        ) from None


def code_bytes(records: StudyRecords, digest: str) -> dict[str, bytes]:
    """Return `.json` and, if the sources were kept, `.zip` -> the content of the files of the code of this digest.

    Raises `StorageError` where the code was not kept.
    """
    if read_version(records, digest) is None:
        raise StorageError(
            f"{records.store.uri}/{_key(records, digest)}.json is not there: trials name this code"
        )
    ends = [end for end in (".json", ".zip") if records.store.exists(_key(records, digest + end))]
    return {end: records.store.read(_key(records, digest + end), MAX_BYTES) for end in ends}


def kept_codes(records: StudyRecords) -> set[str]:
    """Return the digests of all codes whose sources are kept, also of archived trials."""
    # Trials that are archived name codes of the same folder.
    names = (key.rpartition("/")[2] for key in records.store.list(_key(records, "")))
    return {name.removesuffix(".zip") for name in names if name.endswith(".zip")}


def accepted(records: StudyRecords) -> set[tuple[str, str]]:
    """Return the accepted changes of code, (old digest, new digest): trials of the old code stay valid under the new.

    Empty where none was accepted; `BrokenFileError` where accepted.json is broken.
    """
    content = ACCEPTED_FILE.find(records.store, _key(records, "accepted.json"))
    return set(content.changes) if content else set()


def accept(records: StudyRecords, changes: Iterable[tuple[str, str]]) -> None:
    """Add these changes of code (old digest, new digest) to those under which trials made before stay valid."""
    so_far = accepted(records)
    if not so_far.issuperset(changes := set(changes)):
        content = AcceptedChanges(tuple(sorted(so_far | changes)))
        ACCEPTED_FILE.write(records.store, _key(records, "accepted.json"), asdict(content))


def _key(records: StudyRecords, name: str) -> str:
    """Return the key of the file `name` in the study's folder of code."""
    return f"{records.study}/code/{name}"


def _is_digest(text: str) -> bool:
    """Return whether `text`, from a record that anybody may have written, can be part of a file's name here."""
    return bool(text) and all(character in "0123456789abcdef" for character in text)
