"""A search whose code has changed: the run stops, or every trial of it runs again, and no record of both is mixed."""

import pytest
from sweeps import LR, drive, record_of, sweep, value_of

from contrasweep import Arm
from contrasweep.planning.facade import plan
from contrasweep.planning.identity import PresentCode
from contrasweep.running.code_changes import CodeChanged, decide
from contrasweep.running.study_code import StudyCode
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.superseded import put_aside_so_far, put_back, read_put_aside

METHOD = """
STEP = 1
def train(trial, resume=None):
    yield
"""


class Search:
    """A sweep of a method in a file that a test edits, driven without training."""

    def __init__(self, folder):
        self.file, self.storage = folder / "searched_method.py", str(folder / "storage")
        self.file.write_text(METHOD)
        arms = {name: Arm("searched_method:train", space=LR) for name in ("a", "b")}
        self.study = sweep(arms=arms, searcher="tpe", searcher_options={"n_startup_trials": 2}, trials_per_arm=6)
        self.records = StudyRecords(self.storage, self.study.name)

    def edit(self):
        self.file.write_text(self.file.read_text().replace("STEP = 1", "STEP = 2"))

    def drive(self, **options):
        code = StudyCode(self.records, PresentCode({}), print)
        sign = 1 if "STEP = 1" in self.file.read_text() else -1

        def record(trial, notes, status="done"):
            return record_of(trial, notes, status, metrics={"accuracy": sign * value_of(trial)}, code=code.of(trial))

        return drive(self.study, self.storage, record=record, **options)[0]

    def decide(self, **options):
        return decide(plan(self.study, storage=self.storage), self.records, PresentCode({}), **options)


@pytest.fixture
def search(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    return Search(tmp_path)


@pytest.mark.parametrize("stop_after", [7, 10**9])
def test_a_search_of_other_code_stops_the_run_and_is_run_again(search, stop_after):
    old = search.drive(stop_after=stop_after)
    assert search.decide().comparison.line() == ""
    search.edit()
    with pytest.raises(CodeChanged, match=r"trials were made by other code: searched_method.py changed \(1 line\)"):
        search.decide()
    search.decide(changed="rerun").carry_out(search.records)
    assert search.records.finished() == set()
    (part,) = put_aside_so_far(search.records)
    assert set(part.trial_ids) == {trial.id for trial, _ in old}
    again = search.drive()
    made = search.records.read(search.records.finished())
    assert len({record.code.digest for record in made.values()}) == 1
    assert set(made) == {trial.id for trial, _ in again} and sum(n.phase == "search" for _, n in again) == 12
    search.decide()
    put_back(search.records, part.when, part.trial_ids)
    restored = search.records.read(part.trial_ids)
    assert {record.metrics["accuracy"] for record in restored.values()} == {value_of(trial) for trial, _ in old}
    aside = {
        i: read_put_aside(search.records, p.when, i) for p in put_aside_so_far(search.records) for i in p.trial_ids
    }
    assert aside == {i: made[i] for i in made.keys() & restored.keys()}, "what was made in their place"
