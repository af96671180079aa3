"""The ranker of a finished trial as a module: it scores reviews as its trial's best epoch did."""

import shutil

import numpy as np
import pytest
import torch

from contrasweep.data import stage
from contrasweep.trainables import checkpoint
from contrasweep.trainables.review_helpfulness import Settings, load_model, train
from contrasweep.trainables.review_helpfulness.corpora import load
from contrasweep.trainables.review_helpfulness.trainer import Trainer
from contrasweep.trial import Trial


@pytest.mark.slow
def test_a_module_scores_as_the_best_epoch_did(tmp_path, monkeypatch):
    monkeypatch.setenv("CONTRASWEEP_CACHE", str(tmp_path / "cache"))
    data = stage(
        "contrasweep.trainables.review_helpfulness.datasets:SYNTHETIC_REVIEWS?products=30&roi_dim=8",
        str(tmp_path / "planted"),
    )
    config = {
        "model": {"name": "prh_net", "dim": 8},
        "word_dim": 8,
        "min_word_count": 1,
        "epochs": 2,
        "sampler": {"groups": 8, "max_groups": 24, "num_negatives": 3},
        "device": "cpu",
    }
    trial = Trial(
        "study", "arm", "contrasweep.trainables.review_helpfulness:train", config, data, None, 0
    )
    for report in train(trial):
        shutil.copytree(report.checkpoint, tmp_path / "saved", dirs_exist_ok=True)
    settings = Settings(**config)
    prepared = load(trial, settings)
    trainer = Trainer(settings, prepared, (trial.seed, trial.fold))
    checkpoint.restore(tmp_path / "saved", trainer.parts)
    trainer.model.load_state_dict(trainer.best.weights)
    module = load_model(tmp_path / "saved", trial)
    corpus = prepared.corpora["test"]
    with torch.no_grad():
        scores = np.zeros(len(corpus))
        for rows, _, batch in trainer.outputs(corpus):
            scores[rows] = module(batch).score.double().numpy()
    assert np.array_equal(scores, trainer.score(corpus)) and len(set(scores)) > 10
