"""A search whose code has changed: the run stops, or every trial of it runs again, and no record of both is mixed."""

import pytest
from sweeps import LR, drive, record_of, sweep

from contrasweep import Arm
from contrasweep.code import CurrentCode
from contrasweep.planning import learned
from contrasweep.planning.planner import plan
from contrasweep.running.engine.loop import StudyCode
from contrasweep.running.prepare import CodeChanged, decide
from contrasweep.running.upkeep import restore, verify
from contrasweep.storage.archive import list_archived
from contrasweep.storage.record import RECORD_FILE
from contrasweep.storage.records import StudyRecords

METHOD = """
STEP = 1
def train(trial, resume=None):
    yield
"""


ARMS = {name: Arm("searched_method:train", space=LR) for name in ("a", "b")}
TPE = {"searcher": "tpe", "searcher_options": {"n_startup_trials": 2}, "trials_per_arm": 6}


class Search:
    """A sweep of a method in a file that a test edits, driven without training."""

    def __init__(self, folder):
        self.file = folder / "searched_method.py"
        self.storage = str(folder / "storage")
        self.file.write_text(METHOD)
        self.study = sweep(arms=ARMS, **TPE)
        self.records = StudyRecords(self.storage, self.study.name)

    def edit(self):
        self.file.write_text(self.file.read_text().replace("STEP = 1", "STEP = 2"))

    def recorder(self, records):
        code = StudyCode(records, CurrentCode({}), print)
        sign = 1 if "STEP = 1" in self.file.read_text() else -1

        def record(trial, notes, status="done"):
            settings = trial.config
            value = sign * abs(settings["lr"] - 0.1 * settings.get("width", 1.0)) + 0.001 * (
                trial.fold or 0
            )
            return record_of(trial, notes, status, metrics={"accuracy": value}, code=code.of(trial))

        return record

    def drive(self, **options):
        return drive(self.study, self.storage, record=self.recorder(self.records), **options)[0]

    def values(self):
        return {i: r.metrics for i, r in self.records.read(self.records.finished()).items()}

    def decide(self, **options):
        return decide(
            plan(self.study, storage=self.storage), self.records, CurrentCode({}), **options
        )

    def carry_out(self, **options):
        self.decide(**options).carry_out(self.records)

    def state(self):
        return candidates(self.records), self.values()


@pytest.fixture
def search(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    return Search(tmp_path)


def candidates(records):
    """Every file of the searches with its content."""
    return {key: records.store.read(key) for key in records.store.list(f"{records.study}/search/")}


def from_scratch(search, folder):
    """What the study comes to in an empty storage: ids of its trials, candidates."""
    fresh = StudyRecords(str(folder), search.study.name)
    trials, _ = drive(search.study, folder, record=search.recorder(fresh))
    return {trial.id for trial, _ in trials}, candidates(fresh)


@pytest.mark.parametrize("stop_after", [7, 10**9])
def test_a_search_of_other_code_stops_the_run_and_is_run_again(search, tmp_path, stop_after):
    old = search.drive(stop_after=stop_after)
    before = search.state()
    assert search.decide().comparison.line() == ""
    search.edit()
    with pytest.raises(CodeChanged, match=r"by other code: searched_method.py changed \(1 line\)"):
        search.decide()
    assert search.state() == before, "nothing has changed"
    search.carry_out(changed="rerun")
    assert search.records.finished() == set() and candidates(search.records) == {}
    (part,) = list_archived(search.records)
    assert set(part.trial_ids) == {trial.id for trial, _ in old}
    again = search.drive()
    recorded = search.records.read(search.records.finished())
    assert len({record.code.digest for record in recorded.values()}) == 1
    assert set(recorded) == {trial.id for trial, _ in again}
    assert (set(recorded), candidates(search.records)) == from_scratch(search, tmp_path / "empty")
    search.decide()
    restore(search.records, part.when)
    assert search.state() == before
    aside = {
        i: RECORD_FILE.read(
            search.records.store, f"{search.records.study}/archive/{p.when}/records/{i}/record.json"
        )
        for p in list_archived(search.records)
        for i in p.trial_ids
    }
    assert aside == recorded, "what was made in their place"


def test_one_trial_that_is_run_again_leaves_its_search_as_it_is(search):
    old = search.drive()
    search.edit()
    search.carry_out(changed="accept")
    before = candidates(search.records)
    search.carry_out(rerun=[old[0][0].id])
    assert candidates(search.records) == before
    assert search.records.finished() == {trial.id for trial, _ in old[1:]}


def test_an_arm_that_is_run_again_with_other_code_is_searched_anew(search):
    search.drive()
    same = candidates(search.records)
    search.carry_out(rerun=["a"])
    assert candidates(search.records) == same, "the same code comes to the same candidates"
    search.drive()
    search.edit()
    search.carry_out(changed="accept")
    search.carry_out(rerun=["a"])
    kept = plan(search.study, storage=search.storage).search_digest("b")
    assert {key.split("/")[-2] for key in candidates(search.records)} == {kept}
    assert {record.arm for record in search.records.read(search.records.finished()).values()} == {
        "b"
    }


def test_a_repaired_search_comes_back_beside_its_trials(search):
    search.drive()
    before = search.state()
    for trial_id, metrics in before[1].items():
        search.records.write_metrics(trial_id, [{"step": 1, "time": 1.0, **metrics}])
    broken, content = next(iter(before[0].items()))
    search.records.store.write(broken, b"{")
    archived = verify(search.records, repair=True).archived
    assert candidates(search.records).keys() < before[0].keys() and search.values() == before[1]
    search.drive()
    restore(search.records, archived)
    search.records.store.write(broken, content)
    assert search.state() == before
    assert search.drive() == [], "nothing runs again"


def test_what_trials_of_other_code_took_is_forgotten_with_them(search):
    search.drive()
    finished = search.records.finished()
    learned.write(search.records, search.records.read(finished).values())
    assert search.records.store.exists("calibration/toy-sweep.json")
    search.edit()
    search.carry_out(changed="rerun")
    assert not search.records.store.exists("calibration/toy-sweep.json")
    assert learned.read(search.records, search.records.finished()).peaks == []
