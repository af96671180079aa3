"""What is seen of a run: its state from the events, the time to go, lines, tables at two widths, HTML, and the file."""

import contextlib
import dataclasses
import io
import math
import time
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

import contrasweep as cs
from contrasweep import AblationGrid, Arm
from contrasweep.data.manifest import Manifest
from contrasweep.live.displays import Lines, LiveFile, Notebook, Quiet, View, to_html
from contrasweep.live.state import (
    LIVE,
    ArmState,
    Progress,
    RunningTrial,
    RunState,
    counts_line,
    progress_line,
    read_live,
    replicate_of,
    start_line,
    time_to_go,
)
from contrasweep.running.engine import training
from contrasweep.storage.lease import Lease
from contrasweep.storage.record import Phase, Record, Status, TrialNotes
from contrasweep.storage.records import StudyRecords
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


def test_the_state_follows_the_events():
    trials = [trial(seed=seed, epochs=8) for seed in range(3)] + [trial("scl")]
    watched = progress(trials)
    watched.started(trials[0])
    running = watched.state.running[trials[0].id]
    assert (running.axes, running.fold, running.step, running.steps) == (
        {"batch_size": "16"},
        2,
        0,
        8,
    )
    watched.reported(
        trials[0].id, [{"step": 3, "time": 1.0, "f1": 0.25}, {"step": 4, "time": 2.0, "f1": 0.5}]
    )
    assert (running.step, running.value) == (4, 0.5)
    watched.hangs(trials[0].id, "no report for 5 min")
    watched.reported(trials[0].id, [{"step": 5, "time": 3.0, "f1": float("nan")}])
    assert (running.step, running.value, running.note) == (5, None, "")
    for t, value in zip(trials[:2], (0.6, 0.8), strict=True):
        watched.ended(ended(t, value))
    watched.ended(replace(ended(trials[3], None, Status.FAILED), warnings=2))
    arm = watched.state.arms["ocl"]
    assert (arm.ended, arm.total, arm.scored, arm.best) == (2, 3, 2, 0.8)
    assert arm.mean == pytest.approx(0.7) and arm.best_where == "batch_size=16 fold=2 seed=1"
    assert watched.state.counts_not_done == ["1 failed"] and watched.state.done == 3
    assert not watched.state.running
    (_, told), *_ = watched.state.events
    assert (
        told
        == f"a trial of scl has printed warnings: contrasweep logs s {trials[3].id[:8]} --storage /st"
    )
    assert "1 failed, 1 with warnings, " in progress_line(watched.state)
    assert len(watched.planned) == 1


def test_a_trial_of_epochs_without_an_end_is_no_broken_state(tmp_path):
    """Lightning's `max_epochs: -1`: nobody could read the state until the trial reported."""
    trials = [trial(epochs=-1)]
    watched = progress(trials)
    watched.started(trials[0])
    LiveFile(StudyRecords(str(tmp_path), "s")).close(watched.state)
    assert read_live(StudyRecords(str(tmp_path), "s")).running[trials[0].id].steps is None


def test_an_evaluation_is_told_by_the_axes_of_its_network_and_has_no_best_score():
    (one,) = trials = [replace(trial(), trainable=EVALUATION, config={"config": trial().config})]
    watched = progress(trials, metric=EVALUATED)
    watched.started(one)
    assert watched.state.running[one.id].axes == {"batch_size": "16"}
    assert "batch_size=16" in replicate_of(one, ["batch_size"])
    watched.ended(Record.of(one, status=Status.DONE, metrics={EVALUATED: 1.0}, seconds=1, step=1))
    assert (watched.state.arms["ocl"].ended, watched.state.best) == (1, None)


def test_a_report_without_the_metric_leaves_the_value_that_is_shown():
    (one,) = trials = [trial()]
    shown = progress(trials)
    shown.started(one)
    values = []
    for step, metrics in enumerate(({"f1": 0.8}, {"loss": 0.3}, {"f1": math.nan}), 1):
        shown.reported(one.id, [{"step": step, "time": 1.0, **metrics}])
        values.append(shown.state.running[one.id].value)
    assert values == [0.8, 0.8, None]


def test_a_lost_trial_waits_and_a_stopped_one_that_goes_on_is_counted_once_in_everything():
    (one,) = trials = [trial()]
    watched = progress(trials)
    watched.started(one)
    watched.lost(one.id)
    assert len(watched.planned) == 1 and not watched.state.running
    for status in (Status.PRUNED, Status.PRUNED, Status.DONE):
        watched.started(one)
        assert (watched.state.done, watched.state.arms["ocl"].ended, len(watched.planned)) == (
            0,
            0,
            0,
        )
        watched.ended(replace(ended(one, None, status), warnings=2))
        assert (watched.state.done, watched.state.arms["ocl"].ended, watched.state.warned) == (
            1,
            1,
            1,
        )


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


def test_what_the_first_trials_take_is_no_time_to_go():
    """Of 12 trials of ten seconds each, the first two also start their processes, for 90 s."""
    trials = [trial(seed=seed) for seed in range(12)]
    watched = progress(trials)
    watched.started(trials[3])
    for number, one in enumerate(trials[:3]):
        watched.started(one)
        watched.state.running[one.id].started = time.time() - 100.0
        watched.ended(ended(one, 0.5))
        watched._estimate(time.time())
        mean = 10.0 if number < 2 else (10 + 10 + 100) / 3
        assert watched.state.eta_s == pytest.approx((11 - number) * mean / 2, rel=0.02)


def test_a_trial_that_goes_beyond_its_last_step_has_none_that_is_expected():
    watched = progress([trial()])
    watched.started(one := trial())
    watched.state.running[one.id].steps = 3
    for step, expected in ((3, 3), (4, None)):
        watched.reported(one.id, [{"step": step, "time": 9.0}])
        assert watched.state.running[one.id].steps == expected


def test_of_many_arms_a_few_are_shown_and_the_others_counted():
    arms = {f"arm{n}": ArmState(total=2) for n in range(11)}
    arms["arm0"].score(0.5, "seed=0", "max")
    shown = to_html(state(arms=arms), ["a < b"])
    assert "and 3 more arms" in shown and "<div>a &lt; b</div>" in shown and "arm10" not in shown


def test_the_first_line_says_what_the_run_will_do():
    assert start_line(state(total=30, before={"done": 10, "failed": 2}, eta_s=170.0)) == (
        "s: 30 trials, 12 ended before, 2 slots, about 3 min"
    )
    assert "the time to go shows once" in start_line(state())
    assert start_line(state(total=None, slots=1)).startswith(
        "s: trials until the budget is used up, 1 slot;"
    )


def test_a_run_that_goes_on_counts_the_trials_of_earlier_runs(capsys):
    """Its last line said `4/4 trials, ended, 1 failed` of a study of which two had failed."""
    trials = [trial(seed=seed) for seed in range(4)]
    failed = replace(ended(trials[0], None, Status.FAILED), warnings=1)
    confirmed = replace(ended(trials[1], 0.5), notes=TrialNotes(phase=Phase.CONFIRM))
    watched = progress(trials, [failed, confirmed], before={"failed": 1, "done": 1})
    watched.ended(replace(ended(trials[2], None, Status.FAILED), warnings=1))
    assert counts_line(watched.state).startswith("3/4 trials, 0 running, 2 failed, 2 with warnings")
    assert [text for _, text in watched.state.events if "has printed warnings" in text]
    # Another configuration is confirmed in the place of an earlier one, which counts no more.
    watched.ended(replace(confirmed, trial_id="other"))
    assert (watched.state.done, watched.state.before["done"]) == (3, 0)
    # A trial that a search had paused goes on.
    paused = ended(trials[3], 0.5, Status.PRUNED)
    watched = progress(trials, [paused], before={"pruned": 1})
    watched.started(trials[3])
    watched.ended(ended(trials[3], 0.6))
    assert watched.state.done == watched.state.arms["ocl"].ended == 1


def test_of_equal_arms_the_first_by_name_is_the_best_in_every_view():
    """The run named the first that had ended, and `status` the one with the smallest id."""
    for mode in ("max", "min"):
        arms = {name: ArmState() for name in ("zeta", "alpha")}
        for arm in arms.values():
            arm.score(0.5, "", mode)
        assert state(arms=arms, mode=mode).best == ("alpha", arms["alpha"])


def test_scores_of_a_search_stand_beside_no_confirmation():
    """On other rows, and the best of many: .9 in the search, .6 where it counts."""
    trials = [trial(arm, seed=seed) for arm in ("ocl", "scl") for seed in range(3)]
    phases = {t.id: TrialNotes(phase=Phase.CONFIRM if t.seed else Phase.SEARCH) for t in trials}
    values = dict(zip([t.id for t in trials], (0.9, 0.6, 0.5, 0.8, 0.4, 0.2), strict=True))
    records = {t.id: replace(ended(t, values[t.id]), notes=phases[t.id]) for t in trials}
    for order in (trials, trials[::-1], trials[1:] + trials[:1]):
        watched = progress(trials)
        watched.ended(records[trials[0].id]) if order is trials else None
        assert order is not trials or watched.state.best[1].best == 0.9
        for t in order[order is trials :]:
            watched.ended(records[t.id])
        name, best = watched.state.best
        assert (name, best.best, best.scored, best.ended) == ("ocl", 0.6, 2, 3)
        assert watched.state.arms["scl"].mean == pytest.approx(0.3)


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
    unconfirmed = replace(ended(trial(), 0.5), notes=TrialNotes(phase=Phase.SEARCH))
    for record in (ended(trial(), None, Status.INFEASIBLE), unconfirmed):
        watched = progress([trial()])
        watched.ended(record)
        with watched.shown(str):
            pass
        assert watched.state.ended == "failures"


def test_a_line_names_metric_and_best():
    arms = {"ocl": ArmState(), "scl": ArmState()}
    arms["scl"].score(0.91, "fold=1 seed=0", "max")
    running = {"i": RunningTrial("i", "ocl", {}, 0, 0, 100.0, step=3, value=0.5, reported=150.0)}
    shown = state(arms=arms, running=running, statuses={"done": 1, "failed": 1}, eta_s=200.0)
    assert progress_line(shown) == (
        "2/4 trials, 1 running, 1 failed, 1:00 so far, about 3 min to go; f1 0.5 of ocl at step 3; "
        "best f1 0.91: scl fold=1 seed=0"
    )
    assert "to go" not in progress_line(dataclasses.replace(shown, eta_s=0.0)), (
        "the one that runs is overdue"
    )
    assert "to go" not in progress_line(dataclasses.replace(shown, running={})), "it waits"


def test_without_a_terminal_there_is_a_line_at_the_start_every_so_often_and_at_the_end():
    stream = io.StringIO()
    watched = progress([trial(), trial(seed=1)])
    watched.displays = [Lines(stream, every_s=0.0)]
    watched._seconds["ocl"].append(90.0)
    watched.open()
    began = watched.state.began
    watched.begin(1)
    assert watched.state.began == began, "the time so far never goes back"
    watched.say("failed: something")
    watched.close("stopped")
    lines = stream.getvalue().splitlines()
    assert "0/2 trials, 0 running" in lines[0]
    assert "s: 2 trials, 1 slot, about 3 min" in lines
    assert "failed: something" in lines
    assert "0/2 trials, stopped" in lines[-1]
    assert lines[-1] not in lines[:-1]


def test_a_quiet_run_says_what_fails_and_nothing_else():
    stream = io.StringIO()
    watched = progress([trial()])
    watched.displays = [Quiet(stream, every_s=0.0)]
    watched.open()
    watched.say("failed: something")
    watched.say("look 1 of 3: nothing is decided")
    watched.close("complete")
    assert stream.getvalue() == "failed: something\n"


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


def test_what_is_odd_about_a_trial_stands_in_its_row():
    shown = example(1)
    shown.running["i0"].note = "no report for 6 min"
    assert any("0.61" in line and "no report for 6 min" in line for line in drawn(shown, 200))


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


def test_what_a_run_waits_for_is_kept_until_a_host_or_a_trial_is_there():
    watched = progress([trial()])
    for ends in (lambda: watched.begin(1), lambda: watched.started(trial())):
        watched.waits("no host of the cluster\ncan hold a trial yet")
        assert watched.state.waits == "no host of the cluster can hold a trial yet"
        ends()
        assert watched.state.waits == ""


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
