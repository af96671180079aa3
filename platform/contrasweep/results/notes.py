"""What people wrote of a study and its trials, in its folder: `notes.json`. A note changes no trial and no verdict."""

from dataclasses import asdict
from typing import Annotated

from pydantic import Field

from contrasweep.errors import SpecError
from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.records import StudyRecords

LONGEST, MOST = 500, 1000
"""Characters of a note, and notes of a study."""


@stored
class Notes:
    """The notes of a study, the oldest first: the trial that each is on, or "" for the study, and its text."""

    notes: Annotated[tuple[tuple[str, Annotated[str, Field(max_length=LONGEST)]], ...], Field(max_length=MOST)] = ()


NOTES_FILE = JsonFile(Notes, 1, "delete it, or restore it from a backup")
"""notes.json, written and read."""


def read_notes(records: StudyRecords) -> tuple[tuple[str, str], ...]:
    """The notes, the oldest first: trial and text. `BrokenFileError` if the file is broken."""
    try:
        return NOTES_FILE.read(records.store, f"{records.study}/notes.json").notes
    except (FileNotFoundError, NotADirectoryError):
        return ()


def add_note(records: StudyRecords, text: str, trial: str = "") -> None:
    """Add a note; `SpecError` where it is empty or too long, or the study has too many."""
    text, known = " ".join(text.split()), read_notes(records)
    if not 0 < len(text) <= LONGEST or len(known) >= MOST:
        rule = f"a note has 1 to {LONGEST} characters, and a study at most {MOST} notes"
        raise SpecError(rule, place="TEXT", value=f"{len(text)} characters after {len(known)} notes")
    NOTES_FILE.write(records.store, f"{records.study}/notes.json", asdict(Notes((*known, (trial, text)))))
