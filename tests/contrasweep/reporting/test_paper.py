"""Tables as papers print them: metrics side by side, display names, digits, percent; what they say is the study's."""

import re

import numpy as np
import pytest
from latex import assert_compiles
from made_up import trained
from refusals import refused

import contrasweep as cs
from contrasweep.reporting import write_report
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
        lambda trial: {"knn1": score(trial, 1), "knn5": score(trial, 5), "at 1, 5": 0.5},
    )
    return cs.load("paper", storage=folder)


def written(results, tmp_path, format, metric=None, rows=None, **style):
    file = tmp_path / "table"
    write_report(results, format, rows=rows, metric=metric, output=file, style=TableStyle(**style))
    return file.read_text()


@pytest.mark.parametrize("format", ["text", "markdown", "latex"])
def test_two_metrics_stand_side_by_side_under_their_names(results, tmp_path, format):
    text = written(results, tmp_path, format, "knn1,knn5")
    for metric in ("knn1", "knn5"):
        for cell in results.table(metric=metric).cells.values():
            assert f"{cell.mean:.4f}"[:5] in text
    assert "1NN" in text and "5NN" in text and "learning rate" in text
    assert "1NN 1NN" not in written(results, tmp_path, format, "knn1,knn5", ["arm", "lr"])
    assert "at 1, 5 (" in written(results, tmp_path, format, "at 1, 5")
    assert "knn1 " not in text.split("\n\n")[0] or format == "latex"


def test_the_legend_names_the_mark_that_is_used(results, tmp_path):
    assert "- **bold** not shown to be worse than the best" in written(
        results, tmp_path, "markdown", "knn1,knn5"
    )
    assert "Bold: not shown to be worse than the best" in written(
        results, tmp_path, "latex", "knn1,knn5"
    )


def test_percent_and_digits(results, tmp_path):
    mean = next(iter(results.table().cells.values())).mean
    assert f"{100 * mean:.1f} [" in written(results, tmp_path, "text", percent=True, digits=1)
    assert f"{mean:.5f} [" in written(results, tmp_path, "text", digits=5)


def test_latex_has_a_number_and_an_interval_column_each(results, tmp_path):
    text = written(
        results, tmp_path, "latex", "knn1,knn5", caption="50 % & more", label="tab:main", digits=3
    )
    layout = re.search(r"\\begin\{tabular\}\{(.*)\}", text)[1]
    assert layout.count("S[table-format=1.3") == layout.count("]@{\\,}l") == 4
    rows = [line for line in text.splitlines() if re.match(r"(0\.1|0\.5) &", line)]
    assert len(rows) == 2 and all(row.count("&") == 8 for row in rows)
    assert r"\caption{50 \% \& more}" in text and r"\label{tab:main}" in text
    below = text.partition(r"\footnotesize")[2].splitlines()
    assert below[1].startswith("Mean [95")
    assert r"Bold: not shown to be worse than the best arm\par" in below
    assert "is better than" not in text  # with a caption of one's own, a table for a paper
    assert "is better than" in written(results, tmp_path, "latex", "knn1,knn5")
    assert r"OCL \& co." in text
    assert r"\bfseries" in text  # the better arm


def test_only_the_studys_question_has_verdict_words(results, tmp_path):
    text = written(results, tmp_path, "text", "knn1,knn5")
    assert "is better" in text.split("Exploratory")[0]
    assert "is better" not in text[text.index("Exploratory") :]


def test_bad_input_is_one_line(results, tmp_path):
    with refused(cs.SpecError, "--digits: digits are 0 to 8, got 99"):
        written(results, tmp_path, "text", digits=99)
    with refused(cs.SpecError, "there is no such metric"):
        written(results, tmp_path, "text", "knn1,knn7")
    with refused(cs.SpecError, match=r"--format: .* are for tables of papers"):
        written(results, tmp_path, "csv", "knn1,knn5")


@pytest.mark.parametrize(
    ("cell", "divisor"), [("mean-std", 1), ("mean-se", 8**0.5), ("mean", None)]
)
@pytest.mark.parametrize("format", ["text", "markdown", "latex", "html"])
def test_another_number_than_the_interval_may_stand_behind_a_mean(
    results, tmp_path, format, cell, divisor
):
    style = TableStyle(cell=cell, digits=5)
    text = (
        results.table(style=style).to_html()
        if format == "html"
        else written(results, tmp_path, format, cell=cell, digits=5)
    )
    plain = text.replace(r"$\pm$", "±").replace(r"{\scriptsize ", "").replace(" & ", " ")
    shown = next(iter(results.table().cells.values()))
    deviation = np.std([replicate.value for replicate in shown.replicates], ddof=1)
    table = plain if format != "html" else plain.partition("<table")[2].partition("</table>")[0]
    assert f"{shown.mean:.5f}" in table and f"{shown.low:.5f}" not in table
    assert (divisor is None) == ("±" not in table)
    if divisor:
        assert f"± {deviation / divisor:.5f}" in table


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


def test_a_cell_that_there_is_not_is_refused_by_its_name():
    with refused(cs.ContrasweepError, "mean-sd"):
        TableStyle(cell="mean-sd")


@pytest.mark.slow
def test_a_wide_table_of_two_metrics_compiles(results, tmp_path):
    text = written(
        results,
        tmp_path,
        "latex",
        "knn1,knn5",
        cell="mean-std",
        wide=True,
        label="tab:main",
        caption="A.",
    )
    assert r"\begin{table*}" in text and r"\end{table*}" in text
    assert_compiles(text, tmp_path, "[twocolumn]")
