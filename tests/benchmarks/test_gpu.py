"""The GPU benchmark in its small form on a CPU, so that it is known to work the day a GPU is there."""

import json

import pytest
from benchmarks.gpu.__main__ import CORRECTNESS, SECTIONS
from benchmarks.gpu.results import Check, Section
from command_line import python
from places import ROOT

WITHOUT = """
import runpy, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("ray", "mlflow", "boto3", "botocore", "optuna", "cmaes", "tensorboardX"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
sys.argv[0] = "benchmarks.gpu"
runpy.run_module("benchmarks.gpu", run_name="__main__", alter_sys=True)
"""


def gpu(*words):
    """The command in a process in which what it does not need cannot be imported."""
    return python("-c", WITHOUT, *words, cwd=ROOT)


def test_a_failed_check_is_named_and_is_not_a_number_fails():
    section = Section(
        "Title", "About.", checks=[Check("kept", 1.0, 2.0), Check("broken", 3.0, 2.0)]
    )
    assert [check.name for check in section.failed] == ["broken"]
    assert "- **failed**: broken is 3, more than 2" in section.markdown()
    assert not Check("unknown", float("nan"), 1.0).passed


@pytest.mark.long
def test_every_section_runs_on_a_cpu_without_ray_and_mlflow(tmp_path):
    done = gpu("--small", "--device", "cpu", "--output", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads((tmp_path / "gpu.json").read_text())
    titles = {section["title"]: section for section in written["sections"]}
    assert len(titles) == len(SECTIONS)
    assert [title for title, section in titles.items() if section["unfinished"]] == [
        "A share's limit and its meter"
    ]
    assert all(section["rows"] for section in titles.values() if not section["unfinished"])
    assert len(titles["Losses against float64"]["checks"]) > 200
    assert titles["Resumed to the bit"]["rows"][0]["differing"] == 0
    assert written["sizes"].startswith("small") and set(CORRECTNESS) <= set(SECTIONS)
    assert "# What a GPU shows" in (tmp_path / "gpu.md").read_text()
