"""Results from records: frames, pairing, comparisons, tables; the study's code and data are not needed."""

import dataclasses
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from made_up import made, nowhere, train, trained
from refusals import refused
from tracked import tracked_of

from contrasweep import AblationGrid, Arm, SpecError, load
from contrasweep.code import code_of
from contrasweep.errors import DataError
from contrasweep.planning.grid import make_plan
from contrasweep.reporting import (
    render,
    trials,
    write_files,
    write_report,
)
from contrasweep.reporting.trials import figures
from contrasweep.results.notices import retrained
from contrasweep.running import upkeep
from contrasweep.storage.archive import archive_trials
from contrasweep.storage.code_files import write_code
from contrasweep.storage.record import CodeRef, StartRef
from contrasweep.tracking.mlflow.description import describe_run, final_tags

DATA = nowhere()


def value(trial):
    """A made-up score: arm b is better by .02, batch 16 by .01, folds and seeds differ, a little noise."""
    noise = np.random.default_rng(int(trial.id[:8], 16)).normal(0, 0.002)
    return (
        0.8
        + 0.02 * (trial.arm == "b")
        + 0.01 * (trial.config["batch_size"] == 16)
        + 0.03 * trial.fold
        + 0.005 * trial.seed
        + noise
    )


def made_up(folder):
    return load("made-up", storage=str(folder))


@pytest.fixture
def study(tmp_path):
    """A finished study of 2 arms x 2 batch sizes x 5 folds x 2 seeds with made-up scores, and its plan."""
    grid = AblationGrid(
        "made-up",
        {"a": Arm(train), "b": Arm(train)},
        "d",
        axes={"batch_size": [8, 16]},
        folds=5,
        seeds=[0, 1],
    )
    values = lambda trial: {"accuracy": value(trial), "seconds": 3.0}  # noqa: E731
    return trained(make_plan(grid, lambda name: DATA), tmp_path, values, seconds=1.5)


@pytest.fixture
def versions(study, tmp_path, monkeypatch):
    """The digests of two versions of a method, whose sources the storage keeps."""
    (method := tmp_path / "code/own_method.py").parent.mkdir()
    monkeypatch.syspath_prepend(str(method.parent))
    digests = []
    for width in (16, 32):
        method.write_text(f"WIDTH = {width}\n")
        code = code_of("own_method:train")
        write_code(study[1], code)
        digests.append(code.version.digest)
    return digests


def test_the_frame_has_the_promised_columns(study, tmp_path):
    frame = made_up(tmp_path).to_frame()
    promised = (
        "trial_id arm batch_size fold seed status cause accuracy "
        "metric.seconds seconds gpu_memory_gib"
    )
    assert " ".join(frame.columns) == promised
    assert len(frame) == 40
    assert set(frame["batch_size"]) == {8, 16}
    assert (frame["seconds"] == 1.5).all() and (frame["metric.seconds"] == 3.0).all()


@pytest.mark.parametrize(
    ("metric", "mode"),
    [
        ("accuracy", "max"),
        ("knn1_on_digits", "max"),
        ("metric.seconds", "min"),
        ("noise/error_rate", "min"),
        ("noise/accuracy", "max"),
        ("lossless", "max"),
        ("noise_similarity", "min"),
        ("WER", "min"),
        ("val/MSE", "min"),
        ("Loss", "min"),
        ("BLEU", "max"),
    ],
)
def test_of_another_metric_the_name_says_which_values_are_better(metric, mode, study, tmp_path):
    assert made_up(tmp_path).mode(metric) == mode


def test_a_table_says_that_trials_were_removed_until_they_come_back(study, tmp_path):
    plan, records = study
    upkeep.remove(records, [trial.id for trial in plan.trials if trial.arm == "b"])
    said = "20 of 40 trials were removed; `contrasweep restore` puts them back"
    assert made_up(tmp_path).notices == [said]
    assert said in render(made_up(tmp_path), "text").decode()
    upkeep.restore(records)
    assert made_up(tmp_path).notices == []


def test_arms_are_compared_alike_by_name_and_in_the_table(study, tmp_path):
    results = made_up(tmp_path)
    versus = results.versus("a", "b")
    assert versus.overall.comparison.to_dict() == results.compare("a", "b").to_dict()
    for pair, shown in zip(versus.cells, results.table().pairs, strict=True):
        assert pair.comparison.to_dict() == shown.comparison.reversed().to_dict()
    equal = pd.DataFrame({"batch_size": [1, True, 1.0]}, dtype=object)
    assert list(results.at(equal, {"batch_size": 1}).index) == [0, 2]


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_comparisons_lie_beside_the_table(study, tmp_path, format):
    results = made_up(tmp_path)
    write_report(results, format, output=tmp_path / f"table.{format}")
    path = tmp_path / f"table.comparisons.{format}"
    rows = pd.read_csv(path) if format == "csv" else pd.read_parquet(path)
    assert list(rows["difference"]) == pytest.approx(
        [pair.comparison.difference for pair in results.table().pairs]
    )


def test_a_broken_record_names_itself(study, tmp_path):
    plan, records = study
    records.store.write(records.key(plan.trials[0].id, "record.json"), b"{")
    results = made_up(tmp_path)
    [error] = results.broken
    assert f"{plan.trials[0].id}/record.json is broken (" in str(error)
    assert str(error).endswith(
        f"`contrasweep verify made-up --storage {tmp_path} --repair` puts it aside, and its trial runs again"
    )
    assert results.statuses["broken"] == 1 and not results.complete
    assert "broken" in results.table().to_text()


@pytest.mark.slow
def test_the_report_shows_trials_figures(study, tmp_path, monkeypatch):
    plan, records = study
    image = bytes.fromhex("89504e470d0a1a0a") + b"figure"
    for trial in plan.trials:
        records.store.write(records.key(trial.id, "artifacts/histogram.png"), image)
        records.write(
            dataclasses.replace(
                records.read_one(trial.id), artifacts=("histogram.png", "state.parquet")
            )
        )
    results = made_up(tmp_path)
    shown = figures(results)
    assert [caption for _, caption, _ in shown] == [
        f"histogram: {arm} batch_size={b}, fold 0, seed 0" for arm in "ab" for b in (8, 16)
    ]
    assert render(results, "html").decode().count("data:image/png;base64,") == 4
    for limit, value in (("MAX_FIGURES", 2), ("MAX_BYTES", 2 * len(image) + 1)):
        with monkeypatch.context() as limited:
            limited.setattr(trials, limit, value)
            of_two = figures(results)
        assert of_two == shown[:2]


def test_a_trial_that_went_on_under_other_code_is_of_both_codes(study, tmp_path, versions):
    plan, records = study
    *_, last = plan.trials
    for trial in plan.trials:
        code = CodeRef(versions[1], earlier=(versions[0],) if trial is last else ())
        records.write(replace(records.read_one(trial.id), code=code))
    table = made_up(tmp_path).table()
    assert list(table.to_frame()["other_code"]) == [0, 0, 0, 1]
    note = "† 1 of 40 trials ran other code than the newest: own_method.py changed (1 line)"
    for shown in (table.to_text(300), table.to_markdown(), table.to_html()):
        assert note in " ".join(shown.split()) and shown.count("†") == 2, shown
    assert r"$\dagger$" in table.to_latex()
    (tmp_path / "files").mkdir()
    files, _ = write_files(made_up(tmp_path), tmp_path / "files")
    assert "-WIDTH = 16\n+WIDTH = 32\n" in files["code.diff"].read_text()


def test_the_html_report_and_mlflows_tags_have_the_code_and_what_was_archived(study, tmp_path):
    plan, records = study
    code = CodeRef("0123456789abcdef", commit="f" * 40, dirty=True)
    for trial in plan.trials:
        records.write(dataclasses.replace(records.read_one(trial.id), code=code))
    tags = final_tags(records.read_one(plan.trials[0].id))
    assert (tags["code"], tags["mlflow.source.git.commit"], tags["code.dirty"]) == (
        code.digest,
        code.commit,
        "true",
    )
    archive_trials(records, [plan.trials[0].id], "removed")
    page = render(made_up(tmp_path), "html").decode()
    again = " ".join(page[page.index("To run it again</h2>") :].split())
    assert code.digest in again and f"{code.commit} with changes" in again
    assert "1 trial was archived" in again


def test_values_that_are_nearly_alike_are_rows_of_their_own_everywhere(tmp_path):
    axes = {"lr": [0.12345678, 0.12345679], "u": ["x y", "x"], "v": ["z", "y z"]}
    grid = AblationGrid("near", {"a": Arm(train)}, "d", axes=axes, folds=5)
    plan = make_plan(grid, lambda name: DATA)
    scores = {tuple(cell.axes.values()): i / 10 for i, cell in enumerate(plan.cells)}
    score = lambda t: scores[tuple(t.config[axis] for axis in axes)] + 0.001 * t.fold  # noqa: E731
    trained(plan, tmp_path, score)
    results = load("near", storage=str(tmp_path))
    rows = {row: cell.mean for (row, _), cell in results.table(["lr", "u", "v"], []).cells.items()}
    assert {row: round(mean - 0.002, 6) for row, mean in rows.items()} == {
        (str(lr), u, v): score for (lr, u, v), score in scores.items()
    }
    pairs = results.table("lr", ["u", "v"]).pairs
    assert (
        len({(pair.context, frozenset((pair.a, pair.b))) for pair in pairs}) == len(pairs) == 2 * 6
    )
    assert len({pair.a for pair in pairs} | {pair.b for pair in pairs}) == 4
    assert len(results.at(results.frame, {"lr": 0.12345679})) == 20
    page = render(results, "html").decode()
    assert "0.12345678" in page and "0.12345679" in page
    study = tracked_of("near", plan.trials, axes=("lr",))
    assert len({describe_run(study, trial).params["lr"] for trial in plan.trials}) == 2


def test_a_broken_file_of_what_trials_used_or_scored_is_left_out_and_named(tmp_path):
    planned = made(tmp_path, "m", items=True)
    results = load("m", storage=str(tmp_path))
    first = planned.trials[0].id
    assert list(results.system()["gpu_memory_gib"]) == [
        results.all_records[i].gpu_memory_gib for i in results.system()["trial_id"]
    ]
    for name in ("system", "items"):
        results.records.store.write(results.records.key(first, f"{name}.parquet"), b"x")
    results = load("m", storage=str(tmp_path))
    assert len(results.system()) == len(planned.trials) - 1
    assert results.items(first) == {} and len(results.items(planned.trials[1].id)) == 1
    system, items = results.broken_notes()
    assert "system.parquet is broken" in system and "items.parquet is broken" in items


@pytest.mark.parametrize(
    "axis", ["lost", "missing", "collapsed", "weight", "n", "mean", "best", "a", "self"]
)
def test_an_axis_with_the_name_of_a_column_keeps_its_cells_and_its_labels(tmp_path, axis):
    grid = AblationGrid("s", {arm: Arm(train) for arm in "ab"}, "d", axes={axis: [1, 2]}, folds=5)
    score = lambda t: 0.1 * t.config[axis] + int(t.id[:4], 16) / 1e7  # noqa: E731
    trained(make_plan(grid, lambda name: DATA), tmp_path, score)
    results = load("s", storage=str(tmp_path))
    assert [cell.n for cell in results.table().cells.values()] == [5, 5, 5, 5]
    for shown, labels in (
        (results.table().to_frame(), ["1", "1", "2", "2"]),
        (results.table().comparisons(), ["1", "2"]),
        (results.versus("a", "b").to_frame()[1:], ["1", "2"]),
        (results.best(), [2, 2]),
    ):
        assert list(shown[f"axis.{axis}" if f"axis.{axis}" in shown else axis]) == labels


def test_an_arm_without_a_finished_trial_has_no_network(tmp_path):
    made(tmp_path, "m", ends=["pending"])
    with refused(SpecError, "arm: no trial of this arm has finished, got 'a'"):
        load("m", storage=str(tmp_path)).checkpoint("a", tmp_path / "to")


def test_a_network_is_loaded_with_the_data_that_it_was_trained_on_alone(tmp_path):
    grid = AblationGrid("m", {"a": Arm("contrastive")}, "digits-lt", folds=5)
    trained(
        make_plan(grid, lambda name: nowhere(name=name, classes=("u", "v"))),
        tmp_path,
        lambda trial: 0.5,
    )
    with refused(DataError, "'digits-lt' has other content here than when m was trained"):
        load("m", storage=str(tmp_path)).load_model("a")


def test_networks_that_were_trained_again_are_told_whatever_other_studies_are_lost(tmp_path):
    """By when they ended."""
    trial = made(tmp_path, "source").trials[0]
    record = load("source", storage=str(tmp_path)).all_records[trial.id]
    for name in (lost := [f"lost-{i}" for i in range(5)]):
        (tmp_path / name).write_text("")
    starts = {name: StartRef(name, trial.id, ended=1.0) for name in [*lost, "source"]}
    starts["same"] = StartRef("source", trial.id, record.ended)
    records = {name: replace(record, start=start) for name, start in starts.items()}
    assert retrained(records, str(tmp_path)) == {"source": "source"}
