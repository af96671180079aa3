"""What a trial keeps of its settings: all of them, resolved when the plan is made, in grids and searches alike."""

import dataclasses
import pickle
from typing import Annotated

import pytest
from made_up import nowhere
from refusals import refused
from sweeps import drive, record_of, sweep

from contrasweep import AblationGrid, Arm, Choice, Float, SpecError, SubGrid, report
from contrasweep.planning.grid import make_plan
from contrasweep.planning.sweep import make_sweep_plan
from contrasweep.schema import OMIT_DEFAULT, checked
from contrasweep.storage.record import RECORD_FILE, Record, Status

DATA, ON_3_FOLDS = (nowhere(folds, classes=("u", "v", "w")) for folds in (5, 3))


@checked
class Settings:
    lr: float = 0.1
    width: int | str = "auto"
    opt: dict[str, float] = dataclasses.field(default_factory=dict)
    device: Annotated[str, OMIT_DEFAULT] = "auto"

    def resolve(self, data):
        if data.kind != "image":
            raise SpecError("only images have a width", place="width", value=self.width)
        return (
            dataclasses.replace(self, width=8 * len(data.classes)) if self.width == "auto" else self
        )


def train(trial, resume=None):
    yield


train.settings = Settings


def plan(data=DATA, **fields):
    base = {"name": "s", "arms": {"a": Arm(train)}, "data": "d", "folds": 5}
    return make_plan(
        AblationGrid(**base | fields), lambda name: dataclasses.replace(data, name=name)
    )


def ids(**fields):
    return [trial.id for trial in plan(**fields).trials]


def test_a_trial_keeps_every_setting_and_builds_the_same_from_them():
    [cell] = plan().cells
    assert cell.trials[0].config == {"lr": 0.1, "width": 24, "opt": {}}
    assert Settings(**cell.trials[0].config) == Settings(width=24)
    assert ids(arms={"a": Arm(train, config=dict(cell.trials[0].config))}) == ids()


def test_a_changed_default_is_another_trial_and_a_setting_that_means_as_before_is_not(monkeypatch):
    before = ids()

    @checked
    class Wider(Settings):
        lr: float = 0.2

    @checked
    class More(Settings):
        clip: Annotated[float, OMIT_DEFAULT] = 0.0

    monkeypatch.setattr(train, "settings", Wider)
    assert set(ids()).isdisjoint(before)
    monkeypatch.setattr(train, "settings", More)
    assert ids() == before
    for config in ({"clip": 1.0}, {"device": "cpu"}):
        assert set(ids(arms={"a": Arm(train, config=config)})).isdisjoint(before)


def test_what_cannot_be_resolved_is_said_with_its_place():
    with refused(SpecError, "arms.a.config.width: only images have a width, got 'auto'"):
        plan(dataclasses.replace(DATA, kind="text"))


def test_one_content_under_two_names_is_not_planned_twice():
    begins = "axes.data: two cells of arm 'a' are the same trials, got ['faces', 'mnist-faces'];"
    with refused(SpecError, "a dataset's name is no part of a trial", begins=begins):
        plan(axes={"data": ["faces", "mnist-faces"]})
    assert ids(axes={"data": ["faces"]}) == ids()


def test_two_values_of_an_axis_that_come_to_the_same_are_refused():
    with refused(
        SpecError, "axes.width: two cells of arm 'a' are the same trials, got ['auto', 24]"
    ):
        plan(axes={"width": ["auto", 8, 24]})


def test_a_subgrid_that_says_a_default_is_the_same_cell():
    """Of the product, width 24 has the default lr; of the sub-grid, lr 0.1 the default width."""
    planned = plan(axes={"width": [8, 24]}, subgrids=[SubGrid(axes={"lr": [0.1, 0.5]})])
    assert [cell.axes for cell in planned.cells] == [
        {"width": 8, "lr": None},
        {"width": 24, "lr": 0.1},
        {"width": None, "lr": 0.5},
    ]
    assert len({t.id for t in planned.trials}) == planned.total == len(planned.to_frame()) == 15


def test_a_search_and_its_confirmation_keep_every_setting(tmp_path):
    space = {"lr": Float(0.01, 1.0), "opt": Choice([{"beta": 0.9}, {"beta": 0.99}])}
    study = sweep(arms={"a": Arm(f"{__name__}:train", space=space)}, searcher="random")

    def record(trial, notes, status):
        return record_of(trial, notes, status, metrics={"accuracy": trial.config["lr"]})

    ended, confirmed = drive(study, tmp_path, record=record)
    assert all(trial.config["width"] == 80 and "device" not in trial.config for trial, _ in ended)
    best = max((t for t, notes in ended if notes.phase == "search"), key=lambda t: t.config["lr"])
    assert confirmed[-1].best["a"] == best.config


def test_a_changed_default_is_another_search(monkeypatch):
    def digest(**config):
        arms = {"a": Arm(train, config=config, space={"lr": Float(0.01, 1.0)})}
        planned = make_sweep_plan(sweep(arms=arms), lambda name: ON_3_FOLDS)
        return planned.search_digest("a"), planned.digest

    before = digest()
    assert digest(width=24) == before and digest(width=25) != before

    @checked
    class Other(Settings):
        width: int | str = 16

    monkeypatch.setattr(train, "settings", Other)
    changed = digest()
    assert changed[0] != before[0] and changed[1] != before[1]


def made_with(step):
    def train(trial, resume=None):
        yield step

    return train


def test_two_functions_of_one_name_are_refused_in_grids_and_searches():
    one = made_with(1)
    other = made_with(2)
    with refused(SpecError, "of arms 'a' and 'b' are two functions of one name, got ", "made_with"):
        plan(arms={"a": Arm(one), "b": Arm(other)})
    space = {"lr": Float(0.01, 1.0)}
    with refused(SpecError, "arms 'a' and 'b' are two functions of one name"):
        make_sweep_plan(
            sweep(arms={"a": Arm(one, space=space), "b": Arm(other, space=space)}),
            lambda name: ON_3_FOLDS,
        )


def reporting(trial, resume=None):
    report(1, {"accuracy": 0.5})


@pytest.mark.parametrize("function", [made_with(1), reporting])
def test_two_arms_may_train_by_one_function(function):
    [a, b] = plan(arms={"a": Arm(function), "b": Arm(function, config={"lr": 0.2})}).cells
    assert a.trials[0].trainable == b.trials[0].trainable


def free(trial, resume=None):
    yield


NUMBERS = {"x": 1.0, "n": 1, "list": [2.0, 2], "inner": {"y": -3.0}}


def test_a_whole_float_reaches_a_trainable_as_a_float():
    """Though 1 and 1.0 are one value, so that a trial is the same trial by either."""
    [cell] = plan(arms={"a": Arm(free, config=NUMBERS)}, axes={"axis": [4.0]}).cells
    trial = cell.trials[0]
    declared = {**NUMBERS, "axis": 4.0}
    assert repr(dict(pickle.loads(pickle.dumps(trial)).config)) == repr(
        dict(sorted(declared.items()))
    )
    read = RECORD_FILE.decode(Record.of(trial, status=Status.DONE).to_json(), "record.json")
    assert repr(dict(sorted(read.config.items()))) == repr(dict(sorted(declared.items())))
    by_hand = {"x": 1, "n": 1.0, "list": [2, 2], "inner": {"y": -3}}
    assert ids(arms={"a": Arm(free, config=by_hand)}, axes={"axis": [4]}) == ids(
        arms={"a": Arm(free, config=NUMBERS)}, axes={"axis": [4.0]}
    )


def test_a_resumed_search_draws_the_floats_that_it_drew(tmp_path):
    arm = Arm(
        "toy:train",
        config={"epochs": 2},
        space={"lr": Float(0, 2, step=1)},
        start_points=[{"lr": 2}],
    )
    study = sweep(arms={"only": arm}, searcher="grid", trials_per_arm=3)
    tried = [*drive(study, tmp_path, stop_after=2)[0], *drive(study, tmp_path)[0]]
    assert {type(trial.config["lr"]) for trial, _ in tried} == {float} and len(tried) >= 3
