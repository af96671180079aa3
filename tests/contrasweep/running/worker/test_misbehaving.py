"""A calm arm among 22 that misbehave, and three that hang: each ends, is named for what it did, and spoils nothing."""

import re

import pandas as pd
import pytest

from contrasweep import AblationGrid, Arm
from contrasweep.live.logs import read_log
from contrasweep.live.state import read_live
from contrasweep.running.driver import run
from contrasweep.running.worker.output import LIMIT

pytestmark = [
    pytest.mark.long,
    pytest.mark.xdist_group("misbehaving"),
    pytest.mark.usefixtures("ray_session"),
]

SILENT = "timed out after 1[0-9] s without a report (report_minutes is 0.2)"
LOST = "its process was lost each time: it called os._exit, crashed in compiled code, or was killed from outside"
HANGS = {
    "hangs_at_once": f"{SILENT}; it is in hangs_at_once (misbehaving.py:",
    "hangs_later": SILENT,
    "spins": f"{SILENT}; it is in spins (misbehaving.py:",
}
FAILS = {
    "returns_a_list": "a trainable returns an iterator of reports, got [{'accuracy': 0.5}]",
    "yields_a_dictionary": "a trainable yields reports, got {'accuracy': 0.5}; use `yield Report(step, metrics)`",
    "gives_a_vector": "Report.metrics.accuracy: a metric is one number",
    "gives_nan": "the last report's metric 'accuracy' is nan",
    "gives_infinity": "the last report's metric 'accuracy' is inf",
    "gives_text": "Report.metrics.accuracy: a metric is one number (could not convert string to float: 'good')",
    "gives_another_metric": "the last report's metric 'accuracy' is missing; it reported: acuracy",
    "counts_down": "reports count their steps up, got (2, 1)",
    "exits": "SystemExit: bye",
    "exits_at_once": LOST,
    "is_killed": LOST,
    "crashes": LOST,
    "misses_an_import": "ModuleNotFoundError: No module named 'no_such_package_anywhere'",
    "raises": "ValueError: on purpose",
    "recurses": "RecursionError: maximum recursion depth exceeded",
    # Last: before another arm has reported the metric, this would end the study.
    "reports_nothing": "the last report's metric 'accuracy' is missing; it reported: nothing",
}
ENDS = [
    "prints",
    "prints_a_gigabyte",
    "prints_a_gigabyte_below_python",
    "gives_a_tensor",
    "closes_its_streams",
    "leaves_threads",
]


def study(*names, **fields):
    arms = {name.replace("_", "-"): Arm(f"misbehaving:{name}") for name in names}
    base = {"seeds": [0], "max_failures": 1, "reference": "calm"}
    return AblationGrid("misbehaving", arms, "digits", **base | fields)


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    return str(tmp_path_factory.mktemp("misbehaving"))


@pytest.fixture(scope="module")
def alone(ray_session, tmp_path_factory):
    """The calm arm by itself."""
    return run(
        study("calm", reference=None),
        storage=str(tmp_path_factory.mktemp("alone")),
        tracking="none",
    )


@pytest.fixture(scope="module")
def results(alone, storage):
    everything = study("calm", *FAILS, *ENDS)
    assert len(everything.arms) == 23
    return run(everything, storage=storage, tracking="none")


@pytest.fixture(scope="module")
def hanging(ray_session, tmp_path_factory):
    """Those that never end, by themselves: only they wait for the limit."""
    return run(
        study(*HANGS, report_minutes=0.2, reference=None),
        storage=str(tmp_path_factory.mktemp("hanging")),
        tracking="none",
    )


@pytest.fixture
def record(results, hanging):
    by_arm = {
        record.arm: record for each in (results, hanging) for record in each.trial_records.values()
    }
    return lambda name: by_arm[name.replace("_", "-")]


def matches(error, says):
    """`says`, but for how long exactly the trial was waited for."""
    return re.search(re.escape(says).replace(r"1\[0\-9\]", "[0-9]+"), " ".join(error.split()))


def test_each_ends_and_is_named_for_what_it_did(record):
    for name, says in (HANGS | FAILS).items():
        assert record(name).status == "failed", name
        assert matches(record(name).error, says), (name, record(name).error[-600:])
    for name in ENDS:
        assert record(name).status == "done", (name, record(name).error)


def test_what_ended_each_is_named_in_its_record(results, record):
    for name in HANGS | FAILS:
        cause = "time limit" if name in HANGS else "signal" if name == "is_killed" else "method"
        assert (record(name).cause, record(name).missing) == (cause, name == "is_killed"), name
    assert record("exits_at_once").attempts == record("is_killed").attempts == 2, (
        "processes that were lost count"
    )
    assert "os._exit was called with 7" in read_log(
        results.records, record("exits_at_once").trial_id
    )
    frame = results.to_frame().set_index("arm")
    assert frame["cause"]["is-killed"] == "signal" and pd.isna(frame["cause"]["calm"])


def test_the_calm_arm_s_table_is_that_of_the_calm_arm_alone(results, alone):
    def cells(of):
        frame = of.to_frame()
        return frame[frame["arm"] == "calm"][
            ["trial_id", "seed", "status", "accuracy"]
        ].reset_index(drop=True)

    assert cells(results).equals(cells(alone)) and set(cells(results)["status"]) == {"done"}
    assert "0.53" in results.table().to_text()


def test_what_they_printed_is_kept_within_the_limit(results, record):
    logs = {name: read_log(results.records, record(name).trial_id) for name in (*FAILS, *ENDS)}
    for word in (
        "on standard output",
        "on standard error",
        "UserWarning: a warning",
        "of a subprocess",
    ):
        assert word in logs["prints"]
    assert logs["exits_at_once"].count("before the end") == 2, "of both attempts"
    assert "Segmentation fault" in logs["crashes"]
    assert "the first words" in logs["prints_a_gigabyte_below_python"]
    for name in ("prints_a_gigabyte", "prints_a_gigabyte_below_python"):
        assert "the last words" in logs[name] and "bytes are left out here" in logs[name]
    assert max(len(log) for log in logs.values()) <= LIMIT


def test_whoever_watched_saw_it_end(results, hanging):
    assert not read_live(hanging.records).running
    state = read_live(results.records)
    assert state.ended == "failures" and not state.running
    assert state.statuses == {"done": 1 + len(ENDS), "failed": len(FAILS)}
    assert any(
        "(misbehaving.py:" in text and "contrasweep logs misbehaving " in text
        for _, text in state.events
    )
