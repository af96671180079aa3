"""A study seen from its storage alone: `watch`, `studies`, `status` and `logs`, while it runs and when it is over."""

import contextlib
import dataclasses
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pandas as pd
import pytest
from answering import answering
from command_line import contrasweep, printed
from folders import make_files
from refusals import refused

from contrasweep.cli import watching
from contrasweep.data.manifest import Manifest
from contrasweep.errors import ContrasweepError, SpecError
from contrasweep.live import logs, state
from contrasweep.live.displays import Lines
from contrasweep.live.overview import overviews
from contrasweep.live.state import LIVE, LIVE_FILE, ArmState, RunningTrial, RunState, watch
from contrasweep.processes import process_identity
from contrasweep.running import upkeep
from contrasweep.storage.archive import archive_trials, list_archived
from contrasweep.storage.lease import HOLDER_FILE, Holder
from contrasweep.storage.planned import write_planned
from contrasweep.storage.record import CodeRef, Phase, Record, Status, TrialNotes
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import StudyDocument
from contrasweep.trial import Trial

DATA = Manifest("digits", "/nowhere", "image", {})
TRIALS = [Trial("s", "ocl", "m:train", {"lr": 0.1}, DATA, None, seed) for seed in range(3)]


@pytest.fixture
def records(storage):
    """A study of three trials: one done, one failed, one that a driver runs."""
    records = StudyRecords(storage, "s")
    records.claim(
        StudyDocument(name="s", metric="f1", trials=3, arms=("ocl",), created=time.time() - 60)
    )
    done, failed, _ = TRIALS
    records.write(Record.of(done, status=Status.DONE, metrics={"f1": 0.75}, ended=time.time() - 5))
    error = 'Traceback (most recent call last):\n  File "/me/method.py", line 3, in train\nValueError: on purpose\n'
    records.write(Record.of(failed, status=Status.FAILED, error=error, host="h1"))
    records.store.write(records.key(failed.id, "log.txt"), b"what it \x1b[31mprinted\n")
    return records


def keep(records, **fields):
    now = time.time()
    running = {
        TRIALS[2].id: RunningTrial(TRIALS[2].id, "ocl", {}, None, 2, now - 30, 4, 9, 0.5, now - 1)
    }
    arms = {"ocl": ArmState(ended=2, total=3, scored=1, mean=0.75, best=0.75, best_where="seed=0")}
    base = {
        "total": 3,
        "before": {},
        "slots": 1,
        "began": now - 60,
        "updated": now,
        "running": running,
        "arms": arms,
    }
    state = RunState(
        "s", "f1", "max", records.storage, **base | {"statuses": {"done": 1, "failed": 1}} | fields
    )
    LIVE_FILE.write(records.store, f"s/{LIVE}", dataclasses.asdict(state))
    return state


def test_trials_that_were_removed_are_counted_until_they_run_again_or_come_back(
    records, tmp_path, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "200")
    archive_trials(records, [TRIALS[1].id], "of other code")  # which is to run again
    upkeep.remove(records, [TRIALS[0].id])
    assert "0 of 3: 1 archived" in printed(tmp_path, "studies", "--storage", records.storage)
    (entry,) = overviews(records.storage)
    assert (entry.archived, entry.state) == (1, "stopped")
    upkeep.restore(records, max(part.when for part in list_archived(records)))
    (entry,) = overviews(records.storage)
    assert entry.archived == 0


def test_a_study_that_grew_is_not_complete_by_the_run_before(records):
    keep(records, ended="complete", statuses={"done": 2}, total=2, running={})
    (entry,) = overviews(records.storage)
    assert (entry.state, entry.trials, sum(entry.statuses.values())) == ("stopped", 3, 2)


@pytest.mark.parametrize("number", range(4))
def test_confirmations_of_what_is_no_longer_the_best_are_not_counted_and_of_equal_arms_the_first_is_best(
    number, tmp_path
):
    records = StudyRecords(str(tmp_path), "s")
    records.claim(StudyDocument(name="s", metric="f1", trials=4, arms=("ocl",)))
    search, before, now = (dataclasses.replace(TRIALS[0], config={"lr": n}) for n in range(3))
    equal = dataclasses.replace(now, arm="abc", config={"lr": number})
    for trial in (search, before, now, equal):
        notes = TrialNotes(phase=Phase.SEARCH if trial is search else Phase.CONFIRM)
        value = 0.5 if trial in (now, equal) else 0.9
        record = Record.of(trial, status=Status.DONE, metrics={"f1": value}, notes=notes)
        code = CodeRef("c0de" if trial is before else "c1", earlier=("c2",))
        records.write(dataclasses.replace(record, code=code))
    planned = [
        {"trial_id": trial.id, "arm": trial.arm, "fold": None, "seed": 0} for trial in (now, equal)
    ]
    write_planned(records, pd.DataFrame(planned))
    (entry,) = overviews(records.storage)
    assert (entry.statuses, entry.state) == ({"done": 3}, "stopped")
    assert (entry.best, entry.best_arm) == (0.5, "abc")
    assert entry.codes == ["c1", "c2"]


HOLD = """
import sys, time
from contrasweep.storage.lease import exclusive_driver
from contrasweep.storage.records import StudyRecords
with exclusive_driver(StudyRecords(*sys.argv[1:])):
    print("held", flush=True)
    time.sleep(60)
"""


@contextlib.contextmanager
def driver_of(storage, study="s"):
    """A program of the user's, such as a notebook, that runs a study in this storage."""
    driver = subprocess.Popen(
        [sys.executable, "-c", HOLD, storage, study], stdout=subprocess.PIPE, text=True
    )
    try:
        assert driver.stdout.readline() == "held\n"
        yield driver
    finally:
        driver.kill()
        driver.communicate()


@pytest.mark.parametrize(("ago", "state"), [(3, "running"), (100, "stopped")])
def test_a_run_of_another_machine_is_running_before_its_first_state(records, ago, state):
    keep(records, updated=time.time() - 100)
    holder = Holder("h2", 7, "another machine", "token", 1, time.time() - ago)
    hold(records, holder)
    (entry,) = overviews(records.storage)
    assert entry.state == state


def test_a_run_that_has_just_begun_is_running_before_its_first_state(records):
    """Ray takes seconds to start; whoever asked meanwhile read `stopped`, and began a second run."""
    keep(records, updated=time.time() - 100)  # by a driver that was killed: its trials run no more
    with driver_of(records.storage):
        (entry,) = overviews(records.storage)
        assert (entry.alive, entry.state, entry.running) == (True, "running", 0)
    (entry,) = overviews(records.storage)
    assert (entry.alive, entry.state) == (False, "stopped")
    hold(records, Holder("far", 1, "another machine", "t"))
    assert next(overviews(records.storage)).state == "stopped", "as far as this machine can tell"


def stop(records, folder):
    return contrasweep("stop", "s", "--storage", records.storage, folder=folder)


def hold(records, holder):
    """What somebody may write to the storage as its newest lease."""
    HOLDER_FILE.write(records.store, "s/lease/00000009.json", dataclasses.asdict(holder))


@pytest.mark.slow
def test_a_study_is_stopped_by_its_name_where_it_runs(records, tmp_path):
    """The holder of its lease gets SIGTERM; one of another machine is named, and nothing is sent."""
    assert stop(records, tmp_path).returncode == 2
    assert "no process runs study s" in stop(records, tmp_path).stderr
    job = ("stop", "contrasweep-s-0123abcd", "--storage", records.storage)
    assert "known to its cluster" in contrasweep(*job, folder=tmp_path).stderr
    with driver_of(records.storage) as driver:
        (tmp_path / "link").symlink_to(records.storage)
        done = contrasweep("stop", "s", "--storage", "link", folder=tmp_path)
        assert done.stdout == f"asked process {driver.pid} on {socket.gethostname()} to stop\n", (
            done
        )
        assert driver.wait(30) == -signal.SIGTERM
    assert "no process runs study s" in stop(records, tmp_path).stderr
    hold(records, Holder("far", os.getpid(), "another machine", "t"))
    assert stop(records, tmp_path).returncode == 2
    elsewhere = stop(records, tmp_path).stderr
    assert f"kill {os.getpid()}; its job on a cluster: contrasweep stop s --storage" in elsewhere


@pytest.mark.parametrize(
    ("words", "patched"),
    [
        (["decide", "speed.yaml", "incumbent", "--set", "config.a=1"], "campaign.campaign.plan"),
        (["run", "speed.yaml"], "running.driver.run"),
    ],
)
def test_a_command_is_stopped_by_the_name_that_it_was_given_before_it_holds_a_study(
    words, patched, tmp_path, monkeypatch
):
    """It took twenty seconds in which `stop` knew no such study."""
    arm = "{trainable: candidates:train}"
    declared = (
        f"{{type: campaign, incumbent: {arm}" if "decide" in words else f"{{arms: {{a: {arm}}}"
    )
    make_files(tmp_path, {"speed.yaml": declared + ", name: speed, data: digits-lt}"})
    killed = []

    def stopped(*study, **options):
        with monkeypatch.context() as patch:
            patch.setattr("contrasweep.storage.lease.os.kill", lambda *given: killed.append(given))
            assert "asked process" in printed(tmp_path, "stop", "speed")
        raise ContrasweepError("stopped")

    monkeypatch.setattr(f"contrasweep.{patched}", stopped)
    assert "contrasweep: stopped" in contrasweep(*words, folder=tmp_path).stderr
    assert killed == [(os.getpid(), signal.SIGTERM)]
    assert "no such study" in contrasweep("stop", "speed", folder=tmp_path).stderr


@pytest.mark.slow
def test_a_process_that_a_storage_names_is_not_stopped_unless_it_runs_this_study_in_this_storage(
    records, tmp_path
):
    with (
        subprocess.Popen(["sleep", "60"]) as bystander,
        driver_of(str(tmp_path / "other")) as elsewhere,
    ):
        for process in (bystander, elsewhere):
            hold(records, Holder("here", process.pid, process_identity(process.pid), "t"))
            done = stop(records, tmp_path)
            assert done.returncode == 2 and process.poll() is None
            assert f"process {process.pid} on here" in done.stderr
            assert "nothing is stopped" in done.stderr
        bystander.kill()


def test_watch_ends_with_the_run_and_says_each_event_once(records):
    stream = io.StringIO()
    keep(records, events=[(1.0, "the first")])
    watcher = threading.Thread(target=watch, args=(records, Lines(stream, every_s=0.0)))
    watcher.start()
    while "the first" not in stream.getvalue() and watcher.is_alive():
        time.sleep(0.01)
    keep(records, events=[(1.0, "the first"), (2.0, "the second")], ended="complete", running={})
    watcher.join(300)
    assert not watcher.is_alive()
    lines = stream.getvalue().splitlines()
    assert lines.count("the first") == 1 and lines.count("the second") == 1
    assert "ended" in lines[-1]


class Hearing(Lines):
    """Lines, of which the first one does something."""

    def __init__(self, at_first):
        super().__init__(io.StringIO())
        self.at_first = at_first

    def say(self, text):
        super().say(text)
        self.at_first, once = lambda: None, self.at_first
        once()

    @property
    def said(self):
        return self.stream.getvalue()


@pytest.mark.parametrize("before", [None, "complete"])
def test_watch_waits_for_a_later_run_that_has_kept_no_state_yet(records, monkeypatch, before):
    """As while Ray starts; what it saw was the end of the run before, or none."""
    monkeypatch.setattr(state, "POLL_S", 0.01)
    if before:
        keep(records, ended=before, running={})
    with driver_of(records.storage) as driver:
        here = {"host": socket.gethostname(), "pid": driver.pid}
        display = Hearing(lambda: keep(records, ended="failures", running={}, **here))
        assert watch(records, display).ended == "failures", "while it publishes, its run is over"
        first = f"process {driver.pid} on {socket.gethostname()} has not begun to train yet\n"
        assert display.said.startswith(first) and display.said.count("not begun") == 1
    if before:
        keep(records, ended=before, running={})
        assert watch(records, Lines(io.StringIO())).ended == before, "that driver was killed"


def test_watch_waits_for_a_job_on_its_cluster_that_has_not_begun_or_extends(
    records, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(state, "POLL_S", 0.01)
    with answering() as server:

        def job(study, status):
            listed = {
                "submission_id": f"contrasweep-{study}-00000001",
                "metadata": {"contrasweep": study, "storage": records.storage},
                "status": status,
                "message": "",
                "start_time": 1,
                "end_time": None,
            }
            server.answers["/api/jobs/"] = (200, json.dumps([listed]))

        def watched(study, status, then):
            display = Hearing(then)
            monkeypatch.setattr("contrasweep.live.displays.display_here", lambda: display)
            job(study, status)
            watching.watch(study, storage=records.storage, address=server.address)
            asks = f"contrasweep logs contrasweep-{study}-00000001 --address {server.address}"
            assert display.said.startswith(f"job contrasweep-{study}-00000001 is {status}; {asks}")
            return capsys.readouterr()

        job("s", "PENDING")
        words = ("status", "s", "--storage", records.storage, "--address", server.address)
        shown = printed(tmp_path, *words)
        assert shown.endswith("\njob contrasweep-s-00000001 is PENDING\n")
        # The study is in the storage, and is extended: its state is that of the run before.
        keep(records, ended="complete", running={})

        def extended():
            keep(records, ended="failures", running={})
            job("s", "SUCCEEDED")

        assert "ended: failures" in watched("s", "PENDING", extended).out
        # It is not there yet; its job ends before it has written anything.
        never = watched("t", "RUNNING", lambda: job("t", "FAILED")).err
        assert "no driver of t has begun to train; contrasweep status t --storage" in never
        with refused(SpecError, "no such study", "its job has begun: contrasweep jobs --address"):
            watching.watch("t", storage=records.storage, address=server.address)
    # A head that is gone is no reason to show nothing of a study that has ended.
    watching.watch("s", storage=records.storage, address=server.address)
    assert "ended: failures" in capsys.readouterr().out


def test_a_log_is_followed_until_the_trial_has_its_record(records, monkeypatch):
    running = TRIALS[2]
    written = []
    key = records.key(running.id, "log.txt")
    records.store.write(key, b"one\n")
    keep(records)
    assert logs.find_trial(records, running.id[:7]) == running.id
    monkeypatch.setattr(logs, "POLL_S", 0.01)
    follower = threading.Thread(target=logs.follow, args=(records, running.id, written.append))
    follower.start()
    while "".join(written) != "one\n":
        time.sleep(0.01)
    records.store.write(key, b"one\ntwo\n")
    records.write(Record.of(running, status=Status.DONE))
    follower.join(300)
    assert "".join(written) == "one\ntwo\n--- done\n"


def test_a_log_that_was_shortened_is_followed_from_where_it_was():
    begun = "a\n" + "x" * 300 + "the last that was read\n"
    assert logs._new(begun, begun + "more\n") == "more\n"
    assert (
        logs._new(begun, "a\n--- 40 bytes are left out here\n" + begun[-210:] + "more\n")
        == "more\n"
    )
    assert "too fast" in logs._new(begun, "a\n--- left out\nnothing that was read\n")


@pytest.mark.parametrize("field", ["began", "updated", "eta_s", "slots", "total", "before", "pid"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e308, 10**400, "\x1b[2J"])
def test_a_state_that_cannot_be_is_none(records, field, value):
    keep(records, **{field: value})
    assert state.read_live(records) is None
