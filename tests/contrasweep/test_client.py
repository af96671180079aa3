"""A machine that only plans and submits: no torch, Ray, pandas, SciPy or Optuna."""

import json
import os
import re
import textwrap

import pytest
from command_line import python
from folders import make_files
from places import ROOT
from sweeps import finished, sweep
from without_packages import HIDDEN, HIDE, READING, hide

import contrasweep as cs
from contrasweep import cli
from contrasweep.data import stage

MINE = """
import torch
import transformers
from contrasweep import Report

@torch.enable_grad()
def train(trial, resume=None):
    yield Report(1, {"accuracy": 0.5})
"""
STUDY = """
name: own
arms:
  mine: {trainable: "mine:train", config: {lr: 0.2}}
  theirs: {trainable: "contrasweep.trainables.contrastive:train", config: {encoder: cnn, loss: ocl}}
  words: {command: ["python", "mine.py", "--lr", "{lr}"], config: {lr: 0.2}}
data: digits-lt
folds: 3
metric: accuracy
"""


def client(work, code, missing=HIDE):
    """What a process prints that lacks the packages."""
    done = python(
        "-c",
        missing + textwrap.dedent(code),
        cwd=work,
        env={**os.environ, "PYTHONPATH": str(ROOT / "platform")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def work(tmp_path, runs, monkeypatch):
    make_files(tmp_path, {"mine.py": MINE, "own.yaml": STUDY})
    monkeypatch.setenv("CONTRASWEEP_CACHE", str(tmp_path / "cache"))
    cs.plan("search_spaces/quickstart.yaml", storage=runs)
    return tmp_path


def test_a_client_plans_the_same_trials_and_says_what_it_could_not_check(work):
    """Trials of methods of ours have the ids that they have with torch. One's own may import what is not there."""
    storage = str(work / "runs")
    quickstart = ROOT / "search_spaces/quickstart.yaml"
    printed = client(
        work,
        f"""
        import json, contrasweep as cs
        from contrasweep.planning.forecast import forecast
        plans = [cs.plan({str(quickstart)!r}, storage={storage!r}), cs.plan("own.yaml", storage={storage!r})]
        lines = forecast(plans[1], {storage!r}).to_text(200)
        real = [name for name in {HIDDEN!r} if getattr(sys.modules.get(name), "__file__", None)]
        print(json.dumps([[t.id for p in plans for t in p.trials], lines, real]))
        """,
    )
    ids, lines, imported = json.loads(printed)
    planned = cs.plan(quickstart, storage=storage)
    assert ids[: len(planned.trials)] == [trial.id for trial in planned.trials]
    assert len(ids) == len(planned.trials) + 9
    assert imported == []
    assert "torch is not installed here" in lines
    assert "the settings of mine:train are not checked" in lines
    assert re.search(r"decides   not computed: SciPy is not installed here \(pip .*\[judge]", lines)


def test_a_setting_that_is_wrong_is_refused_without_torch_too(work):
    printed = client(
        work,
        f"""
        import contrasweep as cs
        for method, config in (
            ("contrastive", {{"loss": {{"name": "ocl", "temperatur": 1}}}}),
            ("contrastive", {{"optimizer": {{"name": "sgd", "momentum": 2}}}}),
            ("paired_images", {{"encoder": {{"name": "resnet18", "stem": "large"}}}}),
            ("paired_texts", {{"encoder": {{"width": 0}}}}),
            ("review_helpfulness", {{"model": {{"name": "mcr", "dim": 126}}}}),
        ):
            arm = {{"trainable": f"contrasweep.trainables.{{method}}:train", "config": config}}
            study = {{"name": "x", "arms": {{"a": arm}}, "data": "digits-lt", "folds": 3}}
            try:
                cs.plan(study, storage={str(work / "runs")!r})
            except cs.SpecError as error:
                print(error)
        """,
    )
    places = ("loss.temperatur", "optimizer.momentum", "encoder.stem", "encoder.width", "model.dim")
    for line, place in zip(printed.splitlines(), places, strict=True):
        assert f"arms.a.config.{place}" in line, line


def test_a_part_of_ones_own_that_needs_torch_is_left_to_the_job(work, monkeypatch):
    """In the settings of a method of ours; where torch is installed, what its module lacks is an error."""
    study = {
        "name": "x",
        "arms": {
            "a": {
                "trainable": "contrasweep.trainables.contrastive:train",
                "config": {"loss": "mine:train"},
            }
        },
        "data": "digits-lt",
        "folds": 3,
    }
    storage = str(work / "runs")
    printed = client(
        work,
        f"import contrasweep as cs; print(len(cs.plan({study!r}, storage={storage!r}).trials))",
    )
    assert printed == "3\n"
    monkeypatch.syspath_prepend(work)
    with pytest.raises(cs.SpecError, match="transformers"):
        cs.plan(study, storage=storage)


def commands(*lines):
    """The code of a process that runs these commands on the storage `runs` and prints how each ended."""
    return f"""
        from contrasweep.cli import main
        sys.stderr = sys.stdout
        for words in {[line.split() for line in lines]!r}:
            sys.argv = ["contrasweep", *words]
            try:
                main()
            except SystemExit as end:
                print("exit", words[0], end.code or 0)
        """


def test_a_sweep_is_planned_and_a_command_that_trains_says_what_it_needs(work):
    printed = client(
        work,
        f"""
        import contrasweep as cs
        from contrasweep.planning.forecast import forecast
        from contrasweep.study.file import load_study
        plan = cs.plan(load_study("contrasweep.search_spaces.tuned_losses:STUDY"), storage={str(work / "runs")!r})
        print(forecast(plan, {str(work / "runs")!r}).to_text(200))
        """
        + commands("plan own.yaml --storage runs", "run own.yaml --storage runs"),
    )
    assert "the searcher and its options are not checked" in printed
    assert "36 of the search" in printed
    assert "this command needs the package" in printed
    assert re.search(r"pip install .*\[all\]", printed)
    assert "exit plan 0" in printed and printed.rstrip().endswith("exit run 2")


def test_data_that_a_missing_package_stages_name_it_and_the_way_out(work, monkeypatch):
    """Also where the storage has two copies: nothing says which of them the job would take."""
    monkeypatch.setenv("CONTRASWEEP_CACHE", str(work / "empty"))
    for version in "12":
        stage("digits-lt", str(work / f"s2/datasets/digits-lt-{version}"))
    lines = ("plan own.yaml", "data stage digits-lt", "data show digits-lt")
    asked = [f"{line} --storage {storage}" for line in lines for storage in ("s", "s2")]
    printed = client(work, commands(*asked))
    way_out = r"package sklearn is missing; .* data stage digits-lt --to \S*s2?/datasets/digits-lt$"
    assert len(re.findall(way_out, printed, re.MULTILINE)) == 6, printed


def test_a_command_names_the_smallest_extra_and_judge_reads_every_study(work):
    """A sweep too, whose table says how much each setting matters."""
    finished(sweep(), work / "runs")
    reading = {
        "report": "toy-sweep",
        "compare": "toy-sweep short long",
        "verify": "toy-sweep",
        "clean": "toy-sweep --dry-run",
        "diff": "toy-sweep toy-sweep",
    }
    lines = [f"{name} {words} --storage runs" for name, words in reading.items()]
    printed = client(work, commands(*lines, "run own.yaml", "sync toy-sweep", "schema"))
    extras = [extra[0] for extra in re.findall(r"pip install .*\[((all|judge))]", printed)]
    assert extras == ["judge"] * 5 + ["all"] * 2 and "exit schema 0" in printed
    printed = client(work, commands(*lines), hide(set(HIDDEN) - set(READING)))
    assert "pip install" not in printed and "too few configurations" in printed, printed
    ended = dict(re.findall(r"^exit (\w+) (\d)", printed, re.MULTILINE))
    # records that this process made name a code that it did not keep
    assert ended == {name: "1" if name == "verify" else "0" for name in reading}, printed


def test_what_asks_mlflow_says_what_to_install_before_anything_is_trained(work):
    finished(sweep(), work / "runs")
    quickstart = "run contrasweep.search_spaces.quickstart:STUDY"
    lines = (quickstart, "sync toy-sweep", "sync toy-sweep --follow")
    asks = commands(*(f"{line} --storage runs" for line in lines), "judge mlflow:http://h:1")
    printed = client(work, asks, hide(["mlflow"]))
    assert len(re.findall(r"mlflow.* not installed here.* pip install .*\[all\]", printed)) == 4
    assert not (work / "runs/quickstart").exists()


def test_the_doctor_of_a_laptop_does_not_call_a_missing_ray_a_failure(work):
    printed = client(
        work,
        "import sys\nfrom contrasweep.cli import main\nsys.argv = ['contrasweep', 'doctor']\nmain()",
    )
    (ray,) = (line for line in printed.splitlines() if line[6:10] == "ray ")
    assert (
        ray.startswith("ok") and "not installed: this machine plans, submits and watches" in ray
    ), printed


def test_what_watches_a_study_by_name_or_file_needs_no_more(work):
    printed = client(
        work,
        """
        import contextlib
        from contrasweep.cli import main
        for command in ("logs", "status", "watch", "stop"):
            for study in ("nowhere", "wrong.yaml", "search_spaces.quickstart:NONE"):
                sys.argv = ["contrasweep", command, study]
                with contextlib.redirect_stderr(sys.stdout), contextlib.suppress(SystemExit):
                    main()
        """,
    )
    assert "is not installed" not in printed and len(printed.split("\ncontrasweep: ")) == 12, (
        printed
    )


def test_the_extras_of_the_distribution():
    """Everything that is imported somewhere is in the client's set or in `all`; `test` has `all`."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[\[<>=]", line)[0].lower() for line in project["dependencies"]}
    extras = project["optional-dependencies"]
    assert not names & {"torch", "ray", "scipy", "pandas", "mlflow", "optuna", "matplotlib"}
    assert "contrasweep[all]" in extras["test"]
    imported = {"scikit-learn": "sklearn"}
    names_of_all = {re.split(r"[\[<>=]", line)[0] for line in extras["all"]}
    assert {imported.get(name, name) for name in names_of_all} == cli.PACKAGES_OF_ALL
    assert set(extras["judge"]) < set(extras["all"]), "the bounds of both are the same"
    assert {re.split("[>=]", line)[0] for line in extras["judge"]} == {*READING}
    assert {*READING} == cli.PACKAGES_OF_JUDGE
    assert "GITHUB_ACTION_PATH[judge]" in (ROOT / "action.yml").read_text()
