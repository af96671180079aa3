"""The network of a finished trial as a module: pairs of raw images give what the trial's own evaluation gives."""

import shutil

import pytest
import torch

from contrasweep.data import open_dataset
from contrasweep.trainables import checkpoint
from contrasweep.trainables.paired.fitting import EVAL_BATCH_ROWS, PairedTraining
from contrasweep.trainables.paired_images import load_model, train
from contrasweep.trainables.paired_images.inputs import ImageInputs
from contrasweep.trainables.paired_images.settings import Settings


@pytest.mark.slow
@pytest.mark.parametrize(
    "config", [{"centre": "dataset"}, {"centre": "item"}, {"centre": "both"}, {"colour_units": 8}]
)
def test_a_module_embeds_raw_pairs_as_in_its_trial(make_trial, tmp_path, config):
    trial = make_trial(epochs=1, **config)
    for report in train(trial):
        shutil.copytree(report.checkpoint, tmp_path / "saved")
    settings = Settings(**trial.config)
    run = PairedTraining(trial, ImageInputs(trial, settings, torch.device("cpu")))
    checkpoint.restore(tmp_path / "saved", run.parts)
    module = load_model(tmp_path / "saved", trial)
    stored = open_dataset(trial.data).parts(trial.fold)[1]
    pre, post = (torch.tensor(stored.array(side)).permute(0, 3, 1, 2) for side in ("pre", "post"))
    assert (
        pre.shape[2:] == (8, 8) and settings.image_size == 16
    )  # a stored image, smaller than the network sees it
    with torch.no_grad():
        embedded = torch.cat(
            [
                module(*sides).z
                for sides in zip(
                    pre.split(EVAL_BATCH_ROWS), post.split(EVAL_BATCH_ROWS), strict=True
                )
            ]
        )
    assert torch.equal(embedded, run.test()[0].z)
