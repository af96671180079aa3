"""Studies whose records lie among the other files of their trials, as in earlier releases: read there, and moved."""

import threading
from dataclasses import asdict, replace

import pytest

from contrasweep.errors import BrokenFileError
from contrasweep.storage import compact
from contrasweep.storage.checkpoints import Checkpoints
from contrasweep.storage.record import DatasetRef, Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import STUDY_FILE, StudyDocument

DOCUMENT = StudyDocument(name="s", metric="loss", plan_digest="same")
EARLIER = replace(STUDY_FILE, version=3)
"""study.json as that release wrote it."""


def record(trial_id):
    return Record(trial_id, "s", "a", "m:f", {}, DatasetRef("d", "x"), 0, 0, Status.DONE, {"loss": 0.5}, step=1)


def earlier(trial_id):
    return f"s/trials/{trial_id}/record.json"


@pytest.fixture(params=["folder", "s3"])
def records(request, tmp_path):
    storage = request.getfixturevalue("s3").uri if request.param == "s3" else str(tmp_path)
    old = StudyRecords(storage, "s")
    members = asdict(DOCUMENT)
    del members["format_version"]
    EARLIER.write(old.store, "s/study.json", members)
    for trial_id in ("one", "two", "three"):
        old.write_metrics(trial_id, [{"step": 1, "time": 1.0, "loss": 0.5}])
        old.store.write(earlier(trial_id), record(trial_id).to_json())
    return old


def again(records):
    """The same storage for a process that has not seen it yet."""
    return StudyRecords(records.storage, "s")


def placed(records):
    return sorted(key for key in records.store.list("s/") if key.endswith("/record.json"))


def test_they_are_read_where_they_are(records, tmp_path):
    assert records.finished() == {"one", "two", "three"}
    assert records.read_one("two") == record("two") and records.read_one("none") is None
    assert compact.read_records(records, compact.record_etags(records))["one"] == record("one")
    (tmp_path / "state").write_text("x")
    for trial_id in ("one", "four"):
        Checkpoints(records.store, records.key(trial_id, "checkpoint")).save(tmp_path / "state", 1)
    assert records.begun() == {"four"}
    assert placed(records) == [earlier(i) for i in ("one", "three", "two")]


def test_one_that_is_dropped_is_not_finished_any_more(records):
    records.reopen("one")
    assert records.finished() == {"two", "three"} and records.read_one("one") is None


def test_a_broken_one_is_named_by_its_place(records):
    records.store.write(earlier("one"), b"{")
    with pytest.raises(BrokenFileError, match=r"s/trials/one/record.json is broken"):
        records.read_one("one")
    records.store.write("s/records/two/record.json", b"{")
    with pytest.raises(BrokenFileError, match=r"s/records/two/record.json is broken"):
        records.read_one("two")


def test_the_next_run_moves_them_and_what_was_compacted_still_holds(records, monkeypatch):
    monkeypatch.setattr(compact, "MIN_OBJECTS_TO_COMPACT", 1)
    compact.compact_finished(records, threading.Event())
    parts = list(records.store.list("s/compact/"))
    before = records.etags()
    again(records).claim(DOCUMENT)
    moved = again(records)
    assert placed(moved) == [f"s/records/{i}/record.json" for i in ("one", "three", "two")]
    assert moved.document().format_version == 4 and moved.etags() == before
    monkeypatch.setattr(StudyRecords, "record_bytes", lambda self, trial_id: pytest.fail(f"{trial_id} is read singly"))
    assert set(compact.read_records(moved, moved.etags())) == {"one", "two", "three"}
    assert list(moved.store.list("s/compact/")) == parts


@pytest.mark.parametrize("operations", range(7))
def test_killed_while_they_are_moved_all_are_there_and_the_next_run_goes_on(records, operations, monkeypatch):
    class Killed(BaseException):
        pass

    left, lock = [operations], threading.Lock()

    def dying(plain):
        def operation(*words):
            with lock:
                if left[0] == 0:
                    raise Killed
                left[0] -= 1
            return plain(*words)

        return operation

    with monkeypatch.context() as patch:
        for name in ("copy", "delete", "write"):
            patch.setattr(type(records.store), name, dying(getattr(type(records.store), name)))
        patch.setattr(type(records.store), "check_writable", lambda self: None)
        with pytest.raises(Killed):
            records.claim(DOCUMENT)
    after = again(records)
    assert after.finished() == {"one", "two", "three"} and after.read_one("three") == record("three")
    after.claim(DOCUMENT)
    assert placed(after) == [f"s/records/{i}/record.json" for i in ("one", "three", "two")]


def test_a_newer_record_stands_when_the_earlier_is_moved(records):
    newer = replace(record("one"), step=9)
    records.write(newer)
    assert records.read_one("one") == newer
    records.claim(DOCUMENT)
    assert records.read_one("one") == newer and earlier("one") not in placed(records)


def test_a_study_of_today_is_listed_in_its_own_folder_alone(records, monkeypatch):
    records.claim(DOCUMENT)
    today = again(records)
    assert today.document() == DOCUMENT
    listed, plain = [], today.store.etags
    monkeypatch.setattr(type(today.store), "etags", lambda _, *words: listed.append(words) or plain(*words))
    assert today.finished() == {"one", "two", "three"}
    assert listed == [("s/records/", "record.json")]
