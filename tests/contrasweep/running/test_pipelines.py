"""Files with several studies, which run in their order and start from each other's checkpoints."""

import dataclasses
import re
import signal

import jsonschema
import pytest
import yaml
from calm import calm_run
from command_line import contrasweep, refusal, shown_json
from drivers import output_of, ray_folder, start_driver
from folders import make_files
from places import ROOT
from raylets import wait_for
from refusals import refused

import contrasweep as cs
from contrasweep.storage.records import StudyRecords
from contrasweep.study.file import load_studies, load_study, study_schema

PAGE = ROOT / "docs/after-training.md"
EXAMPLE = re.search(
    r"^```yaml\n(# pipeline\.yaml.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL
)
assert EXAMPLE is not None
TEXT = EXAMPLE[1]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "pipeline.yaml"
    path.write_text(TEXT)
    return path


def edited(file, old, new):
    assert TEXT.count(old) == 1
    file.write_text(TEXT.replace(old, new))
    return str(file)


def test_fields_beside_the_studies_are_those_of_each_that_has_no_own(file):
    studies = load_studies(str(file), ["seeds=[3]", "studies.1.seeds=[4]"])
    assert [study.name for study in studies] == ["pretrain", "probe", "tenth", "full"]
    assert [study.seeds for study in studies] == [[3], [4], [3], [3]]
    assert list(studies[0].arms) == ["supcon", "simclr"]
    assert list(studies[2].arms) == [
        "none",
        "supcon",
        "simclr",
    ]
    assert studies[1].arms["supcon"].start == cs.Start("pretrain", "supcon")
    assert load_study(f"{file}:tenth") == load_studies(str(file))[2]
    jsonschema.validate(yaml.safe_load(TEXT), study_schema())


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "- name: full",
            "- name: probe",
            r"pipeline\.yaml: studies\.3: studies of a file have different names, got 'probe'",
        ),
        (
            "  - name: probe\n",
            "  - name: probe\n    arms: {none: {trainable: finetune, start: {study: full, arm: none}}}\n",
            r"studies\.1\.arms\.none\.start\.study: a study starts from one that stands before it, got 'full'",
        ),
        (
            "start: {study: pretrain, arm: simclr}",
            "start: {study: probe, arm: simclr}",
            r"studies\.1: arms\.simclr\.start\.study: "
            "a study does not start from itself",
        ),
        (
            "seeds: [0, 1, 2]",
            "sees: [0]",
            r"studies\.0: sees: there is no such field; did you mean 'seeds'",
        ),
    ],
)
def test_a_file_that_cannot_run_in_its_order_is_one_line(file, old, new, says):
    with refused(cs.SpecError, match=says):
        load_studies(edited(file, old, new))


@pytest.mark.parametrize("studies", ["3", "[]", "[1]", "{a: 1}"])
def test_studies_are_a_list_of_mappings(file, studies):
    file.write_text(f"data: digits-lt\nstudies: {studies}\n")
    for load in (load_studies, load_study):
        with refused(cs.SpecError, match=r"studies is a list of mappings|the file has several"):
            load(str(file))


def test_a_set_holds_for_each_study_of_a_file_also_for_one_with_its_own_value(tmp_path):
    file = tmp_path / "two.yaml"
    file.write_text(
        "data: digits\nfolds: 5\narms: {a: {trainable: 'toy:train'}}\n"
        "studies: [{name: one}, {name: two, folds: 3, seeds: [0, 1]}]\n"
    )
    both = load_studies(str(file), ["folds=4", "arms.a.config.lr=0.5"])
    assert [(study.folds, study.arms["a"].config) for study in both] == [(4, {"lr": 0.5})] * 2
    alone = load_study(f"{file}:two", ["seeds=[7]", "studies.1.folds=2"])
    assert (alone.name, alone.seeds, alone.folds) == ("two", [7], 2)


def test_the_whole_file_is_planned_before_anything_has_run(file, tmp_path):
    shown = shown_json(tmp_path, "plan", "pipeline.yaml", "--storage", "runs")
    assert shown["schema"] == "plans/1"
    assert [plan["study"] for plan in shown["studies"]] == [
        "pretrain",
        "probe",
        "tenth",
        "full",
    ]
    assert [plan["trials"] for plan in shown["studies"]] == [6, 9, 9, 9]
    assert not any(plan["missing"] or plan["other_code"] for plan in shown["studies"])
    alone = contrasweep("plan", "pipeline.yaml:probe", "--storage", "runs", folder=tmp_path)
    assert (
        "missing   study pretrain: 2 cells, 6 trials; not trained: contrasweep run" in alone.stdout
    )
    refused = refusal(
        tmp_path, "run", "pipeline.yaml:probe", "--storage", "runs", "--tracking", "none"
    )
    assert not (tmp_path / "runs").exists()
    assert "this study starts from 'pretrain', which was not run in this storage" in refused


def test_commands_of_one_study_say_how_to_name_it(file, tmp_path):
    done = contrasweep("report", "pipeline.yaml", folder=tmp_path)
    assert done.returncode == 2 and "name one: pipeline.yaml:NAME" in done.stderr
    done = contrasweep("run", "pipeline.yaml", "--rerun", "ocl", folder=tmp_path)
    assert done.returncode == 2 and "contrasweep run pipeline.yaml:NAME --rerun" in done.stderr
    done = contrasweep("plan", "pipeline.yaml:prob", folder=tmp_path)
    assert done.returncode == 2 and "did you mean 'probe'" in done.stderr


REST = "one is not complete, so that two, three did not begin\n"


@pytest.mark.parametrize(
    ("name", "ends", "stopped", "status", "says"),
    [
        ("p.yaml", "raise ValueError", "", 1, REST),
        ("p.yaml:one", "raise ValueError", "", 1, ""),
        ("p.yaml", "pass", "the budget is spent", 3, f"{REST}the budget is spent\n"),
    ],
)
def test_after_a_study_that_is_not_complete_the_rest_is_named(
    name, ends, stopped, status, says, tmp_path, monkeypatch
):
    def run(study, storage, **options):
        return dataclasses.replace(calm_run(study, storage), stopped=stopped)

    monkeypatch.setattr("contrasweep.running.driver.run", run)
    report = "yield contrasweep.Report(1, {'accuracy': 0.5})"
    make_files(
        tmp_path,
        {
            "m.py": f"import contrasweep\ndef train(trial, resume=None):\n  {ends}\n  {report}\n",
            "p.yaml": "data: digits-lt\narms: {a: {trainable: 'm:train'}}\n"
            "studies: [{name: one}, {name: two}, {name: three}]\n",
        },
    )
    done = contrasweep("run", name, "--tracking", "none", folder=tmp_path)
    assert (done.returncode, done.stderr) == (status, says)


def await_records(driver, records, count):
    wait_for(lambda: len(records.finished()) >= count or driver.poll() is not None)
    assert driver.poll() is None, driver.communicate()


@pytest.mark.long
def test_a_pipeline_that_is_killed_within_and_between_its_stages_goes_on(file, tmp_path, runs):
    """The example of the documentation with fewer seeds: one command, killed twice, and the table of each study."""
    records = {name: StudyRecords(runs, name) for name in ("pretrain", "probe", "tenth", "full")}
    words = [
        "run",
        "pipeline.yaml",
        "--set",
        "seeds=[0, 1]",
        "--storage",
        "runs",
        "--tracking",
        "none",
    ]

    def kept():
        return {
            (name, i): r.ended
            for name, of in records.items()
            for i, r in of.read(sorted(of.finished())).items()
        }

    with ray_folder() as ray:
        for of, count in ((records["pretrain"], 2), (records["probe"], 1)):
            driver = start_driver(*words, folder=tmp_path, ray=ray)
            await_records(driver, of, count)
            driver.send_signal(signal.SIGKILL)
            driver.communicate()
            before = kept()
        assert len(records["pretrain"].finished()) == 4
        printed, _ = output_of(start_driver(*words, folder=tmp_path, ray=ray))
    assert before.items() <= kept().items() and len(kept()) == 4 + 3 * 6
    for name in ("probe", "tenth", "full"):
        assert f"report:   contrasweep report {name} --storage runs" in printed
        cells = cs.load(name, storage=runs).table().cells
        assert [row for row, _ in cells] == [("none",), ("supcon",), ("simclr",)]
        assert all(cell.n == 2 for cell in cells.values())
