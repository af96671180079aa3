"""After a run: the best models, table and report are in MLflow, and the storage knows where the runs are."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from contrasweep import AblationGrid, Arm
from contrasweep.planning.planner import plan
from contrasweep.results.results import Results
from contrasweep.running.driver import run
from contrasweep.storage.checkpoints import Checkpoints
from contrasweep.trainables import checkpoint
from contrasweep.trainables.contrastive.method import Contrastive
from contrasweep.trainables.contrastive.settings import Settings

pytestmark = pytest.mark.long
LOAD = """
import sys, mlflow, numpy, torch
torch.set_num_threads(1)
mlflow.set_tracking_uri(sys.argv[1])
module = mlflow.pytorch.load_model(sys.argv[2])
with torch.no_grad():
    numpy.save(sys.argv[4], module(torch.tensor(numpy.load(sys.argv[3]))).numpy())
"""


def test_the_best_model_of_a_real_study_is_loaded_in_another_process(
    tmp_path: Path, mlflow_uri: str, ray_core: None
) -> None:
    """It embeds the real held-out images as the checkpoint of its trial does, to the bit."""
    from mlflow import MlflowClient

    config = {"encoder": {"name": "cnn", "width": 8}, "epochs": 1}
    arms = {
        loss: Arm("contrasweep.trainables.contrastive:train", config=config | {"loss": loss})
        for loss in ("supcon", "ocl")
    }
    grid = AblationGrid("handed-over", arms, "digits-lt", folds=2, metric="f1_macro")
    storage, uri = str(tmp_path / "runs"), mlflow_uri
    results = run(grid, storage=storage, tracking=uri)

    client = MlflowClient(uri)
    (experiment,) = [e for e in client.search_experiments() if e.name == "handed-over"]
    runs = {
        r.data.tags["trial_id"]: r for r in client.search_runs([experiment.experiment_id]) if "trial_id" in r.data.tags
    }
    modelled = {trial_id for trial_id, entry in runs.items() if entry.outputs and entry.outputs.model_outputs}
    frame = results.to_frame()
    best = frame.loc[frame.groupby("arm")["f1_macro"].idxmax()]
    assert modelled == set(best["trial_id"])
    (parent,) = [r for r in client.search_runs([experiment.experiment_id]) if "trial_id" not in r.data.tags]
    files = {f.path: f.file_size for f in client.list_artifacts(parent.info.run_id)}
    assert {"report.html", "table.tex", "table.csv", "comparisons.csv", "trials.csv"} <= set(files)
    means = frame.groupby("arm")["f1_macro"].mean()
    assert parent.data.metrics == {f"f1_macro/{arm}": pytest.approx(mean) for arm, mean in means.items()}
    assert all(entry.inputs.dataset_inputs[0].dataset.name == "digits-lt" for entry in runs.values())
    assert all(entry.data.metrics["system/training_seconds"] > 0 for entry in runs.values())
    again = Results.load("handed-over", storage)
    assert {i: url.split("/runs/")[1].split("?")[0] for i, url in again.run_urls.items()} == {
        i: r.info.run_id for i, r in runs.items()
    }

    trial = next(t for t in plan(grid, storage=storage).trials if t.id == best["trial_id"].iloc[0])
    trained = Contrastive(trial, Settings(**trial.config))
    Checkpoints(results.records.store, results.records.key(trial.id, "checkpoint")).fetch(tmp_path / "checkpoint")
    checkpoint.restore(tmp_path / "checkpoint", trained.parts)
    pixels = trained.test.pixels[:64]
    np.save(tmp_path / "images.npy", pixels.numpy())
    model = f"models:/{runs[trial.id].outputs.model_outputs[0].model_id}"
    subprocess.run(
        [sys.executable, "-c", LOAD, uri, model, str(tmp_path / "images.npy"), str(tmp_path / "found.npy")],
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    with torch.no_grad():
        trained.model.eval()
        expected = trained.model[0](trained.normalise(pixels.float() / 255))
    assert np.array_equal(np.load(tmp_path / "found.npy"), expected.numpy()) and expected.std() > 0
