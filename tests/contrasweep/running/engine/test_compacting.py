"""The driver compacts a study as its trials end."""

import pytest

from contrasweep.data.manifest import Manifest
from contrasweep.errors import ContrasweepError
from contrasweep.running.engine import loop as running
from contrasweep.running.engine.loop import Compactor, compacting
from contrasweep.storage import compact
from contrasweep.storage.record import Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.trial import Trial


@pytest.fixture
def records(tmp_path, monkeypatch):
    monkeypatch.setattr(compact, "MIN_OBJECTS_TO_COMPACT", 2)
    monkeypatch.setattr(running, "PART_TRIALS", 3)
    return StudyRecords(str(tmp_path), "s")


def finish(records, count):
    for seed in range(count):
        trial = Trial("s", "a", "m:f", {}, Manifest("d", "/nowhere", "image", {}), 0, seed)
        records.write_metrics(trial.id, [{"step": 1, "time": 1.0, "loss": 0.5}])
        records.write(Record.of(trial, status=Status.DONE, metrics={"loss": 0.5}, step=1))


def parts(records):
    return list(records.store.list("s/compact/records/"))


def test_a_part_is_written_when_enough_trials_have_ended(records, monkeypatch):
    calls = []
    monkeypatch.setattr(running, "compact_finished", lambda *_: calls.append(1))
    with compacting(records) as compactor:
        for _ in range(2):
            compactor.trial_ended()
        assert not compactor._due.is_set() and not calls
        compactor.trial_ended()
    assert 1 <= len(calls) <= 2  # that of three trials may be the one of the end


def test_what_is_left_is_compacted_at_the_end(records):
    with compacting(records) as compactor:
        finish(records, 2)
        compactor.trial_ended()
    assert len(parts(records)) == 1


def test_an_interrupted_run_compacts_nothing_more(records):
    finish(records, 2)
    with pytest.raises(KeyboardInterrupt), compacting(records):
        raise KeyboardInterrupt
    assert not parts(records)


def test_a_storage_that_fails_does_not_end_the_run(records, monkeypatch, caplog):
    def fails(*_):
        raise ContrasweepError("the server is away")

    monkeypatch.setattr(running, "compact_finished", fails)
    Compactor(records).close()
    assert "the server is away" in caplog.text
