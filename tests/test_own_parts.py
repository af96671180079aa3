"""The study of examples/own_parts, of own parts alone, in a folder outside of the repository.

It runs through Ray by the command line."""

import json
import shutil
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from command_line import contrasweep, refusal, shown_json
from drivers import ray_folder
from places import ROOT, environment_without
from sklearn.datasets import load_digits

STAGE = ["data", "stage", "mythesis.data:read", "--source", "digits.npz"]


@pytest.fixture(scope="module")
def thesis(tmp_path_factory):
    """The folder of a reader who has copied the example."""
    folder = tmp_path_factory.mktemp("thesis")
    shutil.copytree(ROOT / "examples/own_parts", folder, dirs_exist_ok=True)
    digits = load_digits()
    np.savez(folder / "digits.npz", x=(digits.images * 15).astype(np.uint8), y=digits.target)
    return folder


def test_the_pages_study_is_planned_and_its_parts_are_part_of_the_trials(thesis):
    stage = [*STAGE, "--set", "every=9", "--to", "small"]
    assert contrasweep(*stage, folder=thesis).returncode == 0
    plan = ["plan", "study.yaml", "--set", "data=./small"]
    assert shown_json(thesis, *plan)["trials"] == 7
    refused = refusal(thesis, *plan, "--set", "pruner_options.leest=1")
    assert refused.startswith(
        "contrasweep: pruner_options: the pruner does not take these options, got {"
    )


@pytest.mark.long
def test_a_study_of_own_parts_alone_runs_through_ray(thesis, tmp_path):
    place = str(tmp_path / "runs")
    with ray_folder() as ray:
        environment = environment_without("CONTRASWEEP_") | {
            "CONTRASWEEP_CACHE": str(tmp_path / "cache"),
            "RAY_TMPDIR": str(ray),
            "PYTHONPATH": f"{ROOT}/platform:{ROOT}",
        }
        for words in (
            [*STAGE, "--set", "every=3", "--to", f"{place}/datasets/my-digits"],
            ["run", "study.yaml", "--storage", place],
        ):
            command = [sys.executable, "-m", "contrasweep", *words]
            done = subprocess.run(
                command, cwd=thesis, env=environment, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stdout + done.stderr
    assert "all-mine on my-digits: accuracy" in done.stdout
    lines = [json.loads(line) for line in (thesis / "all-mine.jsonl").read_text().splitlines()]
    trials = {path.parent for path in thesis.glob("boards/all-mine-*/*/events*")}
    assert len(trials) == 7, "TensorBoard's files, one folder a trial"
    assert not (thesis / "mlflow.db").exists()
    started = [line["config"] for line in lines if line["event"] == "start"]
    ended = Counter(line["status"] for line in lines if line["event"] == "finish")
    assert ended["done"] >= 5 and sum(ended.values()) == 7, (
        "the pruner may have ended trials of the search"
    )
    assert len({config["loss"]["temperature"] for config in started}) == 3, "the searcher's halves"
    for config in started:
        assert config["encoder"] == {"name": "mythesis.nets:Body", "width": 24}
        assert config["projection"] == {"name": "mythesis.nets:head", "dim": 12}
        assert config["augmentation"] == {"name": "mythesis.nets:noisy", "amount": 0.05}
        assert config["optimizer"] == {"name": "mythesis.nets:Signs", "decay": 0.001}
