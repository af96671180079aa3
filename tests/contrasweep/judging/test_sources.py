"""What other programs wrote is read as rows: their files in `written/`, and files that they write here."""

import io
import itertools
import json
import math
import os
import re
import struct
import time
import zipfile
from decimal import Decimal
from pathlib import Path

import numpy as np
import optuna
import pandas as pd
import pytest
from calm import calm_run
from command_line import contrasweep
from made_up import ENDS, made
from optuna.trial import TrialState
from refusals import refused
from tensorboardX import SummaryWriter

import contrasweep as cs
from contrasweep.judging.sources import KINDS, CurveRow, read_folder, read_table
from contrasweep.tracking.mlflow.server import VIEW, VIEW_TAG

WRITTEN = Path(__file__).parent / "written"
"""By transformers 5.24 (`save_metrics`, `save_state`) and by lightning 2.6 (`CSVLogger`), two arms of three seeds; by
inspect_ai 0.3.285, logs of its `mockllm` on eight items, two epochs each; by lm_eval 0.4.13, `--log_samples` of its
`dummy` model."""


def by_run(frame, metric):
    return {(row.arm, row.seed): row[metric] for _, row in frame.iterrows()}


def test_files_that_a_run_left_at_its_restarts_and_checkpoints_are_one_run(tmp_path):
    for arm in "ab":
        for begins, gain in (
            (0, 0.0),
            (2, 0.5),
            (5, 0.0),
        ):  # begun again at step 2, then ended at once
            with SummaryWriter(
                str(tmp_path / arm / "seed_1"), filename_suffix=str(begins)
            ) as writer:
                for step in range(begins, min(begins + 3, 5)):
                    writer.add_scalar("accuracy", gain + 0.01 * step, step)
    read, _ = read_folder(tmp_path, CurveRow.parse("step:2"))
    assert len(read) == 2
    assert by_run(read, "accuracy") == pytest.approx({("a", "1"): 0.52, ("b", "1"): 0.52})
    content = json.loads((WRITTEN / "states/base/seed0/trainer_state.json").read_text())
    for step, history in (
        (10, content["log_history"]),
        (9, content["log_history"][:1]),
    ):  # by name 10 comes before 9
        path = tmp_path / f"trainer/base/seed0/checkpoint-{step}/trainer_state.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(content | {"log_history": history}))
    read, _ = read_folder(tmp_path / "trainer")
    assert len(read) == 1
    whole = by_run(read_folder(WRITTEN / "states")[0], "eval_accuracy")
    assert by_run(read, "eval_accuracy") == {("base", "0"): whole["base", "0"]}


@pytest.mark.parametrize(
    ("arm_setting", "seed_setting"), [("arm", "seed"), ("config/method", "config/seed")]
)
def test_exports_of_neptune_are_read_with_their_settings(arm_setting, seed_setting, tmp_path):
    """Written by hand after the schema that neptune-exporter's README gives; its servers are no more. Settings called
    arm and seed, as of the runs that `--tracking wandb:FOLDER` writes, pair runs whatever their paths name."""
    for (arm, gain), seed in itertools.product({"simclr": 0.0, "supcon": 0.1}.items(), range(3)):
        rows = [
            {"attribute_path": arm_setting, "attribute_type": "string", "string_value": arm},
            {"attribute_path": seed_setting, "attribute_type": "int", "int_value": seed},
        ]
        series = {"attribute_path": "val/accuracy", "attribute_type": "float_series"}
        for step in range(12):
            score = 0.5 + gain + 0.01 * step + 0.001 * seed
            rows.append(series | {"step": Decimal(step), "float_value": score})
        frame = pd.DataFrame(rows).assign(project_id="team/thesis", run_id=f"THESIS-{arm}-{seed}")
        for part, piece in enumerate((frame[:8], frame[8:])):
            piece.to_parquet(tmp_path / f"THESIS-{arm}-{seed}_part_{part}.parquet")
    read, curves = read_folder(tmp_path)
    assert curves and len(read) == 6
    last = {
        (row[arm_setting], row[seed_setting]): row["val/accuracy"] for _, row in read.iterrows()
    }
    assert last["supcon", 2] == pytest.approx(0.712)
    named = {} if arm_setting == "arm" else {"arm": arm_setting, "pair": seed_setting}
    judged = cs.judge(tmp_path, metric="val/accuracy", at="step:3", **named)
    assert judged.design.startswith(f"2 arms, 3 seeds in common: paired by {seed_setting}")


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
                client.log_metric(
                    run, "accuracy", 0.5 + 0.1 * step + 0.01 * seed * (model == "wide"), step=step
                )
                client.log_metric(run, "loss", math.nan if step else 0.1, step=step)
            if (model, seed) != ("wide", 2):  # one that still runs
                client.set_terminated(run)
    name, frame, _ = read_table(f"mlflow:sqlite:///{tmp_path}/m.db:mine")
    read = {(row.model, row.seed): row.accuracy for row in frame.itertuples()}
    assert name == "mine" and len(read) == 5
    assert read["wide", "1"] == pytest.approx(0.61)
    assert {
        row.accuracy
        for row in read_table(f"mlflow:sqlite:///{tmp_path}/m.db:mine", CurveRow.parse("step:0"))[
            1
        ].itertuples()
    } == {0.5, 0.51}
    for at in ("last", "step:1"):  # each loss was a number before
        rows = read_table(f"mlflow:sqlite:///{tmp_path}/m.db:mine", CurveRow.parse(at))[1]
        assert len(rows) == 5 and "loss" not in rows
    done = contrasweep("judge", f"mlflow:sqlite:///{tmp_path}/none.db:mine", folder=tmp_path)
    assert done.returncode == 2 and "there is no such file" in done.stderr
    assert not (tmp_path / "none.db").exists()
    # A study of ours is known before its own run has ended.
    client.set_experiment_tag(experiment, VIEW_TAG + VIEW, "{}")
    with refused(cs.SpecError, match="is a study of contrasweep"):
        cs.judge(f"mlflow:sqlite:///{tmp_path}/m.db:mine")


@pytest.mark.slow
def test_runs_of_wandb_are_read_with_their_settings_where_validation_was_best(tmp_path):
    import wandb

    quiet = wandb.Settings(silent=True, x_disable_stats=True, disable_git=True)
    for model in ("base", "wide"):
        for seed in range(2):
            settings = {"model": model, "optimizer": {"lr": 0.1}, "accuracy": 9}
            for steps in (
                (range(2), range(2, 4)) if (model, seed) == ("base", 0) else (range(4),)
            ):  # it goes on
                begun = {"id": f"{model}{seed}", "dir": tmp_path, "mode": "offline"}
                time.sleep(1 if steps.start else 0)  # the name of a folder has seconds
                with wandb.init(**begun, config=settings, settings=quiet) as run:
                    run.config.seed = seed  # settings may come later
                    for step in steps:
                        run.log(
                            {"val/loss": abs(2 - step), "accuracy": 0.5 + 0.1 * step + 0.01 * seed},
                            step=step,
                        )
    wandb.teardown()  # its process writes the files, and may still be at it
    last, best = (
        read_folder(tmp_path, CurveRow.parse(text))[0]
        for text in ("last", "best-of-validation:val/loss")
    )
    assert {(row.model, row.seed): round(row.accuracy, 6) for row in last.itertuples()} == {
        (model, seed): 0.8 + 0.01 * seed for model in ("base", "wide") for seed in range(2)
    }
    assert sorted(best["accuracy"].round(6)) == [0.7, 0.7, 0.71, 0.71]
    assert set(best["optimizer.lr"]) == {0.1}
    judged = cs.judge(tmp_path, metric="accuracy", at="step:1")
    assert judged.design.startswith("2 arms, 2 seeds in common: paired by seed")
    assert judged.columns.endswith("; of each curve: step:1")


def test_a_log_of_inspect_as_text_is_read_as_scores_of_its_samples():
    frame = read_folder(WRITTEN / "inspect_json")[0]
    assert frame["match"].mean() == 0.5 and list(frame["sample_id"]) == ["s0", "s1"]


@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_trials_of_optuna_are_read_with_parameters_and_notes_and_nothing_is_written(tmp_path, kind):
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    file = tmp_path / "studies #1"
    address = f"sqlite:///{file}" if kind == "sqlite" else str(file)
    stored = address if kind == "sqlite" else JournalStorage(JournalFileBackend(str(file)))
    study = optuna.create_study(storage=stored, study_name="mine", direction="maximize")
    for number in range(6):
        trial = study.ask({"model": optuna.distributions.CategoricalDistribution(["base", "wide"])})
        trial.set_user_attr("seed", number)
        study.tell(
            trial,
            0.5 + 0.1 * number if number < 5 else None,
            state=None if number < 5 else TrialState.FAIL,
        )
    by_hand = {
        t.number: (t.params["model"], t.user_attrs["seed"], t.value) for t in study.trials[:5]
    }
    before = file.read_bytes()
    frame = read_table(f"optuna:{address}:mine")[1]
    assert {row.trial: (row.model, row.seed, row.value) for row in frame.itertuples()} == by_hand
    assert file.read_bytes() == before and list(tmp_path.iterdir()) == [file]
    for wrong in (f"optuna:{address}:none", f"optuna:{address}x:mine"):
        with refused(cs.SpecError):
            read_table(wrong)


@pytest.mark.parametrize("source", ["stored", "file"])
@pytest.mark.parametrize(
    "replicates",
    [{"seeds": range(8)}, {"folds": 3, "repeats": 2, "seeds": [0]}],
    ids=["seeds", "repeated folds"],
)
def test_a_study_is_judged_as_its_own_table_judges_it(replicates, source, tmp_path):
    arms = {
        name: cs.Arm("candidates:train", {"gain": gain, "who": name})
        for name, gain in (("a", 0), ("b", 0.03))
    }
    results = calm_run(cs.AblationGrid("small", arms, "digits-lt", **replicates), str(tmp_path))
    frame = results.to_frame()
    frame.attrs = {"design": 5, "notes": 5}  # which a file of somebody else's may have
    frame.to_parquet(tmp_path / "trials.parquet")
    sources = {"stored": f"contrasweep:{tmp_path}:small", "file": tmp_path / "trials.parquet"}
    judged = cs.judge(sources[source], metric="" if source == "stored" else "accuracy")
    (pair,), (stored,) = judged.pairs, results.table().pairs
    assert pair.comparison.p_value == stored.comparison.p_value > 0
    assert pair.comparison.low == stored.comparison.low


AT = {"cells": [{"gain": 0.0}, {"gain": 0.1}], "overall": [None]}
"""Question of a study -> the places of its comparisons."""


@pytest.mark.parametrize("question", ["cells", "overall"])
def test_a_study_with_axes_is_asked_its_own_question(question, tmp_path):
    arms = {name: cs.Arm("candidates:train", {"who": name}) for name in ("base", "b", "c")}
    grid = cs.AblationGrid(
        "asked",
        arms,
        "digits-lt",
        {"gain": [0.0, 0.1]},
        seeds=range(8),
        question=question,
        reference="b",
        alpha=0.01,
        smallest_difference=0.002,
    )
    results = calm_run(grid, str(tmp_path))
    own = [results.compare(arm, "b", at=at) for arm in ("base", "c") for at in AT[question]]
    for source in (f"contrasweep:{tmp_path}:asked", results.to_frame()):
        judged = cs.judge(source)
        assert sorted(pair.comparison.p_value for pair in judged.pairs) == sorted(
            comparison.p_value for comparison in own
        )
        families = [pair.comparison.family for pair in judged.pairs]
        assert {(family.alpha, family.margin) for family in families} == {(0.01, 0.002)}
        assert "block gain" in judged.columns
    # What is asked explicitly is not the study's own question.
    assert "2 tasks" in cs.judge(source, block="gain").design
    assert "in each gain" in cs.judge(source, over="each", block="gain").design


@pytest.mark.parametrize("source", ["stored", "frame", "file"])
def test_trials_that_failed_are_losses_whatever_they_reported_and_those_to_run_are_none(
    tmp_path, source
):
    made(tmp_path, "ended", seeds=range(16), ends=(*ENDS, None))
    results = cs.load("ended", storage=str(tmp_path))
    frame = results.to_frame().fillna({"accuracy": 9.0})
    frame.to_csv(tmp_path / "trials.csv", index=False)
    sources = {
        "stored": f"contrasweep:{tmp_path}:ended",
        "frame": frame,
        "file": tmp_path / "trials.csv",
    }
    judged = cs.judge(sources[source], metric="accuracy")
    for key, own in results.table().cells.items():
        cell, arm = judged.table.cells[key], frame[frame["arm"] == key[0][0]]
        lost = int((arm["cause"] == "method").sum())
        assert lost and (cell.n, cell.planned) == (own.n, own.n + lost)
        assert cell.mean == pytest.approx(own.mean)
    with refused(cs.SpecError, "a row for each run"):
        cs.judge(frame[frame["status"] == "pending"], metric="accuracy")


def test_arms_of_two_studies_keep_their_own_values_though_their_trials_are_called_alike(storage):
    """As before and after a change of code: the ids are equal, and the values are not."""
    frames = []
    for name, gain in (("before", 0.0), ("after", 0.1)):
        arm = cs.Arm("candidates:train", {"gain": 0, "who": "a"})
        grid = cs.AblationGrid(name, {"a": arm}, "digits-lt", seeds=list(range(8)))
        frame = calm_run(grid, storage).to_frame()
        frames.append(frame.assign(study=name, accuracy=frame["accuracy"] + gain))
    assert set(frames[0]["trial_id"]) == set(frames[1]["trial_id"])
    judged = cs.judge(pd.concat(frames), arm="study,arm", metric="accuracy", pair="seed")
    (pair,) = judged.pairs
    assert judged.design.startswith("2 arms, 8 seeds in common: paired by seed")
    assert (pair.a, pair.b, pair.comparison.decision) == ("after a", "before a", "better")
    assert pair.comparison.difference == pytest.approx(0.1)
    with refused(cs.SpecError, match=r"a study is loaded by its name.*cs\.judge"):
        cs.load(["before", "after"], storage=storage)
    alone = pd.concat([frames[0][:4], frames[1][4:]])
    assert "unpaired" in cs.judge(alone, arm="study,arm", metric="accuracy").design


def test_a_stored_study_over_datasets_is_a_board_of_them(tmp_path):
    arms = {
        name: cs.Arm("candidates:train", {"gain": gain, "who": name})
        for name, gain in (("a", 0), ("b", 0.5))
    }
    data = {"data": ["digits", "digits-lt", "digits-lt?imbalance_factor=20"]}
    grid = cs.AblationGrid("over", arms, "digits", data, seeds=[0, 1], mode="min")
    calm_run(grid, str(tmp_path))
    judged = cs.judge(f"contrasweep:{tmp_path}:over", metric="accuracy", block="data")
    assert judged.design.startswith("2 arms, 3 tasks: paired by data")
    assert "smaller is better" in judged.design
    with refused(cs.SpecError, "--mode: which values are better is not clear"):
        cs.judge(f"contrasweep:{tmp_path}:over", metric="parameters", block="data")


@pytest.mark.parametrize(
    ("at", "values"),
    [
        ("last", (4.0, 0.4, 0.9)),
        ("step:2", (2.0, 0.2, 0.9)),
        ("best-of-validation:loss", (1.0, 0.1, 0.9)),
        ("best-of-validation:loss:max", (3.0, 0.3, 0.9)),
    ],
)
def test_a_curve_is_read_where_it_is_said_and_a_single_test_counts_anywhere(at, values):
    rows = [{"step": 1, "loss": 0.2}, {"step": 1, "score": 0.1}, {"step": 2, "score": 0.2}]
    rows += [
        {"step": 3, "loss": 0.7, "score": 0.3},
        {"step": 4, "loss": 0.5, "score": 0.4},
        {"test": 0.9},
    ]
    found = CurveRow.parse(at).of_curve(pd.DataFrame(rows)).iloc[0]
    if at == "best-of-validation:loss":
        assert np.isnan(found["score"])  # the first score came after that row
    else:
        assert (found["step"], found["score"], found["test"]) == values


@pytest.mark.parametrize("at", ["last", "step:3"])
@pytest.mark.parametrize("kind", ["metrics.csv", "trainer_state.json", "neptune", "tensorboard"])
def test_a_curve_that_ended_in_nan_has_no_value_and_an_empty_cell_hides_none(tmp_path, kind, at):
    for arm, curve in {"whole": [0.1, 0.2, 0.3], "diverged": [0.1, 0.2, math.nan]}.items():
        (folder := tmp_path / arm).mkdir()
        rows = [{"step": step, "score": value} for step, value in enumerate(curve, 1)]
        rows.append({"step": 3, "loss": 0.5})
        if kind == "metrics.csv":
            pd.DataFrame(rows[:3]).to_csv(folder / kind, index=False, na_rep="nan")
            with (folder / kind).open("a") as file:
                file.write("3,\n")
        elif kind == "trainer_state.json":
            (folder / kind).write_text(json.dumps({"log_history": rows}))
        elif kind == "neptune":
            series = [
                {"attribute_path": name, "step": row["step"], "float_value": row[name]}
                for row in rows
                for name in row.keys() - {"step"}
            ]
            frame = pd.DataFrame(series).assign(attribute_type="float_series", run_id=arm)
            frame.to_parquet(folder / "a_part_0.parquet")
        else:
            with SummaryWriter(str(folder)) as writer:
                for row in rows:
                    for name in row.keys() - {"step"}:
                        writer.add_scalar(name, row[name], row["step"])
    named = read_folder(tmp_path, CurveRow.parse(at))[0].set_index("run")["score"]
    assert named.dtype == float and named["whole"] == pytest.approx(0.3)
    assert math.isnan(named["diverged"])


def test_of_a_step_that_was_logged_twice_the_last_counts():
    curve = pd.DataFrame({"epoch": [0, 0, 1], "iteration": [1, 1, 2], "a": [1, 2, 3]})
    assert CurveRow.parse("step:1").of_curve(curve)["a"].tolist() == [2]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[1]", b"\xff\x00\x01", b'{"scores": 1}', b'{"eval": 3}', b"[" * 99999]
)
def test_files_that_are_not_what_their_name_says_are_one_line(tmp_path, kind, content):
    path = tmp_path / "arm" / re.sub(r"\[.*\]|\*", "x", kind)
    path.parent.mkdir()
    path.write_bytes(content)
    with refused(cs.SpecError):
        cs.judge(tmp_path)


def test_a_file_that_unpacks_to_more_than_it_says_or_never_ends_is_one_line(tmp_path):
    (arm := tmp_path / "arm").mkdir()
    with zipfile.ZipFile(packed := io.BytesIO(), "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("header.json", "{}")
    number = struct.pack("<7xIHB", 0, 999, 1) + b"\xff" * 999
    for name, content, says in (
        ("x.eval", packed.getvalue(), "packed otherwise than by deflate"),
        ("x.wandb", number, "more than 64 bits"),
    ):
        (arm / name).write_bytes(content)
        with refused(cs.SpecError, match=says):
            cs.judge(tmp_path)
        (arm / name).unlink()
    os.mkfifo(arm / "all_results.json")
    with refused(cs.SpecError, "no file of a known kind"):
        cs.judge(tmp_path)
    (arm / "study.json").write_text("{}")
    with refused(cs.SpecError, match="no result of inspect_ai or MTEB; contrasweep:STORAGE:STUDY"):
        cs.judge(tmp_path)
