"""Population based training: who copies whom, schedules that say what was trained, resume, and the schedule
confirmed."""

import math

import pytest
import toy
from sweeps import sweep

from contrasweep import Arm, Choice, Float, Int, SpecError
from contrasweep.imports import import_path
from contrasweep.planning.planner import plan
from contrasweep.running.worker.execution import Execution
from contrasweep.schema import resolved_config
from contrasweep.storage.record import TrialNotes
from contrasweep.storage.records import StudyRecords
from contrasweep.study.arm_budget import search_costs
from contrasweep.study.sweep import Sweep
from contrasweep.tuning.population_search import Member, exploited
from contrasweep.tuning.pruners import Population
from contrasweep.tuning.pruners.scheduled import train
from contrasweep.tuning.source import Next
from contrasweep.tuning.sweep_source import SweepSource

ARMS = {
    "toy": Arm(
        "toy:train", config={"epochs": 6}, space={"lr": Float(0.001, 3.0, log=True), "batch_size": Choice([16, 32, 64])}
    )
}
SPACE = {"lr": Float(0.01, 1.0, log=True), "kind": Choice(["a", "b", "c"]), "width": Int(2, 16, step=2)}


def study(**fields) -> Sweep:
    base = {
        "arms": ARMS,
        "searcher": "random",
        "pruner": "pbt",
        "pruner_options": {"max_step": 6, "interval": 2},
        "trials_per_arm": 6,
        "search_folds": [0, 2],
        "confirm_on": "all",
    }
    return sweep(**base | fields)


def search(declared, storage, *, stop_after=10**9, last_first=False):
    """Really train a sweep's search, one trial at a time; killed after so many of its reports. Returns the source."""
    records, reports = StudyRecords(str(storage), declared.name), 0
    source = SweepSource(plan(declared, storage=str(storage)), records, lambda _: None)
    waiting = []
    while True:
        while isinstance(answer := source.next(), Next) and answer.notes.phase == "search":
            waiting.append(answer)
        if not waiting:
            return source
        answer = waiting.pop(-1 if last_first else 0)
        execution = Execution(answer.trial, train, records, metric="accuracy", notes=answer.notes)
        record = None
        while record is None:
            if reports == stop_after:
                execution.close()
                return source
            record, reports = execution.advance().record, reports + 1
        source.done(record)


def left(storage, name="toy-sweep"):
    records = StudyRecords(str(storage), name)
    return records.read(records.finished()), records


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A population trained to its end: its source, and where its records lie."""
    folder = tmp_path_factory.mktemp("whole")
    return search(study(), folder), folder


def test_the_worst_go_on_from_the_best_with_settings_of_the_space():
    members = [
        Member(i, ((0, {"lr": 0.1 * (i + 1), "kind": "abc"[i % 3], "width": 2 + 2 * i}),), (), float(i))
        for i in range(8)
    ]
    for mode, best, worst in (("max", {6, 7}, {0, 1}), ("min", {0, 1}, {6, 7})):
        for seed in range(5):
            result = exploited(members, SPACE, Population(8, 2), mode, [seed, 2])
            assert result == exploited(members, SPACE, Population(8, 2), mode, [seed, 2])
            assert set(result) == worst and {parent for parent, _ in result.values()} <= best
            assert all(
                SPACE[name].holds(value) and (name != "width" or value % 2 == 0)
                for _, settings in result.values()
                for name, value in settings.items()
            )
    failed = [Member(m.number, m.schedule, (), m.value if m.number > 5 else -math.inf) for m in members]
    assert {parent for parent, _ in exploited(failed, SPACE, Population(8, 2), "max", [0, 2]).values()} <= {6, 7}


@pytest.mark.slow
def test_a_record_says_with_which_settings_every_step_was_trained(whole):
    """Every generation's metrics are those of its schedule trained from its start, and what it goes on from is a part
    of it; so the whole search costs the population's whole trials and no more."""
    source, folder = whole
    result, records = left(folder)
    planned = plan(study(), storage=str(folder))
    for record in result.values():
        ends = [step for step, _ in record.config["schedule"]] + [record.config["until"]]
        assert ends == sorted(set(ends)) and record.step == record.config["until"]
        if parent := result.get(record.notes.parent):
            assert parent.step == record.notes.from_step == record.step - 2 and parent.fold == record.fold
            assert record.config["schedule"][: len(parent.config["schedule"])] == parent.config["schedule"]
    changed = [r for r in result.values() if r.step == 6 and len(r.config["schedule"]) > 1]
    assert changed
    for record in changed[:2]:
        trial = next(t for t in planned.search_trials("toy", record.config) if t.id == record.trial_id)
        alone = [(report.step, report.metrics["accuracy"]) for report in train(trial)]
        assert alone == [(row["step"], row["accuracy"]) for row in records.metrics(record.trial_id)]
    best = source.searches["toy"].best()
    assert best.value == max(m.value for m in source.searches["toy"].members)
    confirm = source.next()
    assert (
        confirm.notes == TrialNotes(phase="confirm")
        and confirm.trial.seed == 1000
        and confirm.trial.config["until"] == 6
    )
    assert [s for _, s in confirm.trial.config["schedule"]] == [
        resolved_config(toy.Settings(**{"epochs": 6, **s})) for _, s in best.schedule
    ]


@pytest.mark.slow
def test_a_population_that_is_killed_twice_goes_on_as_if_it_were_not(whole, tmp_path):
    for reports in (7, 24, 10**9):
        search(study(), tmp_path, stop_after=reports, last_first=reports > 24)
    (calm, calm_records), (shaken, shaken_records) = left(whole[1]), left(tmp_path)
    assert set(calm) == set(shaken)
    for trial_id in calm:
        one, other = (
            [(row["step"], row["accuracy"]) for row in r.metrics(trial_id)] for r in (calm_records, shaken_records)
        )
        assert one == other


def test_settings_change_where_there_is_a_checkpoint(tmp_path):
    """The last report has none here, so its generation fails and says why."""
    planned = plan(study(), storage=str(tmp_path))
    config = {"trainable": f"{__name__}:forgetful", "schedule": [[0, {"epochs": 6}]], "until": 2}
    with pytest.raises(SpecError, match="settings change only where there is a checkpoint, got 2"):
        list(train(planned.search_trials("toy", config)[0]))


def forgetful(trial, resume=None):
    import dataclasses

    for report in import_path("toy:train", "")(trial, resume):
        yield dataclasses.replace(report, checkpoint=None)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"trials_per_arm": None, "budget": {"epochs": 40}}, "budget: the budget of PBT is the size of its population"),
        ({"warm_start": ["other"]}, "warm_start: PBT knows no warm_start"),
        ({"pruner_options": {"interval": 2}}, "pruner_options: PBT does not take these options"),
        (
            {"pruner_options": {"interval": 8, "max_step": 6}},
            "pruner_options.max_step: max_step must be a whole number of at least 8",
        ),
        (
            {"pruner_options": {"interval": 2, "max_step": 6, "quantile": 0.7}},
            "pruner_options.quantile: quantile must be above 0 and at most 0.5",
        ),
        (
            {
                "arms": {
                    "a": Arm(
                        "toy:train",
                        space={"lr": Float(0.1, 1.0, when={"batch_size": 8}), "batch_size": Choice([8, 16])},
                    )
                }
            },
            "arms.a.space.lr.when",
        ),
    ],
)
def test_what_pbt_cannot_do_is_refused(tmp_path, fields, says):
    with pytest.raises(SpecError) as caught:
        plan(study(**fields), storage=str(tmp_path))
    assert says in str(caught.value)


@pytest.mark.slow
def test_a_population_costs_its_members_whole_trials(tmp_path):
    search(study(search_folds=[0]), tmp_path)
    result, _ = left(tmp_path)
    assert plan(study(search_folds=[0]), storage=str(tmp_path)).searched == 18
    assert search_costs(result.values(), ["toy"])["toy"].epochs == 6 * 6
