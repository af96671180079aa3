"""A trial in its own process by another engine: what its trainable reports, and what follows from a fault."""

import pytest
import toy
import toy_cohort

from contrasweep.data import resolve
from contrasweep.trainables.fusing import cohort_of_one
from contrasweep.trainables.fusing.cohort_of_one import CohortOfOne
from contrasweep.trainables.fusing.host.messages import CohortFault
from contrasweep.trainables.fusing.protocol import CannotFuse
from contrasweep.trial import Trial


@pytest.fixture(autouse=True)
def opened(monkeypatch):
    """The cohorts that were opened; none is left open by other tests."""
    monkeypatch.setattr(cohort_of_one, "_open", type(cohort_of_one._open)())
    opened, open_cohort = [], toy_cohort.ToyCohorts.open

    def noted(self, *arguments):
        opened.append(open_cohort(self, *arguments))
        return opened[-1]

    monkeypatch.setattr(toy_cohort.ToyCohorts, "open", noted)
    return opened


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    """Four folds, three epochs each."""
    data = resolve("digits-lt", folds=4, storage=str(tmp_path_factory.mktemp("data")), write=True)
    return [Trial("s", "a", "toy_cohort:train", {"epochs": 3}, data, fold, 0) for fold in range(4)]


def by_engine(**fields):
    return CohortOfOne(toy_cohort.train, **{"key": "k", "engine": "products"} | fields)


def values(reports):
    return [(report.step, report.metrics["accuracy"]) for report in reports]


def test_it_reports_what_its_trainable_reports_and_its_cohort_stays_open(opened, trials):
    function = by_engine()
    assert function.settings is toy.Settings, "what a trial may read is known"
    for trial in trials[:2]:
        assert values(function(trial)) == pytest.approx(values(toy.train(trial)), abs=0.005)
    assert len(opened) == 1 and opened[0].slots == 1 and not opened[0].members
    list(by_engine(key="other")(trials[0]))
    assert len(opened) == 2


def test_a_trial_that_is_stopped_or_fails_frees_the_slot(opened, trials):
    reports = by_engine()(trials[0])
    next(reports)
    reports.close()
    failing = Trial("s", "a", "toy_cohort:train", {"epochs": 3, "fail_at": 2}, trials[0].data, 1, 0)
    with pytest.raises(RuntimeError, match="on purpose"):
        list(by_engine()(failing))
    assert [report.step for report in by_engine()(trials[2])] == [1, 2, 3]
    assert len(opened) == 1 and not opened[0].members


@pytest.mark.parametrize("error", [OSError("no compiler"), CannotFuse("it has hooks")])
def test_an_engine_that_fails_is_a_fault_of_the_cohort(opened, trials, monkeypatch, error):
    def broken(self, members=None):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(toy_cohort.ToyCohort, "advance", broken)
        with pytest.raises(CohortFault, match=f"engine products failed: {type(error).__name__}: {error}"):
            list(by_engine()(trials[0]))
    assert not cohort_of_one._open and not opened[0].members, "it is used no more"


def test_memory_that_ran_out_is_no_fault_of_the_engine(trials, monkeypatch):
    def broken(self, members=None):
        raise MemoryError("too large")

    monkeypatch.setattr(toy_cohort.ToyCohort, "advance", broken)
    with pytest.raises(MemoryError):
        list(by_engine()(trials[0]))


def test_a_process_keeps_the_cohorts_of_its_last_keys(opened, trials):
    for number in range(cohort_of_one.MAX_OPEN + 1):
        list(by_engine(key=str(number))(trials[0]))
    assert len(cohort_of_one._open) == cohort_of_one.MAX_OPEN and ("0", "products") not in cohort_of_one._open
