"""What a hostile storage can make a command do: nothing but be refused or shown.

A small storage is made by the commands themselves, then forged file by file (`tests/support/forgeries.py`), and every
command runs over each of the forged ones under an audit hook (`tests/support/audited.py`).
"""

import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
from typing import Any

import forgeries
import pytest
import typer
from audited import SECRET
from command_line import python
from folders import make_files
from places import SUPPORT, module_path

from contrasweep.cli.app import app

SEED = 20261127
LEFT_OUT = {
    "ui": "serves MLflow until it is ended, and reads study.json alone",
    "mcp": "serves until it is ended, and runs the commands below",
    "doctor": "asks the machine and a cluster, and of a storage whether it can be written",
    "list": "reads no storage",
    "schema": "reads no storage",
    "init": "reads no storage",
    "noise": "trains, or reads what `judge` reads",
    "judge": "reads no storage; hostile files of results are in the tests of its readers",
    "submit": "needs a cluster",
    "jobs": "needs a cluster",
    "data stage": "writes a dataset from what the user names",
}
"""Commands that are not run over forged storages, and why."""
NOWHERE = ["--tracking", "none"]
COMMANDS: list[list[str]] = [
    ["plan", "small.yaml"],
    ["report", "small"],
    ["report", "small", "--format", "html", "--output", "page.html"],
    ["report", "small", "--declared"],
    ["bundle", "looked", "--output", "looked.zip"],
    ["compare", "looked", "d", "e"],
    ["diff", "looked:d", "looked:e"],
    ["watch", "small", "--once"],
    ["studies"],
    ["status", "small"],
    ["logs", "small", "{trial}"],
    ["code", "small"],
    ["note", "small", "{trial}", "odd"],
    ["stop", "small"],
    ["ledger", "speed"],
    ["ledger"],
    ["data", "list"],
    ["data", "show", "digits"],
    ["data", "verify", "digits"],
    ["run", "small.yaml", *NOWHERE],
    ["run", "tuned.yaml", *NOWHERE],
    ["evaluate", "small", "--on", "digits", *NOWHERE],
    ["decide", "speed.yaml", "another.yaml", *NOWHERE],
    ["sync", "small"],
    ["sync", "small.yaml", "--tracking", "tensorboard:board"],
    ["clean", "small", "--keep", "none", "--yes"],
    ["remove", "small", "--arm", "a", "--yes"],
    ["restore", "small", "--yes"],
    ["verify", "small", "--repair"],
]
MADE_BY: list[list[str]] = [
    ["data", "stage", "digits"],
    ["run", "small.yaml", *NOWHERE],
    ["run", "tuned.yaml", *NOWHERE],
    ["run", "looked.yaml", *NOWHERE],
    ["evaluate", "small", "--on", "digits", *NOWHERE],
    ["sync", "small.yaml", "--tracking", "sqlite:///mlflow.db,tensorboard:board"],
    ["decide", "speed.yaml", "candidate.yaml", *NOWHERE],
    ["note", "small", "good so far"],
    ["remove", "small", "--arm", "b", "--yes"],
]
"""The commands that make the honest storage. Trials of arm b are archived, and are still to run."""
STORAGES = 204
SOME = 2
"""Storages that are forged, and those of a run of the fast tests."""
SLOW = frozenset(
    {
        "looked.yaml",
        "bundle",
        "compare",
        "diff",
        "evaluate",
        "decide",
        "ledger",
        "speed.yaml",
        "sync",
    }
)
"""Commands that the fast tests leave out, for what they import and train, and what else needs these."""
FILES: dict[str, Any] = {
    "small": {
        "data": "digits-lt",
        "seeds": [0],
        "arms": {arm: {"trainable": "contrastive", "config": {"epochs": 1}} for arm in "ab"},
    },
    "tuned": {
        "type": "sweep",
        "data": "digits-lt",
        "folds": 2,
        "arms": {
            "c": {
                "trainable": "toy:train",
                "config": {"epochs": 1},
                "space": {"lr": {"type": "float", "low": 0.01, "high": 1.0}},
            }
        },
        "trials_per_arm": 2,
        "confirm_seeds": [1000],
    },
    "looked": {
        "data": "digits-lt",
        "arms": {
            arm: {"trainable": "toy:train", "config": {"epochs": 1, "lr": lr}}
            for arm, lr in (("d", 0.1), ("e", 1.0))
        },
        "replicates": {"first": 2, "step": 2, "most": 4},
    },
    "speed": {
        "type": "campaign",
        "incumbent": {"trainable": "candidates:train"},
        "data": "digits-lt",
        "smallest_difference": 0.005,
        "seeds": {"first": 2, "step": 2, "most": 8},
    },
    "candidate": {"trainable": "candidates:train", "config": {"who": "candidate", "gain": 0.05}},
    "another": {"trainable": "candidates:train", "config": {"who": "another"}},
}


def commands(group, before=""):
    for name, command in group.commands.items():
        yield from (
            commands(command, f"{name} ") if hasattr(command, "commands") else [f"{before}{name}"]
        )


def test_every_command_is_audited_or_says_why_not():
    audited = {" ".join(words[: 1 + (words[0] == "data")]) for words in COMMANDS}
    assert set(commands(typer.main.get_command(app))) == {
        *audited,
        *LEFT_OUT,
    }
    assert not audited & set(LEFT_OUT)


class Runner:
    """A user's folder, with what a storage may aim at, and a process that runs commands in it."""

    def __init__(self, folder, without=frozenset()):
        """`without` some commands, and what they make."""
        self.folder = folder
        self.honest = folder / "honest"
        for name in ("mine", "planted/planted", "outside", "tmp", "cache"):
            (folder / name).mkdir(parents=True)
        marker = f"open({str(folder / 'ran')!r}, 'w')\ndef X(*a, **k): return X\ntrain = load_model = X\n"
        make_files(folder, {"planted/planted/__init__.py": marker, "outside/secret": SECRET})
        for name, content in FILES.items():
            declared = content if "trainable" in content else {"name": name, **content}
            (folder / f"mine/{name}.yaml").write_text(json.dumps(declared))
        self.listening = socket.socket()
        self.victim = subprocess.Popen(["sleep", "86400"])
        self.listening.bind(("127.0.0.1", 0))
        self.listening.listen()
        self.listening.setblocking(False)
        self.harm = {
            "outside": str(folder / "outside"),
            "port": self.listening.getsockname()[1],
            "pid": self.victim.pid,
        }
        environment = os.environ | {
            "PYTHONPATH": module_path(SUPPORT, folder / "planted"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "CONTRASWEEP_CACHE": str(folder / "cache"),
            "CONTRASWEEP_STORAGE": "runs",
            "TMPDIR": str(folder / "tmp"),
            "MLFLOW_TRACKING_USERNAME": "alice",
            "MLFLOW_TRACKING_PASSWORD": SECRET,
            "OMP_NUM_THREADS": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, SUPPORT / "audited.py", folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for answer in self.run([words for words in MADE_BY if without.isdisjoint(words)]):
            assert answer["status"] == 0 and not answer["findings"], answer
        shutil.copytree(folder / "mine/runs", self.honest / "runs")
        shutil.copytree(folder / "cache", self.honest / "cache")
        trial = next(
            path.parent.name
            for path in sorted(self.honest.glob("runs/small/records/*/record.json"))
        )
        chosen = [words for words in COMMANDS if without.isdisjoint(words)]
        self.commands = [[word.format(trial=trial) for word in words] for words in chosen]
        for answer in self.run(
            self.commands
        ):  # what an honest storage lets them import is known from here on
            assert not answer["findings"] and (
                answer["status"] == 0 or answer["words"][0] == "stop"
            ), answer

    def run(self, commands, made=None):
        """Run commands in the user's folder; over a storage and a cache that were `made`, under the audit hook."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(
            json.dumps({"made": made and str(made), "commands": commands}),
            file=self.process.stdin,
            flush=True,
        )
        return json.loads(self.process.stdout.readline())

    def close(self):
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        self.victim.kill()
        self.victim.wait()
        self.listening.close()


@pytest.fixture(scope="module", params=[pytest.param(frozenset(), id="all")])
def runner(request, tmp_path_factory):
    with contextlib.closing(Runner(tmp_path_factory.mktemp("audited"), request.param)) as runner:
        yield runner


def harmless(runner, part):
    """Assert that no command over some of the forged storages did what nobody asked for; name the storage else.

    In each storage a few kinds of files are forged, each in one of the ways that there are for it.
    """
    cells = forgeries.cells(runner.honest)
    found = []
    done = []
    random.Random(SEED).shuffle(cells)
    storages: list[dict[str, str]] = [
        {} for _ in range(STORAGES)
    ]  # kind -> way: a file is forged once
    for number, (kind, way) in enumerate(cells):
        turned = storages[number % STORAGES :] + storages[: number % STORAGES]
        next(storage for storage in turned if kind not in storage)[kind] = way
    for chosen in [list(storage.items()) for storage in storages][part]:
        forged = runner.folder / "forged"
        shutil.rmtree(forged, ignore_errors=True)
        shutil.copytree(runner.honest, forged)
        for cell in chosen:
            forgeries.forge(forged, cell, SEED, runner.harm)
        answers = runner.run(runner.commands, forged)
        found += [{"forged": chosen, **answer} for answer in answers if answer["findings"]]
        done += [answer["status"] == 0 for answer in answers]
    each = {finding: answer for answer in found for finding in answer["findings"]}
    assert not each, json.dumps(list(each.values())[:20], indent=1)
    assert sum(done) > len(done) / 2, "most commands end before they have read much"
    assert runner.victim.poll() is None, "a process was ended that only a storage names"
    assert [path.name for path in (runner.folder / "outside").iterdir()] == ["secret"], (
        "something was written outside"
    )
    assert not (runner.folder / "ran").exists(), "what only a storage names was imported"
    with pytest.raises(BlockingIOError):
        runner.listening.accept()


@pytest.mark.slow
@pytest.mark.parametrize("runner", [SLOW], indirect=True, ids=["some"])
def test_no_command_does_what_some_forged_storages_say(runner):
    harmless(runner, slice(SOME))


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("half", [0, 1])
def test_no_command_does_what_any_forged_storage_says(half, runner):
    harmless(runner, slice(half, None, 2))


HARM = {
    "import planted": "imports planted",
    "subprocess.run(['true'])": "starts ['true']",
    "os.system('true')": "starts b'true'",
    "os.posix_spawn('/bin/true', ['true'], {})": "starts /bin/true",
    "os.fork() or os._exit(0)": "starts a process",
    "os.kill(os.getppid(), 18)": "sends signal 18",
    "pickle.loads(pickle.dumps(pickle.Pickler))": "unpickles _pickle.Pickler",
    "exec('1')": "runs code, in <harm>",
    "compile('1', '', 'eval')": "compiles b'1', in <harm>",
    "socket.socket().connect_ex(('127.0.0.1', 1))": "connects to",
    "socket.getaddrinfo('localhost', 1)": "looks up localhost",
    "open('../other', 'w')": "writes",
    "os.remove('../other')": "writes",
    "os.mkdir('../new')": "writes",
    "os.rename('runs/x', '../new/x')": "writes",
    "os.symlink('.', '../link')": "writes",
    "open('../runs-other', 'w')": "writes",
    "open('runs/link').read()": "reads runs/link",
}
"""Code -> what the hook says of it."""


@pytest.mark.slow
def test_the_hook_hears_harm_and_nothing_of_work(tmp_path):
    for name in ("mine/runs", "outside", "planted"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "outside/secret").touch()
    (tmp_path / "planted/planted.py").touch()
    (tmp_path / "mine/runs/link").symlink_to(tmp_path / "outside/secret")
    work = [
        "open('runs/x', 'w')",
        "os.remove('runs/x')",
        "import json",
        "open('page.html', 'w')",
        "1",
    ]
    script = f"""
import contextlib, json, os, pathlib, pickle, socket, subprocess, sys
from audited import Auditor
auditor = Auditor(pathlib.Path({str(tmp_path)!r}), set(sys.modules))
sys.addaudithook(auditor)
heard = []
for code in [compile(text, "<harm>", "exec") for text in {[*HARM, *work]!r}]:
    with contextlib.suppress(OSError), auditor.listening(["report"]) as findings:
        exec(code)
    heard.append(findings)
print(json.dumps(heard))
"""
    (tmp_path / "harm.py").write_text(script)
    places = module_path(SUPPORT, tmp_path / "planted")
    done = python(
        tmp_path / "harm.py",
        cwd=tmp_path / "mine",
        env=os.environ | {"PYTHONPATH": places},
        check=True,
    )
    heard = json.loads(done.stdout.splitlines()[-1])
    itself = f"runs code, in {tmp_path / 'harm.py'}"  # the script's own `exec`
    for (harm, said), findings in zip(HARM.items(), heard, strict=False):
        assert any(said in finding for finding in findings), (harm, findings)
    assert [set(findings) - {itself} for findings in heard[len(HARM) :]] == [set()] * len(work)
