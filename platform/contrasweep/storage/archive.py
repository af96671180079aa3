"""Trials that were taken out of a study on purpose: they move to `<study>/archive/<time>/` and are never deleted.

<study>/archive/<when>/...           what moved, named as in the study: trials/<id>/, records/<id>/, search/<digest>/
<study>/archive/<when>/about.json    why, which trials, which searches
<study>/archive/moving.json          a move that is not finished

A move may be killed at any point without loss. Its intention is written first (`moving.json`), then everything is
copied, then the intention says so, then the originals are deleted, records first. Whoever changes a study first calls
`finish_move`, which completes a move that was interrupted.
"""

import contextlib
import re
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Annotated

import pydantic

from contrasweep.errors import SpecError, StorageError, check_known
from contrasweep.storage.json_file import JsonFile, stored
from contrasweep.storage.names import Label, Name, check_file_name
from contrasweep.storage.record import Time
from contrasweep.storage.records import StudyRecords

REMOVED = "removed"
"""The reason for which `contrasweep remove` archives trials."""
THREADS = 16
FOLDERS = ("records", "trials", "search")
"""What moves, in the order in which its originals are deleted."""
WHOLE_FILES = ("study.json", "plan.parquet")
"""Files of a study that are archived where they are broken; the next run writes them again."""


def _check_place(place: str) -> str:
    """Return `place` if it may move to the archive; raise `ValueError` for any other place.

    A place is a folder, with a slash at its end, or a file, both below the study's folder.
    """
    check_file_name(place.removesuffix("/"))
    if place.partition("/")[0] not in FOLDERS and place not in WHOLE_FILES:
        raise ValueError(f"{place!a} is outside of what moves")
    return place


@stored
class About:
    """Content of about.json: what was archived together, and why."""

    reason: str
    trials: tuple[Name, ...] = ()  # ids
    searches: Mapping[Label, Name] = field(default_factory=dict)  # arm -> digest of its search
    moved: Time = 0.0


@stored
class Move:
    """A move of files to the archive, or back to where they were.

    It is written to moving.json before the first file is copied. So a move that a crash has interrupted can be
    finished.
    """

    when: Name  # of the folder in archive/
    # Folders, with a slash at their end, and files, both below the study's folder.
    places: tuple[Annotated[str, pydantic.AfterValidator(_check_place)], ...]
    about: About | None = None  # is written beside the files in the archive; None: they move back
    copied: bool = False  # the copies are complete, so that the originals may be deleted


ABOUT_FILE = JsonFile(About, 2, "it says why trials were archived, no more")
"""archive/<when>/about.json, written and read."""
MOVE_FILE = JsonFile(
    Move, 3, "restore it from a backup, or compare archive/ with trials/ and delete it"
)
"""archive/moving.json, written and read."""


@dataclass(frozen=True)
class ArchivedTrials:
    """Trials, and candidates of searches, that were archived together."""

    when: str  # name of their folder in archive/
    reason: str  # why they were archived; "" where that is not known
    trial_ids: tuple[str, ...]
    searches: Mapping[str, str] = field(default_factory=dict)  # arm -> digest of its search


def archive_trials(
    records: StudyRecords,
    trial_ids: Iterable[str],
    reason: str,
    searches: Mapping[str, str] | None = None,
    files: Iterable[str] = (),
) -> str:
    """Move trials, candidates of searches and whole files to archive/. `restore_trials` moves trials and searches back.

    Args:
        records: The study's records.
        trial_ids: The ids of the trials; an id that comes twice counts once.
        reason: Why they are archived, for readers.
        searches: Arm -> digest of its search, whose candidates move too; None: no search.
        files: Files of the study that move, of those in `WHOLE_FILES`.

    Returns:
        The name of their folder in archive/: the time in UTC, `2026-01-31T120000`; if there is such a folder already,
        with `-02` and so on.
    """
    ids = sorted(set(trial_ids))
    searches = dict(searches or {})
    now = time.strftime("%Y-%m-%dT%H%M%S", time.gmtime())
    # Several moves within a second get numbers that rise, since the newest is the one with the largest name. The first
    # of a second has no number in its name, and counts as 1.
    numbers = [
        int(archived.when[len(now) + 1 :] or 1)
        for archived in list_archived(records)
        if re.fullmatch(rf"{now}(-\d+)?", archived.when)
    ]
    when = f"{now}-{max(numbers) + 1:02}" if numbers else now
    about = About(reason, tuple(ids), searches, time.time())
    _carry_out(records, Move(when, (*_places(ids, searches), *files), about))
    return when


def restore_trials(
    records: StudyRecords, archived: ArchivedTrials, replaced: Iterable[str] = ()
) -> None:
    """Move archived trials and searches back to where they were, so that they are not listed as archived any more.

    Trials and searches that the study has in their place now are archived first, and so are the trials with the ids
    `replaced`. Whole files that were archived together with them stay in the archive.
    """

    def has_files(place: str) -> bool:
        """Return whether the study has any file in the folder `place` now."""
        return next(records.store.list(f"{records.study}/{place}"), None) is not None

    ids = {*archived.trial_ids, *replaced}
    # The trials that have files in the study now.
    present = [trial_id for trial_id in ids if any(map(has_files, _places([trial_id], {})))]
    if present or any(map(has_files, _places([], archived.searches))):
        archive_trials(
            records, present, f"restored as they were {archived.when}", archived.searches
        )
    # A move without `about` goes from the archive back to the study.
    _carry_out(records, Move(archived.when, tuple(_places(archived.trial_ids, archived.searches))))
    records.store.delete(f"{records.study}/archive/{archived.when}/about.json")


def list_archived(records: StudyRecords) -> list[ArchivedTrials]:
    """Return the trials and searches in archive/, the oldest first.

    Where about.json is missing or broken, the reason is "" and no searches are known.
    """
    folder = f"{records.study}/archive/"
    ids: dict[str, set[str]] = {}  # name of a folder in archive/ -> its trials
    for key in records.store.list(folder):
        # <when>/trials/<id>/..., <when>/records/<id>/... or <when>/search/<digest>/...
        when, *place = key.removeprefix(folder).split("/")
        if len(place) > 2 and place[0] in FOLDERS:
            # A folder with candidates of searches alone is listed too, without trials.
            trial_ids = ids.setdefault(when, set())
            if place[0] != "search":
                trial_ids.add(place[1])
    archived = []
    for when in sorted(ids):
        try:
            about = ABOUT_FILE.find(records.store, f"{folder}{when}/about.json") or About("")
        except StorageError:
            about = About("")
        archived.append(
            ArchivedTrials(when, about.reason, tuple(sorted(ids[when])), about.searches)
        )
    return archived


def removed_trials(records: StudyRecords) -> set[str]:
    """Return the ids of the archived trials that `contrasweep remove` has taken out of the study."""
    archived = list_archived(records)
    return {trial_id for part in archived if part.reason == REMOVED for trial_id in part.trial_ids}


def find_archived(records: StudyRecords, when: str | None = None) -> ArchivedTrials:
    """Return the archived trials with the name `when`, or the newest if it is None; `SpecError` if there are none."""
    by_name = {archived.when: archived for archived in list_archived(records)}
    if not by_name:
        raise SpecError("nothing of this study was archived", place="restore", value=records.study)
    when = when or max(by_name)  # names are times, so that the largest is the newest
    check_known(when, "names", by_name, "nothing was archived under this name", place="restore")
    return by_name[when]


def finish_move(records: StudyRecords) -> None:
    """Finish a move that was interrupted, if there is one: copy what is not copied, then delete the originals.

    A part of the move that was done before is done again, which changes nothing.
    """
    store = records.store
    intention = f"{records.study}/archive/moving.json"
    move = MOVE_FILE.find(store, intention)
    if move is None:
        return
    study = f"{records.study}/"
    archive = f"{records.study}/archive/{move.when}/"
    # Only a move into the archive has an `about`; one without it goes back to the study.
    source, target = (study, archive) if move.about else (archive, study)

    def keys_of(place: str) -> list[str]:
        """Return the keys of the files at `place`, in the folder from which the move takes them."""
        listed = store.list(source + place)
        return [key for key in listed if place.endswith("/") or key == source + place]

    def copy(place: str) -> None:
        """Copy the files at `place` from where the move comes from to where it goes.

        A file that has been deleted meanwhile is left out.
        """
        for key in keys_of(place):
            # A worker that outlives its driver for a moment may delete an older checkpoint.
            with contextlib.suppress(FileNotFoundError):
                store.copy(key, target + key.removeprefix(source))

    def delete(place: str) -> None:
        """Delete the files at `place` where the move comes from, after they were copied."""
        for key in keys_of(place):
            store.delete(key)

    # `list` waits for all threads, and raises the first error of one.
    with ThreadPoolExecutor(THREADS) as pool:
        if not move.copied:
            if move.about:
                ABOUT_FILE.write(store, f"{archive}about.json", move.about)
            list(pool.map(copy, move.places))
            MOVE_FILE.write(store, intention, replace(move, copied=True))
        # Records are deleted first: a trial with a record counts as finished, and must have its files.
        for folder in (*FOLDERS, *WHOLE_FILES):
            list(pool.map(delete, [place for place in move.places if place.startswith(folder)]))
    store.delete(intention)


def _carry_out(records: StudyRecords, move: Move) -> None:
    """Write `move` to moving.json, so that it can be finished after a crash; then move the files."""
    MOVE_FILE.write(records.store, f"{records.study}/archive/moving.json", move)
    finish_move(records)


def _places(trial_ids: Iterable[str], searches: Mapping[str, str]) -> list[str]:
    """Return the folders of trials (`records/<id>/`, `trials/<id>/`) and of searches (`search/<digest>/`)."""
    trials = [f"{folder}/{trial_id}/" for trial_id in trial_ids for folder in ("records", "trials")]
    return trials + [f"search/{digest}/" for digest in searches.values()]
