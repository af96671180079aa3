"""A metric that no report has: the study ends after the first trial, in a line, and goes on once the name is mended."""

import dataclasses

import pytest
from refusals import refused

from contrasweep import AblationGrid, Arm, ContrasweepError, Float, Sweep
from contrasweep.running.driver import run
from contrasweep.storage.record import Status
from contrasweep.storage.records import StudyRecords

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("running"),
    pytest.mark.usefixtures("ray_core"),
]


def run_in(folder, study):
    return run(study, storage=str(folder), tracking=None)


def grid(**fields):
    arms = {name: Arm("valued:train", config={"lr": lr}) for name, lr in (("a", 0.1), ("b", 0.2))}
    return AblationGrid(
        **{"name": "unreported", "arms": arms, "data": "digits-lt", "folds": 3, "metric": "acuracy"}
        | fields
    )


SWEEP = Sweep(
    "unreported",
    {"a": Arm("valued:train", space={"lr": Float(0.1, 1.0)})},
    "digits-lt",
    trials_per_arm=3,
    folds=3,
    confirm_seeds=[7],
    searcher="random",
    metric="acuracy",
)


@pytest.mark.parametrize(
    "study",
    [
        pytest.param(grid(), id="grid"),
        pytest.param(SWEEP, id="sweep", marks=pytest.mark.long),
    ],
)
def test_a_misspelt_metric_ends_the_study_at_once_and_the_mended_one_goes_on(
    tmp_path, storage, study, capsys
):
    records = StudyRecords(storage, "unreported")
    says = "no trial has reported 'acuracy'.*did you mean 'accuracy'. known metrics: accuracy. Nothing more is trained"
    mended = dataclasses.replace(study, metric="accuracy")
    with refused(ContrasweepError, match=says):
        run_in(tmp_path, study)
    (first,) = records.read(records.finished()).values()
    assert first.status is Status.FAILED
    with refused(
        ContrasweepError, "--extend"
    ):  # another change than that of the metric is another plan
        run(dataclasses.replace(mended, folds=4), storage=storage, tracking=None)
    results = run(mended, storage=storage, tracking=None, retry_failed=True)
    assert results.complete and results.statuses["done"] == len(results.planned)
    assert "trained again" not in str(results.table()), "a misspelt name costs no verdict"
    again = {**results.trial_records, **results.search_records}[first.trial_id]
    assert (again.status, again.metrics) == (Status.DONE, first.metrics)
    with refused(
        ContrasweepError, "--extend"
    ):  # it was reported, so it is not exchanged for another
        run(dataclasses.replace(study, metric="loss"), storage=storage, tracking=None)


def test_a_command_that_reports_nothing_ends_the_study_after_its_first_trial(tmp_path, storage):
    arms = {name: Arm(command=["python", "-c", f"print('loss: 0.5 of {name}')"]) for name in "ab"}
    study = grid(arms=arms, data="none", metric="loss", folds=4)
    records = StudyRecords(storage, "unreported")
    with refused(
        ContrasweepError,
        match=r"it has reported nothing: it may print its metrics .*CONTRASWEEP_METR",
    ):
        run_in(tmp_path, study)
    (first,) = records.read(records.finished()).values()
    assert first.status is Status.FAILED
    read = {
        name: Arm(command=arm.config["command"], metrics="loss: {loss}")
        for name, arm in arms.items()
    }
    results = run(
        dataclasses.replace(study, arms=read), storage=storage, tracking=None, retry_failed=True
    )
    assert results.complete
    assert {record.metrics["loss"] for record in results.trial_records.values()} == {0.5}


def test_a_pattern_that_matches_nothing_is_named_and_the_search_goes_on_with_the_mended_one(
    storage,
):
    command = ["python", "-c", "print('loss:', {lr})"]

    def study(pattern):
        arm = Arm(command=command, metrics=pattern, space={"lr": Float(0.1, 1.0)})
        return dataclasses.replace(
            SWEEP, arms={"a": arm}, data="none", confirm_on="all", metric="loss"
        )

    with refused(ContrasweepError, match=r"none of \['lost: {loss}'\] is in what it printed"):
        run(study("lost: {loss}"), storage=storage, tracking=None)
    results = run(study("loss: {loss}"), storage=storage, tracking=None, retry_failed=True)
    assert results.complete and set(results.search["status"]) == {"done"}


def test_a_grid_of_which_nothing_ever_reports_ends_early(tmp_path, local_ray, monkeypatch, capsys):
    text = "def train(trial, resume=None):\n    raise ValueError(trial.arm)\n    yield\n"
    (local_ray.importable / "breaks.py").write_text(text)
    monkeypatch.syspath_prepend(str(local_ray.importable))
    broken = {name: Arm("breaks:train") for name in "ab"}
    study = grid(arms=broken, metric="accuracy", seeds=range(5))
    with refused(ContrasweepError, match=r"all 1\d trials that have ended failed before"):
        run_in(tmp_path, study)
    assert "TuneTrial" not in capsys.readouterr().out, "a line of Tune's for each that was to come"
    assert 10 <= len(StudyRecords(str(tmp_path), "unreported").finished()) < 30
    arms = {**broken, "good": Arm("valued:train")}
    results = run(
        grid(arms=arms, metric="accuracy", seeds=range(5)),
        storage=str(tmp_path / "other"),
        tracking=None,
    )
    assert results.statuses == {"failed": 30, "done": 15}


def test_where_others_report_the_metric_or_an_earlier_report_had_it_a_trial_fails_as_any_other(
    tmp_path, local_ray, monkeypatch
):
    reports = "    yield Report(1, {'accuracy': 0.5})\n    yield Report(2, {'loss': 0.5})\n"
    text = f"from contrasweep import Report\n\n\ndef train(trial, resume=None):\n{reports}"
    (local_ray.importable / "reports_once.py").write_text(text)
    monkeypatch.syspath_prepend(str(local_ray.importable))
    once = {"once": Arm("reports_once:train")}
    results = run(grid(arms=once, metric="accuracy"), storage=str(tmp_path / "once"), tracking=None)
    assert results.statuses == {"failed": 3}, "that only the last report lacks it is no wrong name"
    arms = {"good": Arm("valued:train"), "odd": Arm("valued:train", config={"metric": "loss"})}
    results = run(grid(arms=arms, metric="accuracy"), storage=str(tmp_path), tracking=None)
    assert results.statuses == {"done": 3, "failed": 3}
