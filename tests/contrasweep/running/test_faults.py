"""A short form of the fault suite, 28 faults in three real studies: workers that are killed, answers of S3 that fail,
and files that break lose no result, and nothing is trained twice. Killed drivers are in `test_stopped_driver`."""

import math

import pytest
from benchmarks.faults.files import broken_files
from benchmarks.faults.processes import on_processes
from benchmarks.faults.servers import S3_FAULTS, on_the_way_to_s3

pytestmark = pytest.mark.long


def test_a_worker_that_is_killed_costs_no_result(tmp_path):
    (row,) = on_processes("worker", tmp_path / "study", 5, 1)
    assert (row.injected, row.lost, row.twice) == (5, 0, 0), row


def test_answers_of_s3_that_fail_cost_no_result(s3, tmp_path):
    rows = on_the_way_to_s3(tmp_path / "study", s3.endpoint, s3.uri, 16)
    assert {row.fault: row.injected for row in rows} == {f"S3, {kind}": 2 for kind in S3_FAULTS}
    assert {(row.lost, row.twice) for row in rows} == {(0, 0)}, rows


def test_files_of_unfinished_trials_that_break_cost_no_result(tmp_path):
    rows = broken_files(tmp_path / "studies", 7, 1, math.inf)
    assert sum(row.injected for row in rows) == 7
    assert {(row.lost, row.twice) for row in rows} == {(0, 0)}, rows
