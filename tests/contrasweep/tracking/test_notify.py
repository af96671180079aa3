"""Notifications: each event of a run is told once to each command, and a command that misbehaves costs nothing."""

import json
import os
import re
import signal
import time
from dataclasses import replace

import pytest
from benchmarks.tracking_services import wait_until
from drivers import has_ended
from looks import drive_looks, three_arms, value_of
from tracked import drive

from contrasweep.delivery import deliver
from contrasweep.live.state import SILENT_S
from contrasweep.storage.records import StudyRecords
from contrasweep.tracking import notify
from contrasweep.tracking.kinds import checked_tracking
from contrasweep.tracking.notify import Notifier
from contrasweep.tracking.process import TrackingProcess
from contrasweep.tracking.tracker import TrackedStudy

MESSAGE = {"event": "failure", "study": "s", "text": "s: failed: <!channel> & @everyone"}


class Heard:
    """A command that keeps what it is told, an event a line."""

    def __init__(self, folder):
        self.file = folder / "heard"
        self.command = f"sh -c 'cat >> {self.file}; echo >> {self.file}'"

    @property
    def posts(self):
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return [json.loads(line) for line in lines]

    @property
    def events(self):
        return [event["event"] for event in self.posts]


@pytest.fixture
def heard(tmp_path):
    return Heard(tmp_path)


@pytest.fixture
def records(runs):
    return StudyRecords(runs, "s")


def live(records, **fields):
    """Write what a driver of now keeps in the storage."""
    drive(records, **{"began": time.time(), "host": "node-7", "pid": 4711, **fields})


def beside(records, *addresses):
    trackers = replace(checked_tracking(None), notify=addresses)
    return TrackingProcess(trackers, TrackedStudy(records.study), records)


def ended(notifier, outcome="complete", lost=False):
    """Let it come to its end, with a last look."""
    notifier.close(outcome, lost=lost)
    assert notifier.join(240.0)


FAILED = {
    "statuses": {"done": 3, "failed": 2},
    "events": [(1.0, "look"), (2.0, "failed: ocl fold=2: ValueError: x")],
}


def test_a_driver_that_is_killed_gives_no_sign_of_life_and_no_end(heard, records):
    process = beside(records, heard.command)
    live(records)
    process._tell("")  # what is told of a driver whose pipe ends
    assert process.process.wait() == 0
    (silent,) = heard.posts
    assert silent["event"] == "silent"
    assert "no sign of life from process 4711 on node-7 any more" in silent["text"]


@pytest.mark.parametrize(("outcome", "lost"), [("interrupted", False), ("interrupted", True)])
def test_of_a_run_before_this_one_nothing_is_told_but_how_this_one_ended(
    heard, records, outcome, lost
):
    live(records, **FAILED, began=time.time() - 3600, updated=time.time() - 3600)
    ended(Notifier([heard.command], records, time.time()), outcome, lost)
    assert heard.events == ["silent" if lost else "end"]


def test_a_driver_that_hangs_is_named_once_and_again_only_after_it_has_lived(
    heard, records, monkeypatch
):
    clock = [1000.0]
    monkeypatch.setattr(notify.time, "monotonic", lambda: clock[0])
    notifier = Notifier([], records, time.time())
    sent = []
    monkeypatch.setattr(
        notifier, "_send", lambda event, *_: (sent.append(event), notifier._told.add(event))
    )
    for seconds in (0.0, SILENT_S + 1, 1.0):
        if not seconds:
            live(records)
        clock[0] += seconds
        notifier.look()
    assert sent == ["silent"]
    live(records)
    notifier.look()
    clock[0] += SILENT_S + 1
    notifier.look()
    assert sent == ["silent", "silent"]


def test_a_look_that_decides_is_told_and_one_that_decides_nothing_new_is_not(heard, tmp_path):
    study = three_arms()
    records = StudyRecords(str(tmp_path), study.name)
    drive_looks(study, tmp_path, value_of, stop_after=3)
    notifier = Notifier([heard.command], records, time.time())
    drive_looks(study, tmp_path, value_of)
    notifier.look()
    ended(notifier)
    assert heard.events == ["look", "end"]
    assert "c better than a by" in heard.posts[0]["text"] and "decided" in heard.posts[0]["text"]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_look_is_told_with_the_better_arm_first_and_its_lead_above_0(heard, tmp_path, sign):
    """Whichever arm the comparison is of, and whether larger or smaller values are better."""
    study = replace(three_arms(), mode="max" if sign > 0 else "min")
    notifier = Notifier([heard.command], StudyRecords(str(tmp_path), study.name), time.time())
    drive_looks(study, tmp_path, lambda trial: sign * value_of(trial))
    ended(notifier)
    leads = re.findall(r"(\w) better than \w by ([-\d.]+)", heard.posts[0]["text"])
    assert leads and all(arm == "c" and float(lead) > 0 for arm, lead in leads)


def test_what_looks_of_an_earlier_run_decided_is_not_told_again(heard, tmp_path):
    study = three_arms()
    drive_looks(study, tmp_path, value_of)
    ended(Notifier([heard.command], StudyRecords(str(tmp_path), study.name), time.time()))
    assert heard.events == ["end"]


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("sh -c 'cat > heard'", ""),
        ("false", "exit status 1"),
        ("sh -c 'sleep 1000 & echo $! > child; sleep 1000'", "it took over 1 s"),
        ("/no/such/program", "[Errno 2] No such file or directory: '/no/such/program'"),
    ],
)
def test_a_command_gets_the_event_and_one_that_misbehaves_is_a_line(
    command, says, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("contrasweep.delivery.DELIVER_S", 1.0 if "over" in says else 240.0)
    assert deliver(command, MESSAGE) == says
    assert says or json.loads((tmp_path / "heard").read_text()) == MESSAGE
    if "over" in says:
        child = int((tmp_path / "child").read_text())
        wait_until(lambda: has_ended(child), "what the command has started ends", 10.0)


def test_a_command_that_hangs_holds_up_neither_the_driver_nor_another(heard, records, capfd):
    process = beside(records, "false", heard.command, "sleep 20")
    live(records, ended="complete")  # the word of an earlier run
    assert process.close("interrupted", 240.0) == ""
    assert process.process.poll() is None, "the driver does not wait for the command"
    assert [event["text"] for event in heard.posts] == ["s: interrupted, 0 of 8 trials"]
    assert "notify: false was not told of the end (exit status 1)" in capfd.readouterr().err
    os.killpg(process.process.pid, signal.SIGKILL)
