"""The ledger of a campaign: whole entries in one order, from which level and seeds follow; hostile files are a line."""

import json
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from contrasweep.data.manifest import Manifest
from contrasweep.errors import BrokenFileError, StorageError
from contrasweep.planning.budget import Spent
from contrasweep.results import ledger as ledgers
from contrasweep.results.ledger import Asked, Began, Decided, Granted, Ledger, campaign_names
from contrasweep.statistics.referee import Confirmation
from contrasweep.storage.record import Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.trial import Trial

BEGAN = Began({"metric": "accuracy"}, screening=12)


def ledger(storage, *entries):
    book = Ledger(str(storage), "speed").read()
    for entry in entries:
        assert book.append(entry)
    return book


def asked(name):
    return Asked(name, {"trainable": "candidates:train"}, f"{abs(hash(name)):016x}"[:16])


def decided(number, incumbent, *, kept, stage="confirm", p=0.5):
    return Decided(
        number, incumbent, "keep" if kept else "discard", stage, kept, 8, 16, 0.1, 0.4, p=p
    )


def test_what_was_written_is_read_by_another_process(tmp_path):
    book = ledger(
        tmp_path,
        BEGAN,
        asked("a"),
        Granted(1, 0, 0.025, tuple(range(12, 44))),
        decided(1, 0, kept=True),
    )
    other = ledger(tmp_path)
    assert other.entries == book.entries and other.incumbent == 1
    assert campaign_names(str(tmp_path)) == ["speed"]
    assert other.screening_seeds(0) == list(range(12))
    assert other.screening_seeds(1) == list(range(44, 56))
    assert other.fresh_seeds(3) == (56, 57, 58) and other.spent == Spent(16, 0.1, 0.4)
    assert other.confirmations == [Confirmation(0.025, True, 0.5)]


def test_a_superseded_decision_does_not_stand_and_the_next_one_does(tmp_path):
    between = decided(2, 0, kept=True)
    book = ledger(
        tmp_path,
        BEGAN,
        asked("a"),
        asked("b"),
        between,
        replace(decided(1, 0, kept=False), superseded=True),
    )
    assert book.decision(1) is None and book.decision(2).kept and book.incumbent == 2
    assert book.append(decided(1, 2, kept=False)) and book.decision(1).incumbent == 2


@pytest.mark.parametrize(("verdict", "trials"), [("undecided", 20), ("discard", 16)])
def test_what_an_undecided_candidate_trains_further_is_spent_before_it_is_decided(
    tmp_path, verdict, trials
):
    records = StudyRecords(str(tmp_path), "speed.1")
    for seed in range(20):
        trial = Trial("speed.1", "a", "m:f", {}, Manifest("d", "/nowhere", "image", {}), None, seed)
        records.write(Record.of(trial, status=Status.DONE, seconds=36.0))
    spent = ledger(
        tmp_path, BEGAN, asked("a"), replace(decided(1, 0, kept=False), verdict=verdict)
    ).spent
    assert (spent.trials, spent.gpu_hours) == (
        trials,
        pytest.approx(0.01 * trials if trials == 20 else 0.1),
    )


def test_clocks_that_are_wrong_change_neither_order_nor_level(tmp_path, monkeypatch):
    """One runs backwards, one is years off, one is before 1970, one beyond any date."""
    clocks = iter([2e9, 1e9, -5.0, 4e9, 1e300, 100.0, float("inf")])
    monkeypatch.setattr("time.time", lambda: next(clocks))
    written = [
        BEGAN,
        asked("a"),
        Granted(1, 0, 0.025, (12, 13)),
        decided(1, 0, kept=True),
        asked("b"),
        asked("c"),
    ]
    book = ledger(tmp_path, *written)
    other = ledger(tmp_path)
    assert [replace(entry, after="", at=0.0) for entry in other.entries] == written
    assert (other.incumbent, other.confirmations, other.fresh_seeds(1)) == (
        1,
        [Confirmation(0.025, True, 0.5)],
        (26,),
    )
    assert other.entries == book.entries and book.append(asked("d"))


def test_of_two_that_append_at_once_one_has_to_look_again(tmp_path):
    ledger(tmp_path, BEGAN)
    books = [ledger(tmp_path) for _ in range(8)]
    outcomes = []
    threads = [
        threading.Thread(target=lambda book=book, i=i: outcomes.append(book.append(asked(f"c{i}"))))
        for i, book in enumerate(books)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count(True) == 1 and len(ledger(tmp_path).entries) == 2
    assert all(len(book.entries) == 2 for book in books)  # who was late has read what was first


def test_a_changed_a_missing_and_a_broken_entry_are_a_line_that_names_it(tmp_path, monkeypatch):
    ledger(tmp_path, BEGAN, asked("a"), asked("b"), asked("c"))
    files = sorted((tmp_path / "speed/ledger").iterdir())
    kept = [file.read_bytes() for file in files]
    files[0].write_bytes(kept[1])
    with refused(BrokenFileError, match=r"000001.json.*does not follow"):
        ledger(tmp_path)
    files[0].unlink()
    with refused(BrokenFileError, match=r"000001.json.*missing"):
        ledger(tmp_path)
    files[0].write_bytes(kept[0])
    files[2].write_bytes(kept[2][:-40])
    with refused(BrokenFileError, match=r"000003.json.*digest.*may be deleted"):
        ledger(tmp_path)
    files[2].unlink()
    assert len(ledger(tmp_path).entries) == 3
    with refused(BrokenFileError, "no candidate has this number"):
        ledger(tmp_path).asked_for(3)
    monkeypatch.setattr(ledgers, "MAX_ENTRIES", 2)
    with refused(BrokenFileError, "it has 3 entries, and 2 are read"):
        ledger(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"\x00" * 100,
        b'{"format_version": 9, "digest": "' + b"0" * 64 + b'",\n}',
        b"[" * 100_000,
    ],
)
def test_a_hostile_entry_is_a_line(content, tmp_path):
    ledger(tmp_path, BEGAN)
    (tmp_path / "speed/ledger").mkdir()
    (tmp_path / "speed/ledger/000001.json").write_bytes(content)
    with refused(StorageError):
        ledger(tmp_path)


def test_an_entry_that_could_not_be_read_is_not_written(tmp_path):
    book = ledger(tmp_path, BEGAN, asked("a"))
    with refused(BrokenFileError, "hours"):
        book.append(Decided(1, 0, "discard", "screen", False, 8, 16, -1e-20, 0.0))
    assert len(ledger(tmp_path).entries) == 2 and book.append(asked("b"))


def test_files_that_are_no_entries_are_not_read(tmp_path):
    book = ledger(tmp_path, BEGAN, asked("a"))
    for name in ("000002.json.bak", "2.json", "-00002.json", "notes.txt"):
        (tmp_path / "speed/ledger" / name).write_text(json.dumps({}))
    assert ledger(tmp_path).entries == book.entries


@given(st.lists(st.sampled_from(["grant", "keep", "drop"]), max_size=30))
def test_no_seed_is_handed_out_twice(steps):
    """Whatever the order of grants and keeps: screening seeds of all incumbents and fresh seeds are disjoint."""
    book = Ledger("memory://", "speed", (BEGAN,))
    given_out = [book.screening_seeds(0)]
    for step in steps:
        number = len(book.entries)
        book.entries += (asked(f"c{number}"),)
        if step != "drop":
            seeds = book.fresh_seeds(8)
            given_out.append(list(seeds))
            book.entries += (Granted(number, book.incumbent, 0.01, seeds),)
        if step == "keep":
            book.entries += (decided(number, book.incumbent, kept=True),)
            given_out.append(book.screening_seeds(book.incumbent))
    every = [seed for seeds in given_out for seed in seeds]
    assert len(every) == len(set(every))
