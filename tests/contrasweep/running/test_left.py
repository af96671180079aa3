"""What real runs leave, whole: each `.txt` in `left` is a session of commands with the studies of `STUDIES`.

After a wanted change, `CONTRASWEEP_WRITE=1 pytest` of this file writes them anew: read their diff.
"""

import shutil
import socket
from pathlib import Path

import pytest
import sessions
import stored
from folders import make_files

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("running"),
    pytest.mark.usefixtures("ray_core"),
]  # one local Ray: one trial at a time, so that the order is always the same
SESSIONS = sorted((Path(__file__).parent / "left").glob("*.txt"))
GRID = """
name: grid
data: digits-lt
folds: 2
seeds: [0, 1]
arms:
  calm: {trainable: "eventful:train"}
  crashes: {trainable: "eventful:train", config: {does: crash, at: 1}}
  fails: {trainable: "eventful:train", config: {does: raise}}
  fails-once: {trainable: "eventful:train", config: {does: raise once}}
  loses: {trainable: "eventful:train", config: {does: lose, epochs: 2}}
  warns: {trainable: "eventful:train", config: {does: warn}}
reference: calm
"""
SEARCH = """
name: tuned
type: sweep
data: digits-lt
folds: 3
arms:
  near: &arm
    trainable: "eventful:train"
    config: {epochs: 4}
    space: {lr: {type: float, low: 0.2, high: 0.4}}
    start_points: [{lr: 0.25}]
  far: {<<: *arm, space: {lr: {type: float, low: 0.6, high: 0.8}}, start_points: null}
  fails: {<<: *arm, config: {epochs: 4, does: raise}}
budget: {trials: 4, epochs: 9}
searcher: random
pruner: median
confirm_seeds: [100, 101]
slots: 1
"""
STOPPED = """
name: stopped
data: digits-lt
seeds: [0, 1]
axes: {lr: [0.2, 0.3]}
metric: loss
mode: min
keep: all
labels: {a: first, better: second, lr: learning rate}
notify: sh -c 'cat >> told; echo >> told'
arms:
  a: {trainable: "eventful:train", config: {does: stop, at: 1}}
  better: {trainable: "eventful:train", config: {does: raise once}}
"""
TOLD = """
name: told
data: digits-lt
folds: 2
seeds: [0]
notify: ["sh -c 'cat >> told; echo >> told'", "sh -c 'cat >> beside; echo >> beside'", "false"]
tracking: sqlite:///mlflow.db
axes: {lr: [0.2, 0.3]}
arms:
  short: {trainable: "eventful:train"}
  longer: {trainable: "eventful:train", config: {does: warn}}
  longest: {trainable: "eventful:train", config: {does: raise}}
"""
STUDIES = {"grid": GRID, "search": SEARCH, "stopped": STOPPED, "told": TOLD}
MASKS = {
    r"(?s)What would decide: .*?(?=\nrecords:)": "(what would decide is left out)\n",  # it has seconds
    r"\x1b\[\d+m\(raylet\).*\n": "",  # Ray's own, where it is imported before this project
    r"(?m)^\d+/\d+ trials, \d+ running.*\n": "",  # a line every 15 s
    r"\d+:\d\d so far": "TIME so far",
    r"about [\d.]+ (s|min)\b": "about TIME",
    r"20\d\d-\d\d-\d\d([T ]\d\d[:-]?\d\d([:-]?\d\d)?)?": "DATE",
    r"(?<=[\s\[{])1[789]\d{8,11}(\.\d+)?": "TIME",
    r'( *)File "ROOT/(?!tests).*\n(?:\1 .*\n)+': "",  # frames of our code
    r"(?m)^ +[\^~]+\n": "",
    r'"token": "\w+"': '"token": TOKEN',
    r'"host": "[^"]*", "time"': '"host": HOST, "time"',
    r'("event": "failure".*"done": )\d+': r"\1COUNT",  # it is told after seconds
    r'\[TIME, "no trial runs[^]]*\](, )?|(?m:^no trial runs.*\n)': "",  # a slow start
    r"in [\d.]+ s;|\d+ s ago": "TIME",
    r"process \d+ on": "process NUMBER on",
    r"commit \w{12}( with changes)?": "commit COMMIT",
}


@pytest.mark.parametrize("session", SESSIONS, ids=lambda path: path.stem)
def test_a_run_leaves_what_it_left(session, tmp_path, template, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("LOGNAME", "ada")
    monkeypatch.setenv("CONTRASWEEP_STORAGE", "runs")
    for name in ("FINISH_S", "INTERRUPT_S"):  # however busy the machine is
        monkeypatch.setattr(f"contrasweep.tracking.process.{name}", 240.0)
    shutil.copy(template, tmp_path / "mlflow.db")
    make_files(tmp_path, {f"{name}.yaml": text for name, text in STUDIES.items()})
    masks = {rf"(?<=on ){socket.gethostname()}\b": "HOST"} | MASKS
    own = {name: getattr(stored, name) for name in ("mlflow", "places", "storage")}
    printed, expected = sessions.played(session, tmp_path, masks, own)
    assert printed == expected
