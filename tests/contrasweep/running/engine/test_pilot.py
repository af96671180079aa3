"""A pilot trains one trial of each arm, and the rest only where nothing speaks against it."""

import dataclasses

import pytest

from contrasweep import AblationGrid, Arm, ContrasweepError, Float, Sweep
from contrasweep.planning.forecast import asks_pilot
from contrasweep.planning.grid import FixedSource
from contrasweep.planning.planner import plan
from contrasweep.running.driver import run
from contrasweep.running.engine.pilot import PilotSource
from contrasweep.storage.record import Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.tuning.source import Finished, Next

PIXELS = "contrasweep.trainables.raw_pixels:train"
ARMS = {"a": Arm("valued:train"), "b": Arm("valued:train", config={"lr": 0.2}), "pixels": Arm(PIXELS)}
STUDY = AblationGrid("piloted", ARMS, "digits-lt", folds=3, metric="accuracy", pilot=True)
GOOD = {"a": {"accuracy": 0.9, "loss": 1.0}, "b": {"accuracy": 0.9, "loss": 2.0}, "pixels": {"accuracy": 0.5}}


def piloted(metrics, status=Status.DONE, pilots=()):
    """Hand out trials as an engine does that ends each at once; the ids in order, what was said, and why it stopped."""
    trials, said, stops = plan(STUDY).trials, [], []
    begun = {t.arm: Record.of(t, status=status, metrics=metrics[t.arm]) for t in trials[::-1] if t.arm in pilots}
    source = PilotSource(STUDY, FixedSource(trials), begun, stops.append, said.append)
    order, running = [], []
    while not isinstance(following := source.next(), Finished):
        if isinstance(following, Next):
            running.append(following.trial)
            order.append(following.trial)
            if len(order) > len(ARMS) - len(pilots) and following is not None:
                assert len(running) == 1, "the rest starts when every pilot has ended"
                source.done(Record.of(running.pop(), status=status, metrics=metrics[following.trial.arm]))
        else:
            for trial in running:
                source.done(Record.of(trial, status=status, metrics=metrics[trial.arm]))
            running.clear()
    return order, said, stops


def test_a_pilot_that_passes_is_one_trial_of_each_arm_and_then_comes_each_other_trial_once():
    order, said, stops = piloted(GOOD)
    assert [trial.arm for trial in order[:3]] == ["a", "b", "pixels"] and not stops
    assert {trial.id for trial in order} == {trial.id for trial in plan(STUDY).trials} and len(order) == 9
    assert len(said) == 1 and said[0].startswith("pilot: a 0 s; b 0 s; pixels 0 s")


@pytest.mark.parametrize(
    ("arm", "metrics", "says"),
    [
        ("b", {"accuracy": 0.9, "loss": 1.0}, "arms a and b have the same loss and metrics to the bit"),
        ("b", {"accuracy": 0.9, "loss": 1.0, "ocl_equals_scl": 1.0}, "arms a and b have the same loss and metrics"),
        ("a", {"accuracy": 0.4, "loss": 1.0}, "arm a is below pixels: accuracy 0.4 against 0.5"),
        ("a", {"accuracy": 0.9, "loss": 1.0, "collapsed": 1.0}, "arm a: collapsed: the loss stands at its"),
        ("a", {"accuracy": 0.9, "loss": 1.0, "ocl_equals_scl": 1.0}, "arm a: OCL equals SCL at every step"),
    ],
)
def test_a_pilot_that_does_not_pass_ends_the_run_and_says_why(arm, metrics, says):
    order, _, (stop,) = piloted(GOOD | {arm: metrics})
    assert len(order) == 3 and says in stop and "--set pilot=false" in stop


def test_arms_that_have_a_trial_already_are_judged_by_it():
    order, _, stops = piloted(GOOD | {"a": {"accuracy": 0.4}}, pilots=("a",))
    assert [trial.arm for trial in order] == ["b", "pixels"] and "arm a is below pixels" in stops[0]


def test_ocl_that_is_scl_after_three_epochs_ends_a_pilot_before_its_own_end():
    stops = []
    source = PilotSource(STUDY, FixedSource(plan(STUDY).trials), {}, stops.append, print)
    trial = source.next().trial
    for step, equal in ((2, 1.0), (3, 0.0)):
        assert source.keep_going(trial.id, [{"step": step, "ocl_equals_scl": equal}]) and not stops
    source.keep_going(trial.id, [{"step": 4, "ocl_equals_scl": 1.0}])
    assert "after epoch 4: OCL equals SCL" in stops[0]


def test_the_hours_of_a_search_are_of_all_its_trials_however_few_train_at_a_time():
    arms = {"a": Arm("valued:train", space={"lr": Float(0.1, 1.0)})}
    study = Sweep("s", arms, "digits-lt", folds=3, search_folds=[0, 1], trials_per_arm=12, slots=2, metric="accuracy")
    assert sum(number for _, number in plan(study).expected(())) == 12 * 2


def test_a_study_has_a_pilot_by_its_field_or_by_its_gpu_hours_and_its_plan_is_the_same():
    default = dataclasses.replace(STUDY, pilot=None)
    assert [asks_pilot(default, hours) for hours in (50, 51)] == [False, True]
    assert not asks_pilot(dataclasses.replace(STUDY, pilot=False), 500) and asks_pilot(STUDY, 0)
    assert plan(default).digest == plan(STUDY).digest


@pytest.mark.slow
@pytest.mark.xdist_group("running")
@pytest.mark.usefixtures("ray_core")
def test_a_study_whose_arms_are_below_the_floor_stops_and_goes_on_without_a_pilot(tmp_path):
    records = StudyRecords(str(tmp_path), STUDY.name)
    study = dataclasses.replace(STUDY, arms=ARMS | {"a": Arm("valued:train", config={"lr": 99.0})})
    for _ in range(2):  # the second time nothing is trained at all
        with pytest.raises(ContrasweepError, match=r"pilot: .*arm a is below pixels"):
            run(study, storage=str(tmp_path), tracking=None)
        assert len(records.finished()) == 3
    results = run(dataclasses.replace(study, pilot=False), storage=str(tmp_path), tracking=None)
    assert results.statuses == {"done": 9}
