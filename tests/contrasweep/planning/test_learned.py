"""What trials took, kept in the storage: a function of the records, whoever writes and however often."""

import dataclasses

import pytest
from folders import make_files
from hypothesis import given, settings
from hypothesis import strategies as st

from contrasweep import canonical
from contrasweep.planning import learned
from contrasweep.planning.learned import Learned, Peak, peak_of
from contrasweep.storage.record import DatasetRef, Record, Status, TrialNotes, id_of
from contrasweep.storage.records import StudyRecords


def learn(records):
    learned.write(records, records.read(records.finished()).values())


def record(i, study="s", gpu="H100", gib=4.0, **fields):
    notes = TrialNotes(architecture="cnn", counted_gib=1.0)
    if gpu:
        notes = dataclasses.replace(notes, gpu_type=gpu, gpus=0.5)
    base = {
        "config": {"batch_size": i % 2},
        "data": DatasetRef("d", "dd"),
        "fold": 0,
        "seed": i,
        "status": Status.DONE,
    }
    measured = {
        "gpu_memory_gib": gib if gpu else None,
        "host_memory_gib": 2.0,
        "gpu_utilisation": 0.3 if gpu else None,
    }
    made = Record(
        **{
            "trial_id": "",
            "study": study,
            "arm": "a",
            "trainable": "m:f",
            "notes": notes,
            **base,
            **measured,
            **fields,
        }
    )
    return dataclasses.replace(made, trial_id=id_of(made, canonical.dumps(made.config)))


def stored(tmp_path, study, records):
    into = StudyRecords(str(tmp_path), study)
    for one in records:
        into.write(dataclasses.replace(one, study=study))
    return into


def test_every_study_learns_from_all_of_the_storage(tmp_path):
    one = stored(tmp_path, "one", [record(0), record(2, gib=5.0)])
    for records in (one, stored(tmp_path, "two", [record(1, gib=3.0)])):
        learn(records)
    third = learned.read(StudyRecords(str(tmp_path), "three"), set())
    assert {(peak.gpu_memory_gib, peak.times) for peak in third.peaks} == {(5.0, 2), (3.0, 1)}
    assert third.gpu.margin("H100/cnn") == 1.25 and 4.9 < third.gpu.predict("H100/cnn", 1.0) <= 5.1


def test_a_file_that_a_killed_driver_did_not_write_is_made_again_from_the_records(tmp_path):
    records = stored(tmp_path, "one", [record(0)])
    learn(records)
    written = learned.read(records, records.finished()).peaks
    stored(tmp_path, "one", [record(2, gib=9.0)])
    behind = learned.read(records, records.finished()).peaks
    assert (written[0].times, behind[0].times, behind[0].gpu_memory_gib) == (1, 2, 9.0)
    learn(records)
    assert learned.read(records, records.finished()).peaks == behind


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"format_version": 2, "digest": "x", "records": 0, "peaks": []}',
        '{"version": 1, "records": 1, "peaks": [{"x": 1}]}',
    ],
)
def test_a_broken_file_costs_no_plan_and_is_one_line_that_says_what_to_do(tmp_path, caplog, text):
    make_files(tmp_path, {"calibration/other.json": text})
    assert learned.read(StudyRecords(str(tmp_path), "s"), set()).peaks == []
    [message] = caplog.messages
    assert "calibration/other.json is broken (" in message and "; delete it" in message
    assert "\n" not in message


@pytest.mark.parametrize("gpu", [None, "H100"])
def test_host_memory_is_learned_of_trials_without_a_gpu_alone(gpu):
    key = f"{gpu or 'cpu'}/cnn"
    taught = Learned([peak_of(record(0, gpu=gpu, gib=None, host_memory_gib=50.0))]).host
    told = 50.0 if gpu is None else Learned().host.predict(key, 1.0)
    assert taught.predict(key, 1.0) == pytest.approx(told, rel=0.05)


def test_a_gpu_is_known_to_be_busy_only_by_whom_it_belonged_to_alone():
    alone = TrialNotes(gpu_type="H100", gpus=1.0)
    assert [peak_of(record(0)).gpu_busy, peak_of(record(0, notes=alone)).gpu_busy] == [0.0, 0.3]


def test_only_what_trained_and_was_measured_teaches():
    assert peak_of(record(0, status=Status.FAILED)) is None
    assert peak_of(record(0, status=Status.INFEASIBLE)) is None
    assert peak_of(record(0, gpu_memory_gib=None, host_memory_gib=None)) is None
    assert peak_of(record(0, status=Status.PRUNED)).gpu_memory_gib == 4.0
    assert peak_of(record(0, gpu=None)).host == "cpu"


peaks = st.lists(
    st.builds(
        Peak,
        st.sampled_from("ab"),
        st.sampled_from(["T4", "cpu"]),
        st.just("cnn"),
        st.just(1.0),
        st.floats(0, 9),
        st.floats(0, 9),
        st.floats(0, 1),
    ),
    max_size=8,
)


@given(peaks, st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_the_order_of_records_does_not_matter(found, shuffled):
    other = list(found)
    shuffled.shuffle(other)
    assert Learned(found).peaks == Learned(other).peaks
    assert Learned(Learned(found).peaks).peaks == Learned(found).peaks
