"""What other programs wrote is read as rows: their files in `written/`, and files that they write here."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command_line import contrasweep
from tensorboardX import SummaryWriter

import contrasweep as cs
from contrasweep.judging.reading import read_table
from contrasweep.judging.sources import KINDS, read_folder

WRITTEN = Path(__file__).parent / "written"
"""By transformers 5.24 (`save_metrics`, `save_state`) and by lightning 2.6 (`CSVLogger`), two arms of three seeds."""


def by_run(frame, metric):
    return {(row.arm, row.seed): row[metric] for _, row in frame.iterrows()}


def test_results_and_states_of_a_trainer_are_read_as_its_last_evaluation():
    for folder in ("trainer", "states"):
        read = by_run(read_folder(WRITTEN / folder), "eval_accuracy")
        by_hand = {
            (path.parts[-3], path.parts[-2][-1]): json.loads(path.read_text())["eval_accuracy"]
            for path in (WRITTEN / "trainer").rglob("all_results.json")
        }
        assert read == by_hand and len(read) == 6


def test_metrics_of_lightning_are_read_as_their_last_values():
    read = by_run(read_folder(WRITTEN / "lightning"), "val_accuracy")
    for path in (WRITTEN / "lightning").rglob("metrics.csv"):
        lines = path.read_text().splitlines()
        values = [line.split(",")[lines[0].split(",").index("val_accuracy")] for line in lines[1:]]
        assert read[path.parts[-4], path.parts[-3][-1]] == float([v for v in values if v][-1])
    judged = cs.judge(WRITTEN / "lightning", metric="val_accuracy")
    assert judged.design.startswith("2 arms, 3 seeds in common: paired by seed; family of 1 comparison against base")


def test_scalars_of_tensorboard_are_read_as_their_last_values(tmp_path):
    for arm, gain in (("a", 0.0), ("b", 0.1)):
        for seed in range(3):
            with SummaryWriter(str(tmp_path / arm / f"seed_{seed}")) as writer:
                for step in range(4):
                    writer.add_scalar("val/accuracy", 0.5 + gain + 0.01 * step + 0.001 * seed, step)
    read = by_run(read_folder(tmp_path), "val/accuracy")
    assert read["b", "2"] == pytest.approx(0.632)
    assert len(read) == 6


@pytest.mark.slow
def test_runs_of_mlflow_are_read_with_their_parameters(tmp_path):
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path}/m.db")
    experiment = client.create_experiment("mine", artifact_location=str(tmp_path))
    for model in ("base", "wide"):
        for seed in range(3):
            run = client.create_run(experiment, run_name=f"{model}-{seed}").info.run_id
            client.log_param(run, "model", model)
            client.log_param(run, "seed", seed)
            for step in range(2):
                client.log_metric(run, "accuracy", 0.5 + 0.1 * step + 0.01 * seed * (model == "wide"), step=step)
            if (model, seed) != ("wide", 2):  # one that still runs
                client.set_terminated(run)
    name, frame = read_table(f"mlflow:sqlite:///{tmp_path}/m.db:mine")
    read = {(row.model, row.seed): row.accuracy for row in frame.itertuples()}
    assert name == "mine" and len(read) == 5
    assert read["wide", "1"] == pytest.approx(0.61)
    done = contrasweep("judge", f"mlflow:sqlite:///{tmp_path}/none.db:mine", folder=tmp_path)
    assert done.returncode == 2 and "there is no such file" in done.stderr and not (tmp_path / "none.db").exists()


def test_samples_of_an_evaluation_harness_are_items_of_tasks(tmp_path):
    for model, right in (("a", [1, 1, 0, 1]), ("b", [1, 0, 0, 1])):
        (tmp_path / model).mkdir()
        rows = [
            {"doc_id": i, "doc": {"query": "?"}, "target": "x", "resps": [["x"]], "metrics": ["acc"], "acc": float(hit)}
            for i, hit in enumerate(right)
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / model / "samples_arc_easy_2026-09-01T10-00-00.123.jsonl").write_text(text)
    frame = read_folder(tmp_path)
    assert set(frame["task"]) == {"arc_easy"}
    judged = cs.judge(tmp_path)
    assert "4 items: paired by item" in judged.design
    assert judged.pairs[0].comparison.difference == pytest.approx(0.25)


def test_result_folders_of_mteb_are_a_board_of_tasks(tmp_path):
    rng = np.random.default_rng(0)
    scores = pd.DataFrame(rng.uniform(0.3, 0.9, (3, 5)), index=list("abc"), columns=[f"Task{i}" for i in range(5)])
    for model, row in scores.iterrows():
        folder = tmp_path / str(model) / "13f00a0e"
        folder.mkdir(parents=True)
        for task, score in row.items():
            parts = [{"hf_subset": "en", "main_score": score - 0.1}, {"hf_subset": "de", "main_score": score + 0.1}]
            (folder / f"{task}.json").write_text(json.dumps({"task_name": task, "scores": {"test": parts}}))
    frame = read_folder(tmp_path)
    read = frame.pivot(index="arm", columns="task", values="main_score")
    assert np.allclose(read.to_numpy(), scores.to_numpy())
    assert "3 arms, 5 tasks: paired by task" in cs.judge(tmp_path).design


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff\x00\x01", b'{"scores": 1}', b'{"log_history": 3}'])
def test_files_that_are_not_what_their_name_says_are_one_line(tmp_path, kind, content):
    path = tmp_path / "arm" / re.sub(r"\[.*\]|\*", "x", kind)
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(cs.SpecError) as error:
        cs.judge(tmp_path)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 2000


def test_a_folder_of_nothing_known_is_refused(tmp_path):
    with pytest.raises(cs.SpecError, match="no file of a known kind"):
        cs.judge(tmp_path)
