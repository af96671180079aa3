"""Any executable as a trainable: a shell script and a Python script that import nothing of ours."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest

from contrasweep import Arm, SpecError, data
from contrasweep.code import code_of, dotted_paths
from contrasweep.commands import PATH, placeholders
from contrasweep.commands.process import CommandFailed, Process
from contrasweep.commands.trainable import MetricsFile, train
from contrasweep.running.worker.execution import Execution
from contrasweep.storage.record import Status
from contrasweep.storage.records import StudyRecords
from contrasweep.study.grid import AblationGrid
from contrasweep.study.trainables import SettingsOfArms, unchecked_settings
from contrasweep.trial import Trial

SCRIPT = """
import argparse, json, os, pathlib, sys, time

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--fold", type=int)
parser.add_argument("--die-at", type=int, default=0)
args = parser.parse_args()
trial = json.loads(os.environ["CONTRASWEEP_TRIAL"])
assert trial["config"]["lr"] == args.lr and trial["fold"] == args.fold
resume = os.environ.get("CONTRASWEEP_RESUME")
done = int((pathlib.Path(resume) / "step").read_text()) if resume else 0
print("goes on from", done)
for step in range(done + 1, 4):
    folder = pathlib.Path(os.environ["CONTRASWEEP_CHECKPOINTS"]) / f"step-{step}"
    folder.mkdir()
    (folder / "step").write_text(str(step))
    with open(os.environ["CONTRASWEEP_METRICS"], "a") as file:
        line = {"step": step, "accuracy": args.lr * step, "checkpoint": folder.name}
        print(json.dumps(line), file=file)
    if step == args.die_at and not resume:
        time.sleep(1)
        sys.exit("no more of this")
"""
SHELL = """#!/bin/sh
for step in 1 2; do echo "{\\"step\\": $step, \\"accuracy\\": 0.$1}" >> "$CONTRASWEEP_METRICS"; done
echo "files:" $(ls "$2")
"""
WAITS = "import os, signal, sys, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with the scripts, in which contrasweep is called."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    (folder / "train.sh").write_text(SHELL)
    (folder / "train.sh").chmod(0o755)
    monkeypatch.chdir(folder)
    return folder


def trial_of(tmp_path, command, **config) -> Trial:
    arm = Arm(command=command, config=config)
    digits = data.resolve("digits", folds=2, storage=str(tmp_path / "runs"))
    return Trial("s", "a", str(arm.trainable), arm.config, digits, fold=0, seed=3)


def executed(trial, records):
    execution = Execution(trial, train, records, metric="accuracy")
    while True:
        if (record := execution.advance().record) is not None:
            return record


PYTHON = ["python", "train.py", "--lr", "{lr}", "--fold", "{fold}"]


def test_a_python_script_reports_fails_and_goes_on_from_its_checkpoint(project, tmp_path):
    records = StudyRecords(str(tmp_path / "runs"), "s")
    trial = trial_of(tmp_path, [*PYTHON, "--die-at", "{die_at}"], lr=0.25, die_at=2)
    failed = executed(trial, records)
    assert (failed.status, failed.step) == (Status.FAILED, 2)
    assert "ended with exit status 1; it printed last:" in failed.error
    assert failed.error.rstrip().endswith("no more of this")
    records.reopen(trial.id)
    record = executed(trial, records)
    assert (record.status, record.step, record.metrics) == (Status.DONE, 3, {"accuracy": 0.75})
    assert [row["step"] for row in records.metrics(trial.id)] == [1, 2, 3] and record.attempts == 2


def test_a_shell_script_reads_the_dataset_as_files(project, tmp_path, capfd):
    records = StudyRecords(str(tmp_path / "runs"), "s")
    record = executed(trial_of(tmp_path, ["./train.sh", "{score}", "{data}"], score=7), records)
    assert (record.status, record.metrics) == (Status.DONE, {"accuracy": 0.7})
    printed = capfd.readouterr().out
    assert "test.columns.parquet test.image.npy test.label.npy train.columns.parquet train.image.npy" in printed


def test_a_trial_that_is_stopped_sends_sigterm(project, tmp_path, capfd):
    (project / "waits.py").write_text(
        "import json, os, pathlib, signal, time\n"
        "def end(*_):\n    pathlib.Path('ended').write_text('by SIGTERM')\n    raise SystemExit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "open(os.environ['CONTRASWEEP_METRICS'], 'a').write(json.dumps({'step': 1, 'accuracy': 1}) + '\\n')\n"
        "time.sleep(600)\n"
    )
    reports = train(trial_of(tmp_path, ["python", "waits.py"]))
    assert next(reports).metrics == {"accuracy": 1}
    reports.close()
    assert (project / "ended").read_text() == "by SIGTERM"


def has_ended(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until(true):
    for _ in range(6000):
        if true():
            return
        time.sleep(0.05)
    pytest.fail("it did not come true within five minutes")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent died")
def test_a_command_ends_with_a_worker_that_is_killed(tmp_path):
    (tmp_path / "waits.py").write_text(WAITS)
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    wait_until(lambda: has_ended(child))


@pytest.mark.slow
def test_a_command_whose_worker_is_killed_has_time_to_save(tmp_path):
    """Ray kills its workers' children with SIGKILL: the command is no child of the worker."""
    (tmp_path / "waits.py").write_text(
        "import pathlib, signal, sys, time\n"
        "def end(*_):\n    time.sleep(2)\n    pathlib.Path('saved').write_text('all')\n    raise SystemExit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "pathlib.Path('ready').touch()\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, str(tmp_path)], env=os.environ)
    wait_until(lambda: (tmp_path / "ready").exists())
    for child in psutil.Process(parent.pid).children(recursive=True):
        child.kill()
    parent.kill()
    parent.wait()
    wait_until(lambda: (tmp_path / "saved").exists() and (tmp_path / "saved").read_text() == "all")


def test_what_cannot_be_started_says_why(tmp_path):
    (tmp_path / "no_program").write_text("nothing")
    with pytest.raises(PermissionError, match="no_program"):
        Process(["./no_program"], tmp_path, os.environ)
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        Process(["no-such-program"], tmp_path, os.environ)


def test_children_of_a_command_end_with_its_trial(tmp_path):
    process = Process(["sh", "-c", "sleep 600 & echo $! > child; exit 3"], tmp_path, os.environ)
    assert process.ended(300) and process.returncode == 3
    process.stop()
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: has_ended(child))


def test_a_command_that_ends_before_its_start_is_heard_of_has_ended(tmp_path, monkeypatch):
    """Both words of its supervisor come in one read then."""
    started = Process._started

    def late(process):
        wait_until((tmp_path / "ended").exists)
        time.sleep(1.0)
        return started(process)

    monkeypatch.setattr(Process, "_started", late)
    process = Process(["sh", "-c", "touch ended; exit 3"], tmp_path, os.environ)
    assert process.ended(300) and process.returncode == 3
    process.stop()


_PARENT = """
import os, sys, time
from pathlib import Path
from contrasweep.commands.process import Process
process = Process([sys.executable, "waits.py"], Path(sys.argv[1]), os.environ)
process.ended(600)
"""


@pytest.mark.parametrize(
    ("command", "config", "says"),
    [
        (PYTHON, {"lrr": 1}, "command: the command names a setting that the config does not have, got '{lr}'; did you"),
        (["no-such-program"], {}, "command: there is no such program, got 'no-such-program'; it is looked for on"),
        (["python", "trian.py"], {}, "command: there is no such script, got 'trian.py'; it is looked for in"),
        ([*PYTHON, "{seed}"], {"lr": 1, "seed": 2}, "seed: the trial has a value of this name itself"),
        ([], {}, "command: a command has at least one word"),
    ],
)
def test_a_command_that_cannot_run_is_refused_by_the_plan(project, command, config, says):
    arms = SettingsOfArms({"a": Arm(command=command, config=config)})
    from contrasweep.canonical import Config

    with pytest.raises(SpecError) as caught:
        arms.build("a", Config(Arm(command=command, config=config).config))
    assert str(caught.value).startswith(f"arms.a.config.{says}")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "trainable: an arm has a trainable or a command"),
        ({"trainable": "a:b", "command": ["x"]}, "trainable: an arm has a trainable or a command, not both, got 'a:b'"),
        ({"config": {"command": ["y"]}, "command": ["x"]}, "config.command: an arm has a trainable or a command, not"),
    ],
)
def test_an_arm_has_either(fields, says):
    with pytest.raises(SpecError) as caught:
        Arm(**fields)
    assert str(caught.value).startswith(says)


def test_a_command_is_short_for_the_trainable_that_runs_it():
    arm = Arm(command=["python", "x.py"], config={"lr": 1})
    assert (arm.trainable, arm.config, arm.command) == (PATH, {"command": ["python", "x.py"], "lr": 1}, None)
    assert arm == Arm(PATH, config={"lr": 1, "command": ["python", "x.py"]})


def test_placeholders_take_settings_by_dotted_name_and_anything_but_text_as_json():
    values = {"loss": {"name": "ocl", "sigma": 0.5}, "widths": [1, 2], "fold": None, "flag": True}
    given = ["x", "{loss.name}-{loss.sigma}", "{widths}", "{fold}", "{flag}", "{loss}", "{ }"]
    assert placeholders.filled(given, values) == [
        "x",
        "ocl-0.5",
        "[1, 2]",
        "null",
        "true",
        '{"name": "ocl", "sigma": 0.5}',
        "{ }",
    ]


def test_the_plan_names_settings_that_no_placeholder_takes(project):
    study = AblationGrid("s", {"a": Arm(command=PYTHON, config={"lr": 1})}, "digits", axes={"batchsize": [1, 2]})
    assert unchecked_settings(study) == (
        "the command of arm a has no placeholder for batchsize: whether it reads it from CONTRASWEEP_TRIAL cannot be "
        "checked",
    )


def code(command) -> str:
    return code_of(PATH, sorted(set(dotted_paths({"command": command})))).version


def test_the_files_that_a_command_names_are_its_code(project):
    before = code(PYTHON)
    assert set(before.modules) == {"file:train.py"} and "contrasweep" in before.distributions
    (project / "train.py").write_text(SCRIPT + "\n# a comment\n")
    assert code(PYTHON).digest == before.digest
    (project / "train.py").write_text(SCRIPT + "\nif __name__ == '__main__':\n    print('runs')\n")
    assert code(PYTHON).digest != before.digest
    shell = code(["./train.sh", "1"])
    (project / "train.sh").write_text(SHELL + "\n")
    assert code(["./train.sh", "1"]).digest != shell.digest
    assert code([sys.executable, "-c", "pass"]).modules == {}


def test_modules_beside_the_script_are_its_code_too(project):
    (project / "src").mkdir()
    (project / "src" / "train.py").write_text("import network_of_this_test\nimport json\n")
    (project / "src" / "network_of_this_test.py").write_text("WIDTH = 1\n")
    command = ["python", "src/train.py"]
    before = code(command)
    assert set(before.modules) == {"file:src/train.py", "file:src/network_of_this_test.py"}
    (project / "src" / "network_of_this_test.py").write_text("WIDTH = 2\n")
    assert code(command).digest != before.digest


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("not json", "a line of metrics is a JSON object, got 'not json'"),
        ("[1]", "with a whole number `step`, got [1]"),
        ('{"accuracy": 1}', "with a whole number `step`, got {'accuracy': 1}; for example"),
        ('{"step": 1, "accuracy": "high"}', "the metric 'accuracy' must be a number, got 'high'"),
        ('{"step": 1, "checkpoint": "nowhere"}', "names a file that is not there, got 'nowhere'"),
    ],
)
def test_a_broken_line_of_metrics_says_which(line, says, tmp_path):
    file = MetricsFile(tmp_path / "metrics.jsonl", tmp_path)
    file.file.write_text('{"step": 0}\n' + line + "\n")
    reports = file.reports()
    next(reports)
    with pytest.raises(SpecError) as caught:
        next(reports)
    assert str(caught.value).startswith("CONTRASWEEP_METRICS, line 2: ") and says in str(caught.value)


def test_half_a_line_waits_for_its_rest(tmp_path):
    file = MetricsFile(tmp_path / "metrics.jsonl", tmp_path)
    file.file.write_text('{"step": 1, "a')
    assert list(file.reports()) == []
    file.file.write_text(json.dumps({"step": 1, "accuracy": 0.5}) + "\n")
    assert [report.metrics for report in file.reports()] == [{"accuracy": 0.5}]


def test_a_command_out_of_memory_is_told_from_other_failures(tmp_path):
    from contrasweep.cluster import out_of_memory

    trial = replace(trial_of(tmp_path, [sys.executable, "-c", "raise MemoryError('too large')"]), fold=1)
    with pytest.raises(CommandFailed) as caught:
        list(train(trial))
    assert out_of_memory.which(caught.value) == "host"
