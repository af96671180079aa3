"""One folder of images staged under two names, by the command line: a dataset's name is no part of a trial."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from contrasweep.cli import main
from contrasweep.storage.records import StudyRecords

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("running"), pytest.mark.usefixtures("ray_core")]

STUDY = """
name: named
data: DATA
metric: accuracy
seeds: [3]
arms:
  supcon:
    trainable: contrasweep.trainables.contrastive:train
    config: {epochs: 2, batch_size: 8, encoder: {name: cnn, width: 4}, retrieval: false}
"""
NAMES = ("faces", "mnist-faces")
"""The second begins with the name of a dataset of glyphs, which once decided the augmentation `auto`."""


def contrasweep(*words, status=0):
    """The command in this process, which ends with `status`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["contrasweep", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
    assert (ended.value.code or 0) == status


@pytest.fixture
def staged(tmp_path):
    """A storage with synthetic images of two classes (noise about two colours, drawn from a fixed seed; no real faces)
    under both names."""
    rng = np.random.default_rng(0)
    for split, rows in (("train", 8), ("test", 4)):
        for label, colour in (("one", (200, 60, 60)), ("two", (60, 60, 200))):
            folder = tmp_path / "synthetic" / split / label
            folder.mkdir(parents=True)
            for i in range(rows):
                pixels = np.clip(rng.normal(colour, 40, (16, 16, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
    for name in NAMES:
        to = tmp_path / "runs/datasets" / name
        contrasweep("data", "stage", "image-folder", "--source", tmp_path / "synthetic", "--to", to)
    return tmp_path


def run(folder: Path, data: str, more: str = "", status: int = 0):
    study = folder / f"{data}.yaml"
    study.write_text(STUDY.replace("DATA", data) + more)
    contrasweep("run", study, "--storage", folder / "runs", "--tracking", "none", status=status)


def test_as_an_axis_they_are_refused_and_alone_they_are_the_same_trial_and_loss(staged, capsys):
    capsys.readouterr()
    run(staged, "faces", f"axes: {{data: [{', '.join(NAMES)}]}}\n", status=2)
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "two cells of arm 'supcon' are the same trials" in line and "name one of them" in line
    assert not (staged / "runs/named").exists(), "nothing was spent"
    collected = {}
    for name in NAMES:
        run(staged, name)
        records = StudyRecords(str(staged / "runs"), "named")
        (trial_id,) = records.finished()
        record = records.read_one(trial_id)
        assert record.config["augmentation"]["name"] == "photos"
        collected[name] = (trial_id, [row["loss"] for row in records.metrics(trial_id)])
        (staged / "runs/named").rename(staged / f"ran-on-{name}")
    assert collected["faces"] == collected["mnist-faces"]
    assert len(collected["faces"][1]) == 2 and collected["faces"][1][0] != collected["faces"][1][1]
