"""PyTorch left out of a plan: the same text without it, and a new start of the command where it is needed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from contrasweep import AblationGrid, Arm, Choice, Sweep, left_out
from contrasweep.planning import without_torch

ROOT = Path(__file__).resolve().parents[2]
TRAIN = "trainables.contrastive:train"


@pytest.fixture
def environment(tmp_path):
    paths = os.pathsep.join(map(str, (ROOT / "platform", ROOT, tmp_path)))
    return {**os.environ, "PYTHONPATH": paths, "CONTRASWEEP_CACHE": str(tmp_path / "cache")}


def searching(losses):
    """A search for a loss."""
    return Sweep("s", {"a": Arm(TRAIN, space={"loss": losses})}, "d", folds=5, trials_per_arm=2)


def planned(environment, tmp_path, *words):
    """What a plan of the quickstart prints, and whether its process, or the one in its place, imported PyTorch."""
    command = ["-m", "contrasweep", "plan", "search_spaces.quickstart:STUDY", "--storage", str(tmp_path / "runs")]
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command, *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, " torch._C\n" in done.stderr


@pytest.mark.slow
def test_a_plan_whose_counts_are_kept_prints_the_same_without_pytorch(environment, tmp_path):
    first, imported = planned(environment, tmp_path)
    assert imported and "estimated" in first
    assert planned(environment, tmp_path) == (first, False)
    # A count that is not kept: the command starts anew, and prints once.
    wider = ("--set", "arms.ocl.config.encoder.width=24")
    text, imported = planned(environment, tmp_path, *wider)
    assert imported and text.count("study     quickstart") == 1
    assert planned({**environment, left_out.WITH_TRAINING: "1"}, tmp_path, *wider) == (text, True)
    assert planned(environment, tmp_path, *wider) == (text, False)


@pytest.mark.parametrize(
    ("source", "needed"),
    [
        ("import torch", True),
        ("import trainables.losses", False),
        ("import trainables.losses, torch; GPU = torch.cuda.is_available()", True),
        ("import trainables.similarities as s; s.SIMILARITIES['cosine'](1, 2)", True),
        ("from trainables.contrastive_settings import Settings; Settings(batch_size=8, loss='ocl')", False),
        ("from trainables.encoders import ENCODERS; ENCODERS.choose('cnn').build((3, 8, 8))", True),
    ],
)
def test_nothing_is_done_with_what_stands_for_pytorch(source, needed, environment, tmp_path):
    """A user's module that touches it, and a function or class of ours that would compute."""
    (tmp_path / "a_method.py").write_text(f"{source}\n")
    code = (
        "from contrasweep.left_out import TrainingNeeded\n"
        "from contrasweep.stand_ins import absent, import_with_stand_ins, is_installed, leave_out\n"
        "leave_out(strict=True)\n"
        "assert absent() == () and is_installed('torch')\n"
        "try:\n    import_with_stand_ins('a_method')\n    print(False)\n"
        "except TrainingNeeded:\n    print(True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == [str(needed)], done.stderr


@pytest.mark.parametrize(
    ("study", "may"),
    [
        (AblationGrid("s", {"a": Arm(TRAIN, config={"loss": "ocl"})}, "d", axes={"batch_size": [8, 16]}), True),
        (AblationGrid("s", {"a": Arm("a_method:train")}, "d"), False),
        (AblationGrid("s", {"a": Arm(TRAIN, config={"loss": {"name": "a_method:loss"}})}, "d"), False),
        (AblationGrid("s", {"a": Arm(TRAIN)}, "d", axes={"loss": ["ocl", "a_method:loss"]}), False),
        (searching(Choice(["ocl", "sincere"])), True),
        (searching(Choice(["ocl", "a_method:loss"])), False),
    ],
)
def test_only_a_study_of_our_own_methods_is_planned_without(study, may, monkeypatch):
    monkeypatch.delenv(left_out.WITH_TRAINING, raising=False)
    assert without_torch.may_leave_out(study, kept=True) == may
    assert not without_torch.may_leave_out(study, kept=False)
    monkeypatch.setenv(left_out.WITH_TRAINING, "1")
    assert not without_torch.may_leave_out(study, kept=True)
