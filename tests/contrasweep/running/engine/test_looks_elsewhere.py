"""Looks that are taken on other machines: what counts is the study's folder, wherever it lies and whoever goes on."""

import subprocess
import sys

import pytest
from looks import drive_looks, three_arms, value_of

from contrasweep.results.results import Results
from contrasweep.storage.interim_log import read_looks
from contrasweep.storage.records import StudyRecords

ELSEWHERE = """
import sys
from looks import drive_looks, three_arms, value_of
said, ended = drive_looks(three_arms(), sys.argv[1], value_of)
print(len(said), ended)
"""


@pytest.mark.long
def test_another_process_on_s3_goes_on_from_the_looks_that_were_taken(s3, tmp_path, storage):
    """Stopped after its first look, a study in a bucket is ended by another process: as if one had run it in a
    folder."""
    said, ended = drive_looks(three_arms(), tmp_path, value_of)
    first, done = drive_looks(three_arms(), s3.uri, value_of, stop_after=14)
    assert len(first) == 1 and len(read_looks(StudyRecords(s3.uri, "looked-at")).looks) == 1
    folders = ":".join(filter(None, sys.path))
    command = [sys.executable, "-c", ELSEWHERE, s3.uri]
    other = subprocess.run(
        command, env={**s3.env, "PYTHONPATH": folders, "PATH": ""}, capture_output=True, text=True
    )
    assert other.returncode == 0, other.stderr
    assert other.stdout.split() == [str(len(said) - 1), str(ended - done)]
    looks = [read_looks(StudyRecords(place, "looked-at")).looks for place in (storage, s3.uri)]
    assert [(one.replicates, one.comparisons) for one in looks[0]] == [
        (one.replicates, one.comparisons) for one in looks[1]
    ]
    tables = [Results.load("looked-at", place).table().to_text() for place in (storage, s3.uri)]
    assert tables[0] == tables[1]
