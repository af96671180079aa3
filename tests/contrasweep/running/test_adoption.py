"""A study that an earlier release wrote goes on: its records are filed under today's ids and not trained again."""

import contextlib
import dataclasses
import shutil
from pathlib import Path

import pytest
import yaml
from command_line import contrasweep

import contrasweep as cs
from contrasweep.code import PresentCode
from contrasweep.report import render
from contrasweep.running.adoption import decide_adoption, nested
from contrasweep.running.claim import claim
from contrasweep.running.code_changes import CodeChanged
from contrasweep.storage.record import Status
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.store import LocalStore
from contrasweep.storage.study_document import STUDY_FORMAT
from contrasweep.storage.superseded import put_aside_so_far, put_back
from contrasweep.study.file import to_plain
from contrasweep.tracking import sync

V1 = Path(__file__).resolve().parents[2] / "data" / "study_v1"
TRAINED = {"encoder": {"name": "cnn", "width": 4}, "projection": {"dim": 8}, "epochs": 3, "checkpoint_every": 1}
ARMS = {
    name: cs.Arm(
        "trainables.contrastive:train", {**TRAINED, "loss": {"name": name, "temperature": 0.2}, "learning_rate": 0.1}
    )
    for name in ("supcon", "ocl")
}
GRID = cs.AblationGrid(
    "old-grid", ARMS, "digits-lt", axes={"batch_size": [128]}, folds=2, metric="f1_macro", reference="supcon"
)
SWEEP = cs.Sweep(
    "old-sweep",
    {
        name: cs.Arm(
            "trainables.contrastive:train",
            {**TRAINED, "loss": name, "learning_rate": 0.1, "batch_size": 128},
            {"loss.temperature": cs.Float(0.05, 0.5, log=True)},
        )
        for name in ("supcon", "ocl")
    },
    "digits-lt",
    metric="f1_macro",
    searcher="random",
    trials_per_arm=2,
    folds=2,
    confirm_seeds=[1000],
)


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    """The storage of the earlier release, with the dataset that its studies read."""
    storage = Path(shutil.copytree(V1, tmp_path_factory.mktemp("v1") / "storage"))
    cs.plan(GRID, storage=str(storage))
    cs.plan(SWEEP, storage=str(storage))
    return storage


@pytest.fixture
def old(staged, tmp_path):
    """The same in a place of its own."""
    return Path(shutil.copytree(staged, tmp_path / "storage"))


def files(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def claimed(old, study=GRID, *, extend=False, retry_failed=False, **options):
    plan, records = cs.plan(study, storage=str(old)), StudyRecords(str(old), study.name)
    remaining = claim(plan, records, PresentCode({}), extend=extend, retry_failed=retry_failed, **options)
    return plan, records, remaining


def test_old_trials_are_filed_under_the_ids_of_the_plan(old, capsys):
    before = StudyRecords(str(old), "old-grid")
    then, unfinished = before.read(before.finished()), before.begun()
    table = render(cs.load("old-grid", storage=str(old)), "text").decode().splitlines()[:5]
    plan, records, remaining = claimed(old, changed="accept")
    assert len(remaining.finished) == 3 and not remaining.complete
    planned = {trial.id: trial for trial in plan.trials}
    now = records.read(records.finished())
    assert set(now) == remaining.finished < set(planned) and not set(now) & set(then)
    for trial_id, record in now.items():
        assert record.config == planned[trial_id].config and record.config["loss"]["temperature"] == 0.2
        [same] = [r for r in then.values() if (r.arm, r.fold) == (record.arm, record.fold)]
        changed = {"trial_id": trial_id, "config": record.config}
        assert dataclasses.replace(same, **changed) == record
        assert (len(records.metrics(trial_id)), set(records.items(trial_id))) == (record.step, set(record.items))
    assert records.begun() == set() and records.document().format_version == STUDY_FORMAT
    report = render(cs.load("old-grid", storage=str(old)), "text").decode()
    assert report.splitlines()[:5] == table and "0.62 [0.00, 1.00]" in table[-1]
    assert "trials were kept by --accept-code" in " ".join(report.split())
    [part] = put_aside_so_far(records)
    assert set(part.trial_ids) == set(then) | unfinished
    said = capsys.readouterr().err
    assert "3 trials are filed under the ids that they have now" in said
    assert "1 trial is put aside and started over" in said
    put_back(records, dataclasses.replace(part, trial_ids=tuple(sorted(then))))
    assert {i: records.read_one(i) for i in then} == then
    assert claimed(old)[2].finished >= set(now)


def test_nothing_changes_until_somebody_accepts_that_the_code_is_unknown(old):
    before = files(old)
    with pytest.raises(CodeChanged, match=r"2 of 4 trials were made .*recorded before code was kept.*--accept-code"):
        claimed(old)
    assert files(old) == before


def test_plan_and_code_say_what_a_run_will_make_of_it(old, tmp_path):
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(to_plain(GRID)))
    before = files(old)
    planned = contrasweep("plan", "study.yaml", "--storage", str(old), folder=tmp_path)
    assert planned.returncode == 0, planned.stderr
    text = " ".join(planned.stdout.split())
    assert "run: 3 trials are filed under the ids that they have now; an earlier release recorded them" in text
    assert "run: 1 trial is put aside and started over" in text and "recorded before code was kept" in text
    code = contrasweep("code", "old-grid", "--storage", str(old), folder=tmp_path)
    assert "recorded by an earlier release: contrasweep plan says" in code.stdout
    assert files(old) == before


def test_the_command_stops_with_status_2(old, tmp_path):
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(to_plain(GRID)))
    before = files(old)
    options = ["--storage", str(old), "--tracking", "sqlite:///t.db"]
    done = contrasweep("run", "study.yaml", *options, folder=tmp_path)
    lease = Path("old-grid/lease/00000001.json")
    assert done.returncode == 2 and {*files(old)} - {*before} == {lease} and before.items() <= files(old).items()
    [line] = done.stderr.splitlines()
    assert (
        "2 of 4 trials were made and 1 unfinished trial was begun by other code: recorded before code was kept" in line
    )


@pytest.mark.parametrize(
    "other",
    [
        {"metric": "accuracy"},
        {"axes": {"batch_size": [64]}},
        {"axes": {"batch_size": [128, 64]}},
        {"arms": {**ARMS, "third": ARMS["ocl"]}},
    ],
)
def test_another_plan_is_refused_unless_it_extends_the_old_one(old, other):
    study = dataclasses.replace(GRID, **other)
    before = files(old)
    with pytest.raises(cs.SpecError, match="another plan"):
        claimed(old, study, changed="accept")
    assert files(old) == before
    finished = claimed(old, study, changed="accept", extend=True)[2].finished
    assert len(finished & {t.id for t in cs.plan(study, storage=str(old)).trials}) == (
        0 if other == {"axes": {"batch_size": [64]}} else 3
    )


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("operation", range(1, 50, 3))
def test_an_adoption_that_is_killed_goes_on(old, monkeypatch, operation):
    then = {(r.arm, r.fold): r.metrics for r in cs.load("old-grid", storage=str(old)).trial_records.values()}
    count = 0

    def dying(method):
        def act(store, *args, **kwargs):
            nonlocal count
            count += 1
            if count >= operation:
                raise Killed
            return method(store, *args, **kwargs)

        return act

    with monkeypatch.context() as patch:
        for name in ("write", "copy", "delete"):
            patch.setattr(LocalStore, name, dying(getattr(LocalStore, name)))
        with contextlib.suppress(Killed):
            claimed(old, changed="accept")
    _, records, remaining = claimed(old, changed="accept")
    assert {(r.arm, r.fold): r.metrics for r in records.read(remaining.finished).values()} == then
    assert {i for part in put_aside_so_far(records) for i in part.trial_ids} == {
        path.name for path in (V1 / "old-grid" / "trials").iterdir()
    }


def test_settings_that_cannot_be_translated_stay_where_they_are(old, capsys):
    [record] = [p for p in (old / "old-grid" / "trials").glob("*/record.json") if '"failed"' in p.read_text()]
    record.write_text(record.read_text().replace('"epochs": 3', '"colour": 3'))
    _, records, remaining = claimed(old, changed="accept")
    assert len(records.finished()) == 3 and record.parent.name in records.finished()
    assert len(remaining.finished - {record.parent.name}) == 2
    assert (
        "1 trial is left as an earlier release recorded them: their settings cannot be translated"
        in capsys.readouterr().err
    )


def test_a_zero_or_null_that_meant_the_default_is_left_out(old):
    wide = {n: dataclasses.replace(a, config=a.config | {"encoder": "cnn"}) for n, a in ARMS.items()}
    for path in (old / "old-grid" / "trials").glob("*/record.json"):
        path.write_text(path.read_text().replace('"encoder_width": 4', '"encoder_width": 0, "margin": null'))
    study = dataclasses.replace(GRID, arms=wide)
    plan, records = cs.plan(study, storage=str(old)), StudyRecords(str(old), "old-grid")
    adoption = decide_adoption(plan, records, extend=False)
    assert len(adoption.records) == 3 and adoption.same_plan
    assert {r.config["encoder"]["width"] > 4 for r in adoption.records.values()} == {True}


def test_flat_settings_are_nested():
    moved = {"temperature": "loss.temperature", "options": "loss"}
    flat = {"temperature": 0.1, "loss": "ocl", "options": {"epsilon": 1}, "epochs": 3}
    assert nested(flat, moved) == {"loss": {"name": "ocl", "temperature": 0.1, "epsilon": 1}, "epochs": 3}


def test_an_old_search_starts_anew(old, capsys):
    with pytest.raises(CodeChanged, match="recorded before code was kept"):
        claimed(old, SWEEP)
    _, records, remaining = claimed(old, SWEEP, changed="accept")
    assert remaining.finished == set() and records.finished() == set()
    assert [len(part.trial_ids) for part in put_aside_so_far(records)] == [8]
    assert "its search starts anew, and 8 trials are put aside" in capsys.readouterr().err
    assert records.document().format_version == STUDY_FORMAT


@pytest.mark.long
@pytest.mark.xdist_group("ray")
def test_an_old_grid_is_run_to_its_end_and_synced(old, tmp_path, template, mlflow_uri, ray_core):
    then = {(r.arm, r.fold): r for r in cs.load("old-grid", storage=str(old)).trial_records.values()}
    options = {"storage": str(old), "tracking": mlflow_uri}
    results = cs.run(GRID, **options, changed="accept", retry_failed=True)
    now = {(r.arm, r.fold): r for r in results.trial_records.values()}
    assert {r.status for r in now.values()} == {Status.DONE} and len(now) == 4
    for fold in (0, 1):
        old_one, new_one = then["supcon", fold], now["supcon", fold]
        assert (new_one.ended, new_one.metrics) == (old_one.ended, old_one.metrics)
    cells = {row[0]: cell for (row, _), cell in results.table(rows="arm", columns=[]).cells.items()}
    assert (cells["supcon"].mean, cells["supcon"].n) == (0.6170250852652521, 2)
    assert "0.62 [0.00, 1.00]†" in render(results, "text").decode().replace(" †", "†")
    fresh = sync(StudyRecords(str(old), "old-grid"), f"sqlite:///{shutil.copy(template, tmp_path / 'fresh.db')}")
    assert fresh.added == 4
