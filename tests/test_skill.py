"""What SKILL.md tells coding agents is true: its files and commands, its verdicts, its example."""

import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from typing import get_args

import numpy as np
import pytest
import torch
import yaml
from calm import calm_run
from command_line import printed
from folders import make_files
from places import ROOT

from contrasweep.campaign.decision import Decision
from contrasweep.statistics.referee import Verdict

SKILL = (ROOT / "SKILL.md").read_text()
EXAMPLE = ROOT / "examples/keep_or_discard"


@pytest.fixture
def project(tmp_path):
    """The example's script, a changed copy of it, and the files that SKILL.md shows."""
    script = (EXAMPLE / "train.py").read_text()
    make_files(
        tmp_path, {"train.py": script, "cosine.py": script.replace("momentum=0.9", "momentum=0.8")}
    )
    campaign, candidate = re.findall(r"```yaml\n(.*?)```", SKILL, re.DOTALL)
    make_files(tmp_path, {"campaign.yaml": campaign, "cosine.yaml": candidate})
    return tmp_path


def test_each_decision_that_it_shows_is_one_that_could_be_made(project):
    commands = re.findall(r"^contrasweep (decide .*)$", SKILL, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        done = printed(project, *shlex.split(command), "--dry-run")
        outlook = json.loads(done)
        assert outlook["schema"] == "outlook/1" and outlook["decided"] is None
        assert outlook["screening_trials"] > 0
    assert not (project / "contrasweep-runs").exists()


def test_it_explains_every_verdict_and_names_fields_that_a_decision_has():
    explained = set(re.findall(r"^\| `(\w+)` \|", SKILL, re.MULTILINE)) - {"verdict"}
    assert explained == set(get_args(Verdict)) - {"more"}
    named = {"kept", "estimate", "low", "high", "screened", "remembered", "verdict"}
    assert named <= set(Decision.__dataclass_fields__)
    assert all(f"`{name}" in SKILL for name in named)


@pytest.mark.long
def test_of_eight_candidates_those_that_help_are_kept_and_none_that_changes_nothing(
    tmp_path, monkeypatch
):
    """Real trainings, one after another in this process. Four of the eight do nothing by construction."""
    monkeypatch.setattr(
        "contrasweep.campaign.campaign.run", lambda study, storage, **_: calm_run(study, storage)
    )
    monkeypatch.syspath_prepend(EXAMPLE)
    eight = importlib.import_module("eight")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        decisions = {decision.candidate: decision for decision in eight.decide_all(str(tmp_path))}
    finally:
        torch.set_num_threads(threads)
    assert list(decisions) == list(eight.STREAM) and len(eight.NOTHING) == 4
    kept = [name for name, decision in decisions.items() if decision.kept]
    assert kept == ["sharper", "longer"] and not set(kept) & set(eight.NOTHING)
    assert all(decisions[name].low > 0 for name in kept)
    assert decisions["longer"].incumbent == "sharper"  # it was compared with what was kept before
    assert decisions["never_clipped"].screened == 0 and decisions["other_numbers"].screened != 0
    history = eight.CAMPAIGN.history(storage=str(tmp_path))
    assert history.next_level < 0.025  # a confirmation of what changes nothing has spent level
    again = eight.CAMPAIGN.outlook(
        eight.candidate("slower", str(tmp_path)), "slower", storage=str(tmp_path)
    )
    assert (
        again.decided is None and again.incumbent == "longer"
    )  # what is changed is another incumbent now


@pytest.mark.slow
def test_the_script_of_the_example_reports_to_a_campaign(tmp_path):
    rng = np.random.default_rng(0)
    for part in ("train", "test"):
        np.save(tmp_path / f"{part}.image.npy", rng.integers(0, 255, (20, 4, 4, 1), dtype=np.uint8))
        np.save(tmp_path / f"{part}.label.npy", np.arange(20) % 2)
    fields = yaml.safe_load((EXAMPLE / "campaign.yaml").read_text())["incumbent"]
    words = [word.format(data=tmp_path, seed=3, **fields["config"]) for word in fields["command"]]
    words[:2] = [sys.executable, str(EXAMPLE / "train.py")]
    environment = os.environ | {"CONTRASWEEP_METRICS": str(tmp_path / "metrics")}
    subprocess.run(words, cwd=tmp_path, env=environment, check=True)
    lines = [json.loads(line) for line in (tmp_path / "metrics").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert all("accuracy" in line for line in lines)
