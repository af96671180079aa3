"""The first cases of the fuzz of study files and storages, of one seed: nothing but plans, tables and one line."""

import json
import os

import pytest
from command_line import python
from places import ROOT, module_path

FUZZ = """
import sys
from benchmarks import fuzz
fuzz.HANG_S, fuzz.STOPPED_S, fuzz.STUCK_S = 60, 0, 3600  # a machine may be slow: a first plan took it 9 s
sys.exit(fuzz.run())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "files", "readings"), [(1, 24, 16), pytest.param(5, 60, 32, marks=pytest.mark.long)]
)
def test_mutated_files_and_broken_storages_are_plans_tables_or_one_line(
    seed, files, readings, tmp_path
):
    output = tmp_path / "fuzz.json"
    words = f"--files {files} --readings {readings} --seed {seed} --output {output}".split()
    done = python(
        "-c", FUZZ, *words, cwd=tmp_path, env=os.environ | {"PYTHONPATH": module_path(ROOT)}
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    counted = json.loads(output.read_text())[str(seed)]
    assert {kind: count["commands"] for kind, count in counted.items()} == {
        "files": files,
        "readings": readings,
    }
    for count in counted.values():
        assert not count["findings"]
        assert count["accepted"] and count["refused"], "neither all is believed nor all refused"
