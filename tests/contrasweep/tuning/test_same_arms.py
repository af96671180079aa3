"""Two arms of one definition, by the command line: a search and trials each, and nothing is trained twice."""

from collections import Counter

import pytest
from typer.testing import CliRunner

from contrasweep.cli.app import app
from contrasweep.storage.records import StudyRecords

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("running"),
    pytest.mark.usefixtures("ray_core"),
]

STUDY = """
name: same
data: digits-lt
folds: 2
metric: accuracy
searcher: tpe
trials_per_arm: 4
confirm_seeds: [1000]
arms:
  a: &arm
    trainable: toy:train
    config: {epochs: 2, log: LOG}
    space: {lr: {type: float, low: 0.01, high: 1.0, log: true}}
  b: *arm
"""


def test_a_study_of_equal_arms_run_again_trains_nothing_and_prints_the_same(tmp_path, runs):
    log = tmp_path / "log"
    study = tmp_path / "study.yaml"
    study.write_text(STUDY.replace("LOG", str(log)))
    command = ["run", str(study), "--storage", runs, "--tracking", "none"]
    first = CliRunner().invoke(app, command)
    assert first.exit_code == 0, first.output
    trained = Counter(log.read_text().splitlines())
    assert set(trained.values()) == {1} and len(trained) == 2 * (2 * 4 + 2 * 1), (
        "each epoch of each trial once"
    )
    folders = sorted((tmp_path / "runs/same/search").iterdir())
    assert [len(list(folder.iterdir())) for folder in folders] == [4, 4], "a search for each arm"
    assert len(StudyRecords(runs, "same").finished()) == 10
    second = CliRunner().invoke(app, command)
    assert second.exit_code == 0, second.output
    assert second.stdout == first.stdout and "accuracy" in first.stdout
    assert Counter(log.read_text().splitlines()) == trained
