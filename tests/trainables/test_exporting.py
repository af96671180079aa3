"""Trained networks as modules: what `load_model` gives embeds as the trial in training did, to the bit."""

import shutil

import pytest
import torch

from contrasweep.trainables import checkpoint
from contrasweep.trainables.contrastive import load_model, train
from contrasweep.trainables.contrastive import method as contrastive_method
from contrasweep.trainables.contrastive.settings import Settings
from contrasweep.trial import Trial


@pytest.mark.parametrize("evaluate_on", ["features", "embeddings"])
def test_an_encoder_embeds_raw_images_as_in_its_trial(digits, tmp_path, evaluate_on):
    config = {"encoder": {"name": "cnn", "width": 8}, "epochs": 1, "evaluate_on": evaluate_on}
    trial = Trial("study", "arm", "contrasweep.trainables.contrastive:train", config, digits, 0, 0)
    for report in train(trial):
        shutil.copytree(report.checkpoint, tmp_path / "saved")
    run = contrastive_method.Contrastive(trial, Settings(**config))
    checkpoint.restore(tmp_path / "saved", run.parts)
    module = load_model(tmp_path / "saved", trial)
    with torch.no_grad():
        rows = [
            module(pixels)
            for pixels in torch.split(run.test.pixels, min(1024, 4 * run.settings.batch_size))
        ]
    assert torch.equal(torch.cat(rows), run.embed(run.test.blocks()))
    assert rows[0].shape[1] == (32 if evaluate_on == "features" else 128)
    assert not module.training
