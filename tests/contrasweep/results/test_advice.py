"""What would decide what a study leaves undecided: its sizes, chances and price, and that following it is counted."""

from dataclasses import replace

import pytest
from looks import drive_looks, noise

from contrasweep import AblationGrid, Arm
from contrasweep.results.results import Results
from contrasweep.storage.records import StudyRecords


def grid(count=6, arms="abc", **fields):
    base = {
        "arms": {arm: Arm("toy:train", config={"epochs": 1}) for arm in arms},
        "data": "digits-lt",
    }
    return AblationGrid("advised", **base | {"seeds": list(range(count))} | fields)


def value(trial):
    return 0.5 + 0.012 * (trial.arm == "b") + 0.02 * noise(trial.arm, trial.fold, trial.seed)


def run(storage, study, value=value, **options):
    drive_looks(study, storage, value, **options)
    return Results.load("advised", str(storage))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A study at its end, of which two comparisons or more are undecided."""
    return run(tmp_path_factory.mktemp("advised"), grid())


def test_a_notebook_shows_the_advice_and_not_its_fields(results, tmp_path):
    advice = results.advice()
    assert len(advice.forecasts) > 1
    assert (
        repr(advice)
        == f"Advice(on {len(advice.forecasts)} undecided comparisons, 0 pending trials)"
    )
    shown = advice._repr_html_()
    assert shown.count("<tr>") == len(advice.forecasts) + 4 and "18 trials" in shown
    assert "--extend" in shown
    unfinished = run(tmp_path, grid(), stop_after=10).advice()
    assert repr(unfinished) == "Advice(on 0 undecided comparisons, 8 pending trials)"
    assert unfinished._repr_html_() is None
    assert not unfinished and unfinished.pending == 8 and unfinished.to_text() == ""


def test_a_price_counts_no_time_of_failed_trials(tmp_path, storage):
    run(tmp_path, grid(), failed=lambda trial: trial.arm == "a" and trial.seed == 2)
    records = StudyRecords(storage, "advised")
    for record in records.read(sorted(records.finished())).values():
        hours = (4 if record.arm == "c" else 1) if record.status.counts else 1e3
        records.write(replace(record, started=0.0, ended=3.6e3 * hours))
    sizes = Results.load("advised", storage).advice().sizes
    # The 17 trials took 35 hours, in 4 hours; six more of each arm take 36.
    assert [size.hours for size in sizes] == pytest.approx([36 / (35 / 4), 3 * 36 / (35 / 4)])
