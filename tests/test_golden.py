"""Storages and study files of every released version, and of this one, are read as they were when they were made."""

import json
import runpy
import shutil
from pathlib import Path

import pytest
from command_line import contrasweep, refusal

import contrasweep as cs

GOLDEN = Path(__file__).parent / "golden"
VERSIONS = [path.parent for path in sorted(GOLDEN.glob("*/seen.json"))]
SEEN = runpy.run_path(str(GOLDEN / "make.py"))["seen"]


@pytest.fixture(params=VERSIONS, ids=lambda folder: folder.name)
def golden(request, tmp_path):
    """A copy of what a version left; a copy, so that a write shows."""
    return shutil.copytree(request.param, tmp_path / "golden")


def test_this_version_is_among_them():
    assert cs.__version__ in [folder.name for folder in VERSIONS]


def test_tables_verdicts_and_values_of_a_version_are_read_as_they_were_and_nothing_is_written(
    golden,
):
    before = {path: path.read_bytes() for path in golden.rglob("*") if path.is_file()}
    for name, expected in json.loads((golden / "seen.json").read_text()).items():
        now = SEEN(str(golden / "storage"), name)
        assert now["trials"] == expected["trials"]
        for part in ("cells", "compared"):
            assert now[part].keys() == expected[part].keys()
            for key, numbers in expected[part].items():
                assert now[part][key] == pytest.approx(numbers, abs=1e-9), (name, key)
    assert before == {path: path.read_bytes() for path in golden.rglob("*") if path.is_file()}


def test_the_study_files_of_a_version_plan_the_trials_that_it_trained(golden, monkeypatch):
    monkeypatch.chdir(golden)
    planned = cs.plan("grid.yaml", storage=str(golden / "storage"))
    assert {trial.id for trial in planned.trials} == set(
        json.loads(Path("seen.json").read_text())["golden-grid"]["trials"]
    )
    done = contrasweep("plan", "sweep.yaml", "--storage", "storage", folder=golden)
    assert done.returncode == 0 and "12 of the confirmation, 18 ended" in done.stdout, (
        done.stdout + done.stderr
    )


def test_a_storage_of_another_format_version_is_refused_in_a_line_with_the_way_out(golden):
    file = golden / "storage/golden-grid/study.json"
    document = json.loads(file.read_text())
    file.write_text(json.dumps(document | {"format_version": document["format_version"] + 1}))
    done = refusal(golden, "report", "golden-grid", "--storage", "storage")
    assert "study.json" in done
    assert "reads and writes version 4; use the release that wrote it" in done
