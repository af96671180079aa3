"""Trackers beside MLflow, one or several: event files, offline runs, and a class of somebody else's. All are told by a
follower of the storage, as MLflow is."""

import importlib.util
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from benchmarks.tracking_services import wait_until
from command_line import python
from refusals import refused
from tracked import drive, train

from contrasweep import AblationGrid, Arm, SpecError, data
from contrasweep.data.manifest import Manifest
from contrasweep.defaults import OF_STUDY
from contrasweep.errors import StorageError
from contrasweep.judging.sources import _rows
from contrasweep.storage.archive import archive_trials
from contrasweep.storage.record import Record, Status
from contrasweep.storage.records import StudyRecords
from contrasweep.study.file import to_plain
from contrasweep.tracking.follower import Follower
from contrasweep.tracking.kinds import checked_tracking, tracking_of
from contrasweep.tracking.process import NICENESS, TrackingProcess
from contrasweep.tracking.sync import FOLDERS, ToldTracker, sync, targets
from contrasweep.tracking.tracker import TrackedStudy, TrackingError, TrialFiles
from contrasweep.trial import Trial

OWN = """
import os
import pathlib
import time

class Lines:
    def __init__(self, study):
        self.lines = LINES
        self.lines.append(study.name)
    def start(self, trial):
        self.lines.append(("start", trial.id))
    def report(self, trial_id, step, metrics, time):
        if metrics.get("accuracy") == 7:
            raise OSError("the disk is full")
        self.lines.append((step, dict(metrics)))
    def finish(self, record):
        self.lines.append(record.status.value)
    def close(self, timeout_s=30.0):
        self.lines.append("closed")

class Again(Lines):
    pass

class Unbuilt(Lines):
    def __init__(self, study):
        raise RuntimeError("no such server\\nwith a second line " + "x" * 1000)

class Exits(Lines):
    def __init__(self, study):
        raise SystemExit(3)

class Priority(Lines):
    def start(self, trial):
        self.note("start")
    def close(self, timeout_s=30.0):
        self.note("close")
    def note(self, name):
        grouped = pathlib.Path("/proc/sys/kernel/sched_autogroup_enabled")
        grouped = grouped.exists() and grouped.read_text().strip() == "1"
        own = pathlib.Path("/proc/self/autogroup").read_text().split()[-1] if grouped else os.nice(0)
        pathlib.Path(f"{name}.new").write_text(str(own))
        os.rename(f"{name}.new", name)

class Waits(Lines):
    def start(self, trial):
        pathlib.Path("started").touch()
        while not pathlib.Path("go").exists():
            time.sleep(0.05)

class ExitsLater(Lines):
    def finish(self, record):
        raise SystemExit(4)

class Odd(Exception):
    def __str__(self):
        raise ValueError("no text")

class Unsaid(Lines):
    def __init__(self, study):
        raise Odd

LINES = []
"""


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    (tmp_path / "own_trackers.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("own_trackers", None)


@pytest.fixture
def trial(runs):
    digits = data.resolve("digits", folds=2, storage=runs)
    return Trial("s", "ours", "m:f", {"lr": 0.1, "loss": {"name": "ocl"}}, digits, fold=1, seed=2)


@pytest.fixture
def records(runs):
    return StudyRecords(runs, "s")


STUDY = TrackedStudy("s", axes=("lr",))


def rows_of(values):
    return [
        {"step": step, "time": 1000.0 + step, "accuracy": value}
        for step, value in enumerate(values, 1)
    ]


def report(records, trial, values):
    """What a worker and a driver leave in the storage of a trial that runs and has reported `values`."""
    train(records, trial, rows_of(values))
    drive(records, trial)


def finish(records, trial, values):
    records.write_metrics(trial.id, rows_of(values))
    records.write(Record.of(trial, status=Status.DONE, rows=rows_of(values), seconds=1.0))


def follower_of(uri, records):
    (target,) = targets(checked_tracking(uri), STUDY, records)
    return Follower(records, target)


def looking(records):
    follower = follower_of("own_trackers:Lines", records)
    follower.look()
    return follower


def tracked(uri, records, trial, values=(0.5, 0.75)):
    """A trial that reports and ends while a follower looks; what the follower says at the end."""
    report(records, trial, values[:1])
    follower = follower_of(uri, records)
    outcomes = iter([None, "complete"])

    def outcome(seconds):
        if seconds:
            finish(records, trial, values)
        return next(outcomes, "complete") if not seconds else None

    follower.follow(outcome, lambda left: None)
    return follower.gap()


def test_event_files_hold_each_report(records, trial, tmp_path):
    event_accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    assert tracked("tensorboard:tb", records, trial) == ""
    [folder] = (tmp_path / "tb/s").iterdir()
    assert folder.name == f"ours-lr=0.1-fold=1-seed=2-{trial.id[:8]}"
    events = event_accumulator.EventAccumulator(str(folder))
    events.Reload()
    assert [(e.step, e.wall_time, round(e.value, 3)) for e in events.Scalars("accuracy")] == [
        (1, 1001.0, 0.5),
        (2, 1002.0, 0.75),
    ]


@pytest.mark.slow
@pytest.mark.xdist_group("wandb")
def test_wandb_runs_are_written_offline(records, trial, tmp_path):
    pytest.importorskip("wandb")
    assert tracked("wandb:w", records, trial) == ""
    [run] = (tmp_path / "w/wandb").glob("offline-run-*")
    assert run.name.endswith(trial.id) and list(run.glob("*.wandb"))


@pytest.mark.slow
@pytest.mark.xdist_group("wandb")
def test_wandb_keeps_all_reports_of_a_trial_beside_what_it_uses(records, trial, tmp_path):
    """Steps of the one are epochs, of the other seconds; W&B itself has one count, which only goes up."""
    pytest.importorskip("wandb")
    target = follower_of("wandb:w", records).target
    target.connect()
    for count in (2, 4):
        rows = rows_of([0.5] * count)
        records.write_metrics(trial.id, rows)
        records.write_system(trial.id, [row | {"step": 30 * row["step"]} for row in rows])
        target.show_running(
            Record.of(trial, status=Status.PENDING), 1000.0, TrialFiles(records, trial.id)
        )
    target.end({}, "complete")
    [file] = (tmp_path / "w/wandb").glob("offline-run-*/*.wandb")
    wait_until(lambda: b"120" in file.read_bytes(), "what W&B's own process writes")
    curve = _rows(file).drop_duplicates("_step")
    for name, axis, steps in (
        ("accuracy", "step", [1, 2, 3, 4]),
        ("system/accuracy", "system/seconds", [30, 60, 90, 120]),
    ):
        assert curve[axis][curve[name].notna()].tolist() == steps, name


WANDB = [
    pytest.mark.slow,
    pytest.mark.xdist_group("wandb"),
]  # its import takes seconds, in one process
EVERY = ["own_trackers:Lines", "tensorboard:tb", pytest.param("wandb:w", marks=WANDB)]
"""The shared suite: a new tracker is one more address here."""


def skip_without(uri):
    """Skip where the package of the tracker's kind is missing, else return the kind."""
    kind = uri.partition(":")[0]
    pytest.importorskip({"tensorboard": "tensorboardX"}.get(kind, kind))
    return kind


@pytest.mark.parametrize("uri", EVERY)
def test_a_tracker_takes_a_trial_that_starts_over_and_one_that_failed_and_is_told_nothing_twice(
    uri, records, trial
):
    skip_without(uri)
    failed = replace(trial, seed=3)
    records.write(
        Record.of(failed, status=Status.FAILED, error="RuntimeError: before its first report")
    )
    report(records, trial, (0.5, 0.6))
    first = follower_of(uri, records)
    first.look()
    first.close("interrupted")
    assert tracked(uri, records, trial, values=(0.25, 0.75)) == "", "its successor lacks nothing"
    again = follower_of(uri, records)
    again.follow(lambda seconds: "complete", lambda left: None)
    assert (again.gap(), again.shown, len(again.ended)) == ("", 0, 2)


@pytest.mark.parametrize("uri", EVERY)
def test_a_tracker_takes_a_value_of_an_axis_that_is_longer_than_a_file_s_name(uri, records, trial):
    skip_without(uri)
    prompt = "décris l'image " * 30
    assert tracked(uri, records, replace(trial, config={**trial.config, "lr": prompt})) == ""


@pytest.mark.parametrize("uri", EVERY[1:])
def test_a_folder_tracker_keeps_what_the_same_study_in_another_storage_wrote(
    uri, records, trial, tmp_path
):
    kind = skip_without(uri)
    seen = []
    for origin in ("aa" * 16, "bb" * 16, "aa" * 16):
        tracker = FOLDERS[kind](uri.partition(":")[2], replace(STUDY, origin=origin))
        tracker.start(Record.of(trial, status=Status.PENDING))
        tracker.close()
        files = (tmp_path / uri.partition(":")[2]).rglob("*")
        seen.append({f.parent for f in files if f.suffix == ".wandb" or "tfevents" in f.name})
    assert len(seen[0]) == 1 and len(seen[1]) == len(seen[2]) == 2
    assert kind == "wandb" or seen[0] < seen[1], "the first one's is still there"


def test_an_own_tracker_is_given_the_four_calls(records, trial):
    import own_trackers

    assert tracked("own_trackers:Lines", records, trial) == ""
    expected = [
        "s",
        ("start", trial.id),
        (1, {"accuracy": 0.5}),
        (2, {"accuracy": 0.75}),
        "done",
        "closed",
    ]
    assert expected == own_trackers.LINES
    sync(records, checked_tracking("own_trackers:Lines"), STUDY)
    assert [*expected, "s", "closed"] == own_trackers.LINES, "it knows the trial's end already"
    records.write(replace(records.read_one(trial.id), ended=9.0))
    (summary,) = sync(records, checked_tracking("own_trackers:Lines"), STUDY)
    assert (summary.added, summary.mended) == (0, 1), "told again, not added"
    (other,) = sync(records, checked_tracking("own_trackers:Again"), STUDY)
    assert (other.added, other.mended) == (1, 0), "what one tracker was told no other one knows"


def test_a_trial_that_starts_over_while_a_follower_looks_is_told_from_its_beginning(records, trial):
    import own_trackers

    report(records, trial, (0.5, 0.6))
    follower = looking(records)
    rows = [row | {"time": row["time"] + 60} for row in rows_of((0.25, 0.75))]
    records.write_metrics(trial.id, rows)
    records.write(Record.of(trial, status=Status.DONE, rows=rows, seconds=1.0))
    follower.look()
    again = [("start", trial.id), (1, {"accuracy": 0.25}), (2, {"accuracy": 0.75}), "done"]
    assert own_trackers.LINES[-4:] == again


def test_a_report_that_is_revised_while_a_follower_looks_is_told_again(records, trial):
    import own_trackers

    report(records, trial, (0.5, 0.6))
    follower = looking(records)
    finish(records, trial, (0.5, 0.7))
    follower.look()
    reports = [line for line in own_trackers.LINES if isinstance(line[0], int)]
    assert reports == [(1, {"accuracy": 0.5}), (2, {"accuracy": 0.6}), (2, {"accuracy": 0.7})]


def test_a_trial_that_is_archived_while_a_follower_looks_has_not_ended_any_more(records, trial):
    import own_trackers

    finish(records, trial, (0.5,))
    follower = looking(records)
    assert set(follower.ended) == {trial.id}
    archive_trials(records, {trial.id}, "run again as asked")
    follower.look()
    assert not follower.ended, "--rerun beside a sync that follows"
    report(records, trial, (0.25,))
    follower.look()
    assert own_trackers.LINES[-1] == (1, {"accuracy": 0.25})
    for values, lost in (((0.25, 7), True), ((0.25, 0.5), False)):
        finish(records, trial, values)
        follower.look()
        assert bool(follower.refused) == lost and (own_trackers.LINES[-1] == "done") != lost, (
            "another record is another try"
        )
    held = {
        name
        for name, known in vars(follower).items()
        if isinstance(known, dict) and trial.id in known
    }
    assert held == {"ended", "_etags"}, "nothing is kept of what it was before"


def test_a_killed_process_s_successor_tells_a_trial_from_its_beginning_and_nothing_that_ended(
    records, trial
):
    import own_trackers

    follower = follower_of("own_trackers:Lines", records)
    for values in ((), (0.5,)):  # a trial that has reported nothing yet starts once
        report(records, trial, values)
        follower.look()  # and is killed
    assert [("start", trial.id), (1, {"accuracy": 0.5})] == own_trackers.LINES[1:]
    own_trackers.LINES.clear()
    assert tracked("own_trackers:Lines", records, trial) == ""
    told = [("start", trial.id), (1, {"accuracy": 0.5}), (2, {"accuracy": 0.75}), "done", "closed"]
    assert told == own_trackers.LINES[1:]
    own_trackers.LINES.clear()
    assert tracked("own_trackers:Lines", records, trial) == ""
    assert own_trackers.LINES[1:] == ["closed"]


@pytest.mark.slow
def test_a_process_of_its_own_tells_all_trackers_and_one_that_fails_stops_no_other(
    records, trial, tmp_path, capfd
):
    finish(records, trial, (0.5, 0.75))
    process = TrackingProcess(checked_tracking("own_trackers:Exits,tensorboard:tb"), STUDY, records)
    said = process.close("complete", 240.0)
    assert said.startswith("own_trackers:Exits lacks 1 trial of study s (SystemExit: 3)")
    assert list((tmp_path / "tb/s").glob("*/events*"))


def test_training_goes_first_while_it_runs_also_before_a_process_of_another_session(
    records, trial, tmp_path
):
    finish(records, trial, (0.5, 0.75))
    process = TrackingProcess(checked_tracking("own_trackers:Priority"), STUDY, records)
    wait_until((tmp_path / "start").exists, "the trial to be shown")
    assert int((tmp_path / "start").read_text()) >= NICENESS
    assert process.close("complete", 240.0) == ""
    grouped = Path("/proc/sys/kernel/sched_autogroup_enabled")
    if (
        grouped.exists() and grouped.read_text().strip() == "1"
    ):  # elsewhere nobody may raise it again
        assert (tmp_path / "close").read_text() == "0"


DRIVER = """
import pathlib, sys, time
from contrasweep.storage.records import StudyRecords
from contrasweep.tracking.kinds import checked_tracking
from contrasweep.tracking.process import TrackingProcess
from contrasweep.tracking.tracker import TrackedStudy
process = TrackingProcess(checked_tracking("own_trackers:Waits"), TrackedStudy(**STUDY), StudyRecords(STORAGE, "s"))
while not pathlib.Path("started").exists():
    time.sleep(0.05)
print(process.close("interrupted", 0.1), file=sys.stderr)
"""


def test_what_goes_on_in_the_background_holds_no_output_of_the_driver_that_has_ended(
    records, trial, tmp_path
):
    finish(records, trial, (0.5, 0.75))
    setup = f"STUDY = {asdict(STUDY)!r}\nSTORAGE = {records.storage!r}\n"
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    done = python("-c", setup + DRIVER, env=os.environ | {"PYTHONPATH": paths})
    (tmp_path / "go").touch()
    assert done.returncode == 0 and "goes on in the background" in done.stderr


def test_a_tracker_that_fails_stops_no_trial_and_is_named_at_the_end(records, trial, capsys):
    gap = tracked("own_trackers:Lines", records, trial, values=(7, 0.75))
    assert gap.startswith(
        "own_trackers:Lines lacks 1 trial of study s (OSError: the disk is full); the records have"
    )
    assert (
        f"own_trackers:Lines does not show trial {trial.id} (OSError: the disk is full)"
        in capsys.readouterr().err
    )


def test_a_tracker_that_stays_away_is_given_up_and_named_at_the_end(records, trial, monkeypatch):
    finish(records, trial, (0.5,))
    follower = follower_of("own_trackers:Lines", records)
    looks = []

    def away(*place, **named):
        looks.append(1)
        assert len(looks) < 9, "it is asked for ever"
        raise TrackingError("nobody answers", retryable=True)

    monkeypatch.setattr(follower.target, "connect", away)
    monkeypatch.setattr("contrasweep.tracking.follower.AWAY_S", 1.5)
    follower.follow(lambda seconds: "complete", lambda left: None)
    assert follower.gap().startswith(
        "own_trackers:Lines lacks 1 trial of study s (nobody answers); the records have"
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Unbuilt", "RuntimeError: no such server with a second line xxx"),
        ("Exits", "SystemExit: 3"),
        ("ExitsLater", "SystemExit: 4"),
        ("Unsaid", "Odd: its text cannot be made"),
    ],
)
def test_a_tracker_that_cannot_be_built_is_one_line_and_lacks_every_trial(
    name, reason, records, trial, capsys
):
    gap = tracked(f"own_trackers:{name}", records, trial)
    said = capsys.readouterr()
    [line] = said.err.splitlines()
    assert line.startswith(f"own_trackers:{name} ") and reason in line and len(line) < 400
    assert not said.out
    assert gap.startswith(f"own_trackers:{name} lacks 1 trial of study s ({reason}")
    assert "\n" not in gap
    with refused(StorageError, "own_trackers"):
        sync(records, checked_tracking(f"own_trackers:{name}"), STUDY)


def test_several_at_once_with_mlflow_first(records, tmp_path):
    trackers = checked_tracking("tensorboard:tb, own_trackers:Lines,sqlite:///m.db")
    assert str(trackers) == f"sqlite:///{tmp_path}/m.db,tensorboard:tb,own_trackers:Lines"
    assert checked_tracking(["none"]).is_none and checked_tracking(None).others == ()
    assert [target.name for target in targets(trackers, STUDY, records)] == [
        f"MLflow at sqlite:///{tmp_path}/m.db",
        "tensorboard:tb",
        "own_trackers:Lines",
    ]


def test_a_studys_own_trackers_hold_unless_the_command_says_others():
    assert tracking_of(OF_STUDY, None) == "sqlite:///mlflow.db"
    assert tracking_of(OF_STUDY, ["tensorboard:tb", "own_trackers:Lines"]) == [
        "tensorboard:tb",
        "own_trackers:Lines",
    ]
    assert tracking_of("none", "tensorboard:tb") == "none"
    assert tracking_of(None, "tensorboard:tb") is None
    fields = {"name": "s", "arms": {"a": Arm("toy:train")}, "data": "digits", "folds": 3}
    study = AblationGrid(**fields, tracking=["tensorboard:tb", "sqlite:///m.db"])
    assert checked_tracking(tracking_of(OF_STUDY, study.tracking)).others == ("tensorboard:tb",)
    assert "tracking" not in to_plain(AblationGrid(**fields)), (
        "study.json of a study without it is as it was"
    )
    with refused(SpecError, "a study holds no password, got 'postgresql://user:***@host/db'"):
        AblationGrid(**fields, tracking=["tensorboard:tb", "postgresql://user:hunter2@host/db"])


def test_wandb_is_asked_for_where_it_is_missing(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with refused(SpecError, match=r"wandb is not installed.*\[wandb]"):
        checked_tracking("wandb:w")


def test_rows_of_system_use_are_sent_once_whatever_the_steps_of_reports(records):
    """Their steps count samples, those of reports epochs."""

    heard = []

    class Heard:
        def start(self, trial):
            pass

        def report(self, trial_id, step, metrics, at):
            heard.append((step, *metrics))

    trial = Trial("s", "a", "m:f", {}, Manifest("d", "/d", "image", {}), None, 0)
    tracker = ToldTracker("own", records, Heard)
    tracker.connect()
    for epochs, samples in ((9, 2), (9, 3), (10, 12)):
        records.write_metrics(
            trial.id, [{"step": n, "time": 1.0 + n, "f1": 0.5} for n in range(1, epochs + 1)]
        )
        records.write_system(
            trial.id, [{"step": n, "time": 1.0 + n, "cpu": 0.5} for n in range(1, samples + 1)]
        )
        tracker.show_running(
            Record.of(trial, status=Status.PENDING), 1.0, TrialFiles(records, trial.id)
        )
    assert sorted(heard) == sorted(
        [*((n, "f1") for n in range(1, 11)), *((n, "system/cpu") for n in range(1, 13))]
    )
