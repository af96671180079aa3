"""What commands print, whole: each `.txt` beside this file is a session of commands in a folder of
`tests/support/stories.py`, or in an empty one.

After a wanted change, `CONTRASWEEP_WRITE=1 pytest tests/transcripts` writes the files anew: read their diff. A new line
`$ contrasweep ...` in a file is a new case; other lines with `$ ` are of the shell.
"""

import os
import platform
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import calm
import pytest
import stories
from command_line import contrasweep

from contrasweep.campaign import campaign as campaigns

HERE = Path(__file__).parent
SESSIONS = sorted(HERE.glob("*.txt"))
NOW = 1_800_000_000.0
# What differs by day, by machine, or in the last digits by a library's version.
LONG = re.compile(r"(?<![\w.])-?\d+\.\d{9,}(?:e[-+]\d+)?")
MASKS = {
    r"(?s)(package\nversion\n).*?(?=Written by)": r"\1VERSIONS\n",
    r"archive/20\d\d-[\dT-]+": "archive/DATE",
    r"(Written by contrasweep on) [\d: -]+": r"\1 DATE ",
    r'("gpu_hours": )\d\.\d+e-\d+': r"\1SHORT",
}


def masked(text, folder):
    text = LONG.sub(lambda number: f"{float(number[0]):.7g}", text.replace(str(folder), "FOLDER"))
    text = text.replace(sys.executable, "PYTHON")
    for pattern, word in MASKS.items():
        text = re.sub(pattern, word, text)
    return text


def output(line, folder):
    if line.startswith("contrasweep "):
        done = contrasweep(*shlex.split(line)[1:], folder=folder)
    else:
        done = subprocess.run(line, shell=True, capture_output=True, text=True, cwd=folder)
    ended = f"exit status {done.returncode}\n" if done.returncode else ""
    text = masked(done.stdout + done.stderr + ended, folder)
    return "".join(f"{row.rstrip()}\n" for row in text.splitlines())


@pytest.mark.parametrize("session", SESSIONS, ids=lambda path: path.stem)
def test_a_session_prints_what_it_printed(session, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setenv("LOGNAME", "ada")
    monkeypatch.setattr(platform, "node", lambda: "laptop")
    monkeypatch.setenv("CONTRASWEEP_STORAGE", "runs")
    monkeypatch.setattr(time, "time", lambda: NOW)
    calmly = lambda study, storage, **options: calm.calm_run(study, storage)  # noqa: E731
    monkeypatch.setattr(campaigns, "run", calmly)  # no Ray: each trial in this process
    if story := getattr(stories, session.stem, None):  # else it begins in an empty folder
        story(tmp_path)
    expected = session.read_text()
    lines = [line[2:] for line in expected.splitlines() if line.startswith("$ ")]
    printed = "\n".join(f"$ {line}\n{output(line, tmp_path)}" for line in lines)
    if os.environ.get("CONTRASWEEP_WRITE"):
        session.write_text(printed)
    assert printed.splitlines() == expected.splitlines()
