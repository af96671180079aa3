"""Tables as papers print them: metrics side by side, display names, digits, percent; what they say is the study's."""

import numpy as np
import pytest
from latex import assert_compiles
from made_up import trained

import contrasweep as cs
from contrasweep.reporting import write_report
from contrasweep.results.rendering import DisplayNames
from contrasweep.results.table import Cell, Replicate, TableStyle

NAMES = {"ocl": "OCL & co.", "knn1": "1NN", "knn5": "5NN", "lr": "learning rate"}


def score(trial, k):
    noise = np.random.default_rng(trial.seed + 10 * k).normal(0, 0.004)
    return 0.9 + 0.05 * (trial.arm == "ocl") - 0.01 * k + noise


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("paper"))
    arms = {arm: cs.Arm("toy:train") for arm in ("scl", "ocl")}
    fields = {
        "axes": {"lr": [0.1, 0.5]},
        "seeds": list(range(8)),
        "metric": "knn1",
        "labels": NAMES,
    }
    trained(
        cs.plan(cs.AblationGrid("paper", arms, "digits-lt", **fields), storage=folder),
        folder,
        lambda trial: {"knn1": score(trial, 1), "knn5": score(trial, 5)},
    )
    return cs.load("paper", storage=folder)


def test_names_of_a_style_come_before_those_of_the_study(results):
    text = results.table(style=TableStyle(names=DisplayNames({"ocl": "mine"}))).to_text()
    assert "mine" in text and "OCL & co." not in text and "1NN" in text


def test_a_standard_error_is_over_the_trials_that_have_finished():
    values = [0.5, 0.6, 0.7, 0.8, None, None]
    words = ["done"] * 4 + ["failed", "pending"]
    replicates = tuple(
        Replicate(str(i), None, i, word, value)
        for i, (value, word) in enumerate(zip(values, words, strict=True))
    )
    cell = Cell(0.65, 0.4, 0.9, 4, {"done": 4, "failed": 1, "pending": 1}, replicates)
    mean, behind = cell.parts(4, TableStyle(cell="mean-se"))
    assert (mean, behind) == ("0.6500", f"± {np.std(values[:4], ddof=1) / 2:.4f} 4/6")


@pytest.mark.slow
def test_a_wide_table_of_two_metrics_compiles(results, tmp_path):
    style = TableStyle(cell="mean-std", wide=True, label="tab:main", caption="A.")
    file = tmp_path / "table"
    write_report(results, "latex", metric="knn1,knn5", output=file, style=style)
    text = file.read_text()
    assert r"\begin{table*}" in text and r"\end{table*}" in text
    assert_compiles(text, tmp_path, "[twocolumn]")
