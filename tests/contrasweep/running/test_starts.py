"""Code that a network to start from has. What else is said of arms that start is in `transcripts/started.txt`."""

from calm import calm_run
from folders import importable
from refusals import refused

import contrasweep as cs

METHOD = """
from contrasweep.trial import Report
def train(trial, resume=None):
    yield Report(1, {"accuracy": 0.5})
train.start_settings = ("net",)
"""


def test_code_that_the_network_to_start_from_has_is_named_by_the_study_that_starts(
    tmp_path, runs, monkeypatch
):
    """Its record is the storage's, and what stands there is imported by the trials that start."""

    def ids(**config):
        arm = cs.Arm("with_net:train", config, start=cs.Start("before", "a"))
        planned = cs.plan(cs.AblationGrid("after", {"a": arm}, "digits-lt"), storage=runs)
        return {trial.id for trial in planned.trials}

    net = {"net": {"name": "mine:Net"}}
    with importable(tmp_path, with_net=METHOD):
        arms = {"a": cs.Arm("with_net:train", net)}
        calm_run(cs.AblationGrid("before", arms, "digits-lt"), runs)
        with refused(
            cs.SpecError, "arms.a.start: what only a storage names is not used, got 'mine:Net'"
        ):
            ids()
        known = ids(**net)
        monkeypatch.setenv("CONTRASWEEP_CODE", "mine")
        assert ids() == known
