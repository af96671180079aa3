"""What commands print, whole: each `.txt` beside this file is a session of commands in a folder of
`tests/support/stories.py`, or in an empty one.

After a wanted change, `CONTRASWEEP_WRITE=1 pytest tests/transcripts` writes the files anew: read their diff. A new line
`$ contrasweep ...` in a file is a new case. A line with `$ rows`, `$ trained` or `$ driver` calls what has this name,
`$ later 60` moves the clock by a minute; `$ dashboard` tells what a cluster answers; others with `$ ` are of the shell.
`run` trains in this process, without Ray.
"""

import contextlib
import importlib.metadata
import io
import logging
import platform
import re
import shutil
import sys
import time
from pathlib import Path
from unittest.mock import patch

import calm
import pytest
import sessions
import stories
from dashboard import dashboard
from driving import Driver
from stored import mlflow

from contrasweep.canonical import digest
from contrasweep.data import open_dataset, resolve
from contrasweep.data.resolving import find
from contrasweep.study.file import load_study

HERE = Path(__file__).parent
SESSIONS = sorted(HERE.glob("*.txt"))
NOW = 1_800_000_000.0
RAY = re.escape(importlib.metadata.version("ray"))
# What differs by day, or by machine.
MASKS = {
    r"(?s)(package\nversion\n).*?(?=Written by)": r"\1VERSIONS\n",
    r"archive/20\d\d-[\dT-]+": "archive/DATE",
    r"((?:components|encoded_images|external|optimisation|sources)\.py, line) \d+": r"\1 N",
    r"\S+/contrasweep-\w{8}/": "SCRATCH/",
    r"process \d+ on [\w-]+": "process PID on HOST",
    r"_ray_pkg_\w{16}": "PACKAGE",
    r"(?<=contrasweep-sent-)\w{8}": "ID",
    rf"(?<=Ray ){RAY}|(?<=or ){RAY}(?= there)|(?<=lacks contrasweep )[\d.]+": "VERSION",
    r'(?<="commit": ")[^"]*(?=", "by")': "COMMIT",
    r"(Written by contrasweep on) [\d: -]+": r"\1 DATE ",
    r"(?<=budget_hours=)\d\.\d+e-\d+|\d\.\d+e-\d+(?= GiB| spent)": "SMALL",
    r'("gpu_hours": )\d\.\d+e-\d+': r"\1SHORT",
}


def rows(folder, place, folds="0"):
    """A line for each row of a staged dataset, with digests for images, and for each that a fold holds out."""
    manifest = find(str(folder / place), storage="unused")
    data = open_dataset(manifest)
    parts = {split: data.split(split) for split in manifest.splits if manifest.rows(split)}
    if count := int(folds):
        data = open_dataset(resolve(str(folder / place), folds=count, storage="unused"))
        parts |= {f"fold {fold}": data.parts(fold)[1] for fold in range(count)}
    lines = []
    for name, part in parts.items():
        for i, row in enumerate(part.rows):
            cells = {
                column: digest(part.file(column).item(row).tolist(), 8)
                if column in manifest.columns
                else part.column(column)[i].as_py()
                for column in part.split.names
            }
            lines.append(f"{name}: {cells}")
    return "\n".join(lines)


def trained(folder, file):
    """Train a study without Ray: the warnings, then of each trial how it ended, its reports and its error."""
    said = io.StringIO()
    printed = patch.object(logging.root, "handlers", [])
    own_path = patch.object(sys, "path", [*sys.path])
    with contextlib.chdir(folder), contextlib.redirect_stderr(said), printed, own_path:
        results = calm.calm_run(load_study(file), "runs")
        lines = said.getvalue().splitlines()
        for record in results.trial_records.values():
            place = f"{record.arm} {record.config.get('case', record.fold)}"
            lines.append(f"{place}: {record.status.value} {record.metrics}")
            for row in results.records.metrics(record.trial_id):
                lines.append(f"  { ({name: row[name] for name in row if name != 'time'}) }")
            lines += [f"  {line}" for line in (record.error or "").splitlines()[-1:]]
    return "\n".join(lines)


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("session", SESSIONS, ids=lambda path: path.stem)
def test_a_session_prints_what_it_printed(session, tmp_path, template, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setenv("LOGNAME", "ada")
    monkeypatch.setattr(platform, "node", lambda: "laptop")
    monkeypatch.setenv("CONTRASWEEP_STORAGE", "runs")
    now = [NOW]
    calendar = time.gmtime
    monkeypatch.setattr(time, "time", lambda: now[-1])
    monkeypatch.setattr(time, "gmtime", lambda of=None: calendar(now[-1] if of is None else of))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a file may change within a second
    if story := getattr(stories, session.stem, None):  # else it begins in an empty folder
        story(tmp_path)
    if session.stem == "synced":
        shutil.copy(template, tmp_path / "mlflow.db")
    later = lambda _, seconds: now.append(now[-1] + float(seconds)) or ""  # noqa: E731
    own = {"rows": rows, "trained": trained, "driver": Driver(), "later": later, "mlflow": mlflow}
    # No Ray: each trial in this process, and no cluster but the one that is told.
    with calm.calm_engine(), dashboard() as own["dashboard"]:
        printed, expected = sessions.played(session, tmp_path, MASKS, own)
    assert printed == expected
