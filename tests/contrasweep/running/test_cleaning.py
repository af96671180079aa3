"""`contrasweep clean`: checkpoints of finished trials go and nothing else, and what they answered is said."""

import contextlib
import sys
from dataclasses import replace

import pytest
import toy
from command_line import contrasweep, shown_json
from made_up import declared
from refusals import refused
from sweeps import finished, sweep

import contrasweep as cs
from contrasweep.commands.metrics import REPORT_FILE
from contrasweep.running.prepare import study_document
from contrasweep.running.publish import clean, plan_cleaning
from contrasweep.running.upkeep import verify
from contrasweep.running.worker.execution import Execution
from contrasweep.storage.checkpoints import Checkpoints, Retention
from contrasweep.storage.planned import write_planned
from contrasweep.storage.record import Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.store import LocalStore, open_store

ENDED = {3: Status.FAILED, 4: None}  # by seed; all others are done


@pytest.fixture(params=["folder", "s3"])
def storage(request, runs):
    if request.param == "folder":
        return runs
    return request.getfixturevalue("s3").uri


def made(storage, tmp_path, name="grid"):
    """A grid of two arms and five seeds; each trial has a checkpoint of 1,000 bytes."""
    grid = cs.AblationGrid(
        name, dict.fromkeys("ab", cs.Arm("toy:train")), "digits-lt", seeds=list(range(5))
    )
    return recorded(cs.plan(grid, storage=str(tmp_path / "data")), storage, tmp_path)


def recorded(plan, storage, tmp_path):
    """Each trial of a plan has a checkpoint of 1,000 bytes and a record."""
    plan, records = declared(plan, storage)
    (tmp_path / "w").mkdir(exist_ok=True)
    (tmp_path / "w/state").write_bytes(bytes(1000))
    for trial in plan.trials:
        checkpoints(records, trial.id).save(tmp_path / "w", 2)
        rows = [{"step": 2, "time": 1.0, "accuracy": trial.seed / 10}]
        records.write_metrics(trial.id, rows)
        if status := ENDED.get(trial.seed, Status.DONE):
            records.write(Record.of(trial, status=status, rows=rows))
    return records


def checkpoints(records, trial_id):
    return Checkpoints(records.store, records.key(trial_id, "checkpoint"))


def contents(records):
    return {
        key: records.store.read(key)
        for key in records.store.list(f"{records.study}/")
        if "/lease/" not in key
    }


def test_only_checkpoints_of_finished_trials_go_and_the_best_of_each_arm_stays(storage, tmp_path):
    records = made(storage, tmp_path)
    before = contents(records)
    results = cs.load("grid", storage=storage)
    found = plan_cleaning(results, "best_of_arm")
    assert contents(records) == before, "planned only"
    assert (len(found.trials), found.kept) == (4, 2)
    assert found.gib * 2**30 == pytest.approx(4000, rel=0.5)
    clean(results, found)
    after = contents(records)
    assert after == {key: data for key, data in before.items() if key not in found.keys}
    assert all("/checkpoint/" in key for key in found.keys) and len(before) - len(after) == 8
    frame = results.to_frame().set_index("trial_id")
    left = {i for i in frame.index if checkpoints(records, i).latest()}
    assert set(frame.loc[sorted(left), "seed"]) == {2, 3, 4}, (
        "the best, and those that go on from theirs"
    )
    assert verify(records).sound
    assert plan_cleaning(cs.load("grid", storage=storage), "best_of_arm").trials == ()


def test_records_without_the_metric_that_a_forged_study_names_are_no_best_ones(tmp_path, runs):
    records = made(runs, tmp_path)
    records.claim(replace(records.document(), metric="forged"))
    found = plan_cleaning(cs.load("grid", storage=records.storage), "best_of_arm")
    assert (len(found.trials), found.kept) == (6, 0), "losing results is all that it can do"


def test_a_broken_study_beside_it_stops_no_cleaning(tmp_path, runs):
    records = made(runs, tmp_path)
    records.store.write("other/study.json", b"broken")
    found = plan_cleaning(cs.load("grid", storage=records.storage), "none")
    assert len(found.trials) == 6
    assert found.lost[-1].startswith("start: whether other starts from these networks is not known")


def test_an_interrupted_cleaning_goes_on(storage, tmp_path):
    records = made(storage, tmp_path)
    results = cs.load("grid", storage=storage)
    found = plan_cleaning(results, "none")
    for key in found.keys[:3]:
        records.store.delete(key)
    assert verify(records).sound, "the marker goes first"
    again = plan_cleaning(results, "none")
    assert {*found.keys[3:]} == {*again.keys}
    clean(results, again)
    assert not plan_cleaning(results, "none").keys


def test_the_command_says_what_cannot_be_asked_and_asks_before_it_deletes(tmp_path, runs):
    records = made(runs, tmp_path)
    words = ("clean", "grid", "--storage", "runs", "--keep", "none")
    before = contents(records)
    shown = contrasweep(*words, "--dry-run", folder=tmp_path)
    assert shown.returncode == 0 and "6 of 6 networks cannot be evaluated" in shown.stdout
    assert "no network is left of a, b" in shown.stdout
    assert not shown_json(tmp_path, *words, "--dry-run")["deleted"]
    asked = contrasweep(*words, folder=tmp_path)
    assert asked.returncode == 2 and "--yes" in asked.stderr and contents(records) == before
    told = shown_json(tmp_path, *words, "--yes")
    assert told["deleted"] and len(told["trials"]) == 6
    assert len(contents(records)) == len(before) - 12


def test_trials_of_a_search_go_before_those_that_confirm(tmp_path):
    storage = tmp_path / "runs"
    finished(sweep(), storage)
    results = cs.load("toy-sweep", storage=str(storage))
    (tmp_path / "w").mkdir()
    (tmp_path / "w/state").write_bytes(b"x")
    for trial_id in (*results.search_records, *results.trial_records):
        checkpoints(results.records, trial_id).save(tmp_path / "w", 1)
    found = plan_cleaning(results, "confirmed")
    assert set(found.trials) == {
        i for i, r in results.search_records.items() if r.status.trained
    } - {*results.trial_records}
    assert found.trials and found.kept == len(results.trial_records)


CONFIG = {"epochs": 4, "lr": 0.1}


def trained(storage, tmp_path, keep, steps=None, seed=0):
    """A trial of four reports with a checkpoint each, stopped as if killed after `steps`; its values and its folder."""
    arm = cs.Arm("toy:train", CONFIG)
    grid = cs.AblationGrid(
        "kept", {"a": arm}, "digits-lt", seeds=[0, 1, 2, 3], keep=keep, mode="min"
    )
    plan = cs.plan(grid, storage=str(tmp_path / "data"))
    records = StudyRecords(storage, "kept")
    trial = plan.trials[seed]
    records.claim(study_document(plan))
    write_planned(records, plan.to_frame())
    execution = Execution(
        trial, toy.train, records, metric="accuracy", retention=Retention(keep, "accuracy", "min")
    )
    for _ in range(steps or 99):
        if execution.advance().record is not None:
            break
    else:
        execution.close()
    values = {int(row["step"]): row["accuracy"] for row in records.metrics(trial.id)}
    below = f"{records.key(trial.id, 'checkpoint')}/"
    return values, {key.removeprefix(below) for key in records.store.list(below)}, records, trial.id


MARKER = "latest.json"


def files(*steps):
    return {MARKER, *(f"{step}/weights.npz" for step in steps)}


def test_of_a_trial_the_newest_the_best_all_or_no_checkpoints_stay(storage, tmp_path):
    """Accuracy is to be small here: the first report, of the least training, is the best one."""
    for seed, (keep, running, done) in enumerate(
        [
            ("newest", files(3), files(4)),
            ("all", files(1, 2, 3), files(1, 2, 3, 4)),
            ("best", files(1, 3), files(1)),
            ("none", files(3), set()),
        ]
    ):
        values, found, *_ = trained(storage, tmp_path, keep, steps=3, seed=seed)
        assert found == running and min(values, key=values.get) == 1, keep
        values, found, records, trial_id = trained(storage, tmp_path, keep, seed=seed)
        assert found == done and len(values) == 4, keep
        saved = checkpoints(records, trial_id).latest()
        assert (saved.step if saved else None) == {"best": 1, "none": None}.get(keep, 4)
        assert verify(records).sound
        result = records.read_one(trial_id)
        assert result.step == 4 and result.metrics["accuracy"] == values[4], (
            "the record is of the last report"
        )


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_checkpoint_whose_step_comes_again_is_whole_until_the_next_one_is(after, tmp_path):
    """`cs.report` may give a step twice, and the process may be killed after each file of the second checkpoint."""
    (state := tmp_path / "state").mkdir()
    saved = Checkpoints(open_store(str(tmp_path / "store")), "c")
    for text in ("first", "second"):
        for name in ("net", "optimizer"):
            (state / name).write_text(text)
        checks = iter(range(9))

        def check(checks=checks, text=text):
            if text == "second" and next(checks) == after - 1:
                raise KeyboardInterrupt

        with contextlib.suppress(KeyboardInterrupt):
            saved.save(state, 5, check=check)
    (to := tmp_path / "to").mkdir()
    assert Checkpoints(saved.store, "c").fetch(to).step == 5
    assert {path.read_text() for path in to.iterdir()} == {"first"}


@pytest.mark.parametrize("keep", ["best", "none"])
def test_a_trial_that_is_killed_as_it_ends_loses_nothing(keep, tmp_path, monkeypatch):
    """Whatever of the last deletions is done, the next attempt comes to the same record."""
    *_, records, trial_id = trained(str(tmp_path / "whole"), tmp_path, keep)
    expected = records.read_one(trial_id).metrics
    deletions = 0
    while True:
        deletions += 1
        done = []
        delete = LocalStore.delete

        def is_dead(*args, **fields):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:

            def dies(self, key, done=done, after=deletions, delete=delete, patch=patch):
                if "/checkpoint/" in key and (done.append(key) or len(done)) == after:
                    patch.setattr(Execution, "finish", is_dead)  # nor does it record its death
                    is_dead()
                delete(self, key)

            patch.setattr(LocalStore, "delete", dies)
            with contextlib.suppress(KeyboardInterrupt):
                trained(str(tmp_path / str(deletions)), tmp_path, keep)
        records = StudyRecords(str(tmp_path / str(deletions)), "kept")
        if records.read_one(trial_id) is None:
            trained(records.storage, tmp_path, keep)
        assert records.read_one(trial_id).metrics == expected and verify(records).sound
        if len(done) < deletions:
            break
    assert deletions > 3


def test_an_unfinished_trial_goes_on_after_a_cleaning_and_nothing_is_missing(storage, tmp_path):
    trained(storage, tmp_path, "newest", seed=0)
    _, _, records, running = trained(storage, tmp_path, "newest", steps=2, seed=1)
    results = cs.load("kept", storage=storage)
    clean(results, plan_cleaning(results, "none"))
    assert checkpoints(records, running).latest().step == 2
    values, *_ = trained(storage, tmp_path, "newest", seed=1)
    assert sorted(values) == [1, 2, 3, 4] and records.finished() >= {running}
    assert records.read_one(running).attempts == 2 and verify(records).sound


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"keep": "none", "keep_checkpoints_of": "best_of_arm"}, "keep_checkpoints_of has none"),
        ({"keep": "none", "evaluate": [{"data": ["digits"]}]}, "evaluate has none"),
        ({"keep": "some"}, "keep"),
    ],
)
def test_what_cannot_be_kept_is_one_line(fields, said):
    with refused(cs.SpecError, match=said):
        cs.AblationGrid("s", {"a": cs.Arm("toy:train")}, "digits", **fields)


def test_the_checkpoint_of_the_best_trial_of_an_arm_is_fetched(storage, tmp_path):
    records = made(storage, tmp_path)
    results = cs.load("grid", storage=storage)
    assert results.best_trial("a").metrics == {"accuracy": 0.2}
    folder = results.checkpoint("a", tmp_path / "network")
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [("state", bytes(1000))]
    with refused(cs.SpecError, begins="to: a checkpoint goes into an empty folder"):
        results.checkpoint("b", folder)
    with refused(cs.SpecError, begins="arm: there is no such arm, got 'c'"):
        results.checkpoint("c", tmp_path / "other")
    checkpoints(records, results.best_trial("b").trial_id).conclude("none")
    with refused(cs.SpecError, begins="arm: there is no checkpoint of this arm, got 'b'; trial"):
        results.checkpoint("b", tmp_path / "other")


MINE = """
import toy
from pathlib import Path
Path("imported").touch()
train = toy.train
def objective(trial): return 1.0
def load_model(folder, trial): return trial.arm, trial.data.name, (folder / "state").read_bytes()
"""


def test_the_network_of_an_arm_is_loaded_by_its_function_and_of_a_command_is_a_path(
    storage, tmp_path, monkeypatch
):
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    command = cs.Arm(command=["python", "mine.py"])
    arms = {
        "own": cs.Arm("mine:train"),
        "optuna": cs.Arm("optuna:mine:objective"),
        "bare": cs.Arm("toy:train"),
    }
    grid = cs.AblationGrid(
        "grid", {**arms, "file": command, "folder": command, "left": command}, "digits-lt"
    )
    records = recorded(cs.plan(grid, storage=str(tmp_path / "data")), storage, tmp_path)
    results = cs.load("grid", storage=storage)
    for arm in ("own", "optuna"):
        assert results.load_model(arm, grid) == (arm, "digits-lt", bytes(1000))
    with refused(
        cs.SpecError,
        begins="STUDY: the loader's module has no such function or class, got 'toy:load",
    ):
        results.load_model("bare", grid)
    (tmp_path / "imported").unlink()
    sys.modules.pop("mine")
    for arm in ("own", "optuna"):
        with refused(
            cs.SpecError, begins="STUDY: what only a storage names is not used, got 'mine:"
        ):
            results.load_model(arm)
    assert not (tmp_path / "imported").exists()
    (tmp_path / "w" / REPORT_FILE).write_text("[3, {}]")
    checkpoints(records, results.best_trial("file").trial_id).save(tmp_path / "w", 3)
    assert results.load_model("file").read_bytes() == bytes(1000), (
        "what we note beside it is left out"
    )
    trial = results.best_trial("folder").trial_id
    (tmp_path / "w/config.json").write_text("{}")
    checkpoints(records, trial).save(tmp_path / "w", 3)
    assert sorted(path.name for path in results.load_model("folder").iterdir()) == [
        "config.json",
        "state",
    ]
    checkpoints(records, results.best_trial("left").trial_id).conclude("none")
    with refused(
        cs.SpecError,
        match=r"a command leaves one by a line .* has written is in .*/trials/\w+/folder$",
    ):
        results.load_model("left")
