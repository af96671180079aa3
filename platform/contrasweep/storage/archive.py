"""Trials that were taken out of a study on purpose: they move to `<study>/archive/<time>/` and are never deleted.

<study>/archive/<when>/...           what moved, named as in the study: trials/<id>/, records/<id>/, search/<digest>/
<study>/archive/<when>/about.json    why, which trials, which searches
<study>/archive/moving.json          a move that is not finished

A move may be killed at any point without loss. Its intention is written first (`moving.json`), then everything is
copied, then the intention says so, then the originals are deleted, records first. Whoever changes a study first calls
`finish_move`, which completes a move that was interrupted.
"""

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated

import pydantic

from contrasweep.errors import SpecError, StorageError, check_known
from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.names import Label, Name, check_file_name
from contrasweep.storage.record import RECORD_FILE, Record, Time
from contrasweep.storage.records import StudyRecords

THREADS = 16
FOLDERS = ("records", "trials", "search")
"""What moves, in the order in which its originals are deleted."""
WHOLE_FILES = ("study.json", "plan.parquet")
"""Files of a study that are archived where they are broken; the next run writes them again."""


def _check_place(place: str) -> str:
    """Return `place` if it is a folder (with a slash at its end) or file of a study that may move to the archive."""
    check_file_name(place.removesuffix("/"))
    if place.partition("/")[0] not in FOLDERS and place not in WHOLE_FILES:
        raise ValueError(f"{place!a} is outside of what moves")
    return place


@stored
class About:
    """Content of about.json: why (`reason`) and when (`moved`, unix seconds) which trials were archived.

    `searches` maps each arm whose search started anew then to the digest of that search; its candidates were archived.
    """

    reason: str
    trials: tuple[Name, ...] = ()
    searches: Mapping[Label, Name] = field(default_factory=dict)
    moved: Time = 0.0


@stored
class Move:
    """A move of files to archive/`when`, or back. It is written first, so that it is finished after a crash.

    `when` is the name of the folder in archive/. `places` are folders (with a slash at their end) and files below the
    study's folder. `about` is written beside them in the archive; None: they move back. `copied`: the copies are
    complete, and the originals may be deleted.
    """

    when: Name
    places: tuple[Annotated[str, pydantic.AfterValidator(_check_place)], ...]
    about: About | None = None  # None: they move back
    copied: bool = False


ABOUT_FILE = JsonFile(About, 2, "it says why trials were archived, no more")
"""archive/<when>/about.json, written and read."""
MOVE_FILE = JsonFile(
    Move, 3, "restore it from a backup, or compare archive/ with trials/ and delete it"
)
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
    """Move trials, the candidates of searches and whole files to archive/, from where `restore_trials` puts them back.

    Args:
        records: The study's records.
        trial_ids: The trials, each once or more often.
        reason: Why, for readers.
        searches: Arm -> digest of its search, whose candidates move too; None: none.
        files: Which of `WHOLE_FILES` move.

    Returns:
        Their name there: the time in UTC, `2026-01-31T120000`, with `-2` and so on where that is taken.
    """
    ids = sorted(set(trial_ids))
    searches = dict(searches or {})
    now = time.strftime("%Y-%m-%dT%H%M%S", time.gmtime())
    names_taken = {archived.when for archived in list_archived(records)}
    names = [now, *(f"{now}-{n}" for n in range(2, len(names_taken) + 3))]
    # One name more than there are taken ones, so that one is free.
    when = next(name for name in names if name not in names_taken)
    about = About(reason, tuple(ids), searches, time.time())
    _begin(records, Move(when, (*_places(ids, searches), *files), about))
    return when


def restore_trials(
    records: StudyRecords, archived: ArchivedTrials, replaced: Iterable[str] = ()
) -> None:
    """Move archived trials and searches to where they were, and drop them from the list of what is archived.

    Trials that were made in their place are archived first, and so are the trials in `replaced`, which later searches
    have chosen. Whole files that were archived with them stay in the archive.
    """

    def stands(place: str) -> bool:
        """Return whether the study has any file in this folder now."""
        return next(records.store.list(f"{records.study}/{place}"), None) is not None

    ids = {*archived.trial_ids, *replaced}
    present = [trial_id for trial_id in ids if any(map(stands, _places([trial_id], {})))]
    if present or any(map(stands, _places([], archived.searches))):
        archive_trials(
            records, present, f"restored as they were {archived.when}", archived.searches
        )
    _begin(records, Move(archived.when, tuple(_places(archived.trial_ids, archived.searches))))
    records.store.delete(f"{records.study}/archive/{archived.when}/about.json")


def list_archived(records: StudyRecords) -> list[ArchivedTrials]:
    """Return what lies in archive/, the oldest first.

    Where about.json is missing or broken, the reason is "" and no searches are known.
    """
    folder = f"{records.study}/archive/"
    names: dict[str, set[str]] = {}
    for key in records.store.list(folder):
        # archive/<when>/trials/<id>/... and records/<id>/... name trials; search/ has candidates.
        when, *place = key.removeprefix(folder).split("/")
        if len(place) > 2 and place[0] in FOLDERS:
            # A folder that has candidates alone is listed too, without trials.
            names.setdefault(when, set()).update(() if place[0] == "search" else (place[1],))
    archived = []
    for when in sorted(names):
        try:
            about = ABOUT_FILE.find(records.store, f"{folder}{when}/about.json") or About("")
        except StorageError:
            about = About("")
        archived.append(
            ArchivedTrials(when, about.reason, tuple(sorted(names[when])), about.searches)
        )
    return archived


def find_archived(records: StudyRecords, when: str | None = None) -> ArchivedTrials:
    """Return what was archived last, or under the name `when`; `SpecError` where there is no such."""
    by_name = {archived.when: archived for archived in list_archived(records)}
    if not by_name:
        raise SpecError("nothing of this study was archived", place="restore", value=records.study)
    when = when or max(by_name)  # names are times, so that the largest is the newest
    check_known(when, "names", by_name, "nothing was archived under this name", place="restore")
    return by_name[when]


def read_archived_record(records: StudyRecords, when: str, trial_id: str) -> Record | None:
    """Return the record of a trial that was archived under the name `when`; None if it has none or it is broken."""
    try:
        return RECORD_FILE.find(
            records.store, f"{records.study}/archive/{when}/records/{trial_id}/record.json"
        )
    except StorageError:
        return None


def finish_move(records: StudyRecords) -> None:
    """Finish a move that was interrupted, if there is one: copy what is not copied, then delete the originals.

    Doing a part again that was done before changes nothing.
    """
    store = records.store
    intention = f"{records.study}/archive/moving.json"
    if (move := MOVE_FILE.find(store, intention)) is None:
        return
    study = f"{records.study}/"
    aside = f"{records.study}/archive/{move.when}/"
    source, target = (study, aside) if move.about else (aside, study)

    def copy(place: str) -> None:
        """Copy the files of a folder, or a file, from `source` to the same place below `target`."""
        for key in store.list(source + place):
            store.copy(key, target + key.removeprefix(source))

    def delete(place: str) -> None:
        """Delete the originals of a folder, or of a file."""
        for key in list(store.list(source + place)):
            store.delete(key)

    with ThreadPoolExecutor(THREADS) as pool:
        if not move.copied:
            if move.about:
                ABOUT_FILE.write(store, f"{aside}about.json", asdict(move.about))
            list(pool.map(copy, move.places))
            MOVE_FILE.write(store, intention, asdict(replace(move, copied=True)))
        # Records go first, so that no trial is ever a finished one without its files.
        for folder in (*FOLDERS, *WHOLE_FILES):
            list(pool.map(delete, [place for place in move.places if place.startswith(folder)]))
    store.delete(intention)


def _begin(records: StudyRecords, move: Move) -> None:
    """Write the intention of a move, and carry it out."""
    MOVE_FILE.write(records.store, f"{records.study}/archive/moving.json", asdict(move))
    finish_move(records)


def _places(trial_ids: Iterable[str], searches: Mapping[str, str]) -> list[str]:
    """Return the folders of trials (`records/<id>/`, `trials/<id>/`) and of searches (`search/<digest>/`)."""
    trials = [f"{folder}/{trial_id}/" for trial_id in trial_ids for folder in ("records", "trials")]
    return trials + [f"search/{digest}/" for digest in searches.values()]
