"""What SKILL.md tells coding agents is true: its files and commands, its verdicts, its example."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import yaml
from command_line import contrasweep

from contrasweep.campaign.decision import Decision
from contrasweep.statistics.referee import Verdict

ROOT = Path(__file__).resolve().parents[1]
SKILL = (ROOT / "SKILL.md").read_text()
EXAMPLE = ROOT / "examples" / "keep_or_discard"


@pytest.fixture
def project(tmp_path):
    """The example's script, a changed copy of it, and the files that SKILL.md shows."""
    script = (EXAMPLE / "train.py").read_text()
    (tmp_path / "train.py").write_text(script)
    (tmp_path / "cosine.py").write_text(script.replace("momentum=0.9", "momentum=0.8"))
    campaign, candidate = re.findall(r"```yaml\n(.*?)```", SKILL, re.DOTALL)
    (tmp_path / "campaign.yaml").write_text(campaign)
    (tmp_path / "cosine.yaml").write_text(candidate)
    return tmp_path


def test_each_decision_that_it_shows_is_one_that_could_be_made(project):
    commands = re.findall(r"^contrasweep (decide .*)$", SKILL, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        done = contrasweep(*shlex.split(command), "--dry-run", folder=project)
        assert done.returncode == 0, done.stderr
        outlook = json.loads(done.stdout)
        assert outlook["schema"] == "outlook/1" and outlook["decided"] is None and outlook["screening_trials"] > 0
    assert not (project / "contrasweep-runs").exists()


def test_it_explains_every_verdict_and_names_fields_that_a_decision_has():
    explained = set(re.findall(r"^\| `(\w+)` \|", SKILL, re.MULTILINE)) - {"verdict"}
    assert explained == set(get_args(Verdict)) - {"more"}
    named = {"kept", "estimate", "low", "high", "screened", "remembered", "verdict"}
    assert named <= set(Decision.__dataclass_fields__) and all(f"`{name}" in SKILL for name in named)


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
    assert [line["step"] for line in lines] == [1, 2, 3, 4] and all("accuracy" in line for line in lines)
