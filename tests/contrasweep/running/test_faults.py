"""A short form of the fault suite: workers and drivers that are killed in real studies lose nothing, and train nothing
twice."""

from pathlib import Path

import pytest

from benchmarks.faults.processes import on_processes

pytestmark = [pytest.mark.long, pytest.mark.timeout(550)]


@pytest.mark.parametrize(("victim", "times"), [("worker", 5), ("driver", 2)])
def test_a_process_that_is_killed_costs_no_result(victim: str, times: int, tmp_path: Path) -> None:
    (row,) = on_processes(victim, tmp_path / "study", times, 1)
    assert (row.injected, row.lost, row.twice) == (times, 0, 0), row
