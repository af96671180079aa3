"""A study whose data and storage both lie on an S3 server, killed and resumed."""

import time
from pathlib import Path
from typing import Any

import pytest
from drivers import ray_folder, start_driver

from contrasweep.data import stage
from contrasweep.storage.records import StudyRecords

pytestmark = pytest.mark.long
STUDY = """
name: on-s3
data: {data}
folds: 3
arms:
  a: {{trainable: 'toy:train', config: {{epochs: 5, pause_s: 0.3}}}}
  b: {{trainable: 'toy:train', config: {{epochs: 5, pause_s: 0.3, lr: 0.5}}}}
"""


def test_a_study_from_s3_to_s3_survives_a_kill(s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTRASWEEP_CACHE", str(tmp_path / "cache"))
    manifest = stage("digits-lt", f"{s3.uri}/lake/digits-lt")
    study = tmp_path / "study.yaml"
    study.write_text(STUDY.format(data=manifest.uri))
    words = ["run", str(study), "--storage", s3.uri, "--tracking", "none"]
    records = StudyRecords(s3.uri, "on-s3")
    with ray_folder() as ray:
        first = start_driver(*words, folder=tmp_path, ray=ray)
        until = time.monotonic() + 180
        while len(records.finished()) < 2:
            assert first.poll() is None, first.communicate()[1]
            assert time.monotonic() < until
            time.sleep(0.1)
        first.kill()
        first.communicate(timeout=60)
        before = {i: record.ended for i, record in records.read(records.finished()).items()}
        assert 2 <= len(before) < 6
        second = start_driver(*words, folder=tmp_path, ray=ray)
        printed, errors = second.communicate(timeout=270)
        assert second.returncode == 0, errors
    after = records.read(records.finished())
    assert len(after) == 6 and {record.status for record in after.values()} == {"done"}
    assert before.items() <= {i: record.ended for i, record in after.items()}.items(), "nothing was trained twice"
    assert "on-s3" in printed or "accuracy" in printed
    assert not (tmp_path / "contrasweep-runs").exists()
