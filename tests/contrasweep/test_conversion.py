"""Sweeps of other programs as studies, by the examples of the page for those who come from them."""

import re
from pathlib import Path

import optuna
import pytest
import yaml
from places import ROOT
from ray import tune
from refusals import refused
from typer.testing import CliRunner

from contrasweep import Arm, Choice, Float, Int, SpecError
from contrasweep.cli.app import app
from contrasweep.cli.conversion.sweeps import converted
from contrasweep.study.file import as_study

PAGE = (ROOT / "docs/coming-from.md").read_text()
EXAMPLE = re.compile(
    r'```\w+ title="(.+?)"\n(.+?)```\n\n```yaml\n(.+?)```\n((?:\nNo counterpart: `[^\n]+`\n)*)',
    re.S,
)
MORE = Path(__file__).with_name("converted.md").read_text()
EXAMPLES = {found[0]: found[1:] for found in EXAMPLE.findall(PAGE + MORE)}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import argparse, wandb")
    return tmp_path


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_becomes_the_study_that_stands_below_it(name, folder):
    source, study, left = EXAMPLES[name]
    (folder / name).write_text(source)
    done = CliRunner().invoke(app, ["init", "new", "--from", name], standalone_mode=False)
    assert done.exception is None, done.exception
    assert yaml.safe_load((folder / "new/study.yaml").read_text()) == yaml.safe_load(study)
    assert re.findall("no counterpart: (.+)", done.stdout) == re.findall("`(.+)`", left)
    as_study(yaml.safe_load(study))


def test_all_programs_have_an_example():
    assert set(EXAMPLES) == {
        "sweep.yaml",
        "tuned.py",
        "tried.py",
        "config.yaml",
        "experiments.yaml",
        "random.yaml",
        "train.py",
    }


def test_a_function_of_a_script_elsewhere_is_refused(folder, tmp_path_factory):
    script = tmp_path_factory.mktemp("elsewhere") / "o.py"
    script.write_text("def f(trial): trial.suggest_int('n', 1, 2)\ndef main(): s.optimize(f)\n")
    with refused(SpecError, match=r"from below the current folder, got .*; go to the script"):
        converted(script)


@pytest.mark.filterwarnings("ignore:.*Distribution has been deprecated:FutureWarning")
def test_objects_of_ray_tune_and_optuna_declare_a_space():
    of_optuna = optuna.distributions
    space = {
        "a": (tune.loguniform(1e-4, 0.1), Float(1e-4, 0.1, log=True)),
        "b": (tune.randint(1, 5), Int(1, 4)),
        "c": (tune.quniform(0, 1, 0.25), Float(0, 1, step=0.25)),
        "d": (tune.choice(["x", "y"]), Choice(["x", "y"])),
        "e": (tune.grid_search([1, 2]), Choice([1, 2])),
        "f": (of_optuna.FloatDistribution(0.1, 1, log=True), Float(0.1, 1, log=True)),
        "g": (of_optuna.IntDistribution(2, 8, step=2), Int(2, 8, step=2)),
        "h": (of_optuna.CategoricalDistribution([1, None]), Choice([1, None])),
        "i": (tune.lograndint(1, 100), Int(1, 99, log=True)),
        "j": (of_optuna.LogUniformDistribution(0.1, 1), Float(0.1, 1, log=True)),
    }
    arm = Arm("contrastive", space={name: theirs for name, (theirs, _) in space.items()})
    assert arm.space == {name: ours for name, (_, ours) in space.items()}
    with refused(
        SpecError,
        match=r"this parameter of Ray Tune cannot be searched, .*tune._Normal has no counter",
    ):
        Arm("contrastive", space={"x": tune.randn()})
