"""Which settings a trainable read: noted key by key, kept in the record, and summed up over a study's trials."""

import copy
import json
import pickle
from dataclasses import dataclass
from pathlib import Path

import pytest

from contrasweep import data
from contrasweep.data.manifest import Manifest
from contrasweep.results.notices import unread_lines, unread_settings
from contrasweep.running.worker.execution import Execution, RecordedConfig
from contrasweep.storage.record import Record, Status
from contrasweep.trial import Report, Trial

CONFIG = {"lr": 0.1, "batchsize": 8, "loss": {"name": "ocl", "sigma": 0.5}, "widths": [1, 2]}


@dataclass
class Own:
    lr: float
    batchsize: int
    loss: dict
    widths: list


@pytest.mark.parametrize(
    ("read", "left"),
    [
        (lambda c: None, ("lr", "batchsize", "loss.name", "loss.sigma", "widths")),
        (
            lambda c: (c["lr"], c.get("batch_size", 4)),
            ("batchsize", "loss.name", "loss.sigma", "widths"),
        ),
        (lambda c: ("lr" in c, c["loss"]["sigma"]), ("batchsize", "loss.name", "widths")),
        (lambda c: (sorted(c), len(c)), ("lr", "batchsize", "loss.name", "loss.sigma", "widths")),
        (lambda c: c.items(), ("loss.name", "loss.sigma")),
        (lambda c: list(c.values()), ("loss.name", "loss.sigma")),
        (lambda c: dict(c), ("loss.name", "loss.sigma")),
        (lambda c: Own(**c), ("loss.name", "loss.sigma")),
        (lambda c: dict(**c["loss"]), ("lr", "batchsize", "widths")),
        (lambda c: c.setdefault("widths", 3), ("lr", "batchsize", "loss.name", "loss.sigma")),
        (lambda c: c.pop("widths"), ("lr", "batchsize", "loss.name", "loss.sigma")),
        (
            lambda c: c.__setitem__("device", "cpu"),
            ("lr", "batchsize", "loss.name", "loss.sigma", "widths"),
        ),
        (json.dumps, ()),
        (copy.deepcopy, ()),
        (pickle.dumps, ()),
        (lambda c: {"epochs": 1} | c, ()),
        (lambda c: c | {"epochs": 1}, ()),
        (lambda c: c.copy(), ()),
    ],
)
def test_what_was_read_is_noted(read, left):
    config = RecordedConfig(CONFIG)
    read(config)
    assert config.unused_settings() == left


def test_it_is_the_config_it_was_made_of():
    config = RecordedConfig(CONFIG)
    assert config == CONFIG and isinstance(config, dict)
    assert RecordedConfig({"loss": {}}).unused_settings() == ("loss",)
    assert json.loads(json.dumps(config)) == CONFIG
    assert type(copy.deepcopy(config)["loss"]) is dict


def reads_two(trial, resume=None):
    assert trial.id == Trial("s", "a", "m:f", CONFIG, trial.data, fold=0).id
    yield Report(1, {"accuracy": trial.config["lr"] + len(trial.config["widths"])})


def knows_its_settings(trial, resume=None):
    yield Report(1, {"accuracy": 1.0})


knows_its_settings.settings = dict


@pytest.mark.parametrize(
    ("function", "left"),
    [(reads_two, ("batchsize", "loss.name", "loss.sigma")), (knows_its_settings, ())],
)
def test_the_record_names_what_was_never_read(function, left, storage, records):
    trial = Trial("s", "a", "m:f", CONFIG, data.resolve("digits", folds=2, storage=storage), fold=0)
    execution = Execution(trial, function, records, metric="accuracy")
    while execution.advance().record is None:
        pass
    record = records.read_one(trial.id)
    assert record is not None and (record.status, record.unused_settings) == (Status.DONE, left)
    assert (b'"unused_settings"' in record.to_json()) == bool(left), (
        "records of others stay as they were"
    )


def reads_in_training(trial, resume=None):
    """Reads a setting before its one epoch, which is not trained again after the checkpoint."""
    if resume is None:
        (folder := Path(trial.config["folder"])).mkdir()
        yield Report(1, {"accuracy": trial.config["lr"]}, folder)


def test_what_an_earlier_attempt_read_is_not_called_unread(tmp_path, records):
    config = CONFIG | {"folder": str(tmp_path / "checkpoint")}
    trial = Trial(
        "s", "a", "m:f", config, data.resolve("digits", folds=2, storage=str(tmp_path)), fold=0
    )
    killed = Execution(trial, reads_in_training, records, metric="accuracy")
    assert killed.advance().record is None
    resumed = Execution(trial, reads_in_training, records, metric="accuracy").advance().record
    assert resumed is not None and resumed.attempts == 2
    assert resumed.unused_settings == ("batchsize", "loss.name", "loss.sigma", "widths")
    killed.close()


def record(arm, unused_settings=(), status=Status.DONE):
    return Record.of(
        Trial("s", arm, "m:f", CONFIG, Manifest("d", "", "image", {})),
        status=status,
        unused_settings=tuple(unused_settings),
    )


def test_a_setting_counts_as_unread_where_no_finished_trial_of_an_arm_read_it():
    records = [
        record("a", ["lr", "batchsize"]),
        record("a", ["batchsize"]),
        record("b", ["batchsize"]),
        record("c", ["widths"], Status.FAILED),
        record("c"),
    ]
    assert unread_settings(records) == {"batchsize": ("a", "b")}
    assert unread_lines(records) == [
        "batchsize: no trial of arms a, b read this setting, so it changed nothing there; it may be misspelt."
    ]
    assert unread_settings([record("c", ["lr"], Status.FAILED)]) == {}
