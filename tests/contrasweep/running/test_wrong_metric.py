"""A metric that no report has ends the study at once, in a line, also with Ray: see the session `misnamed`."""

import pytest
from refusals import refused

from contrasweep import AblationGrid, Arm, ContrasweepError
from contrasweep.running.driver import run
from contrasweep.storage.records import StudyRecords

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("running"),
    pytest.mark.usefixtures("ray_core"),
]


def test_a_misspelt_metric_or_a_trainable_that_never_reports_ends_the_study_early(
    tmp_path, storage, local_ray, monkeypatch, capsys
):
    text = "def train(trial, resume=None):\n    raise ValueError(trial.arm)\n    yield\n"
    (local_ray.importable / "breaks.py").write_text(text)
    monkeypatch.syspath_prepend(str(local_ray.importable))
    for trainable, metric, ended, says in (
        ("valued:train", "acuracy", range(1, 2), "no trial has reported 'acuracy'.*did you mean"),
        (
            "breaks:train",
            "accuracy",
            range(10, 30),
            r"all 1\d trials that have ended failed before",
        ),
    ):
        arms = {name: Arm(trainable) for name in "ab"}
        study = AblationGrid(metric, arms, "digits-lt", folds=3, seeds=range(5), metric=metric)
        with refused(ContrasweepError, match=says):
            run(study, storage=storage, tracking=None)
        assert len(StudyRecords(storage, metric).finished()) in ended
    assert "TuneTrial" not in capsys.readouterr().out, "a line of Tune's for each that was to come"
