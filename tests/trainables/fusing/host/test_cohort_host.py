"""The process of a cohort, without Ray: members come and go, and each has the reports of its trial alone."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import toy
import toy_cohort
from raylets import wait_for

from contrasweep import AblationGrid, Arm
from contrasweep.data import resolve
from contrasweep.planning.lanes import FailedElsewhere
from contrasweep.planning.planner import plan
from contrasweep.trainables.fusing.host import host as cohort_host
from contrasweep.trainables.fusing.host.host import CohortHost
from contrasweep.trainables.fusing.host.messages import STOPPED_HOST, CohortFault, Message


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    """Six trials of different folds, learning rates and lengths, all of one key."""
    arms = {
        "short": Arm("toy_cohort:train", config={"epochs": 2, "lr": 0.5}),
        "long": Arm("toy_cohort:train", config={"epochs": 4, "lr": 0.1}),
    }
    storage = str(tmp_path_factory.mktemp("data"))
    resolve("digits-lt", folds=3, storage=storage, write=True)
    return plan(AblationGrid("s", arms, "digits-lt", folds=3), storage=storage).trials


@pytest.fixture
def host():
    """Opens hosts; each is closed at the end."""
    hosts = []

    def open_host(slots=4, in_step=False, **options):
        def open_cohort(trial):
            return toy_cohort.ToyCohorts().open(trial, slots)

        hosts.append(CohortHost(open_cohort, slots, in_step=in_step, **{"captured": False} | options))
        return hosts[-1]

    yield open_host
    for opened in hosts:
        opened.close()


def reports(host, trial, resume=None, wait_s=20.0):
    """All reports of a trial as a member of `host`, as its process would fetch them; with each checkpoint's content."""
    token = host.attach(trial, resume, os.getpid())
    if isinstance(token, Message):
        token.raise_failure()
    assert isinstance(token, int), token
    seen = []
    while True:
        for message in host.take(token, wait_s):
            message.raise_failure()
            if message.report is None:
                return seen
            kept = message.report.checkpoint
            seen.append((message, None if kept is None else dict(np.load(kept / "weights.npz"))))


def together(host, trials, **options):
    """The reports of several trials, fetched side by side."""
    results, threads = {}, []
    for trial in trials:

        def fetch(trial=trial):
            try:
                results[trial.id] = reports(host, trial, **options)
            except Exception as error:
                results[trial.id] = error

        threads.append(threading.Thread(target=fetch))
        threads[-1].start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize("in_step", [False, True])
def test_each_member_has_the_reports_and_checkpoints_of_its_trial_alone(host, trials, in_step):
    results = together(host(in_step=in_step), trials[:4])
    for trial in trials[:4]:
        alone = []
        for report in toy.train(trial):
            alone.append((report.step, report.metrics, dict(np.load(report.checkpoint / "weights.npz"))))
        assert [m.report.step for m, _ in results[trial.id]] == [step for step, _, _ in alone]
        for (message, saved), (_, metrics, expected) in zip(results[trial.id], alone, strict=True):
            assert message.report.metrics == metrics
            np.testing.assert_allclose(saved["weights"], expected["weights"], rtol=1e-12)
            assert saved["epoch"] == expected["epoch"]


def test_a_member_goes_on_from_its_checkpoint(host, trials, tmp_path):
    trial = trials[1]
    expected = [report.metrics for report in toy.train(trial)]
    for report in toy.train(trial):
        if report.step == 2:
            np.savez(tmp_path / "weights.npz", **np.load(report.checkpoint / "weights.npz"))
            break
    results = together(host(), trials[:1])  # the others of the cohort do not matter
    assert len(results[trials[0].id]) == 2
    resumed = reports(host(), trial, resume=tmp_path)
    assert [m.report.step for m, _ in resumed] == [3, 4]
    assert [m.report.metrics for m, _ in resumed] == expected[2:]


def test_a_full_cohort_takes_nobody_and_a_free_slot_the_next(host, trials):
    """Of trials with as many reports as a member may be ahead of its process, none ends before it is asked."""
    *members, following = trials[1::2]
    opened = host(slots=2)
    tokens = [opened.attach(trial, None, os.getpid()) for trial in members]
    assert all(isinstance(token, int) for token in tokens)
    assert opened.attach(following, None, os.getpid()) is None
    opened.detach(tokens[0])
    assert isinstance(opened.attach(following, None, os.getpid()), int)
    with pytest.raises(RuntimeError, match="no member"):
        opened.take(tokens[0], 1.0)


def test_the_slot_of_a_process_that_was_killed_is_freed(host, trials):
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    opened = host(slots=2)
    assert isinstance(opened.attach(trials[0], None, process.pid), int)
    process.kill()
    process.wait()
    results = together(opened, trials[1:3])
    assert [len(results[trial.id]) for trial in trials[1:3]] == [4, 2]


def test_a_slot_that_is_freed_while_another_joins_is_free_for_the_next(host, trials, monkeypatch):
    """Killed while a third trial joins, a member comes back at once: its slot is freed before it joins again."""
    opened, entered, go_on = host(slots=3), threading.Event(), threading.Event()
    tokens = [opened.attach(trial, None, os.getpid()) for trial in trials[:2]]
    join = toy_cohort.ToyCohort.join

    def slow(cohort, trial, resume):
        if trial.id in cohort.members or len(cohort.members) >= cohort.slots:
            raise ValueError("it is a member already, or there is no slot")
        if trial.id == trials[2].id:
            entered.set()
            assert go_on.wait(300)
        join(cohort, trial, resume)

    monkeypatch.setattr(toy_cohort.ToyCohort, "join", slow)
    results = {}

    def fetch(trial):
        results[trial.id] = reports(opened, trial)

    threads = [threading.Thread(target=fetch, args=(trials[2],))]
    threads[0].start()
    assert entered.wait(300)
    threads += [threading.Thread(target=fetch, args=(trials[1],))]
    opened.detach(tokens[0])
    threads += [threading.Thread(target=fetch, args=(trials[3],))]
    for thread in threads[1:]:
        thread.start()
    wait_for(lambda: len(opened._joining) == 3)
    go_on.set()
    for thread in threads:
        thread.join()
    assert {trial.id: len(results[trial.id]) for trial in trials[1:4]} == {
        trial.id: trial.config["epochs"] for trial in trials[1:4]
    }


def test_files_are_dropped_with_the_member_that_has_ended(host, trials):
    opened = host(slots=2)
    token = opened.attach(trials[0], None, os.getpid())
    wait_for(lambda: opened._members[token].ended)  # before it is asked for any report
    kept = [m.report.checkpoint for m in opened.take(token, 1.0)]
    assert all((folder / "weights.npz").exists() for folder in kept) and len(kept) == 2
    (end,) = opened.take(token, 1.0)
    assert end.report is None
    assert not any(folder.exists() for folder in kept)
    wait_for(lambda: not list(opened._scratch.iterdir()))


@pytest.mark.parametrize("in_step", [False, True])
def test_files_of_a_report_outlive_the_host(host, trials, in_step, tmp_path):
    """A process may store them while its host dies, and other processes clear what belonged to that one."""
    opened = host(slots=2, in_step=in_step)
    token = opened.attach(trials[0], None, os.getpid(), tmp_path / "own")
    first = opened.take(token, 20.0)[0]
    opened.close()
    assert first.report.step == 1 and np.load(first.report.checkpoint / "weights.npz")["epoch"] == 1
    assert first.report.checkpoint.is_relative_to(tmp_path / "own")


def test_a_host_that_failed_lives_until_its_answers_are_out(host, trials):
    config = dict(trials[0].config) | {"error": "MemoryError"}
    ended = threading.Event()
    opened = host(slots=4, on_idle=ended.set)
    answer = opened.attach(type(trials[0])(**{**vars_of(trials[0]), "config": config}), None, os.getpid())
    assert answer.failure.startswith(STOPPED_HOST)
    assert not ended.wait(0.3), "Ray still sends the answer"
    assert ended.wait(300)


def test_a_host_that_closes_sends_away_who_waits(host, trials, monkeypatch):
    opened, entered, go_on = host(slots=2), threading.Event(), threading.Event()
    join = toy_cohort.ToyCohort.join

    def slow(cohort, trial, resume):
        entered.set()
        assert go_on.wait(300)
        opened._closing = True
        join(cohort, trial, resume)

    monkeypatch.setattr(toy_cohort.ToyCohort, "join", slow)
    answers = []
    threads = [
        threading.Thread(target=lambda trial=trial: answers.append(opened.attach(trial, None, os.getpid())))
        for trial in trials[:2]
    ]
    threads[0].start()
    assert entered.wait(300)
    threads[1].start()
    wait_for(lambda: len(opened._joining) == 2)
    go_on.set()
    for thread in threads:
        thread.join(300)
    assert len(answers) == 2 and None in answers


def test_a_member_that_fails_fails_alone(host, trials, tmp_path):
    config = dict(trials[1].config) | {"fail_at": 2}
    failing = type(trials[1])(**{**vars_of(trials[1]), "config": config})
    results = together(host(), [trials[0], failing])
    assert isinstance(results[failing.id], FailedElsewhere)
    assert "this trial fails on purpose" in results[failing.id].text
    assert len(results[trials[0].id]) == 2


def test_a_fault_of_the_whole_cohort_is_told_to_each_member(host, trials):
    config = dict(trials[0].config) | {"error": "MemoryError"}
    trial = type(trials[0])(**{**vars_of(trials[0]), "config": config})
    results = together(host(slots=4), [trial])
    assert isinstance(results[trial.id], CohortFault)
    assert str(results[trial.id]).startswith(STOPPED_HOST)
    assert "MemoryError: this cohort is too large" in str(results[trial.id])


def test_members_in_step_hear_of_each_other(host, trials):
    results = together(host(in_step=True), trials[:4])
    peers = [{len(message.peers) for message, _ in results[trial.id]} for trial in trials[:4]]
    short, long = peers[0], peers[1]
    assert 3 in short and 3 in long, "all four reported in the same step at least once"
    for trial in trials[:4]:
        for message, _ in results[trial.id]:
            assert trial.id not in message.peers
            assert all(row["step"] >= 1 and "accuracy" in row for row in message.peers.values())


def test_nobody_waits_for_ever_for_a_member_that_does_not_ask(host, trials, monkeypatch):
    monkeypatch.setattr(cohort_host, "IN_STEP_S", 0.2)
    opened = host(slots=2, in_step=True)
    assert isinstance(opened.attach(trials[1], None, os.getpid()), int)  # and never asks
    assert len(reports(opened, trials[0])) == 2


def test_a_host_that_nobody_needs_ends(host, trials, monkeypatch):
    monkeypatch.setattr(cohort_host, "IDLE_S", 0.2)
    ended = threading.Event()
    opened = host(on_idle=ended.set)
    assert len(reports(opened, trials[0])) == 2
    assert ended.wait(300)
    assert opened.attach(trials[1], None, os.getpid()) is None


def vars_of(trial):
    return {name: getattr(trial, name) for name in ("study", "arm", "trainable", "config", "data", "fold", "seed")}
