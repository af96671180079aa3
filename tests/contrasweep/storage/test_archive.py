"""Putting trials aside and back: nothing is lost, wherever it is killed."""

import os

import pytest
from refusals import refused

from contrasweep.errors import SpecError, StorageError
from contrasweep.storage.archive import (
    MOVE_FILE,
    archive_trials,
    find_archived,
    finish_move,
    list_archived,
    restore_trials,
)
from contrasweep.storage.records import StudyRecords

FILES = (
    "record.json",
    "metrics.parquet",
    "items.parquet",
    "checkpoint/latest.json",
    "checkpoint/3/weights.npz",
)


@pytest.fixture(params=["folder", "s3"])
def records(request, tmp_path):
    storage = str(tmp_path) if request.param == "folder" else request.getfixturevalue("s3").uri
    return filled(StudyRecords(storage, "s"))


def filled_in(folder, **options):
    return filled(StudyRecords(str(folder), "s"), **options)


def filled(records, text="first", ids="ab"):
    for trial_id in ids:
        for name in FILES:
            records.store.write(records.key(trial_id, name), f"{text} {trial_id} {name}".encode())
    return records


def contents(records, prefix):
    return {
        key.removeprefix(prefix): records.store.read(key).decode()
        for key in records.store.list(prefix)
    }


def standing(records, trial_id, folder="s"):
    """What the study, or what was archived of it, holds of a trial: its record, and the files of its folder."""
    return contents(records, f"{folder}/records/{trial_id}/") | contents(
        records, f"{folder}/trials/{trial_id}/"
    )


def trial(trial_id, text="first"):
    return {name: f"{text} {trial_id} {name}" for name in FILES}


def test_all_of_a_trial_moves_and_comes_back(records):
    when = archive_trials(records, ["a"], "because")
    assert standing(records, "a") == {}
    assert standing(records, "b") == trial("b")
    assert standing(records, "a", f"s/archive/{when}") == trial("a")
    assert [(part.when, part.reason, part.trial_ids) for part in list_archived(records)] == [
        (when, "because", ("a",))
    ]
    restore_trials(records, find_archived(records, when))
    assert standing(records, "a") == trial("a")
    assert list_archived(records) == []


@pytest.mark.parametrize(
    "stray", ["notes.txt", "old/readme.txt", "old/records/a", "old/other/a/record.json"]
)
def test_a_stray_file_in_the_archive_is_no_archived_trial(records, stray):
    records.store.write(f"s/archive/{stray}", b"mine")
    when = archive_trials(records, ["a"], "because")
    assert [part.when for part in list_archived(records)] == [when]
    assert find_archived(records).trial_ids == ("a",)


def test_a_search_moves_with_its_trials_and_comes_back_for_the_one_since_then(records):
    def written(text):
        filled(records, text, "a")
        for number in range(2):
            records.store.write(f"s/search/0123/{number:06d}.json", f"{text} {number}".encode())
        return contents(records, "s/search/")

    first = written("first")
    records.store.write("s/search/4567/000000.json", b"of another arm")
    when = archive_trials(records, ["a"], "because", {"arm": "0123"})
    assert contents(records, "s/search/") == {"4567/000000.json": "of another arm"}
    assert contents(records, f"s/archive/{when}/search/") == first
    second = written("second")
    restore_trials(records, find_archived(records, when), replaced=["b"])
    assert contents(records, "s/search/") == first | {"4567/000000.json": "of another arm"}
    assert (standing(records, "a"), standing(records, "b")) == (trial("a"), {})
    (part,) = list_archived(records)
    assert (part.trial_ids, part.searches) == (("a", "b"), {"arm": "0123"})
    assert (
        contents(records, f"s/archive/{part.when}/search/0123/").items()
        <= {key.removeprefix("0123/"): text for key, text in second.items()}.items()
    )


@pytest.mark.slow
def test_the_same_trial_can_be_archived_again_and_again(records):
    names = []
    for text in ("first", "second", "third"):
        filled(records, text)
        names.append(archive_trials(records, ["a", "b"], text))
    assert len(set(names)) == 3 and find_archived(records).when == names[-1]
    assert [standing(records, "b", f"s/archive/{name}") for name in names] == [
        trial("b", text) for text in ("first", "second", "third")
    ]


@pytest.mark.parametrize("anew", ["", "record", "metrics", "search", "record metrics search"])
def test_whatever_stands_in_the_place_of_what_is_restored_is_archived(records, anew):
    places = {
        "record": records.key("a", "record.json"),
        "metrics": records.key("a", "metrics.parquet"),
    }
    places["search"] = "s/search/0123/000000.json"
    for name, key in places.items():
        records.store.write(key, f"first {name}".encode())
    when = archive_trials(records, ["a"], "because", {"arm": "0123"})
    for name in anew.split():
        records.store.write(places[name], f"second {name}".encode())
    restore_trials(records, find_archived(records, when))
    assert {name: records.store.read(key).decode() for name, key in places.items()} == {
        n: f"first {n}" for n in places
    }
    aside = {text for text in contents(records, "s/archive/").values() if text.startswith("second")}
    assert aside == {f"second {name}" for name in anew.split()}


class Killed(BaseException):
    pass


def killed_after(store, writes):
    """`store`, whose process is killed before its operation number `writes` that changes anything."""
    left = [writes]

    class Dying(type(store)):
        pass

    def dying(name):
        def operation(self, *arguments, **options):
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return getattr(super(Dying, self), name)(*arguments, **options)

        return operation

    for name in ("write", "copy", "delete"):
        setattr(Dying, name, dying(name))
    store.__class__ = Dying
    return left


@pytest.mark.parametrize("kill_at", range(23))
def test_killed_anywhere_it_loses_neither_the_old_nor_the_new(tmp_path, kill_at, monkeypatch):
    monkeypatch.setattr("contrasweep.storage.archive.THREADS", 1)
    records = filled_in(tmp_path)
    for number in range(3):
        records.store.write(f"s/search/0123/{number:06d}.json", b"{}")
    left = killed_after(records.store, kill_at)
    try:
        archive_trials(records, ["a"], "because", {"arm": "0123"})
        assert kill_at >= 20, (
            "intention, about, eight copies, intention, eight deletions, intention"
        )
    except Killed:
        pass
    places = ["s", *(f"s/archive/{part.when}" for part in list_archived(records))]
    assert 3 in {len(contents(records, f"{place}/search/0123/")) for place in places}, (
        "a search is whole in one"
    )
    kept = {**standing(records, "a")}
    assert "record.json" not in kept or kept == trial("a"), "what has a record counts as whole"
    for part in list_archived(records):
        kept = standing(records, "a", f"s/archive/{part.when}") | kept
    assert kept == trial("a"), "before anything is mended, all of it is somewhere"
    left[0] = -1  # the next process
    finish_move(records)
    here = standing(records, "a")
    aside = list_archived(records)
    assert len(contents(records, "s/search/0123/")) == 3 * (kill_at == 0)
    if kill_at == 0:
        assert (here, aside) == (trial("a"), [])
    else:
        assert here == {}
        assert standing(records, "a", f"s/archive/{aside[0].when}") == trial("a")
    filled(records, "second", "a")
    finish_move(records)
    assert standing(records, "a") == trial("a", "second")
    assert standing(records, "b") == trial("b")


@pytest.mark.parametrize("kill_at", range(0, 31, 2))
def test_killed_anywhere_a_restore_loses_neither_the_old_nor_the_new(
    tmp_path, kill_at, monkeypatch
):
    monkeypatch.setattr("contrasweep.storage.archive.THREADS", 1)
    records = filled_in(tmp_path, ids="a")
    when = archive_trials(records, ["a"], "first")
    filled(records, "second", "a")
    part = find_archived(records, when)
    left = killed_after(records.store, kill_at)
    try:
        restore_trials(records, part)
        assert kill_at >= 28, "fourteen to archive, thirteen to restore, the reason of the first"
    except Killed:
        pass
    left[0] = -1  # the next process
    finish_move(records)
    places = ["s", *(f"s/archive/{part.when}" for part in list_archived(records))]
    held = [standing(records, "a", place) for place in places]
    assert trial("a", "first") in held and trial("a", "second") in held
    for part in list_archived(records):
        if part.when == when:
            restore_trials(records, part)
    assert standing(records, "a") == trial("a", "first")
    (part,) = list_archived(records)
    assert standing(records, "a", f"s/archive/{part.when}") == trial("a", "second")


def test_of_whole_files_only_those_themselves_move(tmp_path):
    """Not what somebody keeps beside them under a longer name."""
    records = filled_in(tmp_path)
    for name in ("study.json", "study.json.bak"):
        records.store.write(f"s/{name}", name.encode())
    when = archive_trials(records, [], "broken", files=["study.json"])
    assert set(contents(records, "s/study")) == {".json.bak"}
    assert set(contents(records, f"s/archive/{when}/study")) == {".json"}


def test_a_file_that_a_worker_deletes_while_its_trial_moves_is_no_error(records, monkeypatch):
    """A worker may outlive its driver for a moment, in which it deletes its older checkpoint."""
    older = records.key("a", "checkpoint/3/weights.npz")
    copy = records.store.copy
    monkeypatch.setattr(
        records.store, "copy", lambda key, to: (records.store.delete(older), copy(key, to))
    )
    when = archive_trials(records, ["a"], "because")
    assert standing(records, "a") == {}
    assert standing(records, "a", f"s/archive/{when}").keys() == trial("a").keys() - {
        "checkpoint/3/weights.npz"
    }


@pytest.mark.parametrize(
    "forge",
    [lambda path: path.symlink_to(path.parent / "nothing"), os.mkfifo],
    ids=["link", "pipe"],
)
def test_what_is_no_plain_file_moves_as_it_is(tmp_path, forge):
    """Nothing reads it, before and after."""
    records = filled_in(tmp_path)
    forge(tmp_path / "s/trials/a/odd")
    mode = (tmp_path / "s/trials/a/odd").lstat().st_mode
    when = archive_trials(records, ["a"], "because")
    assert (tmp_path / f"s/archive/{when}/trials/a/odd").lstat().st_mode == mode
    restore_trials(records, find_archived(records, when))
    assert (tmp_path / "s/trials/a/odd").lstat().st_mode == mode


def test_a_place_that_cannot_be_written_is_one_error_and_changes_nothing(tmp_path):
    records = filled_in(tmp_path)
    (tmp_path / "s/archive").write_text("a file")
    finish_move(records)
    with refused(StorageError, "cannot be written"):
        archive_trials(records, ["a"], "because")
    assert standing(records, "a") == trial("a")


def test_an_intention_that_leads_out_of_the_study_is_refused(tmp_path):
    records = filled_in(tmp_path)
    for place in ("trials/../../x/", "../t/trials/a/", "/etc/", "elsewhere/a/"):
        move = {"when": "now", "places": [place], "about": {"reason": ""}, "copied": True}
        MOVE_FILE.write(records.store, "s/archive/moving.json", move)
        with refused(StorageError, match=r"moving.json is broken .*outside"):
            finish_move(records)
    assert standing(records, "a") == trial("a")


def test_an_unknown_name_says_which_there_are(tmp_path):
    records = filled_in(tmp_path)
    when = archive_trials(records, ["a"], "because")
    assert find_archived(records, when).trial_ids == ("a",)
    with refused(SpecError, match=f"known names: {when}"):
        find_archived(records, "yesterday")
