"""Trials that do not report: what is usual, what is silent, what is out of its time; and where a process is."""

import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from command_line import python
from raylets import wait_for

from contrasweep.commands import COMMAND_PATH
from contrasweep.errors import error_of
from contrasweep.running import stacks
from contrasweep.running.engine.accounts import (
    CALL_S,
    LATE_S,
    MIN_SILENCE_S,
    UNKNOWN_SILENCE_S,
    Overdue,
)
from contrasweep.running.engine.watchdog import Watchdog
from contrasweep.running.failures import failure_line, place_of
from contrasweep.running.stacks import innermost, stack_of
from contrasweep.storage.record import DatasetRef, Record, Status


def test_a_silent_trial_is_named_once_until_it_reports_again():
    watched = Overdue()
    watched.started("i", "a", 0.0, now=0.0)
    for now in (60.0, 120.0, 180.0):
        watched.reported("i", 1, now, now)
    assert watched.silent(180.0 + 600.0) == {}
    (silence,) = watched.silent(180.0 + 601.0).values()
    assert silence == "no report for 10 min, usually every 60 s"
    assert watched.silent(5000.0) == {}
    watched.reported("i", 1, 200.0, 5000.0)
    assert len(watched.silent(50_000.0)) == 1


def test_quick_trials_are_given_a_minute_and_first_reports_what_others_took():
    watched = Overdue()
    for trial_id in ("quick", "first"):
        watched.started(trial_id, "a", 0.0, now=0.0)
    assert watched.silent(UNKNOWN_SILENCE_S) == {}
    watched.reported("quick", 10, 1.0, 30.0)
    watched.reported("quick", 10, 2.0, 31.0)
    assert [*watched.silent(31.0 + MIN_SILENCE_S + 1)] == ["quick"]
    assert [*watched.silent(301.0)] == ["first"], "the other took 30 s to its first report"


def test_what_a_trial_took_to_its_first_report_is_no_interval_of_others():
    watched = Overdue()
    watched.started("slow", "a", 0.0, now=0.0)
    for now in (600.0, 601.0):
        watched.reported("slow", 1, now, now)
    watched.ended("slow")
    watched.started("next", "a", 0.0, now=601.0)
    watched.reported("next", 1, 1.0, 700.0)
    assert [*watched.silent(700.0 + MIN_SILENCE_S + 1)] == ["next"]


def test_a_trial_is_called_once_it_is_late_and_then_again_until_it_reports():
    watched = Overdue()
    watched.started("quick", "a", 0.0, now=0.0)
    watched.started("slow", "b", 0.0, now=0.0)
    for now in (1.0, 2.0):
        watched.reported("quick", 1, now, now)
    for now in (600.0, 1200.0):
        watched.reported("slow", 1, now, now)
    late = 2.0 + LATE_S + 1.0
    assert watched.late(late) == [], "it may take 20 s more than usual"
    assert watched.late(late + 0.1) == ["quick"]
    assert watched.late(late + CALL_S) == []
    assert watched.late(late + CALL_S + 0.2) == ["quick"]
    watched.ended("quick")
    assert watched.late(1200.0 + 600.0 + LATE_S) == [], "an epoch of ten minutes is not late"


def test_a_driver_that_stood_still_ends_no_trial_whose_reports_wait_for_it():
    """As one that was stopped, or waited for a storage: its workers wait for it, and did report."""
    overdue = Overdue(trial_s=7200.0, report_s=600.0)
    watchdog = Watchdog(SimpleNamespace(accounts=SimpleNamespace(overdue=overdue)))
    overdue.started("i", "a", 0.0, now=time.monotonic() - 10_000.0)
    overdue.started("new", "a", 0.0, now=time.monotonic())
    watchdog.due -= 9_995.0
    watchdog.check([])
    now = time.monotonic()
    assert overdue.silent(now) == overdue.timed_out(now) == {}
    assert set(overdue.timed_out(now + 601.0)) == {"i", "new"}


def test_limits_of_time_say_which():
    watched = Overdue(trial_s=7200.0, report_s=600.0)
    watched.started("slow", "a", 7000.0, now=0.0)
    watched.started("mute", "a", 0.0, now=0.0)
    watched.reported("slow", 1, 7100.0, now=550.0)
    assert watched.timed_out(600.0) == {}
    over = watched.timed_out(660.0)
    assert over["slow"] == "timed out after 2.0 h (trial_hours is 2)"
    assert over["mute"] == "timed out after 11 min without a report (report_minutes is 10)"
    watched.ended("mute")
    assert set(watched.timed_out(660.0)) == {"slow"}
    assert Overdue().timed_out(10**9) == {}


def test_the_stack_of_another_process_says_where_it_is(tmp_path):
    script = tmp_path / "method.py"
    script.write_text(
        "import time\ndef train():\n    print('here', flush=True)\n    time.sleep(600)\ntrain()\n"
    )
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline()
        if not stack_of(process.pid):
            pytest.skip("py-spy may not look at other processes here")
        wait_for(lambda: innermost(stack_of(process.pid)) == "train (method.py:4)")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_without_py_spy_the_process_writes_its_stacks_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(stacks.shutil, "which", lambda *words, **options: None)
    script = tmp_path / "method.py"
    script.write_text(
        "from contrasweep.running.stacks import answer_signal\nanswer_signal()\n"
        "def train():\n    print('here', flush=True)\n    while True: pass\ntrain()\n"
    )
    with (tmp_path / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=log
        )
        try:
            assert process.stdout.readline()
            assert stack_of(process.pid) == ""
            while "in <module>" not in (text := (tmp_path / "log.txt").read_text()):
                time.sleep(0.05)
            assert process.poll() is None, "it goes on"
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
    assert 'method.py", line' in text and " in train" in text


WAITS = """Thread 7 (idle): "MainThread"
    wait (/usr/lib/python3.11/threading.py:327)
    get (/x/site-packages/ray/_private/worker.py:2961)
    wrapper (/x/site-packages/ray/_private/client_mode_hook.py:104)
    train (/home/me/method.py:4)
"""


@pytest.mark.parametrize(
    ("stack", "waits"),
    [
        (WAITS, True),
        (WAITS.replace("ray/_private", "queue"), False),
        (WAITS.replace("    wait (/usr", "    step (/home/me/method.py:9)\n" * 4 + "    wait (/usr"), False),
    ],
)  # fmt: skip
def test_a_trial_that_waits_for_a_task_of_ray_is_known_by_its_innermost_frames(stack, waits):
    assert stacks.waits_for_task(stack) == waits


ASKS_A_BUSY_HOST = """
import os, sys, threading, time
import ray
from ray.cluster_utils import Cluster
from contrasweep.running import stacks
from contrasweep.running.engine.watchdog import Watchdog

def ask(pid, asked=sys.argv[1]):
    open(asked, "w").close()
    time.sleep(600)

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
cluster.add_node(num_cpus=1)
ray.init(cluster.address, logging_level="ERROR", log_to_driver=False)

@ray.remote(num_cpus=1)
class Worker:
    pass

actor = Worker.remote()
ray.get(actor.__ray_ready__.remote())
watchdog = Watchdog(None)
watchdog._in_thread(stacks.on_node_of, actor, ask, lambda: watchdog._ended)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
watchdog.end()
print([thread.name for thread in threading.enumerate() if thread.name == "watchdog"])
ray.shutdown()
cluster.shutdown()
print("ended")
"""


@pytest.mark.long
def test_no_thread_asks_a_worker_any_more_once_ray_is_shut_down(tmp_path):
    """A thread that waited for an answer of another host ended a driver with a segmentation fault."""
    done = python("-c", ASKS_A_BUSY_HOST, str(tmp_path / "asked"), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "[]\nended\n"), done.stderr


TRACEBACK = """Traceback (most recent call last):
  File "/x/site-packages/contrasweep/running/worker/execution.py", line 9, in _next
    return next(self.generator)
  File "/home/me/thesis/method.py", line 12, in train
    loss(x)
  File "{stdlib}/json/decoder.py", line 355, in raw_decode
    raise ValueError
ValueError: on purpose
compile with -g
  for more
"""


def test_a_failure_in_a_line_names_the_own_code_and_what_to_do():
    import json

    stdlib = json.__file__.rsplit("/json/", 1)[0]
    assert place_of(TRACEBACK.format(stdlib=stdlib)) == "method.py:12"
    record = Record(
        "0123456789abcdef",
        "s",
        "a",
        "m:f",
        {"lr": 0.1},
        DatasetRef("d"),
        2,
        0,
        Status.FAILED,
        error=TRACEBACK.format(stdlib=stdlib),
    )
    assert failure_line(record, "/st", ["lr", "data"]) == (
        "failed: a lr=0.1 data=d fold=2 seed=0: ValueError: on purpose (method.py:12); all of it: "
        "contrasweep logs s 01234567 --storage /st; again: --retry-failed"
    )
    missing = "FileNotFoundError: [Errno 2] No such file or directory: '%swords.txt'"
    for folder, empty in {"": 1, "data/": 1, "/data/": 0}.items():
        line = failure_line(replace(record, error=missing % folder), "/st")
        assert line.count("directory is empty: Path(__file__).parent / FILE;") == empty
    # A command runs where its study was started.
    line = failure_line(replace(record, error=missing % "", trainable=COMMAND_PATH), "/st")
    assert "directory is empty" not in line
    assert place_of("no traceback") == ""
    group = '  |   File "m.py", line 1\n  |     fails()\n  | ExceptionGroup: all (1 sub-exception)'
    assert error_of(group) == "ExceptionGroup: all (1 sub-exception)"
