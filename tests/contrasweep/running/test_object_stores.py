"""A study whose data and storage both lie on an object store, killed and resumed."""

import pytest
from drivers import output_of, ray_folder, start_driver, wait_while_it_runs

from contrasweep.data import stage
from contrasweep.storage.records import StudyRecords

pytestmark = pytest.mark.long
STUDY = """
name: kept
data: {data}
folds: 3
arms:
  a: {{trainable: 'toy:train', config: {{epochs: 5, pause_s: 0.3}}}}
  b: {{trainable: 'toy:train', config: {{epochs: 5, pause_s: 0.3, lr: 0.5}}}}
"""


def test_a_study_from_a_store_to_it_survives_a_kill(s3, tmp_path, monkeypatch):
    storage = s3.uri
    monkeypatch.setenv("CONTRASWEEP_CACHE", str(tmp_path / "cache"))
    manifest = stage("digits-lt", f"{storage}/lake/digits-lt")
    study = tmp_path / "study.yaml"
    study.write_text(STUDY.format(data=manifest.uri))
    words = ["run", str(study), "--storage", storage, "--tracking", "none"]
    records = StudyRecords(storage, "kept")
    with ray_folder() as ray:
        first = start_driver(*words, folder=tmp_path, ray=ray)
        wait_while_it_runs(first, lambda: len(records.finished()) >= 2)
        first.kill()
        first.communicate()
        before = {i: record.ended for i, record in records.read(records.finished()).items()}
        assert 2 <= len(before) < 6
        printed, _ = output_of(start_driver(*words, folder=tmp_path, ray=ray))
    after = records.read(records.finished())
    assert len(after) == 6 and {record.status for record in after.values()} == {"done"}
    assert before.items() <= {i: record.ended for i, record in after.items()}.items(), (
        "nothing was trained twice"
    )
    assert "kept" in printed and "accuracy" in printed
    assert not (tmp_path / "contrasweep-runs").exists()
