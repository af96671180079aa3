"""What a confirmation may rest on, and that each is written down: the search's findings 12 and 13, and the ledger."""

import json
from dataclasses import replace

import pytest
from sweeps import ARMS, drive, finished, sweep

from contrasweep import Arm, Float, judge
from contrasweep.cli.reports import summary
from contrasweep.errors import BrokenFileError
from contrasweep.planning.forecast import forecast
from contrasweep.planning.planner import plan
from contrasweep.reporting import FORMATS, render
from contrasweep.results.results import Results
from contrasweep.storage.interim_log import Confirmation, read_confirmations, write_confirmation
from contrasweep.storage.record import Phase
from contrasweep.storage.records import StudyRecords


def test_finding_13_arms_of_one_definition_search_each_for_itself(tmp_path):
    """In one folder they would end each other's budgets, and the same command would train more and move an arm."""
    study = sweep(arms={"a": ARMS["long"], "b": ARMS["long"]})
    planned = plan(study, storage=str(tmp_path))
    assert planned.search_digest("a") != planned.search_digest("b")
    first, _ = drive(study, tmp_path)
    assert drive(study, tmp_path)[0] == []
    counts = [sum(t.arm == arm and n.phase == Phase.SEARCH for t, n in first) for arm in "ab"]
    assert counts == [5, 5]


def test_a_confirmation_is_written_down_and_one_that_goes_on_is_the_same(storage):
    records = StudyRecords(storage, "toy-sweep")
    assert read_confirmations(records) == ()
    one = {"short": {"lr": 0.1}}
    write_confirmation(records, Confirmation.of({}, [1], [None]))
    assert read_confirmations(records) == ()
    for best in (one, one | {"long": {"lr": 0.2}}, one):
        write_confirmation(records, Confirmation.of(best, [1000, 1001], [1, 2]))
    (only,) = read_confirmations(records)
    assert set(only.arms) == {"short", "long"} and only.seeds == (1000, 1001) and only.began > 0
    write_confirmation(
        records, Confirmation.of(one | {"long": {"lr": 0.2}}, [1000, 1001, 1002], [1, 2])
    )
    assert [c.seeds for c in read_confirmations(records)] == [(1000, 1001, 1002)]


@pytest.mark.parametrize(
    "again",
    [
        Confirmation.of({"short": {"lr": 0.3}}, [1000], [1]),
        Confirmation.of({"short": {"lr": 0.1}}, [2000], [1]),
        Confirmation.of({"short": {"lr": 0.1}}, [1000], [1, 2]),
    ],
)
def test_another_best_other_seeds_and_other_folds_are_a_second_confirmation(storage, again):
    records = StudyRecords(storage, "toy-sweep")
    write_confirmation(records, Confirmation.of({"short": {"lr": 0.1}}, [1000], [1]))
    write_confirmation(records, again)
    assert len(read_confirmations(records)) == 2


def test_a_second_confirmation_counts_as_a_look_and_is_said_below_the_table(tmp_path, storage):
    study = sweep(confirm_seeds=[1000, 1001])
    results, _ = finished(study, tmp_path)
    assert not [note for note in results.table().notes if "confirmation" in note]
    first = results.compare("short", "long")
    for confirmations, seed in enumerate((1000, 7, 8)):
        again = Confirmation.of({"short": {"lr": 0.1}}, [seed], [1])
        write_confirmation(StudyRecords(storage, "toy-sweep"), again)
        now = Results.load("toy-sweep", storage)
        assert forecast(plan(study, storage=storage), storage).looks == confirmations
        p = now.compare("short", "long").p_value
        assert p == pytest.approx(min(1.0, 4**confirmations * first.p_value))
        assert p > 0.05 or first.p_value < 0.01
    assert "the study was looked at before" in judge(now.to_frame(), metric="accuracy").to_text(200)
    notes = now.table().notes
    (note,) = (n for n in notes if "confirmation" in n)
    assert "this is confirmation 3 of the study" in note
    assert note.endswith("each earlier one counts as a look")
    assert any("this is look 3, whose p are multiplied by 16" in n for n in notes)


def test_a_plan_counts_no_trials_of_earlier_confirmations(tmp_path, storage):
    study = sweep(confirm_seeds=[1000, 1001])
    results, _ = finished(study, tmp_path)
    planned = plan(study, storage=storage)
    known = {**results.search_records, **results.trial_records}
    confirmed = results.trial_records.items()
    other_best = {f"a{key}": record for key, record in confirmed}
    other_seed = {f"b{key}": replace(record, seed=7) for key, record in confirmed}
    assert planned.totals({**known, **other_best, **other_seed}) == planned.totals(known)
    assert planned.totals(known)["ended"] == planned.total == len(known)


def test_a_broken_ledger_is_said_and_not_taken_for_none(tmp_path):
    records = StudyRecords(str(tmp_path), "toy-sweep")
    write_confirmation(records, Confirmation.of({"short": {"lr": 0.1}}, [7], [1]))
    (tmp_path / "toy-sweep/confirmations.json").write_text("{")
    with pytest.raises(BrokenFileError, match=r"confirmations\.json"):
        read_confirmations(records)


def test_the_verdicts_of_a_sweep_are_said_to_be_of_what_was_chosen_in_every_format(tmp_path):
    results, _ = finished(sweep(), tmp_path)
    says = "another search may choose another"
    for format in set(FORMATS) - {"parquet", "yaml"}:
        text = " ".join(render(results, format).decode().split())
        assert text.count(says) == (2 if format == "csv" else 1), format
    assert says in json.dumps(summary(results)["notes"])


def test_a_confirmation_on_searched_folds_is_marked(tmp_path):
    results, _ = finished(
        sweep(confirm_on="all", arms={"a": Arm("toy:train", space={"lr": Float(0.1, 1.0)})}),
        tmp_path,
    )
    (note,) = results.table().notes
    assert "also those that the search chose by" in note
