"""The first cases of the fuzz of study files and storages, of one seed: nothing but plans, tables and one line."""

import json
import os

import pytest
from command_line import python
from places import ROOT, module_path

FILES = 60
READINGS = 32
FUZZ = """
import sys
from benchmarks import fuzz
fuzz.HANG_S, fuzz.STOPPED_S, fuzz.STUCK_S = 60, 0, 3600  # a machine may be slow: a first plan took it 9 s
sys.exit(fuzz.run())
"""


@pytest.mark.slow
def test_mutated_files_and_broken_storages_are_plans_tables_or_one_line(tmp_path):
    output = tmp_path / "fuzz.json"
    words = [
        "--files",
        str(FILES),
        "--readings",
        str(READINGS),
        "--seed",
        "5",
        "--output",
        str(output),
    ]
    done = python(
        "-c", FUZZ, *words, cwd=tmp_path, env=os.environ | {"PYTHONPATH": module_path(ROOT)}
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    counted = json.loads(output.read_text())["5"]
    assert {kind: count["commands"] for kind, count in counted.items()} == {
        "files": FILES,
        "readings": READINGS,
    }
    for count in counted.values():
        assert not count["findings"]
        assert count["accepted"] and count["refused"], "neither all is believed nor all refused"
