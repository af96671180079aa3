"""Trackers beside MLflow, one or several: event files, offline runs, and a class of somebody else's."""

import importlib.util
import sys

import pytest

from contrasweep import AblationGrid, Arm, SpecError, data
from contrasweep.defaults import OF_STUDY
from contrasweep.storage.record import Record, Status
from contrasweep.study.file import to_plain
from contrasweep.tracking import TrackedStudy, checked_tracking, open_tracker, tracking_of
from contrasweep.tracking.several import SeveralWithPages
from contrasweep.trial import Trial

OWN = """
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

class Unbuilt(Lines):
    def __init__(self, study):
        raise RuntimeError("no such server\\nwith a second line " + "x" * 1000)

class Exits(Lines):
    def __init__(self, study):
        raise SystemExit(3)

class ExitsLater(Lines):
    def finish(self, record):
        raise SystemExit(4)

class Odd(Exception):
    def __str__(self):
        raise ValueError("no text")

class Unsaid(Lines):
    def __init__(self, study):
        raise Odd

class Half:
    def start(self, trial): ...
    def report(self, *words): ...

class Short(Half):
    def __init__(self, study): ...
    def report(self, trial_id): ...
    def finish(self, record): ...
    def close(self, timeout_s=30.0): ...

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
def trial(tmp_path):
    digits = data.resolve("digits", folds=2, storage=str(tmp_path / "runs"))
    return Trial("s", "ours", "m:f", {"lr": 0.1, "loss": {"name": "ocl"}}, digits, fold=1, seed=2)


def tracked(uris, trial, values=(0.5, 0.75)):
    """One trial, reported; what `close` says."""
    tracker = open_tracker(uris, TrackedStudy("s", axes=("lr",)))
    tracker.start(trial)
    for step, value in enumerate(values, 1):
        tracker.report(trial.id, step, {"accuracy": value}, 1000.0 + step)
    rows = [{"step": 2, "time": 1002.0, "accuracy": 0.75}]
    tracker.finish(Record.of(trial, status=Status.DONE, rows=rows))
    return tracker.close(60.0)


def test_event_files_hold_each_report(trial, tmp_path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    assert tracked("tensorboard:tb", trial) is None
    [folder] = [path for path in (tmp_path / "tb" / "s").iterdir() if path.is_dir()]
    assert folder.name == f"ours-lr=0.1-fold=1-seed=2-{trial.id[:8]}"
    events = event_accumulator.EventAccumulator(str(folder))
    events.Reload()
    assert [(e.step, e.wall_time, round(e.value, 3)) for e in events.Scalars("accuracy")] == [
        (1, 1001.0, 0.5),
        (2, 1002.0, 0.75),
    ]


@pytest.mark.slow
def test_wandb_runs_are_written_offline(trial, tmp_path):
    pytest.importorskip("wandb")
    assert tracked("wandb:w", trial) is None
    [run] = (tmp_path / "w" / "wandb").glob("offline-run-*")
    assert run.name.endswith(trial.id) and list(run.glob("*.wandb"))


def test_an_own_tracker_is_given_the_four_calls(trial):
    import own_trackers

    assert tracked("own_trackers:Lines", trial) is None
    expected = ["s", ("start", trial.id), (1, {"accuracy": 0.5}), (2, {"accuracy": 0.75}), "done", "closed"]
    assert expected == own_trackers.LINES


def test_a_tracker_that_fails_stops_no_trial_and_is_named_at_the_end(trial, capsys):
    gap = tracked("own_trackers:Lines", trial, values=(7, 0.75))
    assert str(gap) == (
        "own_trackers:Lines lacks 1 trial of study s (OSError: the disk is full); the records have everything"
    )
    assert "tracking by own_trackers:Lines fails: OSError: the disk is full" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Unbuilt", "RuntimeError: no such server with a second line xxx"),
        ("Exits", "SystemExit: 3"),
        ("ExitsLater", "SystemExit: 4"),
        ("Unsaid", "Odd: its text cannot be made"),
    ],
)
def test_a_tracker_that_cannot_be_built_is_one_line_and_lacks_every_trial(name, reason, trial, capsys):
    gap = tracked(f"own_trackers:{name}", trial)
    assert gap is not None and gap.trials == (trial.id,)
    said = capsys.readouterr()
    [line] = said.err.splitlines()
    assert line.startswith(f"tracking by own_trackers:{name} fails: {reason}") and len(line) < 400 and not said.out
    assert str(gap).startswith(f"own_trackers:{name} lacks 1 trial of study s ({reason}")
    assert str(gap).endswith("the records have everything") and "\n" not in str(gap)


def test_several_at_once_with_mlflow_first(trial, tmp_path):
    trackers = checked_tracking("tensorboard:tb, own_trackers:Lines,sqlite:///m.db")
    assert str(trackers) == f"sqlite:///{tmp_path}/m.db,tensorboard:tb,own_trackers:Lines"
    assert checked_tracking(["none"]).store.is_none and checked_tracking(None).others == ()
    tracker = open_tracker(trackers.others, TrackedStudy("s"))
    assert not isinstance(tracker, SeveralWithPages) and tracker.close() is None


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        (
            "own_trackers:Half",
            "tracking: a tracker has the calls start, report, finish, close, got 'own_trackers:Half'",
        ),
        ("own_trackers:Short", "tracking: own_trackers:Short.report takes (trial_id, step, metrics, time); too many "),
        ("own_trackers:Linse", "tracking: the tracker's module has no such function or class"),
        ("nowhere_at:All", "tracking: the tracker's module cannot be imported"),
        ("tensorboard:", "tracking: this tracker needs a folder, got 'tensorboard:'; for example tensorboard:./runs"),
        ("./mlruns", "tracking: a folder is no tracking store"),
        ("sqlite:///a.db,sqlite:///b.db", "tracking: one MLflow store at a time"),
    ],
)
def test_a_tracker_that_cannot_work_is_one_line(uri, says):
    with pytest.raises(SpecError) as caught:
        checked_tracking(uri)
    assert str(caught.value).startswith(says)


def test_a_studys_own_trackers_hold_unless_the_command_says_others():
    assert tracking_of(OF_STUDY, None) == "sqlite:///mlflow.db"
    assert tracking_of(OF_STUDY, ["tensorboard:tb", "own_trackers:Lines"]) == ["tensorboard:tb", "own_trackers:Lines"]
    assert tracking_of("none", "tensorboard:tb") == "none" and tracking_of(None, "tensorboard:tb") is None
    fields = {"name": "s", "arms": {"a": Arm("toy:train")}, "data": "digits", "folds": 3}
    study = AblationGrid(**fields, tracking=["tensorboard:tb", "sqlite:///m.db"])
    assert checked_tracking(tracking_of(OF_STUDY, study.tracking)).others == ("tensorboard:tb",)
    assert "tracking" not in to_plain(AblationGrid(**fields)), "study.json of a study without it is as it was"
    with pytest.raises(SpecError) as caught:
        AblationGrid(**fields, tracking=["tensorboard:tb", "postgresql://user:hunter2@host/db"])
    assert str(caught.value).startswith("tracking: a study holds no password, got 'postgresql://user:***@host/db'")
    assert "hunter2" not in str(caught.value)


def test_wandb_is_asked_for_where_it_is_missing(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SpecError, match="the package wandb is not installed"):
        checked_tracking("wandb:w")
