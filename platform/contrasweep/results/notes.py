"""What people wrote of a study and its trials: a file a note in `notes/`. A note changes no trial and no verdict."""

from typing import Annotated

from pydantic import Field

from contrasweep.errors import SpecError
from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.records import StudyRecords

LONGEST = 500
"""Characters of a note."""
MOST = 1000
"""Notes of a study."""


@stored
class Note:
    """A note: the id of the trial that it is on ("" for the study), and its text."""

    trial: str
    text: Annotated[str, Field(max_length=LONGEST)]


NOTE_FILE = JsonFile(Note, 1, "delete it, or restore it from a backup")
"""A note, written and read."""


def read_notes(records: StudyRecords) -> tuple[tuple[str, str], ...]:
    """Return the notes as (trial, text), the oldest first; trial is "" for a note on the study.

    Raises `BrokenFileError` if a file is broken.
    """
    keys = sorted(records.store.list(f"{records.study}/notes/"))[:MOST]
    notes = [NOTE_FILE.read(records.store, key) for key in keys]
    return tuple((note.trial, note.text) for note in notes)


def add_note(records: StudyRecords, text: str, trial: str = "") -> None:
    """Add a note on the trial with the id `trial`, or on the study (""). Runs of white space become one space.

    Raises `SpecError` where the text is empty or too long, or the study has too many notes.
    """
    text = " ".join(text.split())
    number = len(list(records.store.list(f"{records.study}/notes/")))
    if not 0 < len(text) <= LONGEST or number >= MOST:
        rule = f"a note has 1 to {LONGEST} characters, and a study at most {MOST} notes"
        raise SpecError(rule, place="TEXT", value=f"{len(text)} characters after {number} notes")
    note = NOTE_FILE.encode(Note(trial, text))
    # Two that write at the same moment have the same number: who comes later takes the next one.
    while not records.store.write(f"{records.study}/notes/{number:04}.json", note, if_absent=True):
        number += 1
