"""What grids and sweeps have in common: one protocol, so that nothing after planning asks which one it has."""

import dataclasses
from heapq import heappop, heappush

import pytest
import yaml
from refusals import refused
from sweeps import drive, record_of, sweep

import contrasweep as cs
from contrasweep import AblationGrid, Arm
from contrasweep.errors import SpecError
from contrasweep.planning.forecast import forecast
from contrasweep.planning.planner import plan
from contrasweep.search_spaces.quickstart import STUDY
from contrasweep.search_spaces.tuned_losses import STUDY as SWEEP
from contrasweep.storage.planned import write_planned
from contrasweep.storage.records import StudyRecords
from contrasweep.study.file import load_study, to_plain
from contrasweep.tuning.source import Finished, NextTrial

GRID = AblationGrid(
    name="toy-grid",
    arms={"a": Arm("toy:train", config={"epochs": 2}), "b": Arm("toy:train", config={"epochs": 3})},
    axes={"lr": [0.1, 0.5]},
    data="digits-lt",
    folds=3,
)
STUDIES = {"grid": GRID, "sweep": sweep()}


@pytest.fixture(params=STUDIES)
def study(request):
    return STUDIES[request.param]


def ended(study, storage):
    """Hand out every trial of the study's source, each with a record."""
    planned = plan(study, storage=str(storage))
    records = StudyRecords(str(storage), study.name)
    source = planned.source(records, records.finished())
    trials = []
    while not isinstance(answer := source.next(), Finished):
        left = record_of(answer.trial, answer.notes)
        records.write(left)
        source.done(left)
        trials.append(answer.trial)
    assert source.finished and source.warnings() == []
    return planned, records, trials


def test_a_source_hands_out_as_many_trials_as_the_plan_says(study, tmp_path):
    planned, records, trials = ended(study, tmp_path)
    assert planned.total == len(trials) == len({trial.id for trial in trials})
    assert planned.trials_among(records.finished()) == {trial.id for trial in trials}
    assert {t.data.digest for t in trials} <= set(planned.datasets)
    again = planned.source(records, records.finished())
    assert isinstance(again.next(), Finished) and again.adaptive == (study is not GRID)
    assert set(planned.keys) >= {"epochs", "lr"} and planned.varied == ["lr"]


def run_on_places(source, seconds, places):
    """Hand out trials to `places` that are never idle; return the arms in turn and when the last trial ended.

    A trial of an arm takes the arm's `seconds`; one of seed 1 fails, and its record says nothing of them.
    """
    now, arms, running = 0.0, [], []
    while True:
        while len(running) < places and isinstance(answer := source.next(), NextTrial):
            arms.append(answer.trial.arm)
            heappush(running, (now + seconds[arms[-1]], answer.trial.id, answer))
        if not running:
            return arms, now
        now, _, answer = heappop(running)
        trial = answer.trial
        status, took = ("failed", 0.0) if trial.seed == 1 else ("done", seconds[trial.arm])
        source.done(record_of(trial, answer.notes, status, seconds=took))


def test_near_the_end_the_longest_trials_begin_first(tmp_path):
    study = dataclasses.replace(GRID, axes={}, folds=2, seeds=range(5))  # 10 trials of each arm

    def ran(seconds, **fields):
        planned = plan(dataclasses.replace(study, **fields), storage=str(tmp_path))
        return run_on_places(planned.source(StudyRecords(str(tmp_path), "s"), ()), seconds, 4)

    # 110 s of work on four places take 27.5 s or more; in the plan's order the last long trial ends at 36.
    arms, seconds = ran({"a": 1, "b": 10})
    assert sorted(arms) == ["a"] * 10 + ["b"] * 10 and arms[:4] == ["a", "b"] * 2 and seconds <= 31
    # Two cells of about one length stay in turns, and those of a study that a budget may stop.
    assert ran({"a": 10, "b": 11})[0] == ["a", "b"] * 10
    in_turns, longer = ran({"a": 1, "b": 10}, budget_hours=1)
    assert in_turns == ["a", "b"] * 10 and longer > seconds


def test_the_cells_of_a_sweep_are_its_confirmation(tmp_path):
    planned = plan(sweep(), storage=str(tmp_path))
    assert [(cell.arm, cell.axes, cell.trials) for cell in planned.cells] == [
        ("short", {}, ()),
        ("long", {}, ()),
    ]
    _, confirmed = drive(sweep(), tmp_path)
    known = confirmed[-1]
    assert [[(t.arm, t.fold, t.seed) for t in cell.trials] for cell in known.cells] == [
        [(arm, fold, 1000) for fold in (1, 2)] for arm in ("short", "long")
    ]
    assert [t.id for cell in known.cells for t in cell.trials] == list(known.to_frame()["trial_id"])


@pytest.mark.slow
def test_one_forecast_counts_what_is_left_of_either(study, tmp_path):
    planned, _, trials = ended(study, tmp_path)
    before = forecast(planned, str(tmp_path / "empty"))
    after = forecast(planned, str(tmp_path))
    assert before.hours is None and after.hours == 0.0
    assert sum(row["trials"] for row in before.packing) == len(trials) and not after.packing
    assert len(after.rows) == len(planned.cells) == len(before.to_dict()["table"])
    assert f"trials    {planned.total}: " in before.to_text()


def test_a_plan_is_complete_when_nothing_is_left(study, tmp_path):
    planned, records, _ = ended(study, tmp_path)
    source = planned.source(records, records.finished())
    write_planned(records, (planned if study is GRID else source.plan).to_frame(), planned.digest)
    assert planned.complete(records, records.finished())
    last = planned.trials[-1] if study is GRID else source.plan.trials[-1]
    assert not planned.complete(records, records.finished() - {last.id})


@pytest.mark.parametrize("study", [STUDY, SWEEP], ids=["grid", "sweep"])
def test_a_plan_shows_itself_in_one_line_and_as_html(study, storage):
    plan = cs.plan(study, storage=storage)
    assert len(repr(plan)) < 120
    assert f"({study.name}: {plan.total} trials on digits-lt, " in repr(plan)
    shown = plan._repr_html_()
    assert all(f"<td>{arm}</td>" in shown for arm in study.arms)
    assert shown.count("<tr") == len(plan.cells) + 1


def test_html_of_a_plan_escapes_what_the_study_says(storage):
    plan = cs.plan(
        {**to_plain(STUDY), "axes": {"augmentation": ["<b>"]}, "arms": {"x": _own()}},
        storage=storage,
    )
    assert "<b>" not in plan._repr_html_()


def _own():
    def train(trial, resume=None):
        yield cs.Report(1, {"f1_macro": 1.0})

    return cs.Arm(train)


def test_a_study_may_be_given_by_name_by_file_or_as_a_mapping(tmp_path, storage):
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump(to_plain(STUDY)))
    forms = [
        "contrasweep.search_spaces.quickstart:STUDY",
        file,
        str(file),
        to_plain(STUDY),
        load_study(str(file)),
    ]
    assert {cs.plan(form, storage=storage).digest for form in forms} == {
        cs.plan(STUDY, storage=storage).digest
    }


def test_what_is_no_study_says_what_one_is():
    with refused(SpecError, "a study is an AblationGrid, a Sweep, module:NAME"):
        cs.plan(7)
