"""What `--json` prints: each document of each command has the published schema, which says no more than it must."""

import dataclasses
import json
import pathlib
import time

import jsonschema
import numpy as np
import pandas as pd
import pytest
import yaml
from answering import answering
from calm import calm_run
from command_line import contrasweep
from folders import make_files
from looks import drive_looks, noise
from places import ROOT
from sweeps import finished, sweep

from contrasweep import AblationGrid, Arm
from contrasweep.cli.documents import dumps, version_of
from contrasweep.cli.schemas import TYPES, document_schema
from contrasweep.live.state import LIVE, LIVE_FILE, RunningTrial, RunState
from contrasweep.storage.archive import archive_trials
from contrasweep.storage.records import StudyRecords
from contrasweep.study.file import to_plain

PUBLISHED = ROOT / "docs/schemas.json"
ARMS = {arm: Arm("toy:train", config={"epochs": 1}) for arm in "abc"}
GRID = AblationGrid(
    "grid", ARMS, "digits-lt", seeds=[0, 1, 2, 3], axes={"lr": [0.1, 0.2]}, question="cells"
)


def grid_value(trial):
    return 0.5 + 0.2 * (trial.arm == "c") + 0.01 * noise(trial.arm, trial.seed, trial.config["lr"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with two grids and a sweep that have ended, a live file, an archive, and the grid's file, extended."""
    folder = tmp_path_factory.mktemp("documents")
    storage = folder / "runs"
    drive_looks(GRID, storage, grid_value, failed=lambda trial: (trial.arm, trial.seed) == ("b", 3))
    drive_looks(
        dataclasses.replace(GRID, name="twin", arms={"d": ARMS["a"], "e": ARMS["b"]}),
        storage,
        grid_value,
    )
    finished(sweep(), storage)
    make_files(
        folder,
        {
            "several.yaml": "data: digits-lt\narms: {a: {trainable: finetune}}\nstudies: [{name: p}, {name: q}]",
            "more.yaml": yaml.safe_dump(
                to_plain(dataclasses.replace(GRID, seeds=[*GRID.seeds, 4]))
            ),
            "none.yaml": yaml.safe_dump(to_plain(dataclasses.replace(GRID, data="cifar10-lt"))),
            "sweep.yaml": yaml.safe_dump(to_plain(sweep(name="other"))),
            "runs.csv": "model,seed,score\n"
            + "".join(f"{m},{i},{i * i % 7 + (m == 'b')}\n" for m in "ab" for i in range(8)),
        },
    )
    records = StudyRecords(str(storage), "grid")
    now = time.time()
    running = {"t": RunningTrial("t", "a", {"lr": "0.1"}, None, 4, now, 3, 9, 0.5, now)}
    state = RunState(
        "grid",
        "accuracy",
        "max",
        str(storage),
        30,
        {"done": 24},
        1,
        now,
        updated=now,
        running=running,
    )
    LIVE_FILE.write(records.store, f"grid/{LIVE}", dataclasses.asdict(state))
    archive_trials(records, sorted(records.finished())[:1], reason="a test")
    return folder


@pytest.fixture(scope="module")
def dashboard():
    """A cluster's dashboard that knows one job."""
    job = {
        "submission_id": "contrasweep-grid-0123abcd",
        "status": "RUNNING",
        "start_time": 1e12,
        "metadata": {},
    }
    answers = {"/api/jobs/": [job], "/api/jobs/contrasweep-grid-0123abcd": job}

    with answering() as server:
        server.answers = {path: (200, json.dumps(answer)) for path, answer in answers.items()}
        yield server.address


WRITE = ("report", "compare", "ledger")
"""Commands with `--output`."""


def document(name, *words, folder, status=0):
    """What a command prints or writes, which has the published schema `name`; its numbers are JSON's."""
    writes = words[0] in WRITE and not status
    done = contrasweep(*words, "--json", *["--output=shown"] * writes, folder=folder)
    assert done.returncode == status, done.stderr
    assert not (writes and done.stdout)
    printed = json.loads(
        (folder / "shown").read_text() if writes else done.stdout,
        parse_constant=lambda word: pytest.fail(f"{word} is not JSON"),
    )
    jsonschema.validate(printed, json.loads(PUBLISHED.read_text())[name])
    return printed


COMMANDS = [
    ("plan", "plan more.yaml --extend"),
    ("plan", "plan none.yaml"),
    ("plan", "plan sweep.yaml"),
    ("plans", "plan several.yaml"),
    ("report", "report grid"),
    ("report", "report grid --rows arm --metric accuracy"),
    ("report", "report toy-sweep"),
    ("compare", "compare grid a c"),
    ("compare", "compare toy-sweep short long"),
    ("compare", "compare grid a b --at lr=0.1"),
    ("judge", "judge runs.csv --mode max"),
    ("judge", "judge runs.csv --mode max --require better --reference a"),
    ("judge", "judge runs.csv --mode max --pair none"),
    ("diff", "diff grid:a twin:d"),
    ("diff", "diff grid:a grid:b"),
    ("clean", "clean grid --dry-run"),
    ("status", "status grid"),
    ("watch", "watch grid"),
    ("watch", "watch toy-sweep"),
    ("studies", "studies"),
    ("list", "list losses"),
    ("list", "list losses ocl"),
    ("code", "code grid"),
    ("sync", "sync grid --tracking tensorboard:boards"),
    ("datasets", "data list"),
    ("datasets", "data list --known"),
    ("dataset", "data show digits-lt"),
    ("data-verify", "data verify digits-lt"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "words"), COMMANDS)
def test_what_a_command_prints_has_its_published_schema(name, words, folder):
    stored = [] if words.startswith(("list ", "judge ")) else ["--storage", "runs"]
    given = [word.replace("_", " ") if "_" in word else word for word in words.split()]
    shown = document(name, *given, *stored, folder=folder)
    assert shown["schema"] == version_of(name) and len(shown) > 1


def test_what_is_said_of_jobs_has_the_published_schema(dashboard, tmp_path):
    job = document(
        "status", "status", "contrasweep-grid-0123abcd", "--address", dashboard, folder=tmp_path
    )
    assert job["status"] == "RUNNING"
    document("jobs", "jobs", "--address", dashboard, folder=tmp_path)


def test_what_changes_a_study_prints_the_published_schema(folder, tmp_path, storage):
    drive_looks(dataclasses.replace(GRID, name="changed"), tmp_path, grid_value)
    words = ("changed", "--storage", storage)
    removed = document("remove", "remove", *words, "--arm", "a", "--yes", folder=tmp_path)
    restored = document("restore", "restore", *words, "--yes", folder=tmp_path)
    assert sorted(removed["removed"]) == sorted(restored["restored"])
    assert len(removed["removed"]) == 8
    records = StudyRecords(storage, "changed")
    records.store.write(records.key(removed["removed"][0], "record.json"), b"\x00")
    assert not document("verify", "verify", *words, folder=tmp_path, status=1)["sound"]
    for name in ("report", "status"):
        assert document(name, name, *words, folder=tmp_path)["statuses"]["broken"] == 1


@pytest.mark.slow
def test_what_is_said_of_campaigns_has_the_published_schema(tmp_path, runs, monkeypatch):
    monkeypatch.setattr(
        "contrasweep.campaign.campaign.run", lambda study, storage, **_: calm_run(study, storage)
    )
    (tmp_path / "speed.yaml").write_text(
        "{type: campaign, name: speed, incumbent: {trainable: candidates:train}, data: digits-lt,"
        " seeds: {first: 2, step: 2, most: 8}}"
    )
    stored = ("--storage", runs)
    for name, gain in (("wider", 0.05), ("same", 0.0)):
        (tmp_path / f"{name}.yaml").write_text(
            f"{{trainable: candidates:train, config: {{gain: {gain}, who: {name}}}}}"
        )
        words = ("decide", "speed.yaml", f"{name}.yaml", *stored)
        document("outlook", *words, "--dry-run", folder=tmp_path)
        decided = document("decide", *words, folder=tmp_path)
        assert decided["kept"] == (gain > 0)
        assert (
            document("outlook", *words, "--dry-run", folder=tmp_path)["decided"]["verdict"]
            == decided["verdict"]
        )
    assert len(document("ledger", "ledger", "speed", *stored, folder=tmp_path)["rows"]) == 2
    document("comparisons", "ledger", *stored, folder=tmp_path)


@pytest.mark.long
def test_what_the_doctor_says_has_the_published_schema(tmp_path):
    shown = document("doctor", "doctor", "--storage", "runs", "--tracking", "none", folder=tmp_path)
    assert {finding["what"] for finding in shown["findings"]} >= {"ray", "storage"}


ERRORS = [
    ("report nothing", "SpecError", "STUDY", "nothing"),
    ("plan nothing.yaml", "SpecError", "nothing.yaml", None),
    ("compare grid a z --storage runs", "SpecError", "study grid", "z"),
    ("status grid --storage runs --since never", "SpecError", "--since", "never"),
    ("compare grid a c --at 0.1 --storage runs", "SpecError", "--at", "0.1"),
    ("report grid --digits many", "BadParameter", "", None),
]


@pytest.mark.parametrize(("words", "kind", "place", "value"), ERRORS)
def test_an_error_is_a_document_with_its_parts(words, kind, place, value, folder):
    shown = document("error", *words.split(), folder=folder, status=2)
    assert (shown["kind"], shown["value"] if value else None) == (kind, value)
    assert shown["place"].startswith(place)
    assert shown["error"] and "\n" not in shown["error"] and (shown["rule"] or kind != "SpecError")


def test_since_names_what_has_changed(tmp_path):
    drive_looks(dataclasses.replace(GRID, name="polled"), tmp_path, grid_value, stop_after=5)
    words = ("status", "polled", "--storage", str(tmp_path))
    first = document("status", *words, folder=tmp_path)
    assert first["changed"] is None
    assert document("status", *words, "--since", first["token"], folder=tmp_path)["changed"] == []
    drive_looks(dataclasses.replace(GRID, name="polled"), tmp_path, grid_value)
    later = document("status", *words, "--since", first["token"], folder=tmp_path)
    assert {"statuses", "state"} <= set(later["changed"]) and "metric" not in later["changed"]
    assert contrasweep(*words, "--since", first["token"], folder=tmp_path).returncode == 2


@pytest.mark.parametrize("name", TYPES)
def test_the_published_schema_is_the_one_that_is_printed(name):
    """Where a type was changed on purpose: raise its version in `VERSIONS`, and run this file as a program."""

    def bare(part):  # docstrings may change
        if isinstance(part, dict):
            return {
                key: bare(inner)
                for key, inner in part.items()
                if not (key == "description" and isinstance(inner, str))
            }
        return [bare(inner) for inner in part] if isinstance(part, list) else part

    jsonschema.Draft202012Validator.check_schema(document_schema(name))
    assert bare(document_schema(name)) == bare(json.loads(PUBLISHED.read_text())[name])


@pytest.mark.parametrize("name", TYPES)
def test_a_schema_lets_no_unknown_member_pass(name):
    def objects(part):
        if isinstance(part, dict):
            if part.get("type") == "object" and "propertyNames" not in part:
                yield part
            part = list(part.values())
        for inner in part if isinstance(part, list) else ():
            yield from objects(inner)

    for part in objects(document_schema(name)):
        if "properties" in part:
            assert part["additionalProperties"] is False, part
        else:
            assert part["additionalProperties"] is not None


if __name__ == "__main__":
    PUBLISHED.write_text(
        json.dumps({name: document_schema(name) for name in TYPES}, indent=1) + "\n"
    )


def test_a_document_has_numbers_of_numpy_as_numbers_and_of_pandas_a_missing_one_as_none():
    value = {"n": np.int64(3), "x": np.float32(0.5), "none": pd.NA, "place": pathlib.Path("/st")}
    assert json.loads(dumps("report", {**value, "other": slice(1)})) == {
        "schema": version_of("report"), "n": 3, "x": 0.5, "none": None, "place": "/st", "other": "slice(None, 1, None)",
    }  # fmt: skip
