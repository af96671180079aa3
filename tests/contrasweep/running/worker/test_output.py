"""What a trial prints: from Python, a subprocess and compiled code, kept within a limit; and a process that dies."""

import os
import time
from pathlib import Path

import pytest
from command_line import python

from contrasweep.processes import sweep_scratch
from contrasweep.running.worker import output
from contrasweep.running.worker.output import Output
from contrasweep.storage.records import StudyRecords


@pytest.fixture
def records(storage):
    return StudyRecords(storage, "s")


def log_of(records, trial_id="i"):
    return Path(records.storage) / "s/trials" / trial_id / "log.txt"


def in_a_process(records, code):
    """Run `code` with `taken`, an open Output, in a process of its own, as a worker does."""
    start = (
        "import os, subprocess, sys, warnings\n"
        "from contrasweep.running.worker.output import Output\n"
        "from contrasweep.storage.records import StudyRecords\n"
        f"taken = Output(StudyRecords({records.storage!r}, 's'), 'i').open()\n"
    )
    return python("-c", start + code)


def test_a_trial_that_prints_nothing_leaves_no_log(records):
    done = in_a_process(records, "taken.close(); taken.close(); print('after')")
    assert done.stdout == "after\n", "the streams come back"
    assert not log_of(records).exists()


def test_a_warning_of_python_is_counted_once(records):
    """The line of code that Python shows below it has the word too."""
    file = Path(records.storage) / "warns.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        "import warnings\ndef odd():\n    for n in range(2):\n        warnings.warn(f'odd {n}')\n"
    )
    code = (
        f"sys.path.insert(0, {records.storage!r}); import warns; warns.odd()\n"
        "print('WARNING: of a program\\nno more')\n"
        "taken.close(); print(taken.warnings)"
    )
    assert in_a_process(records, code).stdout == "3\n"
    assert log_of(records).read_text().count("warnings.warn(") == 2


def test_a_long_log_keeps_its_beginning_and_its_end(records, monkeypatch, capfd):
    monkeypatch.setattr(output, "LIMIT", 40_000)
    monkeypatch.setattr(output, "HEAD", 1000)
    monkeypatch.setattr(output, "TAIL", 3000)
    monkeypatch.setattr(output, "CHECK_S", 0.01)
    with capfd.disabled():
        taken = Output(records, "i").open()
        try:
            for number in range(19_999):
                os.write(1, b"line %d\n" % number)
                if number % 4000 == 3999:
                    time.sleep(0.1)
            taken._stopping.set()  # what is written while a log is shortened may be lost with its middle
            taken._thread.join()
            os.write(1, b"line 19999\n")
        finally:
            taken.close()
    log = log_of(records).read_text()
    assert len(log) < 45_000
    assert log.startswith("line 0\nline 1\n") and log.endswith("line 19999\n")
    assert log.count("bytes are left out here") == 1


def test_on_an_object_store_the_log_is_sent_and_goes_on_where_it_was(s3, monkeypatch, capfd):
    remote = StudyRecords(s3.uri, "s")
    with capfd.disabled():
        for text in (b"first\n", b"second\n"):
            taken = Output(remote, "i").open()
            os.write(1, text)
            taken.close()
            assert not taken.path.exists()
    log = remote.store.read(remote.key("i", "log.txt")).decode()
    assert log.startswith("first\n--- again on ") and log.endswith("second\n")


def test_the_copy_of_a_log_that_a_killed_process_leaves_is_removed_by_the_next(s3, monkeypatch):
    code = "import os; from contrasweep.running.worker.output import Output\n"
    code += "from contrasweep.storage.records import StudyRecords\n"
    code += f"taken = Output(StudyRecords({s3.uri!r}, 's'), 'i').open()\n"
    code += "os.write(taken._saved[0], str(taken.path).encode()); os.kill(os.getpid(), 9)"
    path = Path(python("-c", code).stdout)
    assert path.exists()
    sweep_scratch()
    assert not path.exists()
