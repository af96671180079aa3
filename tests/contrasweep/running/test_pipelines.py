"""Files with several studies, which run in their order and start from each other's checkpoints: the example of the
documentation. What commands say of others is in `transcripts/pipeline.txt`."""

import re
import signal

import jsonschema
import pytest
import yaml
from drivers import output_of, ray_folder, start_driver
from places import ROOT
from raylets import wait_for

import contrasweep as cs
from contrasweep.storage.records import StudyRecords
from contrasweep.study.file import load_studies, load_study, study_schema

PAGE = ROOT / "docs/after-training.md"
EXAMPLE = re.search(
    r"^```yaml\n(# pipeline\.yaml.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL
)
assert EXAMPLE is not None
TEXT = EXAMPLE[1]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "pipeline.yaml"
    path.write_text(TEXT)
    return path


def test_fields_beside_the_studies_are_those_of_each_that_has_no_own(file):
    studies = load_studies(str(file), ["seeds=[3]", "studies.1.seeds=[4]"])
    assert [study.name for study in studies] == ["pretrain", "probe", "tenth", "full"]
    assert [study.seeds for study in studies] == [[3], [4], [3], [3]]
    assert list(studies[0].arms) == ["supcon", "simclr"]
    assert list(studies[2].arms) == [
        "none",
        "supcon",
        "simclr",
    ]
    assert studies[1].arms["supcon"].start == cs.Start("pretrain", "supcon")
    assert load_study(f"{file}:tenth") == load_studies(str(file))[2]
    jsonschema.validate(yaml.safe_load(TEXT), study_schema())


REST = "one is not complete, so that two, three did not begin\n"


def await_records(driver, records, count):
    wait_for(lambda: len(records.finished()) >= count or driver.poll() is not None)
    assert driver.poll() is None, driver.communicate()


@pytest.mark.long
def test_a_pipeline_that_is_killed_within_and_between_its_stages_goes_on(file, tmp_path, runs):
    """The example of the documentation with fewer seeds: one command, killed twice, and the table of each study."""
    records = {name: StudyRecords(runs, name) for name in ("pretrain", "probe", "tenth", "full")}
    words = [
        "run",
        "pipeline.yaml",
        "--set",
        "seeds=[0, 1]",
        "--storage",
        "runs",
        "--tracking",
        "none",
    ]

    def kept():
        return {
            (name, i): r.ended
            for name, of in records.items()
            for i, r in of.read(sorted(of.finished())).items()
        }

    with ray_folder() as ray:
        for of, count in ((records["pretrain"], 2), (records["probe"], 1)):
            driver = start_driver(*words, folder=tmp_path, ray=ray)
            await_records(driver, of, count)
            driver.send_signal(signal.SIGKILL)
            driver.communicate()
            before = kept()
        assert len(records["pretrain"].finished()) == 4
        printed, _ = output_of(start_driver(*words, folder=tmp_path, ray=ray))
    assert before.items() <= kept().items() and len(kept()) == 4 + 3 * 6
    for name in ("probe", "tenth", "full"):
        assert f"report:   contrasweep report {name} --storage runs" in printed
        cells = cs.load(name, storage=runs).table().cells
        assert [row for row, _ in cells] == [("none",), ("supcon",), ("simclr",)]
        assert all(cell.n == 2 for cell in cells.values())
