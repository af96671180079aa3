"""Infeasible belongs to an inventory, of searches too: configurations wait, and run when a larger host joins, in this
run or in the next; the search that they belong to goes on beside them."""

import pytest
from joining_hosts import Cluster, Driver
from sweeps import sweep, value_of

from contrasweep import Arm, Float, SpecError
from contrasweep.cluster import hosts
from contrasweep.cluster.packing import Footprint
from contrasweep.planning.planner import plan
from contrasweep.running.engine.accounts import ActiveTrial
from contrasweep.running.engine.loop import MAX_WAITING_PER_ARM
from contrasweep.running.engine.tune_engine import TuneCallback
from contrasweep.running.engine.watchdog import Watchdog
from contrasweep.storage.record import Phase, Record, Status, TrialNotes
from contrasweep.storage.records import StudyRecords
from contrasweep.study.arm_budget import Spending
from contrasweep.tuning.source import Finished
from contrasweep.tuning.sweep_source import SweepSource

SPACE = {"lr": Float(0.003, 3.0, log=True)}
ARMS = {
    "small": Arm(
        "toy:train", config={"epochs": 2}, space=SPACE, resources=Footprint(gpu_memory_gib=5)
    ),
    "large": Arm(
        "toy:train", config={"epochs": 3}, space=SPACE, resources=Footprint(gpu_memory_gib=50)
    ),
}


class Run(Driver):
    """A sweep with an arm that fits a T4 and one that does not."""

    def __init__(self, storage, cluster, **fields):
        study = sweep(**{"arms": ARMS, "searcher": "random", "trials_per_arm": 3} | fields)
        planned = plan(study, storage=str(storage))
        records = StudyRecords(str(storage), study.name)
        self.cluster = cluster
        recorded = records.read(records.finished())
        infeasible = {i: record for i, record in recorded.items() if record.status.infeasible}
        source = planned.source(records, recorded.keys() - infeasible.keys())
        super().__init__(study, source, cluster.hosts, records, infeasible)

    def end_searched(self, active):
        trial = active.trial
        config = active.trial.config
        value, step = (
            (config["schedule"][-1][1]["lr"], config["until"])
            if "until" in config
            else (value_of(trial), config["epochs"])
        )
        self.end(trial, step=step, metrics={"accuracy": value})

    def to_the_end(self):
        """The arms of what runs, one at a time; None is answered by time that passes."""
        arms = []
        while not isinstance(candidate := self.next(), Finished):
            if candidate is None:
                self.cluster.now += hosts.JOIN_QUIET_S + 1
                continue
            arms.append(candidate.trial.arm)
            self.end_searched(candidate)
        for search in self.source.searches.values():
            account = Spending(search.spending.budget, search.spending.folds)
            for record in self.records.read(search.candidate_of).values():
                account.end(record)
            assert search.spending == account, "what is spent follows from the records alone"
        return arms

    def statuses(self):
        records = self.records.read(self.records.finished()).values()
        return sorted((r.arm, str(r.notes.phase), r.status.value) for r in records)

    def best(self):
        assert isinstance(self.source, SweepSource)
        return {arm: config["lr"] for arm, config in self.source.plan.best.items()}


ALL_DONE = [
    (arm, phase, "done") for arm in ("large", "small") for phase in ["confirm"] * 2 + ["search"] * 3
]


@pytest.fixture
def calm(tmp_path):
    """The best of each arm where both kinds of host are there from the beginning."""
    run = Run(tmp_path / "calm", Cluster("T4", "H100"))
    run.to_the_end()
    assert run.statuses() == ALL_DONE
    return run.best()


@pytest.mark.parametrize("method", ["keep_going", "done"])
def test_a_pruner_or_a_searcher_of_the_users_that_fails_ends_the_run(tmp_path, monkeypatch, method):
    def fail(*_):
        raise SpecError("own:Rule fails in on_report", place="pruner")

    run = Run(tmp_path, Cluster("T4"))
    active = run.next()
    monkeypatch.setattr(run.source, method, fail)
    goes_on = run.loop.goes_on(active.trial.id, [{"step": 1, "time": 0.0, "accuracy": 0.5}])
    callback = TuneCallback(run.loop, Watchdog(run.loop))
    callback._safely(run.end_searched, active)
    assert goes_on == (method == "done")
    assert run.accounts.fault == "pruner: own:Rule fails in on_report"
    assert isinstance(run.next(), Finished)


def test_other_arms_go_on_while_candidates_of_one_wait(tmp_path):
    cluster = Cluster("T4")
    run = Run(tmp_path / "runs", cluster, trials_per_arm=MAX_WAITING_PER_ARM + 2)
    begun = [run.next() for _ in range(4)]
    assert [c.trial.arm for c in begun if isinstance(c, ActiveTrial)] == ["small"] * 4
    assert 1 < len(run.queue.waiting) <= MAX_WAITING_PER_ARM
    cluster.after(30, "T4", "H100")
    following = run.next()
    assert isinstance(following, ActiveTrial) and following.trial.arm == "large"
    for candidate in [*begun, following]:
        assert isinstance(candidate, ActiveTrial)
        run.end_searched(candidate)
    run.to_the_end()
    assert {status for _, _, status in run.statuses()} == {"done"}


def test_what_was_refused_is_taken_up_when_a_host_joins_while_its_search_goes_on(tmp_path):
    cluster = Cluster("T4")
    run = Run(tmp_path / "runs", cluster, arms={"small": ARMS["small"]})
    search = run.source.searches["small"]
    told = {}
    tell = search.searcher.tell
    search.searcher.tell = lambda config, value, step: (
        told.update({config["lr"]: value}),
        tell(config, value, step),
    )
    first = run.next()
    second = run.next()
    assert isinstance(first, ActiveTrial) and isinstance(second, ActiveTrial)
    run.loop.give_up(first.trial.id, "CUDA out of memory on the largest host\n", Status.INFEASIBLE)
    run.end_searched(second)
    cluster.after(60, "T4")
    third = run.next()
    assert isinstance(third, ActiveTrial) and third.trial.id != first.trial.id
    cluster.after(60, "T4", "H100")
    taken = run.next()
    assert isinstance(taken, ActiveTrial) and taken == first
    assert run.records.read_one(taken.trial.id) is None, "it has no record while it runs"
    run.end_searched(taken)
    run.end_searched(third)
    run.to_the_end()
    assert run.statuses() == [row for row in ALL_DONE if row[0] == "small"]
    assert told == {
        candidate.config["lr"]: candidate.value("accuracy") for candidate in search.candidates
    }
    calm = Run(tmp_path / "calm", Cluster("T4", "H100"), arms={"small": ARMS["small"]})
    calm.to_the_end()
    assert run.best() == calm.best()


def test_a_search_that_is_over_stays_so_and_the_run_says_it(tmp_path):
    cluster = Cluster("T4")
    run = Run(tmp_path / "runs", cluster)
    first = run.next()
    assert isinstance(first, ActiveTrial)
    cluster.after(hosts.JOIN_QUIET_S + 1, "T4")
    while isinstance(candidate := run.next(), ActiveTrial):
        run.end_searched(candidate)
    assert run.statuses().count(("large", "search", "infeasible")) == 3
    cluster.after(60, "T4", "H100")
    assert not isinstance(run.next(), ActiveTrial)
    said = "arm large: what fitted no host fits one by now, after its search; the same command takes it up"
    assert run.shown.messages.count(said) == 1
    run.end_searched(first)


def test_what_an_earlier_run_refused_is_taken_up_and_may_win(tmp_path, calm):
    first = Run(tmp_path / "runs", Cluster("T4"))
    assert set(first.to_the_end()) == {"small"}
    assert first.statuses()[:3] == [("large", "search", "infeasible")] * 3
    same = Run(tmp_path / "runs", Cluster("T4"))
    assert same.to_the_end() == [], "the hosts are those that refused it"
    assert same.statuses() == first.statuses()
    larger = Run(tmp_path / "runs", Cluster("T4", "H100"))
    assert larger.to_the_end() == ["large"] * 5
    assert larger.statuses() == ALL_DONE
    assert larger.best() == calm


@pytest.mark.parametrize(("epochs", "again"), [(9, True), (6, False)])
def test_what_was_refused_keeps_to_the_budget_that_others_have_spent(epochs, again, tmp_path):
    """Two configurations of three epochs have been trained; a third, which was refused, fits into nine epochs."""
    fields = {"trials_per_arm": None, "budget": {"epochs": 9}, "arms": {"large": ARMS["large"]}}
    run = Run(tmp_path, Cluster("T4", "H100"), **fields)
    begun = [run.next() for _ in range(3)]
    for candidate in begun[1:]:
        assert isinstance(candidate, ActiveTrial)
        run.end_searched(candidate)
    assert isinstance(begun[0], ActiveTrial)
    refused = begun[0].trial
    run.loop.give_up(refused.id, "CUDA out of memory\n", Status.INFEASIBLE)
    run.records.reopen(refused.id)
    notes = begun[0].notes.joined(
        TrialNotes(refused_by="1 x (4 cores, 16.0 GiB, 1 T4 of 14.7 GiB)")
    )
    run.records.write(Record.of(refused, status=Status.INFEASIBLE, notes=notes))
    later = Run(tmp_path, Cluster("T4", "H100"), **fields | {"budget": {"epochs": epochs}})
    following = later.next()
    assert isinstance(following, ActiveTrial)
    assert (following.trial == refused, following.notes.phase) == (
        again,
        Phase.SEARCH if again else Phase.CONFIRM,
    )
