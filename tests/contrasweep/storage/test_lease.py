"""One process runs a study, on a folder and on object stores: others are refused, or take over from one that died."""

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.tracking_services import wait_until
from dashboard import Clock
from refusals import refused

from contrasweep.errors import StorageError
from contrasweep.storage import lease as lease_module
from contrasweep.storage.lease import HOLDER_FILE, Holder, Lease, StudyHeld, living_holder
from contrasweep.storage.records import StudyRecords


@pytest.fixture(params=["folder", "s3"])
def storage(request, tmp_path, monkeypatch):
    monkeypatch.setattr(lease_module, "HEARTBEAT_S", 0.1)
    monkeypatch.setattr(lease_module, "EXPIRY_S", 0.6)
    monkeypatch.setattr(lease_module, "POLL_S", 0.05)
    if "://" in request.param:
        return request.param
    return str(tmp_path) if request.param == "folder" else request.getfixturevalue("s3").uri


@pytest.fixture
def messages():
    return []


@pytest.fixture
def a_lease(storage, messages):
    """Leases as different machines have them: none sees the processes of another."""
    leases = []

    def make(host):
        lease = Lease(StudyRecords(storage, "study"), messages.append)
        lease.holder = replace(lease.holder, host=host, process=f"machine of {host}")
        leases.append(lease)
        return lease

    yield make
    for lease in leases:
        lease._end.set()


def test_a_second_driver_is_refused_while_the_first_lives(a_lease, messages, monkeypatch):
    monkeypatch.setattr(lease_module, "EXPIRY_S", 300.0)
    first = a_lease("one")
    first.acquire()
    with refused(
        StudyHeld,
        match=rf"study study is being run by another process on .* \(process {os.getpid()} on",
    ):
        a_lease("two").acquire()
    assert messages == [
        f"process {os.getpid()} on one was running study; waiting 300 s at most to see whether it still is"
    ]
    first.release()
    third = a_lease("three")
    third.acquire()
    assert (third.generation, first.lost, len(messages)) == (2, "", 1), (
        "what was given back is taken without a wait"
    )


@pytest.mark.slow
def test_a_driver_that_died_is_succeeded_and_one_that_only_slept_learns_of_it(
    a_lease, messages, monkeypatch
):
    first = a_lease("one")
    awake = threading.Event()
    newest = first.newest
    monkeypatch.setattr(first, "_renew", lambda: (awake.wait(300), Lease._renew(first)))
    first._thread = threading.Thread(target=first._renew, daemon=True)
    first.acquire()
    second = a_lease("two")
    second.acquire()
    assert (
        messages[-1]
        == f"process {os.getpid()} on one has given no sign for 1 s; this run takes study over"
    )
    assert newest()[0] == second.generation == 2
    assert (first.is_sure(), first.lost, second.is_sure()) == (False, "", True), "before it looks"
    awake.set()
    first._thread.join(300)
    assert "study study was taken over by process" in first.lost and "on two" in first.lost
    assert newest()[1].token == second.holder.token, "the first has touched nothing"


def test_a_holder_of_another_machine_is_seen_as_long_as_it_renews(storage, a_lease):
    lease = a_lease("one")
    lease.acquire()
    first = living_holder(lease.records)
    assert first.host == "one"
    wait_until(lambda: living_holder(lease.records).renewals > first.renewals, "it is renewed")
    assert living_holder(lease.records).renewed > first.renewed
    lease._end.set()
    lease._thread.join()
    assert living_holder(lease.records) is None, "it has given it back"
    # As a killed one leaves it.
    lease.store.write(lease._key(1), HOLDER_FILE.encode(replace(lease.holder, released=False)))
    wait_until(lambda: living_holder(lease.records) is None, "it has given no sign for EXPIRY_S")


def test_of_many_that_start_at_once_one_runs(a_lease, monkeypatch):
    monkeypatch.setattr(lease_module, "EXPIRY_S", 300.0)

    def attempt(number):
        lease = a_lease(f"host{number}")
        try:
            lease.acquire()
        except StudyHeld:
            return None
        return lease

    with ThreadPoolExecutor(6) as pool:
        assert sum(lease is not None for lease in pool.map(attempt, range(6))) == 1


@pytest.mark.parametrize("storage", ["memory://a-lease"], indirect=True)
def test_who_was_overwritten_where_two_can_create_one_lease_does_not_hold_it(
    a_lease, messages, monkeypatch
):
    first = a_lease("one")
    second = a_lease("two")
    write = first.store.write

    def overwritten(key, data, **options):
        monkeypatch.setattr(first.store, "write", write)
        return write(key, data, **options) and write(key, second._content())

    monkeypatch.setattr(first.store, "write", overwritten)
    first.acquire()
    assert first.generation == 2 and "has no conditional writes" in messages[0]
    assert "on two was running" in messages[1]


def test_a_lease_of_this_process_that_it_does_not_hold_is_of_one_that_had_its_number_before():
    assert Holder.here().lives_here is False


def test_a_half_written_lease_is_waited_for_and_then_taken(storage, a_lease):
    StudyRecords(storage, "study").store.write("study/lease/00000004.json", b'{"host"')
    lease = a_lease("one")
    lease.acquire()
    assert lease.generation == 5


@pytest.mark.timeout(60)
@pytest.mark.parametrize("storage", ["folder"], indirect=True)
def test_a_folder_in_the_place_of_a_lease_is_an_error_and_not_waited_for(storage, a_lease):
    Path(storage, "study/lease/00000001.json").mkdir(parents=True)
    with refused(StorageError, r"study/lease/00000001.json is no plain file; remove it"):
        a_lease("one").acquire()


def test_a_holder_whose_lease_cannot_be_read_for_a_moment_keeps_it(storage, a_lease):
    lease = a_lease("one")
    lease.acquire()
    store = StudyRecords(storage, "study").store
    key = f"study/lease/{lease.generation:08d}.json"
    store.write(key, b'{"host"')  # as who reads sees it while a slow store writes
    wait_until(lambda: store.read(key) != b'{"host"', "the lease is renewed")
    assert lease.is_sure() and lease.newest()[1].token == lease.holder.token


def test_a_listing_that_is_behind_takes_no_lease_from_its_holder(storage, a_lease):
    lease = a_lease("one")
    lease.acquire()
    lease._keys = list  # none, as of a store that lists what is new late
    wait_until(lambda: lease._read(lease._key(1)).renewals > 1, "the lease is renewed")
    assert not lease.lost


HOLD = """
import sys, time
from contrasweep.storage.lease import exclusive_driver
from contrasweep.storage.records import StudyRecords
with exclusive_driver(StudyRecords(sys.argv[1], "study")):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_a_killed_driver_of_this_machine_is_succeeded_at_once(tmp_path):
    """With the times that users have: a process that has ended here is seen to have ended."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    messages = []
    with refused(StudyHeld, match=f"process {holder.pid} on"):
        Lease(StudyRecords(str(tmp_path), "study"), messages.append).acquire()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    lease = Lease(StudyRecords(str(tmp_path), "study"), messages.append)
    lease.acquire()
    lease.release()
    assert len(messages) == 1 and "has ended; this run takes over" in messages[0]
    (file,) = (tmp_path / "study/lease").iterdir()
    assert json.loads(file.read_text())["released"] is True


ELSEWHERE = """
import socket
from contrasweep import processes
socket.gethostname = lambda: "elsewhere"
processes.machine = lambda: "another boot:another namespace:"
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_a_killed_driver_of_another_host_is_succeeded_within_a_minute(
    kind, tmp_path, request, monkeypatch
):
    """With the times that users have, on a clock that only the waiting moves: nothing here can see the other host's
    processes, and it renews no more."""
    storage = str(tmp_path) if kind == "folder" else request.getfixturevalue("s3").uri
    holder = subprocess.Popen(
        [sys.executable, "-c", ELSEWHERE + HOLD, storage], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
    finally:
        holder.kill()
        holder.communicate()
    messages = []
    clock = Clock()
    monkeypatch.setattr(lease_module, "time", clock)
    lease = Lease(StudyRecords(storage, "study"), messages.append)
    lease.acquire()
    lease.release()
    who = f"process {holder.pid} on elsewhere"
    assert messages == [
        f"{who} was running study; waiting 30 s at most to see whether it still is",
        f"{who} has given no sign for 30 s; this run takes study over",
    ]
    assert lease_module.EXPIRY_S <= clock.now <= 60
    assert lease.generation == 2 and not lease.lost


def test_a_storage_that_is_away_says_nothing_of_the_holder(tmp_path, monkeypatch):
    """The holder lives and cannot renew, because the storage answers nobody for longer than a lease lasts."""
    clock = Clock()
    renewals = 0
    monkeypatch.setattr(lease_module, "time", clock)
    second = Lease(StudyRecords(str(tmp_path), "study"), lambda message: None)
    elsewhere = Holder(host="elsewhere", pid=1, process="another boot", token="first")

    def newest():
        nonlocal renewals
        renewals += 1
        if renewals == 2:
            clock.now += 2 * lease_module.EXPIRY_S
        return 1, replace(elsewhere, renewals=max(0, renewals - 3))

    monkeypatch.setattr(second, "newest", newest)
    with refused(StudyHeld, "process 1 on elsewhere"):
        second.acquire()
    assert renewals == 4


def test_a_folder_without_hard_links_is_a_storage_too(tmp_path, monkeypatch):
    def no_links(*args, **options):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    store = StudyRecords(str(tmp_path), "study").store
    with ThreadPoolExecutor(8) as pool:
        wrote = list(
            pool.map(
                lambda i: store.write("claim", str(i).encode() * 1000, if_absent=True), range(8)
            )
        )
    assert sum(wrote) == 1
    assert store.read("claim") == str(wrote.index(True)).encode() * 1000
    store.copy("claim", "copy")
    assert store.read("copy") == store.read("claim")


def test_a_server_with_conditions_is_known(s3):
    store = StudyRecords(s3.uri, "study").store
    assert store.has_conditional_writes()
    assert list(store.list()) == []
