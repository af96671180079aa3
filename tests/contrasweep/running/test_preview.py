"""What `cs.preview` says before a run: the same as `contrasweep plan`, with why `run` would refuse the study."""

import dataclasses
import json

import pytest
import yaml
from command_line import printed, shown_json
from looks import drive_looks, noise

import contrasweep as cs
from contrasweep.cli.documents import dumps
from contrasweep.study.file import to_plain

ARMS = {arm: cs.Arm("toy:train", config={"epochs": 1}) for arm in "ab"}
GRID = cs.AblationGrid("grid", ARMS, "digits-lt", seeds=[0, 1, 2, 3])


def value(trial):
    return 0.5 + 0.001 * (trial.arm == "b") + 0.05 * noise(trial.arm, trial.seed)


@pytest.mark.slow
def test_a_preview_is_what_the_command_prints(tmp_path, runs):
    storage = runs
    drive_looks(GRID, storage, value)
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(to_plain(GRID)))
    seen = cs.preview(tmp_path / "grid.yaml", storage=storage)
    assert seen.plan.total == 8 and seen.refused is None
    assert seen.advice.forecasts and "What would decide" in seen.to_text(100)
    words = ("plan", "grid.yaml", "--storage", storage)
    assert shown_json(tmp_path, *words) == json.loads(dumps("plan", seen.to_dict()))
    assert printed(tmp_path, *words) == seen.to_text() + "\n"


def test_a_preview_says_why_run_would_refuse_the_study(tmp_path, storage):
    drive_looks(GRID, tmp_path, value)
    more = dataclasses.replace(GRID, seeds=[*GRID.seeds, 4])
    refused = cs.preview(more, storage=storage)
    assert refused.forecast.plan.total == 10 and refused.refused.place == "name"
    assert refused.advice is None
    with pytest.raises(cs.SpecError, match="another plan is in this storage"):
        raise refused.refused
    assert cs.preview(more, storage=storage, extend=True).refused is None
