"""What is seen of a run: its state from the events, the time to go, lines, tables at two widths, HTML, and the file."""

import contextlib
import dataclasses
import io
import time
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

import contrasweep as cs
from contrasweep import AblationGrid, Arm
from contrasweep.data.manifest import Manifest
from contrasweep.live.displays import LiveFile, Notebook, View, to_html
from contrasweep.live.state import (
    LIVE,
    ArmState,
    Progress,
    RunningTrial,
    RunState,
    read_live,
    replicate_of,
    time_to_go,
)
from contrasweep.running.engine import training
from contrasweep.storage.lease import Lease
from contrasweep.storage.record import Record, Status
from contrasweep.storage.study_document import EVALUATED, EVALUATION
from contrasweep.trial import Trial

DATA = Manifest("digits", "/nowhere", "image", {})


def trial(arm="ocl", batch_size=16, seed=0, **config):
    return Trial("s", arm, "m:train", {"batch_size": batch_size, **config}, DATA, 2, seed)


def state(**fields):
    base = {
        "study": "s",
        "metric": "f1",
        "mode": "max",
        "storage": "/st",
        "total": 4,
        "before": {},
        "slots": 2,
    }
    return RunState(
        **base | {"began": 100.0, "updated": 160.0, "arms": {"ocl": ArmState()}} | fields
    )


def progress(trials, earlier=(), **fields):
    planned = {t.id: t.arm for t in trials}
    shown = state(
        total=len(trials),
        arms={arm: ArmState() for arm in dict.fromkeys(t.arm for t in trials)},
        **fields,
    )
    return Progress(shown, ["batch_size"], [], planned, earlier)


def ended(t, value, status=Status.DONE, seconds=10.0):
    metrics = {} if value is None else {"f1": value}
    return Record.of(t, status=status, metrics=metrics, seconds=seconds, step=4)


def test_an_evaluation_is_told_by_the_axes_of_its_network_and_has_no_best_score():
    (one,) = trials = [replace(trial(), trainable=EVALUATION, config={"config": trial().config})]
    watched = progress(trials, metric=EVALUATED)
    watched.started(one)
    assert watched.state.running[one.id].axes == {"batch_size": "16"}
    assert "batch_size=16" in replicate_of(one, ["batch_size"])
    watched.ended(Record.of(one, status=Status.DONE, metrics={EVALUATED: 1.0}, seconds=1, step=1))
    assert (watched.state.arms["ocl"].ended, watched.state.best) == (1, None)


def test_the_time_to_go_is_learned():
    assert time_to_go({}, Counter(a=2), [], 2, 0.0) is None
    assert time_to_go({}, Counter(), [], 2, 0.0) == 0.0, "no trial is left"
    begun = RunningTrial("i", "a", {}, None, 0, 0.0, 1, 10, reported=30.0, first_step=1)
    begun.first_reported = 30.0
    assert time_to_go({}, Counter(a=2), [begun], 1, 30.0) is None, "one report tells no pace"
    half = replace(begun, step=5, reported=90.0)
    left = 75 + 2 * 150  # 15 s a step; the start of its process says nothing of others
    assert time_to_go({}, Counter({"a": 1, "": 1}), [half], 1, 90.0) == pytest.approx(left)
    ended = {"a": [40.0, 20.0], "b": [9.0]}
    assert time_to_go(ended, Counter(a=3, b=2), [], 1, 0.0) == pytest.approx(3 * 30 + 2 * 9)
    for slots, left in ((2, 3 * 23 / 2), (3, 23), (9, 23)):
        assert time_to_go(ended, Counter({"": 3}), [], slots, 0.0) == pytest.approx(left)
    overdue = RunningTrial("i", "b", {}, None, 0, started=0.0)
    assert time_to_go(ended, Counter(), [overdue], 2, 500.0) == 0.0
    begins = replace(overdue, started=500.0)
    assert time_to_go(ended, Counter(b=1), [begins], 9, 500.0) == 9.0, "each has its own slot"


def test_of_many_arms_a_few_are_shown_and_the_others_counted():
    arms = {f"arm{n}": ArmState(total=2) for n in range(11)}
    arms["arm0"].score(0.5, "seed=0", "max")
    shown = to_html(state(arms=arms), ["a < b"])
    assert "and 3 more arms" in shown and "<div>a &lt; b</div>" in shown and "arm10" not in shown


@pytest.mark.parametrize(
    ("error", "used_up", "ended_as"),
    [
        (None, "", "complete"),
        (None, "used up: budget_hours", "budget used up"),
        (KeyboardInterrupt(), "", "stopped"),
        (ValueError("no"), "used up: budget_hours", "stopped: ValueError: no"),
    ],
)
def test_how_a_run_ends_is_told_by_the_words_of_a_study(error, used_up, ended_as):
    watched = progress([trial()])
    with contextlib.suppress(ValueError, KeyboardInterrupt), watched.shown(lambda: used_up):
        if error:
            raise error
    assert watched.state.ended == ended_as


def example(trials=3):
    running = {
        f"i{n}": RunningTrial(
            f"i{n}",
            "orthonormal-contrastive",
            {"batch_size": "16", "lr": "0.001"},
            n % 5,
            n,
            100.0,
            7,
            200,
            0.61,
            159.0,
        )
        for n in range(trials)
    }
    arms = {name: ArmState(total=30) for name in ("orthonormal-contrastive", "supcon")}
    arms["supcon"].score(0.7312, "batch_size=16 lr=0.001 fold=2 seed=1", "max")
    arms["supcon"].ended = 1
    return state(running=running, arms=arms, statuses={"done": 1}, total=60, eta_s=3000.0)


def drawn(shown, width, height=40):
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    console.print(View(shown))
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 200])
def test_the_tables_fit_the_terminal_and_lose_no_number(width):
    lines = drawn(example(), width)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    for part in (
        "2%",
        "7/200",
        "0.61",
        "1:00",
        "1/30",
        "0.7312",
        "1/60 trials, 3 running",
        "about 50 min to go",
    ):
        assert part in text
    assert text.count("orthonormal-co") == 4
    assert text.count("lr=0.001" if width < 100 else "0.001") >= 3


def test_a_long_name_of_the_metric_leaves_room_for_the_rest():
    text = "\n".join(drawn(replace(example(), metric="m_" * 90), 110))
    for part in ("0.61", "0.7312", "orthonormal-co", "batch_size=16"):
        assert part in text


def test_many_running_trials_leave_room_for_the_rest():
    lines = drawn(example(40), 100, height=20)
    assert len(lines) <= 20
    assert "and 30 more" in lines


def test_a_notebook_shows_the_same_as_html_in_one_place(monkeypatch):
    shown = []
    handle = SimpleNamespace(update=lambda page: shown.append((page.data, "again")))

    def display(page, **_):
        shown.append((page.data, "new"))
        return handle

    monkeypatch.setattr("IPython.display.display", display)
    notebook = Notebook()
    notebook.show(example())
    notebook.say("failed: <b>")
    notebook.close(example())
    (first, how), (page, again) = shown
    assert (how, again) == ("new", "again") and page == to_html(example(), ["failed: <b>"])
    assert page == "<div>failed: &lt;b&gt;</div>" + first
    assert "7/200" in page and "0.7312" in page and page.count("<pre") == 1


def test_a_run_is_read_again_from_the_storage_and_a_broken_file_is_none(tmp_path, records):
    assert read_live(records) is None
    shown = example()
    shown.event(time.time(), "failed: \x1b[31mred\n")
    LiveFile(records).close(shown)
    assert read_live(records) == shown
    assert shown.events[0][1] == "failed:  [31mred "
    content = (tmp_path / "s" / LIVE).read_bytes()
    for broken in (b"", b"[]", content[:-40], content.replace(b"0.61", b"0.62")):
        (tmp_path / "s" / LIVE).write_bytes(broken)
        assert read_live(records) is None


def test_a_driver_without_its_lease_leaves_the_state_to_the_next(records):
    study = AblationGrid("s", {"calm": Arm("misbehaving:calm")}, "none", metric="accuracy")
    lease = Lease(records, print)
    failed = ended(trial("calm"), None, Status.FAILED)
    shown = training._progress(cs.plan(study), records, [failed], True, lease)
    shown.close("stopped")
    assert read_live(records) is None, "another driver holds the study"
    lease.acquire()
    shown.close()
    assert (read_live(records).ended, read_live(records).before) == ("failures", {"failed": 1})
    lease.release()


def test_states_are_written_at_intervals_and_never_by_whoever_shows_them(records):
    file = LiveFile(records, every_s=3600)
    file.show(example())
    file.show(dataclasses.replace(example(), eta_s=1.0))
    file._thread.join()
    assert read_live(records).eta_s == 3000.0
