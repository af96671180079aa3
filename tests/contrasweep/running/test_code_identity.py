"""Results and the code that made them, by the command line, on a person's package outside the repository."""

import os
import shutil
from pathlib import Path

import pytest
from command_line import contrasweep, python
from folders import make_files

from contrasweep.storage.archive import list_archived
from contrasweep.storage.lease import exclusive_driver
from contrasweep.storage.records import StudyRecords

METHOD = """
from mythesis.helpers import scale
from mythesis.settings import Settings
from contrasweep.trial import Report

WIDTH = 16


def train(trial, resume=None):
    settings = Settings(**trial.config)
    yield Report(1, {"accuracy": scale(WIDTH, settings.lr) + 0.01 * trial.fold + 0.001 * trial.seed})


train.settings = Settings
"""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("running"),
]  # one finished study for all of them

FILES = {
    "mythesis/__init__.py": "",
    "mythesis/method.py": METHOD,
    "mythesis/helpers.py": "from mythesis.deeper import HALF\n\n\ndef scale(x, by):\n    return x * by * HALF / 10\n",
    "mythesis/deeper.py": "HALF = 0.5\n",
    "mythesis/settings.py": "import dataclasses\n\n\n@dataclasses.dataclass\nclass Settings:\n    lr: float = 0.05\n",
    "study.yaml": "name: own\ndata: digits-lt\nfolds: 3\nseeds: [0]\nmetric: accuracy\n"
    "arms:\n  a: {trainable: 'mythesis.method:train'}\n  b: {trainable: 'mythesis.method:train', config: {lr: 0.1}}\n",
}


class Thesis:
    """A folder with a package and a study in it, and the command line there."""

    def __init__(self, folder):
        self.folder = folder
        self.edits = 0
        self.records = StudyRecords(str(folder / "contrasweep-runs"), "own")

    def write(self):
        make_files(self.folder, FILES)

    def edit(self, name, old, new):
        text = (self.folder / name).read_text()
        assert old in text
        (self.folder / name).write_text(text.replace(old, new))
        self.edits += (
            1  # a compiled file counts as new as long as its source has the same size and second
        )
        os.utime(self.folder / name, (0, self.edits))

    def __call__(self, *words):
        return contrasweep(*words, folder=self.folder)

    def installed(self, *words):
        """The command as it is installed, in a process of its own, which imports nothing from the current folder of
        itself."""
        start = "import sys; del sys.path[0]; from contrasweep.cli import main; main()"
        return python("-c", start, *words, cwd=self.folder, check=True)

    def run(self, *words, status=0):
        done = self("run", "study.yaml", *words)
        assert done.returncode == status, done.stderr + done.stdout
        return done

    def values(self):
        recorded = self.records.read(self.records.finished()).values()
        return {(r.arm, r.fold): r.metrics["accuracy"] for r in recorded if r.metrics}

    def codes(self):
        return {r.code.digest for r in self.records.read(self.records.finished()).values()}

    def state(self):
        """Every object of the study with its content."""
        store = self.records.store
        return {
            key: store.read(key) for key in store.list("own/") if not key.startswith("own/lease/")
        }


@pytest.fixture(scope="module", autouse=True)
def untracked():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTRASWEEP_TRACKING", "none")
        yield


@pytest.fixture(scope="module")
def finished(local_ray, ray_core, tmp_path_factory):
    """A study that has run once."""
    thesis = Thesis(local_ray.importable)
    thesis.write()
    thesis.run()
    moved = local_ray.importable.rename(tmp_path_factory.mktemp("finished") / "thesis")
    local_ray.importable.mkdir()
    return moved


@pytest.fixture
def thesis(finished, local_ray):
    """The same where Ray's workers find it, and nobody else after the test."""
    yield Thesis(Path(shutil.copytree(finished, local_ray.importable, dirs_exist_ok=True)))
    shutil.rmtree(local_ray.importable)
    local_ray.importable.mkdir()


CHANGED = "6 of 6 trials were made by other code: mythesis/method.py changed (1 line) since 20"


def test_an_edited_method_stops_the_run_before_anything_changes(thesis):
    before = thesis.state()
    thesis.edit("mythesis/method.py", "WIDTH = 16", "# neurons\nWIDTH = 16\n")
    assert "0.0" in thesis.run().stdout, "a comment and a blank line change nothing"
    before = thesis.state()
    thesis.edit("mythesis/method.py", "WIDTH = 16", "WIDTH = 32")
    stopped = thesis.run(status=2)
    assert (
        "6 of 6 trials were made by other code: mythesis/method.py changed (3 lines) since 20"
        in stopped.stderr
    )
    assert len(stopped.stderr.strip().splitlines()) == 1
    assert "--rerun-changed" in stopped.stderr and "--accept-code" in stopped.stderr
    assert thesis.state() == before
    planned = thesis("plan", "study.yaml")
    assert planned.returncode == 0
    assert "made by other code: mythesis/method.py changed" in planned.stdout


def test_an_arm_of_other_code_is_marked_when_it_is_accepted(thesis):
    (old,), values = thesis.codes(), thesis.values()
    thesis.edit("mythesis/method.py", "WIDTH = 16", "WIDTH = 32")
    thesis.edit(
        "study.yaml",
        "config: {lr: 0.1}}",
        "config: {lr: 0.1}}\n  c: {trainable: 'mythesis.method:train'}",
    )
    assert CHANGED.replace("6 of 6", "6 of 9") in thesis.run("--extend", status=2).stderr
    mixed = thesis.run("--extend", "--accept-code")
    assert "† 6 of 9 trials ran other code than the newest: mythesis/method.py changed" in " ".join(
        mixed.stdout.split()
    )
    assert {key: thesis.values()[key] for key in values} == values
    assert thesis.run().stdout.count("†") == mixed.stdout.count("†"), (
        "it was accepted, so it is not asked again"
    )
    assert r"$\dagger$" in thesis("report", "own", "--format", "latex").stdout
    assert f"{old}  6 trials" in thesis("code", "own").stdout
    diff = thesis("code", "own", "--diff", old[:6], "now")
    assert "-WIDTH = 16\n+WIDTH = 32\n" in diff.stdout
    assert thesis.installed("code", "own", "--diff", old[:6], "now").stdout == diff.stdout


def test_trials_of_other_code_run_again_and_come_back(thesis):
    (old,), values, before = thesis.codes(), thesis.values(), thesis.state()
    thesis.edit("mythesis/deeper.py", "0.5", "0.25")
    assert "mythesis/deeper.py changed (1 line)" in thesis.run(status=2).stderr
    assert "†" not in thesis.run("--rerun-changed").stdout
    assert old not in thesis.codes()
    assert thesis.values()["a", 0] == pytest.approx(values["a", 0] / 2)
    state, (part,) = thesis.state(), list_archived(thesis.records)
    for key, content in before.items():
        if "/trials/" in key:
            assert state[key.replace("/trials/", f"/archive/{part.when}/trials/")] == content
        elif "/records/" in key:
            assert state[key.replace("/records/", f"/archive/{part.when}/records/")] == content
    assert "archived" in thesis("code", "own").stdout
    assert thesis("restore", "own", "--yes").returncode == 0
    assert thesis.codes() == {old}
    assert thesis.values() == values
    (part,) = list_archived(thesis.records)
    assert len(part.trial_ids) == 6, "what was there instead"


def test_a_table_kept_whole_says_so_and_can_be_run_again_later(thesis):
    values = thesis.values()
    thesis.edit("mythesis/method.py", "WIDTH = 16", "WIDTH = 32")
    kept = thesis.run("--accept-code")
    assert thesis.values() == values
    assert "6 of 6 trials were kept by --accept-code although their code" in kept.stdout
    assert "kept by --accept-code" in thesis("report", "own").stdout
    again = thesis.run("--rerun-changed")
    assert thesis.values() != values
    assert "--accept-code" not in again.stdout


def test_trials_are_removed_and_restored_by_arm_and_status(thesis):
    before = thesis.state()
    for words, says in [
        (["remove", "own"], "pass --yes"),
        (["remove", "own", "--arm", "z", "--yes"], "there is no such arm in this study"),
        (["restore", "own", "--yes"], "nothing of this study was archived"),
        (["run", "study.yaml", "--accept-code", "--rerun-changed"], "either run again or kept"),
        (["code", "own", "--diff", "xyz", "now"], "no code of the study's trials"),
    ]:
        done = thesis(*words)
        assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1), (
            words,
            done.stderr,
        )
        assert says in done.stderr
    with exclusive_driver(StudyRecords(str(thesis.folder / "contrasweep-runs"), "own")):
        for words in (["remove", "own", "--yes"], ["run", "study.yaml", "--rerun", "b"]):
            running = thesis(*words)
            assert running.returncode == 2 and "is being run by another process" in running.stderr
    assert thesis.state() == before
    assert (
        "there are no such trials" in thesis("remove", "own", "--status", "failed", "--yes").stdout
    )
    assert thesis("remove", "own", "--arm", "b", "--yes").returncode == 0
    assert {arm for arm, _ in thesis.values()} == {"a"}
    assert thesis("restore", "own", "--yes").returncode == 0
    assert thesis.state() == before
