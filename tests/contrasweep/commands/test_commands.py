"""Any executable as a trainable: a shell script and a Python script that import nothing of ours."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from counting_trial import finish
from drivers import has_ended
from folders import make_files
from raylets import wait_for
from refusals import refused

from contrasweep import Arm, SpecError, data
from contrasweep.canonical import Config
from contrasweep.code import code_of, dotted_paths
from contrasweep.commands import COMMAND_PATH, dataset, placeholders
from contrasweep.commands.process import CommandFailed, Process
from contrasweep.commands.trainable import train
from contrasweep.errors import ProcessLostError
from contrasweep.imports import project_folder
from contrasweep.planning.code_comparison import changes_text
from contrasweep.running.worker.execution import Execution
from contrasweep.storage.code_files import write_code
from contrasweep.storage.record import Status
from contrasweep.storage.records import StudyRecords
from contrasweep.study.trainables import SettingsOfArms
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


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with the scripts, in which contrasweep is called."""
    folder = tmp_path / "project"
    folder.mkdir()
    make_files(folder, {"train.py": SCRIPT, "train.sh": SHELL})
    (folder / "train.sh").chmod(0o755)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def records(runs):
    return StudyRecords(runs, "s")


def trial_of(tmp_path, command, **config):
    arm = Arm(command=command, config=config)
    digits = data.resolve("digits", folds=2, storage=str(tmp_path / "runs"))
    return Trial("s", "a", str(arm.trainable), arm.config, digits, fold=0, seed=3)


def executed(trial, records):
    return finish(Execution(trial, train, records, metric="accuracy"))


PYTHON = ["python", "train.py", "--lr", "{lr}", "--fold", "{fold}"]


def test_a_python_script_reports_fails_and_goes_on_from_its_checkpoint(project, tmp_path, records):
    trial = trial_of(tmp_path, [*PYTHON, "--die-at", "{die_at}"], lr=0.25, die_at=2)
    failed = executed(trial, records)
    assert (failed.status, failed.step) == (Status.FAILED, 2)
    assert "ended with exit status 1; it printed last:" in failed.error
    assert failed.error.rstrip().endswith("no more of this")
    records.reopen(trial.id)
    record = executed(trial, records)
    assert (record.status, record.step, record.metrics) == (Status.DONE, 3, {"accuracy": 0.75})
    assert [row["step"] for row in records.metrics(trial.id)] == [1, 2, 3] and record.attempts == 2


TORCHRUN = r"printf 'exitcode  : 1\nRoot Cause (first observed failure):\n exitcode  : -9 (pid: 8)\n==\n'; false"


@pytest.mark.parametrize("end", ["kill -9 $$", "kill $$", "sh -c 'kill -9 $$'", TORCHRUN])
def test_a_command_that_others_kill_is_lost_and_has_not_failed(end, tmp_path):
    process = Process(["bash", "-c", f"{end}; exit $?"], tmp_path, os.environ)
    assert process.ended(300)
    with pytest.raises(ProcessLostError, match="ended with"):
        process.check()
    process.stop()


def test_a_shell_script_reads_the_dataset_as_files(project, tmp_path, records, capfd):
    record = executed(trial_of(tmp_path, ["./train.sh", "{score}", "{data}"], score=7), records)
    assert (record.status, record.metrics) == (Status.DONE, {"accuracy": 0.7})
    printed = capfd.readouterr().out
    assert (
        "test.columns.parquet test.image.npy test.label.npy train.columns.parquet train.image.npy"
        in printed
    )


def test_a_trial_that_is_stopped_sends_sigterm(project, tmp_path, capfd):
    (project / "waits.py").write_text(
        "import json, os, pathlib, signal, time\n"
        "def end(*_):\n    pathlib.Path('ended').write_text('by SIGTERM')\n    raise SystemExit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "open(os.environ['CONTRASWEEP_METRICS'], 'a').write(json.dumps({'step': 1, 'accuracy': 1}) + '\\n')\n"
        "time.sleep(600)\n"
    )
    reports = train(replace(trial_of(tmp_path, ["python", "waits.py"]), folder=tmp_path / "own"))
    assert next(reports).metrics == {"accuracy": 1}
    reports.close()
    assert (tmp_path / "own/ended").read_text() == "by SIGTERM"


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
    wait_for(lambda: (tmp_path / "ready").exists())
    for child in psutil.Process(parent.pid).children(recursive=True):
        child.kill()
    parent.kill()
    parent.wait()
    wait_for(lambda: (tmp_path / "saved").exists() and (tmp_path / "saved").read_text() == "all")


def test_what_cannot_be_started_says_why(tmp_path):
    (tmp_path / "no_program").write_text("nothing")
    with pytest.raises(PermissionError, match="no_program"):
        Process(["./no_program"], tmp_path, os.environ)
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        Process(["no-such-program"], tmp_path, os.environ)


RANKS = r"""
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
code = "import os, time; os.fork() and os._exit(0); os.setsid(); print(os.getpid(), flush=True); time.sleep(600)"
subprocess.run([sys.executable, "-c", code], stdout=open("daemon", "w"))
ranks = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True) for _ in "12"]
while not (daemon := open("daemon").read().strip()):
    time.sleep(0.01)
open("ranks", "w").write(" ".join([daemon, *(str(rank.pid) for rank in ranks)]))
open("ready", "w").close()
"""


@pytest.mark.parametrize(
    "shell", ["sleep 600 & echo $! > child; exit 3", "setsid sleep 600 & echo $! > child; exit 3"]
)
def test_children_of_a_command_have_ended_when_its_trial_has(tmp_path, shell):
    """In a session of their own too, where a signal for the command's group does not reach them."""
    process = Process(["sh", "-c", shell], tmp_path, os.environ)
    assert process.ended(300) and process.returncode == 3
    process.stop()
    assert has_ended(int((tmp_path / "child").read_text()))


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux gives orphans to another process than the first one"
)
@pytest.mark.parametrize("killed", ["launcher", "supervisor", "worker"])
def test_daemons_and_ranks_that_ignore_sigterm_end_with_whoever_is_killed(tmp_path, killed):
    code = (
        RANKS if killed != "worker" else RANKS.replace("SIG_IGN", "SIG_DFL")
    )  # whose command has half a minute
    (tmp_path / "waits.py").write_text(code + "print(os.getpid(), flush=True)\ntime.sleep(600)\n")
    worker = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    launcher = int(worker.stdout.readline())
    wait_for((tmp_path / "ready").exists)
    ranks = [int(rank) for rank in (tmp_path / "ranks").read_text().split()]
    assert not any(map(has_ended, ranks))
    os.kill(
        {"launcher": launcher, "supervisor": psutil.Process(launcher).ppid(), "worker": worker.pid}[
            killed
        ],
        9,
    )
    worker.wait(300)
    wait_for(lambda: all(map(has_ended, [launcher, *ranks])))


def test_a_command_that_ends_before_its_start_is_heard_of_has_ended(tmp_path, monkeypatch):
    """Both words of its supervisor come in one read then."""
    started = Process._started

    def late(process):
        wait_for((tmp_path / "ended").exists)
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
    "command",
    [
        ["python", "-m", "json.tool"],
        ["python", "-m", "inside.run"],
        ["python", "-u", "plain"],
        ["python", "{script}"],
        ["python", "-c", "pass"],
        ["env", "A=1", "bash", "-c", "x y.sh"],
        ["env", "-u", "A", "python", "-m", "inside"],
        ["bash", "-c", "/".join(["echo " + "many words " * 100] * 2)],
    ],
)
def test_what_a_command_runs_is_looked_for_only_where_its_words_say_it(project, command):
    make_files(project, {"inside/run.py": "", "plain": ""})
    placeholders.check(command, {"script": "x"})
    words = placeholders.filled(command, {"script": "x"}, {}, {}, project)
    assert project_folder(words) == project
    assert "many" not in "".join(dotted_paths({"command": words}))


def code(command):
    return code_of(COMMAND_PATH, sorted(set(dotted_paths({"command": command})))).version


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
    make_files(
        project,
        {
            "src/train.py": "import network_of_this_test\nimport json\n",
            "src/network_of_this_test.py": "WIDTH = 1\n",
        },
    )
    command = ["python", "src/train.py"]
    before = code(command)
    assert set(before.modules) == {"file:src/train.py", "file:src/network_of_this_test.py"}
    (project / "src/network_of_this_test.py").write_text("WIDTH = 2\n")
    assert code(command).digest != before.digest


@pytest.mark.parametrize(
    ("script", "changed"),
    [
        (
            "import hydra\n@hydra.main(config_path='../conf', config_name='config')\ndef main(c): ...",
            "",
        ),
        (
            "import runpy, sys\nrunpy.run_path('main_supcon.py', run_name='__main__')\n",
            "src/main_supcon.py",
        ),
        (
            "import subprocess, sys\nsubprocess.run([sys.executable, 'src/main_supcon.py'])\n",
            "src/losses_here.py",
        ),
    ],
    ids=["hydra", "runpy", "process"],
)
def test_what_a_script_names_is_code_too(project, script, changed):
    make_files(
        project,
        {
            **dict.fromkeys(("conf/config.yaml", "conf/optimizer/sgd.yaml"), "lr: 0.1\n"),
            "src/main_supcon.py": "import losses_here\n",
            "src/losses_here.py": "T = 1\n",
            "src/wrapper.py": script,
        },
    )
    before = code(["python", "src/wrapper.py"])
    (project / (changed or "conf/optimizer/sgd.yaml")).write_text(
        "T = 2\n" if changed else "lr: 0.2\n"
    )
    assert code(["python", "src/wrapper.py"]).digest != before.digest


def test_files_and_folders_that_code_names_are_noticed_or_asked_for(project, records):
    make_files(
        project,
        {"conf/a.txt": "1", "wrapper.py": "import os, runpy\nrunpy.run_path(os.environ['X'])\n"},
    )
    arm = Arm(command=["python", "wrapper.py"], code=["conf", "train.sh"], metrics="metrics.csv")
    of = lambda: code_of(COMMAND_PATH, sorted(set(dotted_paths(arm.config))))  # noqa: E731
    before = of()
    assert {"file:conf/a.txt", "file:train.sh", "file:wrapper.py"} <= set(before.version.modules)
    write_code(records, before)
    (project / "conf/a.txt").write_text("2")
    assert changes_text(records, before.version.digest, of()) == "conf/a.txt changed"
    assert of().version.digest != before.version.digest


def test_a_program_beside_the_running_python_is_found(project, tmp_path, monkeypatch):
    list(
        train(
            trial_of(
                tmp_path,
                [
                    "env",
                    "X=1",
                    "sh",
                    "-c",
                    f"python -c 'import contrasweep' && touch {tmp_path}/ran",
                ],
            )
        )
    )
    assert (tmp_path / "ran").exists()
    monkeypatch.setenv("PATH", "/nowhere")
    arms = SettingsOfArms({"a": Arm(command=["torchrun", "train.py"])})
    arms.build("a", Config(Arm(command=["torchrun", "train.py"]).config))
    assert placeholders.filled(["torchrun"], {}, {}) == [
        str(Path(sys.executable).parent / "torchrun")
    ]


def test_each_trial_has_a_folder_in_the_storage_and_reads_its_project(
    project, tmp_path, runs, records
):
    make_files(
        project,
        {
            "src/writes.py": "import os, pathlib, sys\nimport beside_it\n"
            "pathlib.Path('out').mkdir()\npathlib.Path('out/metrics.csv').write_text('accuracy\\n0.5\\n0.75\\n')\n"
            "print(pathlib.Path(sys.argv[1]).read_text())\n",
            "beside_it.py": "",
            "train.txt": "data",
        },
    )
    trial = trial_of(tmp_path, ["python", "src/writes.py", "train.txt"])
    record = executed(trial, records)
    assert (record.status, record.step, record.metrics) == (Status.DONE, 2, {"accuracy": 0.75}), (
        record.error
    )
    assert (tmp_path / "runs/s/trials" / trial.id / "folder/1/out/metrics.csv").is_file()
    assert not (project / "out").exists()
    for word, place in {"{folder}": project, "{lr}": tmp_path / "own"}.items():
        shows = trial_of(tmp_path, ["sh", "-c", f"pwd > {tmp_path}/at # {word}"], lr=1)
        list(train(replace(shows, folder=tmp_path / "own")))
        assert (tmp_path / "at").read_text().strip() == str(place)


READS = """
import os, pathlib, shutil
print(pathlib.Path("data/x.txt").read_text(), pathlib.Path("table.csv").read_text(), os.listdir("save"))
assert pathlib.Path("save/base.txt").read_text() == "base" and not pathlib.Path("model.pt").exists()
for place in ("save/model.pt", "model.pt", "log"):
    pathlib.Path(place).write_text("of this trial")
pathlib.Path("metrics.csv").write_text("accuracy\\n0.5\\n")
"""


def test_relative_paths_reach_the_project_and_no_trial_reads_or_writes_what_runs_have_left(
    project, tmp_path
):
    files = {
        "data/x.txt": "x",
        "table.csv": "1",
        "save/model.pt": "old",
        "save/base.txt": "base",
        "model.pt": "old",
    }
    files |= {
        "metrics.csv": "accuracy\n0.9\n",
        "log": "old",
        "reads.py": READS,
        "wandb/x": "old",
        ".env": "",
    }
    make_files(project, files)
    records = StudyRecords(str(project / "runs"), "s")
    arm = Arm(command=["python", "reads.py"], code=["save/base.txt", "data/x.txt"])
    trial = replace(trial_of(tmp_path, ["python", "reads.py"]), config=arm.config)
    record = executed(trial, records)
    assert (record.status, record.metrics) == (Status.DONE, {"accuracy": 0.5}), record.error
    folder = project / "runs/s/trials" / trial.id / "folder/1"
    left = {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}
    assert left == {"save/model.pt", "model.pt", "log", "metrics.csv"}, "links are gone"
    assert {name: (project / name).read_text() for name in files} == files


WRITES = """
import pathlib
print(*(pathlib.Path(name).read_text() for name in ("datasets/x.txt", "elsewhere/y.txt", "notes/a.txt")))
pathlib.Path("experiments").mkdir(exist_ok=True)
pathlib.Path("experiments/model").write_text("of this trial")
pathlib.Path("shelf/model").write_text("of this trial")
pathlib.Path("metrics.csv").write_text("accuracy\\n0.5\\n")
"""


def test_what_git_ignores_is_linked_if_it_is_data_and_a_shared_folder_that_is_written_into_is_said(
    project, tmp_path, capfd, caplog
):
    files = {
        "datasets/x.txt": "x",
        "experiments/model": "old",
        "shelf/code.py": "",
        "notes/a.txt": "z",
        "writes.py": WRITES,
    }
    files |= {".gitignore": "experiments\ndatasets/\nelsewhere\n"}
    make_files(project, files)
    make_files(tmp_path, {"disk/y.txt": "y"})
    (project / "elsewhere").symlink_to(tmp_path / "disk")
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    records = StudyRecords(str(project / "runs"), "s")
    trial = trial_of(tmp_path, ["python", "writes.py"])
    record = executed(trial, records)
    assert (record.status, record.metrics) == (Status.DONE, {"accuracy": 0.5}), record.error
    folder = project / "runs/s/trials" / trial.id / "folder/1"
    assert (folder / "experiments/model").read_text() == "of this trial"
    assert {name: (project / name).read_text() for name in files} == files
    _, written = [line.getMessage() for line in caplog.records if line.levelname == "WARNING"]
    printed = capfd.readouterr().out
    assert "x y z" in printed
    assert "relative paths do not reach experiments, runs of the project, as runs" in printed
    assert written.startswith("shelf of the project changed as the command ran;")


@pytest.mark.parametrize("source", ["eval.csv", "ev*.csv", "scores/eval.csv", "sc*/**/eval.csv"])
def test_a_file_that_metrics_are_read_from_is_the_trials_own(source, project, tmp_path, caplog):
    (project / "scores").mkdir()
    old = "step,accuracy\n9,0.9\n"
    left = project / ("scores/eval.csv" if "/" in source else "eval.csv")
    left.write_text(old)
    (project / "best.txt").write_text("old")
    name = left.relative_to(project)
    command = f"mkdir -p scores; echo new > best.txt; printf 'step,accuracy\\n1,0.5\\n' > {name}"
    arm = Arm(command=["sh", "-c", command], metrics=source)
    trial = replace(trial_of(tmp_path, ["sh"]), config=arm.config, folder=tmp_path / "own")
    assert [(report.step, report.metrics) for report in train(trial)] == [(1, {"accuracy": 0.5})]
    assert left.read_text() == old
    (said,) = [line.getMessage() for line in caplog.records]
    assert said.startswith("best.txt of the project changed as the command ran;")


def test_images_are_given_as_pictures_in_folders_of_classes(tmp_path):
    from PIL import Image

    digits = data.resolve("digits", folds=2, storage=str(tmp_path))
    folder = dataset.export_images(digits, 0, tmp_path / "pictures")
    train_part, test_part = data.open_dataset(digits).parts(0)
    for name, part in (("train", train_part), ("test", test_part)):
        assert len(sorted((folder / name).rglob("*.png"))) == len(part)
        assert sorted(path.name for path in (folder / name).iterdir()) == sorted(digits.classes)
        for i in (0, len(part) - 1):
            picture = folder / name / digits.classes[part.labels[i]] / f"{part.rows[i]}.png"
            assert (np.asarray(Image.open(picture)) == part.array("image")[i, ..., 0]).all()
    with refused(SpecError, match=r"command: {data:images} is for labelled images, got 'none'"):
        dataset.export_images(data.resolve("none", folds=2, storage=""), 0, tmp_path / "none")


def test_a_command_out_of_memory_is_told_from_other_failures(tmp_path):
    from contrasweep.cluster import out_of_memory

    trial = replace(
        trial_of(tmp_path, [sys.executable, "-c", "raise MemoryError('too large')"]), fold=1
    )
    with pytest.raises(CommandFailed) as caught:
        list(train(trial))
    assert out_of_memory.exhausted_memory(caught.value) == "host"
