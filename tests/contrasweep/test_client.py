"""A machine that only plans and submits: no torch, Ray, pandas, SciPy or Optuna."""

import gc
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from without_packages import HIDDEN, HIDE

import contrasweep as cs
from contrasweep import cli, stand_ins

ROOT = Path(__file__).resolve().parents[2]
MINE = """
import abc
from dataclasses import dataclass
from typing import Protocol
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from contrasweep import Report

class Sized(Protocol):
    size: int

class Net(nn.Module, Sized):
    @torch.no_grad()
    def embed(self, x: Tensor | None, dtype=torch.float32) -> "Tensor":
        return F.normalize(x)

@dataclass
class Settings:
    lr: float = 0.1
    def __post_init__(self):
        if self.lr <= 0:
            raise ValueError("lr must be above 0")

@torch.enable_grad()
def train(trial, resume=None):
    yield Report(1, {"accuracy": 0.5})

train.settings = Settings
"""
STUDY = """
name: own
arms:
  mine: {trainable: "mine:train", config: {lr: 0.2}}
  theirs: {trainable: "trainables.contrastive:train", config: {encoder: cnn, loss: ocl}}
  words: {command: ["python", "mine.py", "--lr", "{lr}"], config: {lr: 0.2}}
data: digits-lt
folds: 3
metric: accuracy
"""


def client(work: Path, code: str) -> str:
    """What a process prints that lacks the packages."""
    done = subprocess.run(
        [sys.executable, "-c", HIDE + textwrap.dedent(code)],
        cwd=work,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "platform", ROOT)))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def work(tmp_path, monkeypatch) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "own.yaml").write_text(STUDY)
    monkeypatch.setenv("CONTRASWEEP_CACHE", str(tmp_path / "cache"))
    cs.plan("search_spaces/quickstart.yaml", storage=str(tmp_path / "runs"))
    return tmp_path


def test_a_client_plans_the_same_trials_and_says_what_it_could_not_check(work):
    """Trials of a trainable that imports torch at its top, and of ours, have the ids that they have with torch."""
    storage = str(work / "runs")
    quickstart = ROOT / "search_spaces" / "quickstart.yaml"
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
    assert "torch and transformers are not installed here" in lines and "the job checks it" in lines
    assert "decides   not computed: SciPy is not installed here" in lines


def test_a_setting_that_is_wrong_is_refused_without_torch_too(work):
    printed = client(
        work,
        f"""
        import contrasweep as cs
        try:
            cs.plan({{"name": "x", "arms": {{"a": {{"trainable": "mine:train", "config": {{"lr": -1}}}}}},
                     "data": "digits-lt", "folds": 3}}, storage={str(work / "runs")!r})
        except cs.SpecError as error:
            print(error)
        """,
    )
    assert "lr must be above 0" in printed


def test_a_sweep_is_planned_and_a_command_that_trains_says_what_it_needs(work):
    printed = client(
        work,
        f"""
        import contrasweep as cs
        from contrasweep.planning.forecast import forecast
        from contrasweep.study.file import load_study
        plan = cs.plan(load_study("search_spaces.tuned_losses:STUDY"), storage={str(work / "runs")!r})
        print(forecast(plan, {str(work / "runs")!r}).to_text(200))
        from contrasweep.cli import main
        sys.stderr = sys.stdout
        for command in ("plan", "run"):
            sys.argv = ["contrasweep", command, "own.yaml", "--storage", {str(work / "runs")!r}]
            try:
                main()
            except SystemExit as end:
                print("exit", end.code)
        """,
    )
    assert "the searcher and its options are not checked" in printed and "36 of the search" in printed
    assert "this command needs the package" in printed and "pip install 'contrasweep[all]'" in printed
    assert "exit None" in printed or "exit 0" in printed
    assert printed.rstrip().endswith("exit 2")


def test_where_torch_is_installed_nothing_is_stood_in_for(tmp_path, monkeypatch):
    (tmp_path / "lacking.py").write_text("import nowhere_to_be_found\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found"):
        stand_ins.import_with_stand_ins("lacking")
    assert stand_ins.absent() == ()


def test_modules_may_be_imported_by_other_threads_meanwhile(tmp_path, monkeypatch):
    """gcsfs imports in a thread of its own while the driver imports a trainable.

    Such a thread gets its turn wherever Python code runs: where a module is looked at, and in the garbage collector.
    """

    def imports(*_) -> None:
        sys.modules[f"imported_meanwhile_{len(sys.modules)}"] = sys

    class Importing:  # looked at by isinstance, which reads __class__
        @property
        def __class__(self):
            imports()
            return object

    (tmp_path / "a_thesis.py").write_text("VALUE = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    before, threshold = sys.modules.copy(), gc.get_threshold()
    gc.callbacks.append(imports)
    try:
        sys.modules["importing"] = Importing()
        gc.set_threshold(1)
        assert stand_ins.import_with_stand_ins("a_thesis").VALUE == 3
        assert any(name.startswith("imported_meanwhile_") for name in sys.modules)
    finally:
        gc.callbacks.remove(imports)
        gc.set_threshold(*threshold)
        for name in sys.modules.keys() - before.keys():
            del sys.modules[name]


def test_the_extras_of_the_distribution():
    """Everything that is imported somewhere is in the client's set or in `all`; `test` has `all`."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[\[<>=]", line)[0].lower() for line in project["dependencies"]}
    extras = project["optional-dependencies"]
    assert not names & {"torch", "ray", "scipy", "pandas", "mlflow", "optuna", "matplotlib"}
    assert extras["client"] == [] and "contrasweep[all]" in extras["test"]
    imported = {"scikit-learn": "sklearn"}
    names_of_all = {re.split(r"[\[<>=]", line)[0] for line in extras["all"]}
    assert {imported.get(name, name) for name in names_of_all} == cli.PACKAGES_OF_ALL


@pytest.mark.long
@pytest.mark.timeout(400)
def test_an_installed_client_is_small_and_plans(work):
    """A fresh environment with the client's packages alone: under 300 MB (without compiled modules), and it plans."""
    environment, dist = work / "venv", work / "dist"
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", dist], cwd=ROOT, check=True)
    [wheel] = dist.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    install = ["-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
    pins = ["--constraint", str(ROOT / "constraints.txt")]
    done = subprocess.run([environment / "bin" / "python", *install, *pins, wheel], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"packages cannot be installed here: {done.stderr[-300:]}")
    installed = [
        path for path in environment.rglob("site-packages/*") if not path.name.startswith(("pip", "setuptools"))
    ]
    size = sum(file.stat().st_size for path in installed for file in [path, *path.rglob("*")] if file.is_file())
    assert size < 300e6
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [environment / "bin" / "contrasweep", "plan", "own.yaml", "--storage", work / "runs"]
    done = subprocess.run(words, cwd=work, env=plain, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "torch and transformers are not installed here" in done.stdout
