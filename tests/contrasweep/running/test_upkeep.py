"""`contrasweep verify`: whatever file of a study is damaged is named, and --repair lets its trials run again."""

import shutil

import pytest
from command_line import contrasweep, printed
from folders import make_files
from made_up import declared, nowhere, train

from contrasweep import AblationGrid, Arm, load
from contrasweep.code import code_of
from contrasweep.planning import learned
from contrasweep.planning.grid import make_plan
from contrasweep.running.upkeep import verify
from contrasweep.storage.archive import archive_trials
from contrasweep.storage.checkpoints import Checkpoints, Extra
from contrasweep.storage.code_files import accept, write_code
from contrasweep.storage.record import CodeRef, Record, Status
from contrasweep.storage.records import StudyRecords, encode_items
from contrasweep.tracking.links import write_links
from contrasweep.tuning.sweep_source import CANDIDATE_FILE

DATA = nowhere(2)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The storage of a study that has left every kind of file."""
    folder = tmp_path_factory.mktemp("whole")
    grid = AblationGrid("s", {"a": Arm(train), "b": Arm(train)}, "d", folds=2)
    plan, records = declared(make_plan(grid, lambda name: DATA), folder / "storage")
    make_files(folder, {"files/w": "weights"})
    code = code_of("toy:train")
    write_code(records, code)
    accept(records, [("aa", "bb")])
    for i, trial in enumerate(plan.trials):
        rows = [{"step": step, "time": 1.0 * step, "accuracy": step / 10} for step in (1, 2)]
        records.write_metrics(trial.id, rows)
        records.write_encoded_items(trial.id, encode_items({"hits": [0.0, 1.0]}))
        Checkpoints(records.store, records.key(trial.id, "checkpoint")).save(
            folder / "files", 2, Extra(seconds=1.0)
        )
        records.store.put_file(records.key(trial.id, "artifacts/w"), folder / "files/w")
        if i:  # the first one is not finished
            done = {
                "items": ("hits",),
                "artifacts": ("w",),
                "host_memory_gib": 1.0,
                "code": CodeRef(code.version.digest),
            }
            records.write(Record.of(trial, status=Status.DONE, rows=rows, **done))
    write_links(
        records,
        "http://mlflow:5000",
        "http://mlflow:5000/#/1",
        {plan.trials[1].id: "http://mlflow:5000/#/2"},
    )
    learned.write(records, records.read(records.finished()).values())
    CANDIDATE_FILE.write(records.store, "s/search/0123/000000.json", {"config": {"lr": 0.1}})
    archive_trials(records, [plan.trials[-1].id], "a test")
    return folder / "storage"


@pytest.fixture
def records(whole, tmp_path):
    return StudyRecords(str(shutil.copytree(whole, tmp_path / "storage")), "s")


def test_a_sound_study_has_nothing_broken(records):
    result = verify(records)
    assert (result.findings, result.sound, result.trials) == ((), True, 3)
    assert result.files == len(list(records.store.list("s/")))


DAMAGES = {
    "truncated": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "flipped": lambda data: (
        data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]
    ),
    "another": lambda data: b"[7]",
}
UNCHECKED = ("/artifacts/", "/archive/", ".zip")
"""Files whose damage is not seen in each form: a figure, what was archived, and a zip's own headers."""


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_to_any_file_is_named_and_repaired(records, damage):
    for key in [*records.store.list("s/"), "calibration/s.json"]:
        if any(part in key for part in UNCHECKED) and not key.endswith("/about.json"):
            continue
        before = records.store.read(key)
        records.store.write(key, DAMAGES[damage](before))
        [*findings] = verify(records).findings
        place = (
            f"{key.partition('/checkpoint/')[0]}/checkpoint/latest.json"
            if "/checkpoint/" in key
            else key
        )
        assert [finding.file for finding in findings] == [place], key
        records.store.write(key, before)
    assert verify(records).sound


def test_bytes_that_changed_in_a_bucket_are_damage_as_in_a_folder(s3, monkeypatch, tmp_path):
    import boto3

    monkeypatch.setattr("contrasweep.storage.s3_retry.FIRST_WAIT_S", 0.01)
    records = StudyRecords(s3.uri, "s")
    for name in ("net", "weights"):
        (tmp_path / name).write_text("as written")
    Checkpoints.of(records, "aa").save(tmp_path, 1)
    records.store.write(records.key("bb", "record.json"), b"as written")
    for key in (records.key("aa", "checkpoint/1/weights"), records.key("bb", "record.json")):
        place = records.store._at(key)
        stated = records.store._head(key)["Metadata"]
        boto3.session.Session().client("s3").put_object(**place, Body=b"changed", Metadata=stated)
    (to := tmp_path / "to").mkdir()
    assert Checkpoints.of(records, "aa").fetch(to) is None, "its trial starts over"
    assert not any(to.iterdir()), "no half of a checkpoint is left"
    of = {finding.of: finding.repair for finding in verify(records).findings if finding.of}
    assert of == {"aa": "trial", "bb": "trial"}


def test_repair_puts_aside_what_runs_again_and_leaves_the_rest(records):
    finished = sorted(records.finished())
    broken = finished[0]
    sound = finished[1]
    records.store.write(records.key(broken, "record.json"), b"{")
    records.store.write("s/mlflow.json", b"{")
    records.store.write("s/search/0123/000000.json", b"{")
    assert load("s", storage=records.storage).statuses["broken"] == 1
    result = verify(records, repair=True)
    assert result.sound
    assert {finding.repair for finding in result.findings} == {
        "trial",
        "delete",
        "search",
    }
    assert verify(records).findings == ()
    assert records.finished() == {sound} and records.begun() & {broken} == set()
    aside = list(records.store.list(f"s/archive/{result.archived}/"))
    assert f"s/archive/{result.archived}/trials/{broken}/checkpoint/latest.json" in aside
    assert f"s/archive/{result.archived}/search/0123/000000.json" in aside
    assert load("s", storage=records.storage).statuses == {"pending": 3, "done": 1}


def test_a_broken_study_and_plan_are_archived_for_the_next_run(records):
    for name in ("study.json", "plan.parquet"):
        records.store.write(f"s/{name}", b"PAR1")
    result = verify(records, repair=True)
    assert {finding.repair for finding in result.findings} == {"file"} and result.sound
    assert records.document() is None
    assert [f.problem for f in verify(records).findings] == ["it is missing", "it is missing"]


def test_files_that_contradict_each_other_are_named(records):
    one, other = sorted(records.finished())
    for name, problem in (
        ("metrics.parquet", "last report"),
        ("artifacts/w", "missing"),
        ("items.parquet", "missing"),
    ):
        before = records.store.read(records.key(one, name))
        if name == "metrics.parquet":
            records.write_metrics(one, [{"step": 1, "time": 1.0, "accuracy": 0.9}])
        else:
            records.store.delete(records.key(one, name))
        [finding] = verify(records).findings
        assert problem in finding.problem and finding.of == one
        records.store.write(records.key(one, name), before)
    records.store.copy(records.key(other, "record.json"), records.key(one, "record.json"))
    [finding] = verify(records).findings
    assert finding.problem == f"it is the record of trial {other}"


def test_the_command_says_what_is_broken_and_what_mends_it(records, tmp_path):
    trial = sorted(records.finished())[0]
    words = ("verify", "s", "--storage", records.storage)
    records.store.write(records.key(trial, "record.json"), b"\x00")
    done = contrasweep(*words, folder=tmp_path)
    assert done.returncode == 1
    assert f"s/records/{trial}/record.json: " in done.stdout
    assert "with --repair the trial is archived" in done.stdout
    text = " ".join(printed(tmp_path, "report", "s", "--storage", records.storage).split())
    assert "--repair` puts it aside" in text and "1 broken" in text
    done = contrasweep(*words, "--repair", folder=tmp_path)
    assert done.returncode == 0 and "run the study again" in done.stdout
    done = contrasweep(*words, folder=tmp_path)
    assert done.returncode == 0 and done.stdout.endswith("of 2 trials read, 0 broken\n")
